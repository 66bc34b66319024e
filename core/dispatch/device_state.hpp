// What a dispatcher keeps per device: events, memory caches, the streams alive, and plans that wait for them.
#pragma once

#include <rlk/abi.h>
#include <rlk/abi/ext/draft/graph.h>

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "core/dispatch/caching_allocator.hpp"
#include "core/dispatch/passing.hpp"
#include "core/dispatch/plan.hpp"
#include "core/dispatch/registry.hpp"

namespace rlk::core {

// What a captured graph keeps alive: its workspaces, and the plans (and leased instances) it replays.
struct GraphResources {
  std::vector<void*> workspaces;
  std::vector<std::pair<std::shared_ptr<Plan>, Plan::Instance*>> plans;
  // Nothing of it runs any more.
  void release(CachingAllocator& memory);
};

class DeviceState {
public:
  explicit DeviceState(const DeviceEntry& device);
  ~DeviceState();  // after settle; closes what is still retired
  DeviceState(const DeviceState&) = delete;
  DeviceState& operator=(const DeviceState&) = delete;

  const DeviceEntry& entry;
  const rlk_plugin& api;       // of the owner
  const rlk_graph_api* graph;  // nullptr: this backend cannot capture
  const bool runs_inline;
  EventPool events;
  CachingAllocator memory;
  CachingAllocator pinned;

  // nullptr for a kind that is none.
  CachingAllocator* allocator(int32_t kind);

  std::shared_ptr<StreamClock> add_stream();  // [thread-safe]
  // The stream is gone; a wrapped one may have left work behind, which the mark ends. [thread-safe]
  void remove_stream(const std::shared_ptr<StreamClock>& clock, Mark end);
  uint32_t live_streams() const;  // [thread-safe]
  // For graphs that the vendor's own capture made: nobody tells when they die. [thread-safe]
  void keep_forever(GraphResources resources);

  // Closes the plan once no call is inside and every stream has passed what it was given so far. [thread-safe]
  void retire(std::shared_ptr<Plan> plan);
  // Closes what can be closed. [thread-safe]
  void collect();
  // The end, after the last stream: waits for what wrapped streams left behind and lets go of what was kept.
  void settle();
  bool has_retired() const;  // [thread-safe]

private:
  struct Retired {
    std::shared_ptr<Plan> plan;
    bool noted;
    std::vector<std::pair<std::shared_ptr<StreamClock>, uint64_t>> in_flight;
  };
  void note_in_flight(Retired& retired) const;
  mutable std::mutex mutex_;  // of everything below
  std::vector<std::shared_ptr<StreamClock>> streams_;
  std::vector<Mark> left_behind_;
  std::vector<GraphResources> kept_forever_;
  std::vector<Retired> retired_;
};

}  // namespace rlk::core
