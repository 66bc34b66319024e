// The way of every call: validate, key, the thread's cache, run. What happens once per key is in decide.cpp, what
// happens after a failure in failure.cpp.
#include "core/dispatch/call/dispatcher.hpp"

#include <fmt/core.h>
#include <rlk/sdk/thread_own.hpp>

#include <algorithm>
#include <array>
#include <chrono>

#include "core/declaration/error.hpp"
#include "core/declaration/text.hpp"
#include "core/dispatch/call/accept.hpp"
#include "core/dispatch/log.hpp"
#include "core/dispatch/trust/trace.hpp"

namespace rlk::core {
namespace {

std::atomic<uint64_t> dispatchers_made{0};

}  // namespace

Dispatcher::Dispatcher(Registry& registry, Policy policy, size_t max_plans, const DeviceAllocator& embedder)
    : registry_(registry),
      policy_(std::move(policy)),
      watchdog_(registry_, policy_.call_timeout_seconds()),
      canaries_(registry_, policy_.shadow_checks_first_uses(), policy_.call_timeout_seconds()),
      embedder_(embedder),
      id_(++dispatchers_made),
      plans_(max_plans),
      shadow_check_(registry_, policy_) {}

// Plans die before the devices whose streams they ran on; the threads' caches keep empty shells.
Dispatcher::~Dispatcher() {
  for (auto& [entry, device] : devices_) device->settle();
  cpu_streams_.reset();
  plans_.close_all();
}

// ---- devices

rlk_status Dispatcher::device(std::string_view backend, uint32_t ordinal, DeviceState** out, rlk_error* error) {
  const auto now = snapshot();
  if (const DeviceEntry* entry = now->find_device(backend, ordinal)) return device(*entry, out, error);
  return no_such_device(*now, backend, ordinal, error);
}

rlk_status Dispatcher::describe_device(std::string_view backend, uint32_t ordinal, const DeviceEntry** out,
                                       rlk_error* error) const {
  const auto now = snapshot();
  *out = now->find_device(backend, ordinal);
  return *out != nullptr ? RLK_OK : no_such_device(*now, backend, ordinal, error);
}

rlk_status Dispatcher::no_such_device(const Snapshot& now, std::string_view backend, uint32_t ordinal,
                                      rlk_error* error) {
  std::string text = fmt::format("no device {}:{}", backend, ordinal);
  uint32_t count = 0;
  for (const DeviceEntry* entry : now.devices) count += entry->backend == backend;
  if (const RejectedPlugin* rejected = count == 0 ? now.find_rejected(backend) : nullptr) {
    text +=
        fmt::format(": plugin {} is not registered ({}): {}", rejected->id, rejected->reason_code, rejected->reason);
  } else if (count > 0) {
    text += fmt::format("; expected an ordinal below {}", count);
  } else {
    text += "; expected one of:";
    for (const DeviceEntry* entry : now.devices) text += " " + entry->name();
  }
  return fail(error, RLK_NOT_FOUND, text);
}

rlk_status Dispatcher::device(const DeviceEntry& entry, DeviceState** out, rlk_error* error) {
  if ((*out = open_device(entry)) != nullptr) return RLK_OK;
  // Outside the mutex: opening takes its time, and other devices are not to wait for it.
  rlk_plugin_device* opened = nullptr;
  if (const rlk_status status = entry.device->open(&opened, error); status != RLK_OK) return status;
  const std::lock_guard lock(devices_mutex_);
  auto found = devices_.find(&entry);
  if (found == devices_.end()) {
    auto state = std::make_unique<DeviceState>(entry, opened, embedder_.allocate != nullptr ? &embedder_ : nullptr);
    state->watchdog = &watchdog_;
    found = devices_.emplace(&entry, std::move(state)).first;
  }
  *out = found->second.get();
  return RLK_OK;
}

DeviceState* Dispatcher::open_device(const DeviceEntry& entry) {
  const std::lock_guard lock(devices_mutex_);
  const auto found = devices_.find(&entry);
  return found != devices_.end() ? found->second.get() : nullptr;
}

uint32_t Dispatcher::live_graphs() {
  const std::lock_guard lock(devices_mutex_);
  int count = 0;
  for (auto& [entry, device] : devices_) count += device->live_graphs();
  return static_cast<uint32_t>(count);
}

uint32_t Dispatcher::live_streams() {
  const std::lock_guard lock(devices_mutex_);
  uint32_t count = 0;
  for (auto& [entry, device] : devices_) count += device->live_streams();
  return count - (cpu_streams_ != nullptr ? cpu_streams_->made() : 0);
}

rlk_status Dispatcher::cpu_streams(std::shared_ptr<CpuStreams>* out, rlk_error* error) {
  DeviceState* cpu = nullptr;
  if (const rlk_status status = device("cpu", 0, &cpu, error); status != RLK_OK) return status;
  const std::lock_guard lock(devices_mutex_);
  if (cpu_streams_ == nullptr) cpu_streams_ = std::make_shared<CpuStreams>(*cpu, counters_);
  *out = cpu_streams_;
  return RLK_OK;
}

// ---- calls

rlk_status Dispatcher::call(Stream& stream, const OpDecl& decl, const void* params,
                            std::span<const rlk_tensor* const> inputs, std::span<const rlk_tensor* const> outputs,
                            const CallOptions& options, rlk_error* error) {
  AcceptedCall accepted(stream, decl, inputs, outputs, options);
  rlk_status status = accepted.accept(params, policy_.numerics(), /*check_memory=*/true, error);
  if (status != RLK_OK) return status;
  Call& call = accepted.call();
  count(counters_.of(decl).calls);

  // Every round but the last takes one candidate out of the registry, or the one chance to free memory.
  bool memory_released = false;
  for (size_t round = 0;; ++round) {
    const auto now = snapshot();
    if (round > now->candidates.size() + 1) return status;
    Served served;
    status = find_or_decide(call, *now, &served, error);
    if (status != RLK_OK) {
      if (policy_.logs_dispatch()) log_outcome(call, status, error, 0);
      return status;
    }
    bool implementation_failed = false;
    if (policy_.logs_dispatch()) log_decision(call, served);
    const auto start =
        policy_.logs_dispatch() ? std::chrono::steady_clock::now() : std::chrono::steady_clock::time_point();
    status = run(call, served, &implementation_failed, error);
    if (policy_.logs_dispatch()) {
      log_outcome(call, status, error, (std::chrono::steady_clock::now() - start).count());
    }
    if (status == RLK_OK && options.choice != nullptr) {
      const Candidate& candidate = served.candidate();
      *options.choice = {candidate.plugin->api->backend, candidate.plugin->api->id, candidate.implementation->name,
                         served.decision().staged};
    }
    if (status == RLK_OK || !implementation_failed) return status;
    served.inside.leave();
    bool again = false;
    status = after_failure(call, served, status, &memory_released, &again, error);
    if (!again) return status;
  }
}

// Plans of plugins that serve no device any more end when the streams have passed them, and memory that only a retired
// device's streams could use goes back.
void Dispatcher::drain(const Snapshot& snapshot) {
  uint64_t before = drained_.load(std::memory_order_relaxed);
  if (before >= snapshot.generation || !drained_.compare_exchange_strong(before, snapshot.generation)) return;
  const bool all_retired =
      plans_.retire_unless([&](const rlk_implementation* implementation, const PluginDevice* device) {
        return std::any_of(snapshot.candidates.begin(), snapshot.candidates.end(), [&](const Candidate& candidate) {
          return candidate.implementation == implementation && candidate.device == device;
        });
      });
  // Without memory for that now, the next call does the rest.
  if (!all_retired) return drained_.store(before, std::memory_order_relaxed);
  std::vector<DeviceState*> left;
  {
    const std::lock_guard lock(devices_mutex_);
    for (auto& [entry, device] : devices_)
      if (!snapshot.is_current(*entry)) left.push_back(device.get());
  }
  for (DeviceState* device : left) {
    device->collect();
    if (device->live_streams() != 0 || device->live_graphs() != 0) continue;
    device->memory.release_cached(/*wait=*/false);
    device->pinned.release_cached(/*wait=*/false);
  }
}

struct Dispatcher::ThreadSlots {
  std::array<ThreadSlot, 128> all;
};

rlk_status Dispatcher::build_key(const Call& call, const Snapshot& snapshot, PlanKey* key, rlk_error* error) const {
  const PlanKey::Scope scope = {
      id_, snapshot.generation, &call.stream.device().entry, call.capturing, call.options.pin, &call.privates};
  if (key->build(scope, call.bound, call.inputs, call.outputs, call.options.numerics)) return RLK_OK;
  return failf(error, RLK_INTERNAL, "%s: a defect of rlk, please report it: the call has more parts than its key holds",
               call.decl().name);
}

rlk_status Dispatcher::find_or_decide(const Call& call, const Snapshot& snapshot, Served* out, rlk_error* error) {
  static thread_local PlanKey key;
  if (const rlk_status status = build_key(call, snapshot, &key, error); status != RLK_OK) return status;
  auto& slots = sdk::thread_own<ThreadSlots>().all;
  ThreadSlot& slot = slots[key.hash() % slots.size()];
  out->from = slot.found;
  const auto fits = [&](const Decision& decision) {
    if (!decision.staged) return true;
    const auto on_host = host_key(call, snapshot);
    return std::ranges::equal(on_host->structure(), decision.host_structure);
  };
  const bool known = out->from != nullptr && slot.hash == key.hash() && out->decision().is_for(key.words()) &&
                     !out->decision().is_due() && call.passed_over.empty() && fits(out->decision());
  if (known && out->plan()->covers(call.bound.symbols.data())) out->inside = InsidePlan::enter(*out->plan());
  if (!out->inside) {
    std::shared_ptr<const Decision> decision = known ? out->from->decision : plans_.find(key);
    EnteredPlan plan;
    if (decision != nullptr && (decision->is_due() || !call.passed_over.empty() || !fits(*decision)))
      decision = nullptr;
    if (decision != nullptr) {
      // Its plan may not cover these sizes, or was dropped. One that the units do not allow is another decision.
      const Candidate& candidate = *decision->candidate;
      rlk_status status =
          plan_in(call, *decision->plans, candidate, /*ask_now=*/false, &plan, &out->planned_now, error);
      if (status == RLK_OK && (!plan->is_approved(snapshot.generation) || call.capturing)) {
        const std::vector<std::string> features = features_of(call.bound, call.inputs, call.outputs);
        if (!refuse_plan(call, snapshot, candidate, *plan, features).code.empty()) status = RLK_UNSUPPORTED;
      }
      if (status != RLK_OK) {
        plan = {};
        decision = nullptr;
      }
    }
    if (decision == nullptr) {
      drain(snapshot);
      if (!call.capturing &&
          canaries_.find_wrong(snapshot, call.stream.device().entry, call.decl(), first_dtype(call.bound)))
        return find_or_decide(call, *this->snapshot(), out, error);
      const rlk_status status = decide(call, snapshot, key, &decision, &plan, &out->planned_now, error);
      if (status == RLK_UNSUPPORTED && wait_for_trial(call, snapshot))
        return find_or_decide(call, *this->snapshot(), out, error);
      if (status != RLK_OK) return status;
    }
    out->from = std::make_shared<const Found>(Found{std::move(decision), plan.plan()});
    out->inside = plan.take_inside();
    slot = {key.hash(), out->from};
    if (!call.capturing) call.stream.help_collect();
  }
  const Decision& decision = out->decision();
  out->plan()->touch(plans_.tick());
  out->first_use =
      decision.is_fresh.load(std::memory_order_relaxed) && decision.is_fresh.exchange(false, std::memory_order_relaxed);
  OpCounters& counters = counters_.of(call.decl());
  count(out->planned_now ? counters.plan_misses : counters.plan_hits);
  count(decision.served->calls);
  if (decision.fallback != nullptr) count(decision.fallback->calls);
  if (decision.waits_for_plan) count(counters.not_ready);
  return RLK_OK;
}

rlk_status Dispatcher::run(const Call& call, const Served& served, bool* implementation_failed, rlk_error* error) {
  OpCounters& counters = counters_.of(call.decl());
  if (!served.decision().staged) {
    ShadowCallPtr shadow;
    Trace first;
    if (served.first_use) {
      const Candidate& candidate = served.candidate();
      first = trace({candidate.plugin->id, candidate.decl->name, candidate.implementation->name,
                     first_dtype(call.bound), "enqueue", candidate.plugin->api});
    }
    if (served.first_use || shadow_check_.draws()) {
      const std::shared_ptr<const Decision>& decision = served.from->decision;
      std::shared_ptr<std::atomic<bool>> fresh;
      if (served.first_use) fresh = {decision, &decision->is_fresh};
      shadow = shadow_check_.begin(call, served.candidate(), served.plan()->info().variant, fresh);
    }
    const rlk_status status = execute(call, served.candidate(), served.plan(), counters, implementation_failed, error);
    if (shadow != nullptr) shadow_check_.finish(std::move(shadow), call, status);
    return status;
  }
  if (served.first_use) shadow_check_.pass_staged(call, served.candidate(), served.plan()->info().variant);
  std::shared_ptr<CpuStreams> streams;
  if (const rlk_status status = cpu_streams(&streams, error); status != RLK_OK) return status;
  return run_on_cpu(call, served.candidate(), served.plan(), std::move(streams), counters, *served.decision().fallback,
                    error);
}

// ---- the log that RLK_LOG_DISPATCH=1 asks for

void Dispatcher::log_decision(const Call& call, const Served& served) const {
  std::string text = std::string(call.decl().name) + " [";
  for (size_t i = 0; i < call.decl().dtypes.size(); ++i)
    text += std::string(i == 0 ? "" : ",") + name_of(call.bound.dtypes[i]);
  for (size_t i = 0; i < call.decl().symbols.size(); ++i) {
    if (call.bound.symbols[i] < 0) continue;
    text += fmt::format(" {}={}", call.decl().symbols[i].name, call.bound.symbols[i]);
  }
  const Candidate& candidate = served.candidate();
  text += fmt::format("] on {} -> {}/{}{} (plan {})", call.stream.name(), candidate.plugin->id,
                      candidate.implementation->name, served.decision().staged ? " staged" : "",
                      served.planned_now ? "made" : "reused");
  if (const FallbackCounter* fallback = served.decision().fallback) text += ", fallback: " + fallback->reason_code;
  log_always("dispatch", text);
}

void Dispatcher::log_outcome(const Call& call, rlk_status status, const rlk_error* error, int64_t nanoseconds) const {
  std::string text = fmt::format("{} on {}: {} after {} us on the host", call.decl().name, call.stream.name(),
                                 name_of_status(status), nanoseconds / 1000);
  if (status != RLK_OK && error != nullptr) text += ": " + text_of(*error);
  log_always("dispatch", text);
}

}  // namespace rlk::core
