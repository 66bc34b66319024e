// What was decided and what was planned, so that it need not be again. A thread's own small cache stands in front.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <unordered_map>
#include <vector>

#include "core/dispatch/call/counters.hpp"
#include "core/dispatch/call/plan.hpp"
#include "core/dispatch/call/plan_key.hpp"
#include "core/dispatch/device/device_state.hpp"

namespace rlk::core {

// The plans of one implementation for one structure, told apart by the symbols they cover.
struct PlanList {
  explicit PlanList(DeviceState& device) : home(device) {}
  DeviceState& home;  // of the implementation
  std::mutex mutex;   // of plans; held while one is made, so that two threads do not make the same
  std::vector<std::shared_ptr<CachedPlan>> plans;
  // Of an implementation that is still compiling: when it is asked again, later and later.
  std::atomic<bool> not_ready{false};
  std::chrono::steady_clock::time_point ask_again{};
  std::chrono::milliseconds delay{0};
};

// The candidate that serves calls of a key. Immutable.
struct Decision {
  std::vector<uint64_t> key;
  std::shared_ptr<const Candidate> candidate;
  bool staged = false;
  std::vector<uint64_t> host_structure;  // of a staged call: what its plans are made for, which sizes may change
  std::shared_ptr<PlanList> plans;
  ImplementationCounter* served = nullptr;
  FallbackCounter* fallback = nullptr;       // nullptr: the decision is no fallback
  mutable std::atomic<bool> is_fresh{true};  // no call of it was compared yet, or found not to need it
  // Set when a better candidate could not serve at this moment: the call is decided anew at this time.
  std::chrono::steady_clock::time_point decide_again{};
  bool waits_for_plan = false;  // because its plan was not ready

  bool is_provisional() const { return decide_again != std::chrono::steady_clock::time_point(); }
  bool is_due() const { return is_provisional() && std::chrono::steady_clock::now() >= decide_again; }

  bool is_for(std::span<const uint64_t> words) const {
    return key.size() == words.size() && std::equal(key.begin(), key.end(), words.begin());
  }
};

// Full keys are compared, never hashes alone. Both kinds are bounded: decisions are cheap and dropped by the shard,
// plans are dropped one by one, the least recently used first, and closed when nothing of them is in flight.
// [thread-safe]
class PlanCache {
public:
  explicit PlanCache(size_t max_plans = 1024) : max_plans_(max_plans) {}
  ~PlanCache() { close_all(); }
  PlanCache(const PlanCache&) = delete;
  PlanCache& operator=(const PlanCache&) = delete;

  std::shared_ptr<const Decision> find(const PlanKey& key) const;
  void insert(const PlanKey& key, std::shared_ptr<const Decision> decision);

  std::shared_ptr<PlanList> list_for(const PlanKey& key, const Candidate& candidate, DeviceState& home);
  // nullptr when no plan of the structure was ever asked for.
  std::shared_ptr<PlanList> find_list(const PlanKey& key, const Candidate& candidate);
  // The plan of the list that covers the symbols, or nullptr. The list's mutex is held.
  static std::shared_ptr<CachedPlan> covering(const PlanList& list, const int64_t* symbols);
  // The list's mutex is held; it is released before another plan is dropped for this one.
  void add(PlanList& list, std::shared_ptr<CachedPlan> plan, std::unique_lock<std::mutex>& list_lock);

  // Retires the plans of every implementation on a device that is not wanted, and forgets all decisions: those of an
  // earlier generation of the registry are never looked up again. False: there was no memory to note all of them; ask
  // again.
  bool retire_unless(const std::function<bool(const rlk_implementation*, const PluginDevice*)>& is_wanted);

  // The end: no call is inside, nothing is in flight.
  void close_all();

  uint64_t tick() const { return tick_.load(std::memory_order_relaxed); }
  size_t plan_count() const { return plan_count_.load(std::memory_order_relaxed); }

private:
  struct Shard {
    mutable std::mutex mutex;
    std::unordered_multimap<uint64_t, std::shared_ptr<const Decision>> decisions;
  };
  struct KeyedList {
    std::vector<uint64_t> key;
    const rlk_implementation* implementation;
    const PluginDevice* device;
    std::shared_ptr<PlanList> list;
  };
  void drop_oldest(const CachedPlan* newest);
  static std::vector<uint64_t> words_of(const PlanKey& key, const Candidate& candidate);

  static constexpr size_t kMaxDecisionsPerShard = 512;
  const size_t max_plans_;
  std::array<Shard, 16> shards_;
  std::mutex lists_mutex_;
  std::unordered_multimap<uint64_t, KeyedList> lists_;
  std::atomic<size_t> plan_count_{0};
  std::atomic<uint64_t> tick_{1};  // grows with every plan made: the age that plans are touched with
};

}  // namespace rlk::core
