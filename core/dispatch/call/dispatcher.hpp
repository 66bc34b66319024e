// Takes calls: validates, finds an implementation, runs, falls back, counts. One per runtime.
#pragma once

#include <rlk/abi.h>

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/dispatch/call/call.hpp"
#include "core/dispatch/call/counters.hpp"
#include "core/dispatch/call/cpu_fallback.hpp"
#include "core/dispatch/call/eligible.hpp"
#include "core/dispatch/call/plan_cache.hpp"
#include "core/dispatch/call/policy.hpp"
#include "core/dispatch/call/registry.hpp"
#include "core/dispatch/call/select.hpp"
#include "core/dispatch/trust/canary.hpp"
#include "core/dispatch/trust/shadow_check.hpp"
#include "core/dispatch/trust/watchdog.hpp"

namespace rlk::core {

// What a call would do and why: every candidate with its verdict, the one that would be taken first.
struct Explanation {
  std::string op;
  std::string kind;            // kind_of_call
  std::vector<int64_t> sizes;  // of the operator's symbols; -1 where the call has none
  std::vector<Option> options;
  FallbackReason fallback;  // empty code: no fallback
  std::string refused;      // the call's own error: no implementation takes it, or strict forbids the one that would
  FallbackBytes staged;     // what a staged option copies
};

class Dispatcher {
public:
  // The registry outlives the dispatcher, and so does what an embedder's allocator needs.
  explicit Dispatcher(Registry& registry, Policy policy = {}, size_t max_plans = 1024,
                      const DeviceAllocator& embedder = {});
  ~Dispatcher();  // after its streams, graphs and memory
  Dispatcher(const Dispatcher&) = delete;
  Dispatcher& operator=(const Dispatcher&) = delete;

  // Tensors as in rlk_call. [the stream's thread]
  // INVALID_ARGUMENT; UNSUPPORTED with every candidate's reason; OUT_OF_MEMORY; CAPTURE_FORBIDS; a backend's failure.
  // A candidate that fails is quarantined for the dtype and the next one asked, unless the failed one may have written
  // over its own inputs or into a graph.
  rlk_status call(Stream& stream, const OpDecl& decl, const void* params, std::span<const rlk_tensor* const> inputs,
                  std::span<const rlk_tensor* const> outputs, const CallOptions& options, rlk_error* error);

  // What `call` would do, without planning or running. Refuses what `call` refuses, but that data pointers may be NULL.
  // [the stream's thread]
  rlk_status explain(Stream& stream, const OpDecl& decl, const void* params, std::span<const rlk_tensor* const> inputs,
                     std::span<const rlk_tensor* const> outputs, const CallOptions& options, Explanation* out,
                     rlk_error* error);

  // Opens the device if it is not open. NOT_FOUND with the stored reason when the backend has no such device, or what
  // opening it failed with. [thread-safe]
  rlk_status device(std::string_view backend, uint32_t ordinal, DeviceState** out, rlk_error* error);
  rlk_status device(const DeviceEntry& entry, DeviceState** out, rlk_error* error);
  // Opens nothing: what is known of the device, and its state or nullptr. [thread-safe]
  rlk_status describe_device(std::string_view backend, uint32_t ordinal, const DeviceEntry** out,
                             rlk_error* error) const;
  DeviceState* open_device(const DeviceEntry& entry);

  // As the stream's own, and an asynchronous failure that only one implementation can have caused quarantines it.
  rlk_status query(Stream& stream, rlk_error* error);
  rlk_status synchronize(Stream& stream, uint64_t timeout_ns, rlk_error* error);

  Counters& counters() { return counters_; }
  const Policy& policy() const { return policy_; }
  std::shared_ptr<const Snapshot> snapshot() const { return registry_.current(); }
  size_t plan_count() const { return plans_.plan_count(); }
  ShadowCheck& shadow_check() { return shadow_check_; }
  uint32_t live_streams();
  uint32_t live_graphs();

  // Lets go of what belongs to plugins that were replaced, as far as nothing uses it. Once per generation: the first
  // call of a new one does it by itself. [thread-safe]
  void drain(const Snapshot& snapshot);

