// What a dispatcher keeps per device: events, memory caches, the streams alive, and plans that wait for them.
#pragma once

#include <rlk/abi.h>
#include <rlk/abi/ext/draft/graph.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "core/dispatch/call/plan.hpp"
#include "core/dispatch/call/registry.hpp"
#include "core/dispatch/device/caching_allocator.hpp"
#include "core/dispatch/device/capture.hpp"
#include "core/dispatch/device/error_record.hpp"
#include "core/dispatch/device/fence.hpp"
#include "core/dispatch/device/pending.hpp"
#include "core/dispatch/trust/suspects.hpp"

namespace rlk::core {

// An optional slot: NULL, or found out to be unusable when it answers RLK_UNSUPPORTED, which is then remembered.
// [thread-safe]
class OptionalSlot {
public:
  explicit OptionalSlot(bool is_there) : usable_(is_there) {}
  explicit operator bool() const { return usable_.load(std::memory_order_relaxed); }
  // The answer of a call; true when it was "not here".
  bool learn(rlk_status status) {
    if (status != RLK_UNSUPPORTED) return false;
    usable_.store(false, std::memory_order_relaxed);
    return true;
  }

private:
  std::atomic<bool> usable_;
};

class Watchdog;

class DeviceState {
public:
  // `opened` is the owner's handle; the embedder's allocator may be nullptr and outlives this.
  DeviceState(const DeviceEntry& device, rlk_plugin_device* opened, const DeviceAllocator* embedder);
  ~DeviceState();  // after settle; closes what is still retired
  DeviceState(const DeviceState&) = delete;
  DeviceState& operator=(const DeviceState&) = delete;

  const DeviceEntry& entry;
  rlk_plugin_device* const handle;
  const rlk_plugin& api;           // of the owner
  const rlk_graph_api* graph_api;  // nullptr: this backend cannot capture
  const bool runs_inline;
  Watchdog* watchdog = nullptr;  // reports streams that do not answer; nullptr: no reports
  OptionalSlot host_functions, pointer_kinds, capture_ids, capture_retains;
  EventPool events;
  CachingAllocator memory;
  CachingAllocator pinned;
  RecordPool records;
  PendingList pending;  // staged calls

  // nullptr for a kind that is none.
  CachingAllocator* allocator(int32_t kind);

  void add_stream(std::shared_ptr<StreamClock> clock, std::shared_ptr<SuspectList> suspects);  // [thread-safe]
  void add_suspects_of_streams(std::vector<Suspect>* out) const;                               // [thread-safe]
  std::atomic<bool> lost{false};  // a stream has reported that the device is lost
  // The largest workspace that any stream needed outside captures: a capture on any of them gets at most that.
  std::atomic<uint64_t> warm_workspace_bytes{0};
  // The stream is gone; a wrapped one may have left work behind, which the fence ends and which may write the record.
  // [thread-safe]
  void remove_stream(const std::shared_ptr<StreamClock>& clock, Fence end, rlk_data_error_record* record) noexcept;
  uint32_t live_streams() const;  // [thread-safe]
  void add_graph(int change) { live_graphs_.fetch_add(change, std::memory_order_relaxed); }
  int live_graphs() const { return live_graphs_.load(std::memory_order_relaxed); }

  // A capture that the vendor's own calls began. Its resources are released when it has ended and its plugin has told
  // that nothing of it can run any more; without such word with this object. [thread-safe]
  void add_capture(std::shared_ptr<Capture> capture);
  // A data error that work of such a capture wrote. rlk cannot see when that work runs, so that every stream of the
  // device may tell it. [thread-safe]
  bool take_captured_error(rlk_data_error* out);

  // One more plan may be retired, which then needs no memory. [thread-safe]
  void expect_retired();
  // Closes the plan once no call is inside and every stream has passed what it was given so far. It was expected.
  // [thread-safe]
  void retire(std::shared_ptr<CachedPlan> plan) noexcept;
  // Closes what can be closed. [thread-safe]
  void collect() noexcept;
  // The end, after the last stream: waits for what wrapped streams left behind and lets go of what was kept.
  void settle();
  bool has_something_to_collect() const;  // [thread-safe]

private:
  struct Retired {
    std::shared_ptr<CachedPlan> plan;
    bool noted;
    std::vector<std::pair<std::shared_ptr<StreamClock>, uint64_t>> in_flight;
  };
  struct LeftBehind {
    Fence end;
    rlk_data_error_record* record;
  };
  void note_in_flight(Retired& retired) const;
  bool is_passed(Retired& retired) const;
  mutable std::mutex mutex_;  // of everything below
  std::vector<std::shared_ptr<StreamClock>> streams_;
  std::vector<std::pair<std::shared_ptr<StreamClock>, std::shared_ptr<SuspectList>>> suspects_;
  std::vector<LeftBehind> left_behind_;
  std::vector<std::shared_ptr<Capture>> captures_;
  std::vector<Retired> retired_;
  size_t expected_ = 0;  // plans in lists, for which retired_ has room
  std::atomic<bool> has_captures_{false};
  std::atomic<int> live_graphs_{0};
};

}  // namespace rlk::core
