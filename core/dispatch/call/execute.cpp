// Runs a plan: instance, host-readable inputs, prepare, workspace, enqueue.
#include "core/declaration/error.hpp"
#include "core/declaration/plugin_call.hpp"
#include "core/dispatch/call/call.hpp"
#include "core/dispatch/trust/watchdog.hpp"

namespace rlk::core {
namespace {

// An instance goes back when the call is over, with its end when something was enqueued.
class Lease {
public:
  Lease(CachedPlan& plan, Stream& stream, bool capturing) : plan_(plan), stream_(stream), capturing_(capturing) {}
  ~Lease() {
    if (instance_ == nullptr) return;
    if (enqueued_) {
      Fence end = stream_.fence(/*with_event=*/!capturing_);
      plan_.give_back(instance_, &end);
    } else {
      plan_.give_back(instance_, nullptr);
    }
  }
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;

  rlk_status take(rlk_error* error) { return plan_.lease(capturing_, &handle_, &instance_, error); }
  rlk_plugin_plan* handle() const { return handle_; }
  CachedPlan::Instance* instance() const { return instance_; }
  void set_enqueued() { enqueued_ = true; }
  // The graph keeps it.
  CachedPlan::Instance* release() { return std::exchange(instance_, nullptr); }

private:
  CachedPlan& plan_;
  Stream& stream_;
  const bool capturing_;
  rlk_plugin_plan* handle_ = nullptr;
  CachedPlan::Instance* instance_ = nullptr;
  bool enqueued_ = false;
};

rlk_status workspace_bytes(const CachedPlan& plan, const Lease& lease, const rlk_run& run, uint64_t* bytes,
                           rlk_error* error) {
  *bytes = plan.info().workspace_bound;
  if (!plan.has(RLK_PLAN_PREPARE) && *bytes != UINT64_MAX) return RLK_OK;
  const rlk_implementation& implementation = plan.implementation();
  if (implementation.plan_prepare == nullptr) {
    return failf(error, RLK_INTERNAL, "%s/%s: its plan needs prepare, which it does not have", implementation.op,
                 implementation.name);
  }
  return call_plugin(implementation.plan_prepare, lease.handle(), &run, bytes, error);
}

}  // namespace

rlk_status execute(const Call& call, const Candidate& candidate, const std::shared_ptr<CachedPlan>& plan,
                   OpCounters& counters, bool* implementation_failed, rlk_error* error) {
  *implementation_failed = false;
  Stream& stream = call.stream;
  HostInputs host_inputs(call);
  if (plan->info().host_inputs != 0) {
    const rlk_status status = host_inputs.read(plan->info().host_inputs, counters, error);
    if (status != RLK_OK) return status;
  }
  rlk_plugin_stream* handle = nullptr;
  if (const rlk_status status = stream.handle_for(candidate, &handle, error); status != RLK_OK) return status;
  Lease lease(*plan, stream, call.capturing);
  if (const rlk_status status = lease.take(error); status != RLK_OK) {
    *implementation_failed = status != RLK_CAPTURE_FORBIDS && status != RLK_NOT_READY;
    if (status != RLK_NOT_READY) return status;
    return fail(error, RLK_TIMEOUT,
                "every instance of its plan is in use, and another one is still being compiled; synchronize the stream "
                "and make the call again");
  }

  if (call.capturing) {
    if (const rlk_status status = stream.prepare_capture(error); status != RLK_OK) return status;
  }
  const uint32_t tag = stream.note_call(candidate, call.dtype());
  if (!call.capturing) stream.note_domain_ends(tag, call.decl(), call.bound.values());
  rlk_run run{};
  run.struct_size = sizeof(run);
  run.tag = call.tag != 0 ? call.tag : tag;
  run.n_inputs = static_cast<uint32_t>(call.inputs.size());
  run.n_outputs = static_cast<uint32_t>(call.outputs.size());
  run.inputs = call.inputs.data();
  run.outputs = call.outputs.data();
  run.host_inputs = host_inputs.pointers();
  run.symbols = call.bound.symbols.data();
  run.n_symbols = static_cast<uint32_t>(call.decl().symbols.size());
  run.flags = call.capturing ? RLK_RUN_CAPTURING : 0;
  run.data_error_record = stream.data_error_record();

  rlk_private_params mine;
  if (const rlk_private_params* given = call.privates.of(candidate.plugin->id)) {
    mine = *given;
    mine.struct_size = sizeof(mine);
    mine.next = nullptr;
    run.next = reinterpret_cast<const rlk_ext*>(&mine);
  }
  const Watchdog::Place place = {"enqueue", &stream, candidate.plugin.get(), &candidate, call.dtype(), 0};
  uint64_t bytes = 0;
  rlk_status status = RLK_OK;
  {
    const Watchdog::Inside inside(stream.device().watchdog, place);
    status = workspace_bytes(*plan, lease, run, &bytes, error);
  }
  *implementation_failed = status != RLK_OK;
  if (status != RLK_OK) return status;
  if (bytes != 0) {
    status = stream.workspace(bytes, call.capturing, &run.workspace, error);
    *implementation_failed = status == RLK_OUT_OF_MEMORY;  // the next candidate may need less
    if (status != RLK_OK) return status;
    run.workspace_bytes = bytes;
  }
  PersistentMemory::Use persistent;
  if (plan->info().persistent_bytes != 0) {
    status = plan->persistent(lease.instance())
                 .use(plan->info().persistent_bytes, stream, call.capturing, &persistent, error);
    *implementation_failed = status == RLK_OUT_OF_MEMORY;
    if (status != RLK_OK) return status;
    run.persistent = persistent.memory();
    if (persistent.is_new()) run.flags |= RLK_RUN_NEW_PERSISTENT;
  }
  // Even an enqueue that fails may have left a part of its work in the stream.
  const bool is_apart = call.capturing && plan->has(RLK_PLAN_CAPTURED_APART);
  if (!is_apart) lease.set_enqueued();
  {
    const Watchdog::Inside inside(stream.device().watchdog, place);
    status = call_plugin(candidate.implementation->plan_enqueue, lease.handle(), handle, &run, error);
  }
  *implementation_failed = status != RLK_OK;
  if (status != RLK_OK) return status;
  persistent.set_filled();
  if (call.capturing) stream.keep_for_graph(plan, is_apart ? nullptr : lease.release());
  return RLK_OK;
}

}  // namespace rlk::core
