// What a dispatcher keeps per device.
#include "core/dispatch/device/device_state.hpp"

#include "core/declaration/plugin_call.hpp"

#include <algorithm>
#include <chrono>
#include <new>
#include <thread>
#include <utility>

namespace rlk::core {
namespace {

// The longest time from a kernel's claim of a record to its last write into it.
constexpr std::chrono::microseconds kTimeToFill{200};

const rlk_graph_api* graph_api_of(const DeviceEntry& device) {
  const rlk_plugin& api = *device.owner->api;
  if (api.get_extension == nullptr) return nullptr;
  const auto* graph =
      static_cast<const rlk_graph_api*>(call_plugin(api.get_extension, device.owner->instance, RLK_EXT_GRAPH));
  return graph != nullptr && graph->struct_size >= sizeof(rlk_graph_api) ? graph : nullptr;
}

}  // namespace

DeviceState::DeviceState(const DeviceEntry& device, rlk_plugin_device* opened, const DeviceAllocator* embedder)
    : entry(device),
      handle(opened),
      api(*device.owner->api),
      graph_api(graph_api_of(device)),
      runs_inline(device.has(RLK_DEVICE_INLINE_STREAMS)),
      host_functions(api.stream->enqueue_host_function != nullptr),
      pointer_kinds(api.device->pointer_kind != nullptr),
      capture_ids(api.stream->capture_id != nullptr),
      capture_retains(api.stream->capture_retain != nullptr),
      events(api, opened),
      memory(&api, opened, RLK_MEMORY_DEVICE, device.backend, device.ordinal, embedder),
      pinned(&api, opened, RLK_MEMORY_PINNED, device.backend, device.ordinal),
      records(device.properties().flags, pinned) {}

void DeviceState::settle() {
  for (LeftBehind& left : left_behind_) left.end.wait();
  pending.drop(nullptr);
  left_behind_.clear();
  for (const auto& capture : captures_) capture->resources.release(*this);
  captures_.clear();
}

DeviceState::~DeviceState() {
  for (Retired& retired : retired_) {
    // The host function of a staged call may still be returning from the plan.
    while (!retired.plan->is_idle()) std::this_thread::yield();
    retired.plan->close();
  }
}

CachingAllocator* DeviceState::allocator(int32_t kind) {
  return kind == RLK_MEMORY_DEVICE ? &memory : kind == RLK_MEMORY_PINNED ? &pinned : nullptr;
}

// Whole or not at all, and with room for what the stream may leave behind: its end needs no memory.
void DeviceState::add_stream(std::shared_ptr<StreamClock> clock, std::shared_ptr<SuspectList> suspects) {
  const std::lock_guard lock(mutex_);
  const size_t count = streams_.size() + 1;
  left_behind_.reserve(left_behind_.size() + count);
  streams_.reserve(count);
  suspects_.reserve(count);
  suspects_.emplace_back(clock, std::move(suspects));
  streams_.push_back(std::move(clock));
}

void DeviceState::add_suspects_of_streams(std::vector<Suspect>* out) const {
  const std::lock_guard lock(mutex_);
  for (const auto& [clock, list] : suspects_) list->add_to(out);
}

void DeviceState::remove_stream(const std::shared_ptr<StreamClock>& clock, Fence end,
                                rlk_data_error_record* record) noexcept {
  {
    const std::lock_guard lock(mutex_);
    streams_.erase(std::remove(streams_.begin(), streams_.end(), clock), streams_.end());
    suspects_.erase(
        std::remove_if(suspects_.begin(), suspects_.end(), [&](const auto& known) { return known.first == clock; }),
        suspects_.end());
    if (end.known_reached()) {
      records.give(record);
    } else {
      left_behind_.push_back({std::move(end), record});
    }
  }
  collect();
}

uint32_t DeviceState::live_streams() const {
  const std::lock_guard lock(mutex_);
  return static_cast<uint32_t>(streams_.size());
}

void DeviceState::add_capture(std::shared_ptr<Capture> capture) {
  const std::lock_guard lock(mutex_);
  captures_.push_back(std::move(capture));
  has_captures_ = true;
}

bool DeviceState::take_captured_error(rlk_data_error* out) {
  if (!has_captures_) return false;
  const std::lock_guard lock(mutex_);
  for (const auto& capture : captures_) {
    rlk_data_error_record* record = capture->resources.record;
    if (record == nullptr || __atomic_load_n(&record->state, __ATOMIC_ACQUIRE) == 0) continue;
    // Its kernel may be between claiming the record and filling it.
    std::this_thread::sleep_for(kTimeToFill);
    return take_data_error(record, out);
  }
  return false;
}

void DeviceState::expect_retired() {
  const std::lock_guard lock(mutex_);
  const size_t needed = retired_.size() + expected_ + 1;
  if (retired_.capacity() < needed) retired_.reserve(2 * needed);
  ++expected_;
}

void DeviceState::retire(std::shared_ptr<CachedPlan> plan) noexcept {
  plan->retire();
  {
    const std::lock_guard lock(mutex_);
    --expected_;
    retired_.push_back({std::move(plan), false, {}});
  }
  collect();
}

// Which streams to wait for is known when no call is inside: only then has everything been issued.
void DeviceState::note_in_flight(Retired& retired) const {
  retired.in_flight.clear();
  const auto wait_for = [&](const std::shared_ptr<StreamClock>& clock) {
    const uint64_t issued = clock->issued.load(std::memory_order_acquire);
    if (!clock->has_passed(issued)) retired.in_flight.emplace_back(clock, issued);
  };
  for (const auto& clock : streams_) wait_for(clock);
  for (const LeftBehind& left : left_behind_) wait_for(left.end.shared_clock());
  retired.noted = true;
}

bool DeviceState::is_passed(Retired& retired) const {
  if (!retired.noted && retired.plan->is_idle()) {
    try {
      note_in_flight(retired);
    } catch (const std::bad_alloc&) {
      return false;  // noted at the next opportunity
    }
  }
  auto& in_flight = retired.in_flight;
  in_flight.erase(std::remove_if(in_flight.begin(), in_flight.end(),
                                 [](const auto& use) { return use.first->has_passed(use.second); }),
                  in_flight.end());
  return retired.noted && in_flight.empty();
}

// One thing at a time, outside the lock and without memory for a list: streams end here, on a machine without memory
// too.
void DeviceState::collect() noexcept {
  {
    const std::lock_guard lock(mutex_);
    for (LeftBehind& left : left_behind_) {
      if (left.end.reached()) records.give(std::exchange(left.record, nullptr));
    }
    left_behind_.erase(std::remove_if(left_behind_.begin(), left_behind_.end(),
                                      [](const LeftBehind& left) { return left.end.known_reached(); }),
                       left_behind_.end());
  }
  for (;;) {
    std::shared_ptr<CachedPlan> closing;
    std::shared_ptr<Capture> dead;
    {
      const std::lock_guard lock(mutex_);
      const auto over =
          std::find_if(captures_.begin(), captures_.end(), [](const auto& one) { return one->is_over(); });
      if (over != captures_.end()) {
        dead = std::move(*over);
        captures_.erase(over);
        has_captures_ = !captures_.empty();
      }
      const auto passed =
          std::find_if(retired_.begin(), retired_.end(), [&](Retired& retired) { return is_passed(retired); });
      if (passed != retired_.end()) {
        closing = std::move(passed->plan);
        std::swap(*passed, retired_.back());
        retired_.pop_back();
      }
    }
    if (closing == nullptr && dead == nullptr) return;
    if (closing != nullptr) closing->close();
    if (dead != nullptr) dead->resources.release(*this);
  }
}

bool DeviceState::has_something_to_collect() const {
  const std::lock_guard lock(mutex_);
  return !retired_.empty() ||
         std::any_of(captures_.begin(), captures_.end(), [](const auto& capture) { return capture->is_over(); });
}

}  // namespace rlk::core
