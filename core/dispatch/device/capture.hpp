// What captured work keeps alive, and how rlk learns when it dies: rlk's own graphs know, and for captures that the
// vendor's own calls began the plugin tells, if it can.
#pragma once

#include <rlk/abi.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "core/dispatch/call/plan.hpp"
#include "core/dispatch/device/fence.hpp"

namespace rlk::core {

class DeviceState;

// The workspace, plans (with leased instances) and data error record that captured work uses whenever it runs.
struct GraphResources {
  void* workspace = nullptr;
  uint64_t workspace_bytes = 0;
  Fence before;  // the stream's work before the capture, which used the same workspace
  struct Held {
    EnteredPlan plan;
    CachedPlan::Instance* instance = nullptr;  // leased; nullptr: of a shared plan
  };
  std::vector<Held> plans;
  rlk_data_error_record* record = nullptr;
  // Nothing of it runs any more.
  void release(DeviceState& device);
};

// One capture as one stream sees it.
struct Capture {
  uint64_t id = 0;  // the vendor's number; 0: rlk_graph_begin began it
  GraphResources resources;
  // Of the vendor's captures:
  bool retained = false;           // the plugin tells when nothing of it can run any more
  std::atomic<bool> dead{false};   // it has told so
  std::atomic<bool> ended{false};  // the stream has left it: nothing is added any more
  bool is_over() const { return ended.load(std::memory_order_acquire) && dead.load(std::memory_order_acquire); }

  // For rlk_stream_api.capture_retain, with a new std::shared_ptr<Capture> that it deletes. On any thread; calls
  // no plugin.
  static void tell_dead(void* user);
};

// A graph's record, shared with the streams that launched it: they tell its data errors. [thread-safe]
class GraphRecord {
public:
  explicit GraphRecord(rlk_data_error_record* record) : record_(record) {}
  // Launches, and notes the end of the launch.
  template <class Launch>
  rlk_status launch(Launch&& launch) {
    const std::lock_guard lock(mutex_);
    launches_.reserve(launches_.size() + 1);  // a launch that is in the stream must be noted
    Fence end;
    const rlk_status status = launch(&end);
    for (Fence& known : launches_) {
      if (known.clock() != end.clock()) continue;
      known = std::move(end);
      return status;
    }
    launches_.push_back(std::move(end));
    return status;
  }
  // The graph dies: waits for its launches, keeps the error that no caller has got yet, and lets go of the record.
  void finish();
  // *idle: no launch is in flight, so that there is nothing more to report until the next one.
  bool take(rlk_data_error* out, bool* idle);

private:
  std::mutex mutex_;
  std::vector<Fence> launches_;  // the last one per stream
  rlk_data_error_record* record_;
  rlk_data_error untold_{};
};

}  // namespace rlk::core
