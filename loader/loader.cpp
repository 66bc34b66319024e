// Discovery, then probing, with the built-in plugin first.
#include "loader/loader.hpp"

#include <fmt/core.h>

#include <utility>

#include "core/dispatch/log.hpp"
#include "loader/probe/child_probe.hpp"
#include "loader/store/cache.hpp"
#include "loader/store/quarantine.hpp"

namespace rlk::loader {

std::vector<ProbedPlugin> find_plugins(const SearchOptions& search, ProbeOptions options) {
  if (!probe_mode_of(options.environment, &options.mode)) {
    // An unknown value must not switch the isolation off.
    options.mode = ProbeMode::isolated;
    core::log_line(RLK_LOG_WARN, "probe",
                   "RLK_PROBE is \"" + *options.environment.get("RLK_PROBE") +
                       "\"; expected isolated, inprocess or off. Using isolated");
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
  QuarantineList quarantine(options.store);
  quarantine.add_breadcrumbs();
  const std::vector<QuarantineEntry> in_force = quarantine.in_force();
  for (ProbedPlugin& plugin : plugins) {
    apply(options.known_bad, options.use_known_bad, &plugin.record);
    apply(in_force, options.store, &plugin.record);
  }
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
