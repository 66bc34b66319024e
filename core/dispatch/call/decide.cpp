// What happens once per key: ask the candidates, take the best that can be planned, note a fallback.
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <thread>

#include "core/declaration/error.hpp"
#include "core/declaration/text.hpp"
#include "core/dispatch/call/accept.hpp"
#include "core/dispatch/call/dispatcher.hpp"
#include "core/dispatch/device/host_layout.hpp"
#include "core/dispatch/log.hpp"
#include "core/dispatch/trust/trace.hpp"

namespace rlk::core {
namespace {

std::string who(const Option& option) {
  return option.plugin + "/" + option.implementation;
}

void refuse(Option& option, Verdict verdict, const std::string& code, const std::string& reason) {
  option.verdict = verdict;
  option.reason_code = code;
  option.reason = reason;
}

// A plan that was not ready is asked for again after these times.
constexpr std::chrono::milliseconds kFirstDelay{10}, kLongestDelay{1000};

bool is_staged(const Call& call, const Candidate& candidate) {
  return candidate.on != &call.stream.device().entry;
}

struct NotReady {
  Option* option = nullptr;  // the best
  std::chrono::steady_clock::time_point ask_again{};

  void note(Option& one, PlanList& list) {
    const std::lock_guard lock(list.mutex);
    if (option == nullptr) option = &one;
    if (ask_again == std::chrono::steady_clock::time_point() || list.ask_again < ask_again) ask_again = list.ask_again;
  }
};

}  // namespace

// A list's mutex is held while a plan is made: two threads do not make the same.
rlk_status Dispatcher::plan_in(const Call& call, PlanList& list, const Candidate& candidate, bool ask_now,
                               EnteredPlan* plan, bool* planned_now, rlk_error* error) {
  std::unique_lock lock(list.mutex);
  *planned_now = false;
  *plan = {};
  if (std::shared_ptr<CachedPlan> known = PlanCache::covering(list, call.bound.symbols.data())) {
    InsidePlan inside = InsidePlan::enter(*known);
    *plan = {std::move(known), std::move(inside)};
    if (*plan) return RLK_OK;
  }
  if (list.not_ready && (call.capturing || (!ask_now && std::chrono::steady_clock::now() < list.ask_again))) {
    return fail(error, RLK_NOT_READY, "the plan is being compiled in the background");
  }
  if (call.capturing) {
    return failf(
        error, RLK_CAPTURE_FORBIDS,
        "%s: no plan of %s/%s covers this call, and none is made while a graph is captured. Make the call once "
        "before the capture begins",
        call.decl().name, candidate.plugin->id.c_str(), candidate.implementation->name);
  }
  std::shared_ptr<CachedPlan> made;
  // Of a staged call the CPU sees the copies.
  std::optional<HostTensors> host;
  if (is_staged(call, candidate)) host.emplace(call.bound, call.inputs, call.outputs);
  const auto make = [&] {
    const Trace first = trace({candidate.plugin->id, candidate.decl->name, candidate.implementation->name,
                               first_dtype(call.bound), "plan_create", candidate.plugin->api});
    return CachedPlan::create(
        candidate,
        CallDescription(call.bound, host ? host->inputs() : call.inputs, host ? host->outputs() : call.outputs,
                        call.options.numerics, call.privates),
        &made, error);
  };
  rlk_status status = make();
  if (status == RLK_OUT_OF_MEMORY) {
    list.home.memory.release_cached(/*wait=*/true);
    list.home.pinned.release_cached(/*wait=*/true);
    status = make();
  }
  list.not_ready = status == RLK_NOT_READY;
  if (status == RLK_NOT_READY) {
    list.delay = std::clamp(2 * list.delay, kFirstDelay, kLongestDelay);
    list.ask_again = std::chrono::steady_clock::now() + list.delay;
  }
  if (status != RLK_OK) return status;
  list.delay = {};
  InsidePlan inside = InsidePlan::enter(*made);
  *plan = {made, std::move(inside)};
  *planned_now = true;
  plans_.add(list, std::move(made), lock);
  return RLK_OK;
}

// A staged call's tensors have other strides on the host: its plans are those of calls with these. The key has as many
// parts as the call's own, which fits: it is never cut short.
std::unique_ptr<PlanKey> Dispatcher::host_key(const Call& call, const Snapshot& snapshot) const {
  const HostTensors host(call.bound, call.inputs, call.outputs);
  auto key = std::make_unique<PlanKey>();
  const PlanKey::Scope scope = {
      id_, snapshot.generation, &call.stream.device().entry, call.capturing, call.options.pin, &call.privates};
  static_cast<void>(key->build(scope, call.bound, host.inputs(), host.outputs(), call.options.numerics));
  return key;
}

// The option's verdict changes when the plugin gives no plan, or another than asked for. RLK_OK, *plan nullptr: ask
// the next.
rlk_status Dispatcher::plan_for(const Call& call, const Snapshot& snapshot, const PlanKey& key,
                                const CallRequest& request, Option& option, bool ask_now,
                                std::shared_ptr<PlanList>* list, EnteredPlan* plan, bool* planned_now,
                                rlk_error* error) {
  const Candidate& candidate = *option.candidate;
  rlk_error own = fresh_error();
  DeviceState* home = nullptr;
  if (const rlk_status opened = device(*candidate.on, &home, &own); opened != RLK_OK) {
    refuse(option, Verdict::failed, name_of_status(opened), text_of(own));
    return RLK_OK;
  }
  *list = plans_.list_for(is_staged(call, candidate) ? *host_key(call, snapshot) : key, candidate, *home);
  const rlk_status status = plan_in(call, **list, candidate, ask_now, plan, planned_now, &own);
  if (status == RLK_CAPTURE_FORBIDS) return fail(error, status, text_of(own));
  if (status == RLK_NOT_READY) {
    refuse(option, Verdict::declined, kNotReady, text_of(own));
    return RLK_OK;
  }
  if (status != RLK_OK) {
    const bool declined = status == RLK_UNSUPPORTED;
    refuse(option, declined ? Verdict::declined : Verdict::failed, name_of_status(status),
           "its plan could not be made: " + text_of(own));
    if (declined || status == RLK_OUT_OF_MEMORY || status == RLK_DEVICE_LOST) return RLK_OK;
    count(counters_.of(call.decl()).failures);
    quarantine(candidate, first_dtype(call.bound), status, text_of(own));
    return RLK_OK;
  }
  const Refusal refusal = refuse_plan(call, snapshot, candidate, **plan, request.features);
  if (refusal.code.empty()) return RLK_OK;
  *plan = {};
  refuse(option, Verdict::declined, refusal.code, refusal.text);
  return RLK_OK;
}

rlk_status Dispatcher::wait_for_plan(const Call& call, const Snapshot& snapshot, const PlanKey& key,
                                     const CallRequest& request, Option& option, std::shared_ptr<PlanList>* list,
                                     EnteredPlan* plan, bool* planned_now, rlk_error* error) {
  const auto deadline = std::chrono::steady_clock::now() + kLongestCompilation;
  std::chrono::milliseconds pause{1};
  for (;;) {
    const rlk_status status =
        plan_for(call, snapshot, key, request, option, /*ask_now=*/true, list, plan, planned_now, error);
    if (status != RLK_OK || *plan || option.reason_code != kNotReady) return status;
    if (std::chrono::steady_clock::now() > deadline) {
      refuse(option, Verdict::failed, name_of_status(RLK_TIMEOUT),
             fmt::format("its plan was not ready after {} s", kLongestCompilation.count()));
      return RLK_OK;
    }
    std::this_thread::sleep_for(pause);
    pause = std::min(2 * pause, std::chrono::milliseconds(50));
  }
}

// What the plan says of itself counts, not what query announced.
Refusal Dispatcher::refuse_plan(const Call& call, const Snapshot& snapshot, const Candidate& candidate,
                                CachedPlan& plan, const std::vector<std::string>& features) const {
  if (call.capturing && !plan.has(RLK_PLAN_CAPTURABLE)) {
    return {"NOT_CAPTURABLE", "its plan cannot be captured into a graph"};
  }
  if (plan.is_approved(snapshot.generation)) return {};
  const rlk_plan_info& info = plan.info();
  const uint32_t demanded = call.options.numerics | RLK_NUMERICS_TOLERANCE;
  if ((info.numerics & demanded) != demanded) return {"NUMERICS", "its plan is " + text_of_numerics(info.numerics)};
  for (size_t i = 0; i < call.decl().inputs.size(); ++i) {
    if ((info.host_inputs >> i & 1) == 0 || call.decl().inputs[i].host) continue;
    return {"HOST_INPUTS", std::string("its plan wants to read '") + call.decl().inputs[i].name +
                               "' on the host, which the operator does not declare"};
  }
  Refusal refusal = refuse_unverified(candidate, call.bound, features, info.variant, call.options.numerics);
  if (refusal.code.empty()) plan.approve(snapshot.generation);
  return refusal;
}

rlk_status Dispatcher::decide(const Call& call, const Snapshot& snapshot, const PlanKey& key,
                              std::shared_ptr<const Decision>* decision, EnteredPlan* plan, bool* planned_now,
                              rlk_error* error) {
  count(counters_.of(call.decl()).decisions);
  const CallDescription description(call.bound, call.inputs, call.outputs, call.options.numerics, call.privates);
  const std::vector<std::string> features = features_of(call.bound, call.inputs, call.outputs);
  const CallRequest request{call.bound,
                            description,
                            features,
                            call.options.numerics,
                            call.options.pin,
                            &call.stream.device().entry,
                            call.privates.required(),
                            &watchdog_};
  Selection selection;
  if (const rlk_status s = select(snapshot, policy_, request, &selection, error); s != RLK_OK) return s;
  for (const Option& option : selection.options) {
    if (option.reason_code == kWaiting && option.candidate != nullptr) registry_.want(*option.candidate);
    if (option.verdict != Verdict::failed || option.reason_code != name_of_status(RLK_PLUGIN_EXCEPTION)) continue;
    quarantine(*option.candidate, first_dtype(call.bound), RLK_PLUGIN_EXCEPTION, option.reason);
  }
  NotReady not_ready;  // the best whose plan is still being compiled
  const auto take = [&](Option& option, std::shared_ptr<PlanList> list) -> rlk_status {
    option.verdict = Verdict::taken;
    FallbackCounter* fallback = nullptr;
    const rlk_status noted =
        note_fallback(call, selection.why_not_first(policy_, request, option), option, &fallback, error);
    if (noted != RLK_OK) return noted;
    auto made = std::make_shared<Decision>();
    made->key.assign(key.words().begin(), key.words().end());
    made->candidate = option.candidate;
    made->staged = option.staged;
    if (option.staged) {
      const auto on_host = host_key(call, snapshot);
      made->host_structure.assign(on_host->structure().begin(), on_host->structure().end());
    }
    made->plans = std::move(list);
    made->served = counters_.implementation(call.decl(), option.plugin, option.implementation);
    made->fallback = fallback;
    made->decide_again = not_ready.ask_again;
    made->waits_for_plan = not_ready.option != nullptr;
    if (!call.passed_over.empty()) made->decide_again = std::chrono::steady_clock::now();
    *decision = made;
    plans_.insert(key, std::move(made));
    return RLK_OK;
  };
  for (Option& option : selection.options) {
    if (option.verdict != Verdict::willing) continue;
    const auto passed = std::find_if(call.passed_over.begin(), call.passed_over.end(),
                                     [&](const auto& one) { return one.candidate == option.candidate; });
    if (passed != call.passed_over.end()) {
      refuse(option, Verdict::failed, name_of_status(RLK_OUT_OF_MEMORY), passed->reason);
      continue;
    }
    // Strict mode forbids another implementation, not a delay: wait for the plan.
    if (not_ready.option != nullptr && policy_.fallback() == Fallback::strict &&
        !selection.why_not_first(policy_, request, option).code.empty())
      break;
    if (option.staged && call.capturing) {
      return fail(error, RLK_CAPTURE_FORBIDS,
                  fmt::format("{} would be staged on the CPU, which no graph can capture; nothing was enqueued. {}",
                              call.decl().name, describe_refusals(request, selection)));
    }
    std::shared_ptr<PlanList> list;
    if (const rlk_status s =
            plan_for(call, snapshot, key, request, option, /*ask_now=*/false, &list, plan, planned_now, error);
        s != RLK_OK)
      return s;
    if (!*plan) {
      if (option.reason_code == kNotReady) not_ready.note(option, *list);
      continue;
    }
    return take(option, std::move(list));
  }
  // No other candidate can serve the call.
  if (not_ready.option != nullptr && call.capturing) {
    return fail(error, RLK_CAPTURE_FORBIDS,
                "a plan is still being compiled, and nothing is planned while a graph is captured. Make the call once "
                "before the capture begins. " +
                    describe_refusals(request, selection));
  }
  if (not_ready.option != nullptr) {
    std::shared_ptr<PlanList> list;
    count(counters_.of(call.decl()).not_ready);
    Option& option = *not_ready.option;
    not_ready = {};
    const rlk_status s = wait_for_plan(call, snapshot, key, request, option, &list, plan, planned_now, error);
    if (s != RLK_OK) return s;
    if (*plan) return take(option, std::move(list));
  }
  // Lack of memory is reported first: the caller can do something about it.
  return fail(error, call.passed_over.empty() ? RLK_UNSUPPORTED : RLK_OUT_OF_MEMORY,
              describe_refusals(request, selection));
}

namespace {

// What RLK_FALLBACK=strict says of a fallback.
std::string forbidden(const std::string& taken, const FallbackReason& why) {
  return fmt::format("would fall back to {}, which RLK_FALLBACK=strict forbids ({}): {}", taken, why.code, why.text);
}

}  // namespace

rlk_status Dispatcher::note_fallback(const Call& call, const FallbackReason& reason, const Option& taken,
                                     FallbackCounter** counter, rlk_error* error) {
  FallbackReason why = reason;
  if (why.code.empty()) {
    if (!taken.staged) return RLK_OK;
    why = {kAskedFor, "as was asked for"};
  } else if (policy_.fallback() == Fallback::strict) {
    return fail(error, RLK_UNSUPPORTED,
                fmt::format("{} on {} {}", call.decl().name, call.stream.name(), forbidden(who(taken), why)));
  }
  bool is_new = false;
  *counter = counters_.fallback(call.decl(), why.code, why.text, &is_new);
  if (policy_.fallback() == Fallback::allow) return RLK_OK;
  std::string text = fmt::format("{} on {} is served by {}", call.decl().name, call.stream.name(), who(taken));
  if (!taken.staged) {
    if (!is_new) return RLK_OK;
    log_line(RLK_LOG_WARN, "dispatch", fmt::format("{} ({}): {}. Said once; counted always", text, why.code, why.text));
    return RLK_OK;
  }
  // What it costs is known when the first such call is through: the call logs it.
  FallbackCounter& told = **counter;
  int none = FallbackCounter::none;
  if (!told.announcement.compare_exchange_strong(none, FallbackCounter::in_writing)) return RLK_OK;
  text += call.stream.device().host_functions
              ? ", staged through host memory"
              : ", staged through host memory, and the host waits: the backend has no host functions";
  told.text = fmt::format("{} ({}): {}", text, why.code, why.text);
  told.advice = fmt::format(
      "rlk-plugins scope {} tells what the device serves, rlk-plugins explain {} who could serve the call{}. Said "
      "once; "
      "counted always (RLK_COUNTERS=1)",
      call.stream.device().entry.owner->id, call.decl().name,
      reason.code.empty() ? "" : ", RLK_FALLBACK=strict makes it an error");
  told.announcement = FallbackCounter::ready;
  return RLK_OK;
}

// ---- what would be decided

rlk_status Dispatcher::explain(Stream& stream, const OpDecl& decl, const void* params,
                               std::span<const rlk_tensor* const> inputs, std::span<const rlk_tensor* const> outputs,
                               const CallOptions& options, Explanation* out, rlk_error* error) {
  AcceptedCall accepted(stream, decl, inputs, outputs, options);
  rlk_status status = accepted.accept(params, policy_.numerics(), /*check_memory=*/false, error);
  if (status != RLK_OK) return status;
  const Call& call = accepted.call();
  const CallDescription description(call.bound, call.inputs, call.outputs, call.options.numerics, call.privates);
  const std::vector<std::string> features = features_of(call.bound, call.inputs, call.outputs);
  const CallRequest request{call.bound,
                            description,
                            features,
                            call.options.numerics,
                            call.options.pin,
                            &stream.device().entry,
                            call.privates.required(),
                            &watchdog_};
  Selection selection;
  const auto now = snapshot();
  status = select(*now, policy_, request, &selection, error);
  if (status != RLK_OK) return status;
  const auto key = std::make_unique<PlanKey>();
  status = build_key(call, *now, key.get(), error);
  if (status != RLK_OK) return status;
  const bool strict = policy_.fallback() == Fallback::strict;
  Option* taken = nullptr;
  Option* compiling = nullptr;
  for (Option& option : selection.options) {
    if (option.verdict != Verdict::willing) continue;
    const std::shared_ptr<PlanList> list = plans_.find_list(*key, *option.candidate);
    if (taken == nullptr && list != nullptr && list->not_ready) {
      if (compiling == nullptr) compiling = &option;
      refuse(option, Verdict::declined, kNotReady, "the plan is being compiled in the background");
      continue;
    }
    if (taken == nullptr) {
      // As in decide(): strict waits for the plan instead.
      if (compiling != nullptr && strict && !selection.why_not_first(policy_, request, option).code.empty()) {
        refuse(option, Verdict::filtered, "NOT_FIRST",
               who(*compiling) + " is waited for: RLK_FALLBACK=strict forbids to fall back");
        continue;
      }
      taken = &option;
      option.verdict = Verdict::taken;
      continue;
    }
    refuse(option, Verdict::filtered, "NOT_FIRST",
           fmt::format("{} stands before it: {}", who(*taken), selection.rule_between(policy_, decl, *taken, option)));
  }
  // It is waited for where no other can serve.
  if (taken == nullptr && compiling != nullptr) {
    taken = compiling;
    taken->verdict = Verdict::taken;
  }
  if (taken != nullptr && taken->reason.empty() && taken->candidate != nullptr) {
    const Refusal canary = note_of_basis(*taken->candidate, call.bound, features, taken->variant);
    taken->reason_code = canary.code;
    taken->reason = canary.text;
  }
  if (taken != nullptr) out->fallback = selection.why_not_first(policy_, request, *taken);
  if (taken != nullptr && strict && !out->fallback.code.empty()) {
    out->refused = fmt::format("{} on {} {}", decl.name, stream.name(), forbidden(who(*taken), out->fallback));
    refuse(*taken, Verdict::filtered, "FALLBACK_FORBIDDEN", "the call " + forbidden("it", out->fallback));
  } else if (taken == nullptr) {
    out->refused = describe_refusals(request, selection);
  }
  out->op = decl.name;
  out->kind = kind_of_call(call.bound, features);
  out->sizes = sizes_of_call(call.bound);
  out->staged = fallback_bytes(call.bound, call.inputs, call.outputs);
  out->options = std::move(selection.options);
  return RLK_OK;
}

rlk_status Dispatcher::check_wishes(rlk_error* error) const {
  const auto now = snapshot();
  std::vector<std::string> said;
  for (const OpDecl& decl : declarations()) {
    for (const Preference& preference : policy_.preferences(decl)) {
      if (!preference.platform.empty() && !now->knows(preference.platform)) continue;  // of a platform that is not here
      if (now->knows(preference.who) || now->find_rejected(preference.who) != nullptr) continue;
      std::string text = fmt::format("{} asks for {}, but no backend or plugin is called {}{}", preference.source,
                                     preference.text(), preference.who, now->meant_plugin(preference.who));
      if (std::find(said.begin(), said.end(), text) != said.end()) continue;
      if (policy_.fallback() == Fallback::strict) {
        return fail(error, RLK_INVALID_ARGUMENT, text + " (an error because RLK_FALLBACK=strict)");
      }
      log_line(RLK_LOG_WARN, "policy", text);
      said.push_back(std::move(text));
    }
  }
  return RLK_OK;
}

}  // namespace rlk::core
