// A plugin's plan, the calls it covers, and its instances when only one execution may be in flight on each.
#pragma once

#include <rlk/abi.h>

#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "core/dispatch/call/call_description.hpp"
#include "core/dispatch/call/registry.hpp"
#include "core/dispatch/device/fence.hpp"
#include "core/dispatch/device/persistent.hpp"

namespace rlk::core {

class Stream;

// A plan that is not ready after this time is given up.
inline constexpr std::chrono::seconds kLongestCompilation{600};

// Shared by the caches and the calls that use it. What the plugin made dies in `close`, once nothing runs; the object
// itself may then still be held by a thread's cache, empty.
class CachedPlan : public std::enable_shared_from_this<CachedPlan> {
public:
  // One instance of the plugin that runs one execution at a time.
  struct Instance {
    rlk_plugin_plan* handle = nullptr;
    bool leased = false;  // by a call, or for good by a graph
    Fence last_use;
    PersistentMemory persistent;
  };

  // Asks the plugin for a plan of this call. RLK_NOT_READY: ask again later. A plan that does not cover the very call
  // it was made for, or whose info cannot be understood, is RLK_INTERNAL.
  static rlk_status create(const Candidate& candidate, CallDescription description, std::shared_ptr<CachedPlan>* out,
                           rlk_error* error);
  ~CachedPlan() { close(); }
  CachedPlan(const CachedPlan&) = delete;
  CachedPlan& operator=(const CachedPlan&) = delete;

  bool covers(const int64_t* symbols) const {
    for (size_t i = 0; i < n_symbols_; ++i) {
      if (symbols[i] < symbol_min_[i] || symbols[i] > symbol_max_[i]) return false;
    }
    return true;
  }
  bool has(uint32_t flag) const { return (info_.flags & flag) != 0; }
  const rlk_plan_info& info() const { return info_; }
  const rlk_implementation& implementation() const { return implementation_; }

  // No call enters any more (InsidePlan).
  void retire() { retired_.store(true, std::memory_order_seq_cst); }
  bool is_idle() const { return users_.load(std::memory_order_seq_cst) == 0; }
  // Destroys the plugin's side. Retired, idle, and nothing in flight.
  void close();

  // The registry generation whose verified units allow this plan (0: none yet). [thread-safe]
  void approve(uint64_t generation) { approved_.store(generation, std::memory_order_relaxed); }
  bool is_approved(uint64_t generation) const { return approved_.load(std::memory_order_relaxed) == generation; }

  // For the plan cache's choice of what to drop. [thread-safe]
  void touch(uint64_t tick) {
    if (last_used_.load(std::memory_order_relaxed) != tick) last_used_.store(tick, std::memory_order_relaxed);
  }
  uint64_t last_used() const { return last_used_.load(std::memory_order_relaxed); }

  // What prepare and enqueue run on: the shared plan (*instance stays nullptr), or an instance with nothing in flight,
  // made now if there is none; one that is still being compiled is waited for. While capturing nothing is made or
  // asked: RLK_CAPTURE_FORBIDS. [thread-safe]
  rlk_status lease(bool capturing, rlk_plugin_plan** handle, Instance** instance, rlk_error* error);
  // The plan's own device memory, that of the instance unless it is shared.
  PersistentMemory& persistent(Instance* instance) { return instance != nullptr ? instance->persistent : persistent_; }
  // The fence is the end of the execution; without one nothing was enqueued. [thread-safe]
  void give_back(Instance* instance, Fence* end);

private:
  friend class InsidePlan;
  bool enter() {
    users_.fetch_add(1, std::memory_order_seq_cst);
    if (!retired_.load(std::memory_order_seq_cst)) return true;
    leave();
    return false;
  }
  void enter_again() { users_.fetch_add(1, std::memory_order_seq_cst); }
  void leave() { users_.fetch_sub(1, std::memory_order_seq_cst); }

