// The request and its time budgets on the way out, and a crash, a hang or an early exit put in words.
#include "loader/probe/child_probe.hpp"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <utility>

#include "loader/discover/self.hpp"
#include "loader/probe/guard.hpp"
#include "loader/store/exact_text.hpp"

#ifndef RLK_PROBER_PATH
#error "RLK_PROBER_PATH, where rlk-prober will be installed, must be defined by the build"
#endif

namespace rlk::loader {
namespace {

using nlohmann::json;

// With RLK_PROBE_TIMEOUT at its default. The vendor's own initialisation is in load, create and enumerate.
constexpr struct {
  const char* phase;
  double seconds;
} kBudgets[] = {{"start", 10},  {"load", 30},      {"negotiate", 5}, {"create", 60}, {"probe", 30},
                {"owner", 120}, {"enumerate", 60}, {"query", 10},    {"smoke", 240}, {"operators", 240}};
constexpr double kShortestPhaseSeconds = 1.0;  // below that a busy machine alone looks like a hang
constexpr double kSilenceSeconds = 60.0;       // a hang shows here; a slow machine makes progress and has more time
constexpr double kFirstSilenceSeconds = 30.0;  // of an operator that others wait for: it is tried again, after them

// The child's last word wins where the plugin was examined; its path, source and id stay the parent's.
void take(PluginRecord child, PluginRecord* record) {
  child.path = std::move(record->path);
  child.source = std::move(record->source);
  child.id = std::move(record->id);
  *record = std::move(child);
}

void describe_end(ChildOutcome outcome, PluginRecord* record) {
  const auto end = [&](State state, const Reason& why) {
    record->stop(state, Place::child, why, std::move(outcome.text));
  };
  switch (outcome.end) {
    case ChildEnd::finished:
      return;
    case ChildEnd::exited:
      return end(State::rejected, reason::kExited);
    case ChildEnd::timed_out:
      return end(State::deferred, reason::kTimedOut);
    case ChildEnd::cancelled:
      return end(State::deferred, reason::kCancelled);
    case ChildEnd::garbled:
      return end(State::rejected, reason::kProtocolError);
    case ChildEnd::not_started:
      return end(State::rejected, reason::kSpawnFailed);
    case ChildEnd::crashed: {
      const bool from_outside =
          outcome.code == SIGKILL || outcome.code == SIGTERM || outcome.code == SIGINT || outcome.code == SIGHUP;
      return from_outside ? end(State::deferred, reason::kKilled) : end(State::rejected, reason::kCrashed);
    }
  }
}

// The child has reported what waits: from then on it tries operators.
bool has_begun(const PluginRecord& record) {
  return !record.units.empty();
}

bool has(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// The child was killed while it tried one: the first that waits, in the order in which it tries them.
void give_up_operator(const ChildProbe& probe, const std::string& why, bool for_good, PluginRecord* record) {
  const std::vector<std::string> waiting = waiting_operators(*record);
  std::vector<std::string> order = probe.operators;
  if (order.empty()) {
    order = waiting;
    std::stable_partition(order.begin(), order.end(), [&](const std::string& op) { return has(probe.wanted, op); });
  }
  const auto tried = std::find_if(order.begin(), order.end(), [&](const std::string& op) { return has(waiting, op); });
  if (tried == order.end()) return;
  for (core::UnitResult& unit : record->units) {
    if (unit.op != *tried || !is_waiting(unit)) continue;
    unit.reason_code = for_good ? reason::kTimedOut.code : core::kPutOff;
    unit.reason = for_good ? why : "tried again after the others: " + why;
    if (for_good) unit.verdict = core::UnitResult::Verdict::failed;
  }
}

// Whether anything is left of the plugin without the operators that showed no sign of life.
bool stands_without(const PluginRecord& record) {
  return std::any_of(record.units.begin(), record.units.end(), [](const core::UnitResult& unit) {
    return is_waiting(unit) || unit.verdict == core::UnitResult::Verdict::verified;
  });
}

std::string note_of_left(const std::vector<std::string>& left) {
  std::string text = "the plugin left processes running in sessions of their own; they were ended:";
  for (const std::string& name : left) text += (&name == &left.front() ? " " : ", ") + name;
  return text;
}

}  // namespace

bool timeout_scale_of(const Environment& environment, double* scale) {
  *scale = 1.0;
  const auto text = environment.get("RLK_PROBE_TIMEOUT");
  if (!text) return true;
  char* end = nullptr;
  const double seconds = std::strtod(text->c_str(), &end);
  const bool good = *end == '\0' && seconds > 0.0 && seconds < 1e6;
  if (good) *scale = seconds / kDefaultProbeTimeoutSeconds;
  return good;
}

double timeout_scale_of(const Environment& environment) {
  double scale = 1.0;
  timeout_scale_of(environment, &scale);
  return scale;
}

std::vector<PhaseBudget> phase_budgets(double scale) {
  const double shortest = std::min(kShortestPhaseSeconds, kDefaultProbeTimeoutSeconds * scale);
  std::vector<PhaseBudget> budgets;
  for (const auto& [phase, seconds] : kBudgets) budgets.push_back({phase, std::max(seconds * scale, shortest)});
  return budgets;
}

std::string find_prober(const Environment& environment) {
  std::vector<std::string> candidates;
  if (const auto named = environment.path("RLK_PROBER")) candidates.push_back(*named);
  if (const std::string folder = own_folder(); !folder.empty()) {
    for (const char* relative : {"/rlk-prober", "/../bin/rlk-prober", "/../libexec/rlk/rlk-prober",
                                 "/../../libexec/rlk/rlk-prober", "/../../bin/rlk-prober"})
      candidates.push_back(folder + relative);
  }
  candidates.push_back(RLK_PROBER_PATH);
  for (const std::string& candidate : candidates)
    if (candidate.front() == '/' && access(candidate.c_str(), X_OK) == 0) return candidate;
  return {};
}

std::string encode_request(const PluginRecord& record, const ChildProbe& probe) {
  json request = {{"record", record_to_text(record)}, {"smoke_seconds", probe.smoke_seconds * probe.scale},
                  {"canary", probe.canary},           {"by_operator", probe.by_operator},
                  {"operators", probe.operators},     {"wanted", probe.wanted},
                  {"owners", json::array()},          {"reports", json::array()}};
  for (const OwnerCandidate& owner : probe.owners)
    request["owners"].push_back({{"id", owner.id}, {"path", exact_json(owner.path)}});
  for (const StandingReport& report : probe.reports)
    request["reports"].push_back({{"name", report.name}, {"record", record_to_text(report.record)}});
  return request.dump(-1, ' ', false, json::error_handler_t::replace);
}

bool decode_request(const std::string& text, PluginRecord* record, ExamineOptions* options, std::string* error) {
  const json request = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!request.is_object() || !request.value("record", json()).is_string() ||
      !request.value("smoke_seconds", json()).is_number() || !request.value("owners", json()).is_array()) {
    *error = "the request is not of this version";
    return false;
  }
  options->smoke_seconds = request["smoke_seconds"].get<double>();
  options->suite.canary = request.value("canary", json()) == true;
  options->suite.threads = 0;
  options->by_operator = request.value("by_operator", json()) == true;
  for (const auto& [name, list] : {std::pair("operators", &options->operators), {"wanted", &options->wanted}}) {
    for (const json& op : request.value(name, json::array()))
      if (op.is_string()) list->push_back(op.get<std::string>());
  }
  for (const json& owner : request["owners"]) {
    if (!owner.is_object() || !owner.value("id", json()).is_string() ||
        !(owner.value("path", json()).is_string() || owner.value("path", json()).is_object())) {
      *error = "the request names an owner without id or path";
      return false;
    }
    options->owners.push_back({owner["id"].get<std::string>(), exact_text(owner["path"])});
  }
  for (const json& report : request.value("reports", json::array())) {
    StandingReport& known = options->reports.emplace_back();
    if (!report.is_object() || !report.value("name", json()).is_string() ||
        !report.value("record", json()).is_string()) {
      *error = "the request has a report without a name or a record";
      return false;
    }
    known.name = report["name"].get<std::string>();
    if (!record_from_text(report["record"].get<std::string>(), &known.record, error)) return false;
  }
  return record_from_text(request["record"].get<std::string>(), record, error);
}

bool probe_in_child(const ChildProbe& probe, PluginRecord* record) {
  ChildCommand command;
  command.program = probe.prober;
  // Shown in the process list only; the request is what counts.
  command.arguments = {record->path.empty() ? "--builtin" : "--plugin",
                       record->path.empty() ? record->id : record->path};
  for (std::string& word : parent_words()) command.arguments.push_back(std::move(word));
  for (const auto& [name, value] : probe.environment.values) command.environment.push_back(name + "=" + value);
  command.budgets = phase_budgets(probe.scale);
  const bool is_second_try = !probe.operators.empty() && core::is_put_off(record->units, probe.operators.front());
  command.silence_seconds = std::max(kSilenceSeconds * probe.scale, kShortestPhaseSeconds);
  if (!is_second_try)
    command.budgets.back().silence_seconds = std::max(kFirstSilenceSeconds * probe.scale, kShortestPhaseSeconds);
  command.cancel = probe.cancel;
  command.request = encode_request(*record, probe);

  PluginRecord latest = *record;
  std::string error;
  const auto tries = [&] { return probe.by_operator && latest.state == State::capability_checked; };
  if (probe.enough) command.enough = [&] { return tries() && probe.enough(); };
  bool has_devices = false;
  ChildOutcome outcome = run_child(command, [&](std::string_view message) {
    // One that cannot be read changes nothing; the last one decides.
    if (!record_from_text(message, &latest, &error)) return;
    if (!has_devices && latest.state == State::capability_checked) {
      has_devices = true;
      if (probe.on_devices) probe.on_devices(latest);
    }
    if (!tries() || !probe.on_tried || !has_begun(latest)) return;
    PluginRecord now = latest;
    conclude(&now, Place::child);
    probe.on_tried(now);
  });
  if (outcome.end == ChildEnd::finished && !record_from_text(outcome.result, &latest, &error)) {
    outcome.end = ChildEnd::garbled;
    outcome.text = "the prober's answer is not a record: " + error;
  }
  latest.output = std::move(outcome.output);
  if (!outcome.left.empty()) latest.notes.push_back(note_of_left(outcome.left));
  const bool was_trying = tries() && has_begun(latest);
  const bool came_so_far = outcome.end == ChildEnd::finished || was_trying || probe.operators.empty();
  take(std::move(latest), record);
  if (was_trying && outcome.end == ChildEnd::timed_out) {
    give_up_operator(probe, outcome.text, is_second_try, record);
    if (stands_without(*record)) {
      conclude(record, Place::child);
      return true;
    }
  }
  if (was_trying && outcome.end == ChildEnd::cancelled) {
    conclude(record, Place::child);
    return true;
  }
  describe_end(std::move(outcome), record);
  return came_so_far && record->state != State::absent;
}

}  // namespace rlk::loader