  // Warns (an error with RLK_FALLBACK=strict) of preferences for a backend or plugin unknown to rlk. After loading.
  rlk_status check_wishes(rlk_error* error) const;

private:
  struct Found {
    std::shared_ptr<const Decision> decision;
    std::shared_ptr<CachedPlan> plan;
  };
  // The implementation that serves a call.
  struct Served {
    std::shared_ptr<const Found> from;
    InsidePlan inside;  // its plan
    bool planned_now = false;
    bool first_use = false;  // of the decision, which has sizes of its own

    const Candidate& candidate() const { return *from->decision->candidate; }
    const Decision& decision() const { return *from->decision; }
    const std::shared_ptr<CachedPlan>& plan() const { return from->plan; }
  };
  // What a thread found last. Counted by the thread alone: threads that count one number in a line of memory wait for
  // each other.
  struct ThreadSlot {
    uint64_t hash = 0;
    std::shared_ptr<const Found> found;
  };
  struct ThreadSlots;

  // dispatcher.cpp: the way of every call
  rlk_status build_key(const Call& call, const Snapshot& snapshot, PlanKey* key, rlk_error* error) const;
  rlk_status find_or_decide(const Call& call, const Snapshot& snapshot, Served* out, rlk_error* error);
  rlk_status run(const Call& call, const Served& served, bool* implementation_failed, rlk_error* error);
  // decide.cpp: what happens once per key
  rlk_status decide(const Call& call, const Snapshot& snapshot, const PlanKey& key,
                    std::shared_ptr<const Decision>* decision, EnteredPlan* plan, bool* planned_now, rlk_error* error);
  rlk_status plan_for(const Call& call, const Snapshot& snapshot, const PlanKey& key, const CallRequest& request,
                      Option& option, bool ask_now, std::shared_ptr<PlanList>* list, EnteredPlan* plan,
                      bool* planned_now, rlk_error* error);
  // untried.cpp: for a call that nothing serves: waits until what may serve it was tried. False: nothing will be.
  bool wait_for_trial(const Call& call, const Snapshot& snapshot);
  // Asks until the plan is there or cannot be had, which the option then says.
  rlk_status wait_for_plan(const Call& call, const Snapshot& snapshot, const PlanKey& key, const CallRequest& request,
                           Option& option, std::shared_ptr<PlanList>* list, EnteredPlan* plan, bool* planned_now,
                           rlk_error* error);
  // ask_now: also when the plan was not ready a moment ago.
  rlk_status plan_in(const Call& call, PlanList& list, const Candidate& candidate, bool ask_now, EnteredPlan* plan,
                     bool* planned_now, rlk_error* error);
  std::unique_ptr<PlanKey> host_key(const Call& call, const Snapshot& snapshot) const;
  Refusal refuse_plan(const Call& call, const Snapshot& snapshot, const Candidate& candidate, CachedPlan& plan,
                      const std::vector<std::string>& features) const;
  rlk_status note_fallback(const Call& call, const FallbackReason& reason, const Option& taken,
                           FallbackCounter** counter, rlk_error* error);
  // failure.cpp: what happens when an implementation fails
  rlk_status after_failure(Call& call, const Served& served, rlk_status status, bool* memory_released, bool* again,
                           rlk_error* error);
  void quarantine(const Candidate& candidate, const std::string& dtype, rlk_status status, const std::string& text);
  rlk_status blame(rlk_status status, const std::vector<Suspect>& suspects, const rlk_error* error);

  static rlk_status no_such_device(const Snapshot& now, std::string_view backend, uint32_t ordinal, rlk_error* error);
  rlk_status cpu_streams(std::shared_ptr<CpuStreams>* out, rlk_error* error);
  void log_decision(const Call& call, const Served& served) const;
  void log_outcome(const Call& call, rlk_status status, const rlk_error* error, int64_t nanoseconds) const;

  Registry& registry_;
  const Policy policy_;
  Watchdog watchdog_;
  Canaries canaries_;
  const DeviceAllocator embedder_;
  const uint64_t id_;
  Counters counters_;
  std::mutex devices_mutex_;  // of devices_ and cpu_streams_
  std::map<const DeviceEntry*, std::unique_ptr<DeviceState>> devices_;
  std::shared_ptr<CpuStreams> cpu_streams_;  // made with the first staged call
  std::atomic<uint64_t> drained_{0};         // the generation of the last drain
  PlanCache plans_;
  ShadowCheck shadow_check_;
};

}  // namespace rlk::core