  CachedPlan(const Candidate& candidate, CallDescription description)
      : implementation_(*candidate.implementation),
        api_(*candidate.plugin->api),
        plugin_(candidate.plugin->id),
        device_(candidate.device->handle()),
        built_in_(candidate.plugin->built_in),
        description_(std::move(description).for_plugin(candidate.plugin->id)) {}
  // Asks the plugin for an instance: within a time, unless the plugin is the built-in one.
  rlk_status make(rlk_plugin_plan** out, rlk_plan_info* info, rlk_error* error);
  rlk_status make_here(rlk_plugin_plan** out, rlk_plan_info* info, rlk_error* error) const;
  rlk_status take_bounds(rlk_error* error);

  const rlk_implementation& implementation_;
  const rlk_plugin& api_;
  const std::string plugin_;
  rlk_plugin_device* const device_;
  const bool built_in_;
  const CallDescription description_;  // instances are made from it
  rlk_plan_info info_{};
  size_t n_symbols_ = 0;
  std::array<int64_t, kMaxSymbols> symbol_min_{}, symbol_max_{};
  std::atomic<uint64_t> users_{0};
  std::atomic<bool> retired_{false};
  std::atomic<uint64_t> approved_{0};
  std::atomic<uint64_t> last_used_{0};
  rlk_plugin_plan* first_ = nullptr;  // the shared plan
  PersistentMemory persistent_;       // likewise
  std::mutex mutex_;                  // of instances_
  std::vector<std::unique_ptr<Instance>> instances_;
};

// A call inside a plan, which is not closed meanwhile. Only this object enters plans: whatever ends a call, an
// exception too, leaves them. The plan outlives it. [thread-safe, no lock]
class InsidePlan {
public:
  InsidePlan() = default;
  // Empty: the plan is retired.
  static InsidePlan enter(CachedPlan& plan) { return plan.enter() ? InsidePlan(&plan) : InsidePlan(); }
  // For a caller that is inside already, retired or not: work of the call that stays longer than the call.
  static InsidePlan enter_again(CachedPlan& plan) {
    plan.enter_again();
    return InsidePlan(&plan);
  }
  ~InsidePlan() { leave(); }
  InsidePlan(InsidePlan&& other) noexcept : plan_(std::exchange(other.plan_, nullptr)) {}
  InsidePlan& operator=(InsidePlan&& other) noexcept {
    if (this == &other) return *this;
    leave();
    plan_ = std::exchange(other.plan_, nullptr);
    return *this;
  }
  explicit operator bool() const { return plan_ != nullptr; }
  void leave() {
    if (plan_ != nullptr) std::exchange(plan_, nullptr)->leave();
  }

private:
  explicit InsidePlan(CachedPlan* plan) : plan_(plan) {}
  CachedPlan* plan_ = nullptr;
};

// A plan and the stay inside it, for a holder that nothing else keeps the plan alive for.
class EnteredPlan {
public:
  EnteredPlan() = default;
  EnteredPlan(std::shared_ptr<CachedPlan> plan, InsidePlan inside)
      : plan_(std::move(plan)), inside_(std::move(inside)) {}
  EnteredPlan(EnteredPlan&&) noexcept = default;
  EnteredPlan& operator=(EnteredPlan&& other) noexcept {
    inside_ = std::move(other.inside_);  // first: the old one must not be left when it is gone
    plan_ = std::move(other.plan_);
    return *this;
  }
  explicit operator bool() const { return static_cast<bool>(inside_); }
  CachedPlan& operator*() const { return *plan_; }
  CachedPlan* operator->() const { return plan_.get(); }
  const std::shared_ptr<CachedPlan>& plan() const { return plan_; }
  // The stay alone: the plan is kept by another.
  InsidePlan take_inside() { return std::move(inside_); }

private:
  std::shared_ptr<CachedPlan> plan_;
  InsidePlan inside_;  // ends before the plan
};

}  // namespace rlk::core
