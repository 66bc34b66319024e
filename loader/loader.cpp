// Discovery, then probing, with the built-in plugin first.
#include "loader/loader.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "core/dispatch/log.hpp"
#include "loader/probe/child_probe.hpp"
#include "loader/probe/standing_report.hpp"
#include "loader/store/cache.hpp"
#include "loader/store/quarantine.hpp"

namespace rlk::loader {
namespace {

// What failed at run time or is known to be wrong.
void take_out_known_failures(const ProbeOptions& options, std::vector<ProbedPlugin>* plugins) {
  QuarantineList quarantine(options.store);
  quarantine.add_breadcrumbs();
  const std::vector<QuarantineEntry> in_force = quarantine.in_force();
  for (ProbedPlugin& plugin : *plugins) {
    apply(options.known_bad, options.use_known_bad, &plugin.record);
    apply(in_force, options.store, &plugin.record);
  }
}

// Nothing was tried, and the plugin is not to blame.
bool was_not_tried(const PluginRecord& record) {
  return record.state == State::deferred &&
         (record.reason_code == reason::kProbeBusy.code || record.reason_code == reason::kCancelled.code);
}

// Fewer operators wait, or one of them was put off.
bool has_moved(const PluginRecord& before, const PluginRecord& after) {
  const auto put_off = [](const PluginRecord& record) {
    return std::count_if(record.units.begin(), record.units.end(),
                         [](const core::UnitResult& unit) { return unit.reason_code == core::kPutOff; });
  };
  return waiting_operators(after).size() < waiting_operators(before).size() || put_off(after) > put_off(before);
}

// Of the plugins that options.waiting names.
bool try_more_of(std::vector<ProbedPlugin>* found, const ProbeOptions& options) {
  std::set<std::string> backends;
  for (const ProbedPlugin& plugin : *found)
    if (options.waiting.count(plugin.record.id) > 0) backends.insert(plugin.record.backend);
  // One backend's plugins come together, as when they were found.
  std::vector<PluginRecord> records;
  std::vector<size_t> places;
  for (size_t i = 0; i < found->size(); ++i) {
    const PluginRecord& record = found->at(i).record;
    if (record.is_place || record.path.empty() || backends.count(record.backend) == 0) continue;
    if (record.state == State::shadowed || found->at(i).content.empty()) continue;
    PluginRecord& again = records.emplace_back();
    again.path = record.path;
    again.source = record.source;
    again.id = record.id;
    again.backend = record.backend;
    again.advance(State::discovered, Place::static_screen);
    places.push_back(i);
  }
  std::vector<ProbedPlugin> tried = probe_plugins(std::move(records), options);
  take_out_known_failures(options, &tried);
  bool go_on = false;
  for (size_t i = 0; i < tried.size(); ++i) {
    ProbedPlugin& known = found->at(places[i]);
    const PluginRecord& record = tried[i].record;
    if (options.waiting.count(known.record.id) == 0 || tried[i].screened.identity != known.screened.identity) continue;
    if (was_not_tried(record)) {
      go_on = true;
      continue;
    }
    const std::vector<std::string> waiting = waiting_operators(record);
    // The cache had lost what this process knows, and the prober has looked anew: that verdict knows less.
    if (may_run(record) && waiting.size() > options.waiting.at(known.record.id).size()) continue;
    const bool waits = may_run(record) && !waiting.empty() && !tried[i].was_not_tried;
    // The prober may have stopped for an operator that a call wants now, before it had tried one of the others.
    const bool is_wanted = options.demand != nullptr && !options.demand->wanted_of(known.record.id, waiting).empty();
    const bool is_interrupted = options.interrupt != nullptr && *options.interrupt;
    go_on = go_on || (waits && (is_wanted || is_interrupted || has_moved(known.record, record)));
    known = std::move(tried[i]);
  }
  return go_on;
}

}  // namespace

bool try_more(std::vector<ProbedPlugin>* found, ProbeOptions options) {
  options.trial = TrialScope::more;
  options.waiting.clear();
  for (const ProbedPlugin& plugin : *found) {
    std::vector<std::string> waiting = waiting_operators(plugin.record);
    if (!waiting.empty() && may_run(plugin.record)) options.waiting[plugin.record.id] = std::move(waiting);
  }
  const auto of_wanted = [&] {
    std::map<std::string, std::vector<std::string>> wanted;
    for (const auto& [id, waiting] : options.waiting)
      if (options.demand != nullptr && !options.demand->wanted_of(id, waiting).empty()) wanted[id] = waiting;
    return wanted;
  };
  std::map<std::string, std::vector<std::string>> wanted = of_wanted();
  // A plugin that takes its time does not keep what is wanted of another.
  options.yields_to_wanted = wanted.empty();
  if (!wanted.empty() && wanted.size() < options.waiting.size()) {
    ProbeOptions first = options;
    first.waiting = std::move(wanted);
    if (try_more_of(found, first)) return true;
  }
  return try_more_of(found, options) || (options.yields_to_wanted && !of_wanted().empty());
}

std::vector<ProbedPlugin> find_plugins(const SearchOptions& search, ProbeOptions options) {
  if (!probe_mode_of(options.environment, &options.mode)) {
    // An unknown value must not switch the isolation off.
    options.mode = ProbeMode::isolated;
    core::log_line(RLK_LOG_WARN, "probe",
                   "RLK_PROBE is \"" + *options.environment.get("RLK_PROBE") +
                       "\"; expected isolated, inprocess or off. Using isolated");
  }
  if (bool eager = false; !is_eager_of(options.environment, &eager)) {
    core::log_line(
        RLK_LOG_WARN, "probe",
        "RLK_VERIFY is \"" + *options.environment.get("RLK_VERIFY") + "\"; expected lazy or eager. Using lazy");
  }
  if (bool use = true; !uses_reports_of(options.environment, &use)) {
    core::log_line(
        RLK_LOG_WARN, "probe",
        "RLK_REPORTS is \"" + *options.environment.get("RLK_REPORTS") + "\"; expected use or ignore. Using use");
  }
  if (double scale = 1.0; !timeout_scale_of(options.environment, &scale)) {
    core::log_line(RLK_LOG_WARN, "probe",
                   "RLK_PROBE_TIMEOUT is \"" + *options.environment.get("RLK_PROBE_TIMEOUT") +
                       "\"; expected seconds above 0 and below 1000000. Using 60");
  }
  if (int64_t seconds = 0; !retry_seconds_of(options.environment, &seconds)) {
    core::log_line(RLK_LOG_WARN, "probe",
                   fmt::format("RLK_PROBE_RETRY is \"{}\"; expected seconds from 0 to 86400. Using {}",
                               *options.environment.get("RLK_PROBE_RETRY"), seconds));
  }
  for (const auto& [list, named] : {std::pair(&search.policy, "the policy file"), {&search.defaults, "by default"}}) {
    for (const SearchEntry& entry : *list)
      core::log_line(RLK_LOG_DEBUG, "search", fmt::format("{} is searched, {} ({})", entry.path, named, entry.source));
  }
  for (const char* name : {"RLK_PLUGIN_PATH", "RLK_ADD_PLUGIN_PATH"}) {
    if (const auto value = options.environment.get(name))
      core::log_line(RLK_LOG_DEBUG, "search", fmt::format("{} is {}", name, *value));
  }
  std::vector<PluginRecord> records = {built_in_record("cpu")};
  for (PluginRecord& record : discover(options.environment, search)) {
    if (record.state == State::discovered && record.id == records.front().id) {
      record.stop(State::shadowed, Place::static_screen, reason::kSameId,
                  fmt::format("{} ({}) has the id {} of the built-in CPU backend, which is used", record.path,
                              record.source, record.id),
                  "rebuild the plugin under an id of its own");
    }
    records.push_back(std::move(record));
  }
  std::vector<ProbedPlugin> plugins = probe_plugins(std::move(records), options);
  take_out_known_failures(options, &plugins);
  for (const ProbedPlugin& plugin : plugins) {
    const PluginRecord& record = plugin.record;
    core::log_line(
        RLK_LOG_DEBUG, record.is_place ? "search" : "plugin " + record.id,
        fmt::format("{} ({}): {}{}", record.path.empty() ? "built in" : record.path, record.source,
                    to_string(record.state),
                    record.reason_code.empty() ? "" : fmt::format(", {}: {}", record.reason_code, record.reason)));
  }
  return plugins;
}

}  // namespace rlk::loader
