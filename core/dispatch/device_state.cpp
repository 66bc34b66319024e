// What a dispatcher keeps per device.
#include "core/dispatch/device_state.hpp"

#include <algorithm>
#include <thread>

namespace rlk::core {
namespace {

const rlk_graph_api* graph_api_of(const DeviceEntry& device) {
  const rlk_plugin& api = *device.owner->api;
  if (api.get_extension == nullptr) return nullptr;
  const auto* graph = static_cast<const rlk_graph_api*>(api.get_extension(device.owner->instance, RLK_EXT_GRAPH));
  return graph != nullptr && graph->struct_size >= sizeof(rlk_graph_api) ? graph : nullptr;
}

}  // namespace

void GraphResources::release(CachingAllocator& memory) {
  for (void* workspace : workspaces) memory.deallocate(workspace, Mark(), nullptr);
  workspaces.clear();
  for (auto& [plan, instance] : plans) {
    plan->give_back(instance, nullptr);
    plan->leave();
  }
  plans.clear();
}

DeviceState::DeviceState(const DeviceEntry& device)
    : entry(device),
      api(*device.owner->api),
      graph(graph_api_of(device)),
      runs_inline(device.has(RLK_DEVICE_INLINE_STREAMS)),
      events(device.owner->api->event, device.device),
      memory(device.owner->api, device.device, RLK_MEMORY_DEVICE, device.name()),
      pinned(device.owner->api, device.device, RLK_MEMORY_PINNED, device.name()) {}

void DeviceState::settle() {
  for (Mark& mark : left_behind_) mark.wait();
  left_behind_.clear();
  for (GraphResources& resources : kept_forever_) resources.release(memory);
  kept_forever_.clear();
}

DeviceState::~DeviceState() {
  for (Retired& retired : retired_) {
    // A staged call's host function may be about to leave.
    while (!retired.plan->is_idle()) std::this_thread::yield();
    retired.plan->close();
  }
}

CachingAllocator* DeviceState::allocator(int32_t kind) {
  return kind == RLK_MEMORY_DEVICE ? &memory : kind == RLK_MEMORY_PINNED ? &pinned : nullptr;
}

std::shared_ptr<StreamClock> DeviceState::add_stream() {
  const std::lock_guard lock(mutex_);
  return streams_.emplace_back(std::make_shared<StreamClock>(runs_inline));
}

void DeviceState::remove_stream(const std::shared_ptr<StreamClock>& clock, Mark end) {
  {
    const std::lock_guard lock(mutex_);
    streams_.erase(std::remove(streams_.begin(), streams_.end(), clock), streams_.end());
    if (!end.known_reached()) left_behind_.push_back(std::move(end));
  }
  collect();
}

uint32_t DeviceState::live_streams() const {
  const std::lock_guard lock(mutex_);
  return static_cast<uint32_t>(streams_.size());
}

void DeviceState::keep_forever(GraphResources resources) {
  if (resources.workspaces.empty() && resources.plans.empty()) return;
  const std::lock_guard lock(mutex_);
  kept_forever_.push_back(std::move(resources));
}

void DeviceState::retire(std::shared_ptr<Plan> plan) {
  plan->retire();
  {
    const std::lock_guard lock(mutex_);
    retired_.push_back({std::move(plan), false, {}});
  }
  collect();
}

// Which streams to wait for is known when no call is inside: only then has everything been issued.
void DeviceState::note_in_flight(Retired& retired) const {
  const auto wait_for = [&](const std::shared_ptr<StreamClock>& clock) {
    const uint64_t issued = clock->issued.load(std::memory_order_acquire);
    if (!clock->has_passed(issued)) retired.in_flight.emplace_back(clock, issued);
  };
  for (const auto& clock : streams_) wait_for(clock);
  for (const Mark& mark : left_behind_) wait_for(mark.shared_clock());
  retired.noted = true;
}

void DeviceState::collect() {
  std::vector<std::shared_ptr<Plan>> closing;
  {
    const std::lock_guard lock(mutex_);
    left_behind_.erase(
        std::remove_if(left_behind_.begin(), left_behind_.end(), [](Mark& mark) { return mark.reached(); }),
        left_behind_.end());
    for (size_t i = 0; i < retired_.size();) {
      Retired& retired = retired_[i];
      if (!retired.noted && retired.plan->is_idle()) note_in_flight(retired);
      auto& in_flight = retired.in_flight;
      in_flight.erase(std::remove_if(in_flight.begin(), in_flight.end(),
                                     [](const auto& use) { return use.first->has_passed(use.second); }),
                      in_flight.end());
      if (!retired.noted || !in_flight.empty()) {
        ++i;
        continue;
      }
      closing.push_back(std::move(retired.plan));
      std::swap(retired, retired_.back());
      retired_.pop_back();
    }
  }
  for (const auto& plan : closing) plan->close();
}

bool DeviceState::has_retired() const {
  const std::lock_guard lock(mutex_);
  return !retired_.empty();
}

}  // namespace rlk::core
