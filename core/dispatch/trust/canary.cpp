// The conformance engine's canary, on a thread that may be left behind.
#include "core/dispatch/trust/canary.hpp"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <memory>
#include <utility>
#include <vector>

#include "core/conformance/conformance.hpp"
#include "core/dispatch/call/planning.hpp"
#include "core/dispatch/trust/process_end.hpp"
#include "core/dispatch/trust/timeout.hpp"
#include "core/dispatch/trust/trace.hpp"

namespace rlk::core {
namespace {

constexpr double kBudgetSeconds = 20.0;

// Failures that say nothing about the implementation: the machine is out of memory or slow, or the engine is at fault.
bool says_nothing(const UnitResult& unit) {
  return unit.reason_code == "NO_MEMORY" || unit.reason_code == "BUDGET" || unit.reason_code == "ENGINE" ||
         unit.reason_code == kNotReady;
}

bool is_to_try(const Candidate& candidate, const DeviceEntry& device, const OpDecl& decl, const std::string& dtype) {
  if (candidate.on != &device || candidate.decl != &decl || candidate.plugin->built_in) return false;
  for (const auto& off : candidate.quarantined)
    if (off->dtype.empty() || off->dtype == dtype) return false;
  return std::any_of(candidate.units.begin(), candidate.units.end(), [&](const UnitResult* unit) {
    return unit->verdict == UnitResult::Verdict::verified && unit->dtype == dtype;
  });
}

}  // namespace

bool Canaries::find_wrong(const Snapshot& snapshot, const DeviceEntry& device, const OpDecl& decl,
                          const std::string& dtype) {
  if (!enabled_) return false;
  const auto any = std::any_of(snapshot.candidates.begin(), snapshot.candidates.end(),
                               [&](const Candidate& candidate) { return is_to_try(candidate, device, decl, dtype); });
  if (!any) return false;
  bool found = false;
  for (const Candidate& candidate : snapshot.candidates) {
    if (!is_to_try(candidate, device, decl, dtype)) continue;
    const auto attempt = attempt_of({candidate.plugin->api, &device, &decl, dtype});
    const std::lock_guard lock(attempt->mutex);
    // What is left behind inside the plugin would hold this up, too; until it has come back no plan is ready.
    if (attempt->is_over || is_held_up(*candidate.plugin->api)) continue;
    bool is_over = true;
    found |= try_one(*candidate.plugin, device, *candidate.device, decl, dtype, &is_over);
    attempt->is_over = is_over;  // not where there was no memory to try it
  }
  return found || registry_.current().get() != &snapshot;
}

std::shared_ptr<Canaries::Attempt> Canaries::attempt_of(Key key) {
  const std::lock_guard lock(mutex_);
  std::shared_ptr<Attempt>& attempt = attempts_[std::move(key)];
  if (attempt == nullptr) attempt = std::make_shared<Attempt>();
  return attempt;
}

bool Canaries::try_one(const PluginBinding& plugin, const DeviceEntry& on, PluginDevice& device, const OpDecl& decl,
                       const std::string& dtype, bool* is_over) {
  if (end_has_begun()) return false;
  rlk_error error{};
  error.struct_size = sizeof(error);
  rlk_plugin_device *owners = nullptr, *its = nullptr;
  // A device that cannot be opened takes no calls; opening it for a call will report why.
  if (on.device->open(&owners, &error) != RLK_OK || device.open(&its, &error) != RLK_OK) return false;
  // A canary that hangs goes on in the background, so the work owns all that it uses.
  struct Work {
    Target target;
    ConformanceOptions options;
    std::vector<UnitResult> results;
    std::vector<Trace> traces;
    std::atomic<bool> plans{false};  // the plugin makes a plan at the moment
  };
  const auto work = std::make_shared<Work>();
  Target& target = work->target;
  target.plugin = plugin.api;
  target.device = its;
  target.owner = on.owner->api;
  target.owner_device = owners;
  target.owner_instance = on.owner->instance;
  target.owner_flags = on.properties().flags;
  target.owner_memory_bytes = on.properties().memory_bytes;
  work->options.canary = true;
  work->options.ops = {decl.name};
  work->options.dtype = dtype;
  work->options.budget_s = kBudgetSeconds * patience();
  std::vector<std::string> names;
  for (uint32_t i = 0; i < plugin.api->n_implementations; ++i) {
    const rlk_implementation& one = *plugin.api->implementations[i];
    if (std::string_view(one.op) != decl.name) continue;
    names.emplace_back(one.name);
    work->traces.push_back(trace({plugin.id, decl.name, one.name, dtype, "the canary", plugin.api}));
  }
  // A limit for each of its calls, and that of plans for the plans it needs: as many seconds as dispatch would allow.
  const double seconds = longest_seconds_ > 0 ? std::min(longest_seconds_ / patience(), kOpenSeconds) : kOpenSeconds;
  std::atomic<bool>& plans = work->plans;
  const Ended ended = within_phases(*plugin.api, {kPlanSeconds, seconds}, [work](PlanPhases& phases) {
    work->target.planning = [&](bool begins) {
      work->plans = begins;
      begins ? phases.begin_plan() : phases.end_plan();
    };
    work->options.progress = [&](const std::string&) { phases.next(); };
    work->results = run_conformance(work->target, work->options);
    work->traces.clear();
  });
  if (end_has_begun()) return false;
  watch_for_the_end();  // the operator's code has run here for the first time
  if (ended == Ended::held_up) {
    *is_over = false;  // it only waited: tried again when that is over
    return false;
  }
  if (ended == Ended::late) {
    const bool in_plan = plans;
    char text[160];
    std::snprintf(text, sizeof(text),
                  "%s in this process has not returned for %.3g s; it is given up, "
                  "and its thread left behind",
                  in_plan ? "plan_create of a first small call" : "a first small call",
                  (in_plan ? kPlanSeconds : seconds) * patience());
    for (const std::string& name : names) registry_.quarantine(plugin, decl.name, name, dtype, "TIMEOUT", text);
    return true;
  }
  bool found = false;
  for (const UnitResult& unit : work->results) {
    if (unit.verdict != UnitResult::Verdict::failed || unit.op != decl.name || says_nothing(unit)) continue;
    found = true;
    registry_.quarantine(plugin, decl.name, unit.implementation, dtype, unit.reason_code,
                         "a first small call in this process failed, although its probe passed: " + unit.reason);
  }
  return found;
}

}  // namespace rlk::core
