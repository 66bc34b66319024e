// What captured work keeps alive.
#include "core/dispatch/device/capture.hpp"

#include <algorithm>

#include "core/dispatch/device/device_state.hpp"
#include "core/dispatch/device/error_record.hpp"

namespace rlk::core {

void GraphResources::release(DeviceState& device) {
  if (workspace != nullptr) device.memory.deallocate(workspace, std::move(before), nullptr);
  workspace = nullptr;
  for (Held& held : plans) held.plan->give_back(held.instance, nullptr);
  plans.clear();
  device.records.give(std::exchange(record, nullptr));
}

void Capture::tell_dead(void* user) {
  const std::unique_ptr<std::shared_ptr<Capture>> capture(static_cast<std::shared_ptr<Capture>*>(user));
  (*capture)->dead.store(true, std::memory_order_release);
}

void GraphRecord::finish() {
  const std::lock_guard lock(mutex_);
  for (Fence& launch : launches_) launch.wait();
  launches_.clear();
  take_data_error(std::exchange(record_, nullptr), &untold_);
}

bool GraphRecord::take(rlk_data_error* out, bool* idle) {
  const std::lock_guard lock(mutex_);
  launches_.erase(std::remove_if(launches_.begin(), launches_.end(), [](Fence& launch) { return launch.reached(); }),
                  launches_.end());
  *idle = launches_.empty();
  if (!*idle) return false;
  if (record_ != nullptr) return take_data_error(record_, out);
  if (untold_.kind == 0) return false;
  const uint32_t size = out->struct_size;
  *out = std::exchange(untold_, {});
  out->struct_size = size;
  return true;
}

}  // namespace rlk::core
