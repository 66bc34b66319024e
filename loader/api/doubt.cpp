// What the policy names against what the plugins in use have.
#include <fmt/core.h>

#include <algorithm>
#include <set>

#include "core/declaration/near_name.hpp"
#include "loader/api/config.hpp"
#include "loader/store/record.hpp"

namespace rlk::loader {
namespace {

bool is_in_use(const PluginRecord& record) {
  return !record.is_place && (serves(record) || may_run(record));
}

// "" where the implementation is there, or where its name is like none that is.
std::string doubt_of_off(const core::PolicyEntry& entry, const std::vector<PluginRecord>& records) {
  std::set<std::string> there;
  for (const PluginRecord& record : records) {
    if (!is_in_use(record) || record.path.empty()) continue;  // on the built-in CPU nothing is off
    if (!entry.platform.empty() && record.backend != entry.platform) continue;
    for (const core::UnitResult& unit : record.units)
      if (unit.op == entry.op) there.insert(unit.implementation);
  }
  if (there.count(entry.value) > 0) return {};
  const std::string near = core::near_name(entry.value, {there.begin(), there.end()});
  if (near.empty()) return {};
  return fmt::format("{}: [off] names the implementation '{}' of {}, which no plugin here has, did you mean '{}'?",
                     entry.source, entry.value, entry.op, near);
}

std::string doubt_of_known_bad(const KnownBad& bad, const PluginRecord& record) {
  std::set<std::string> shown;
  for (const Evidence& item : record.evidence) shown.insert(item.kind);
  if (shown.empty() || shown.count(bad.evidence) > 0) return {};
  std::string list;
  for (const std::string& kind : shown) list += (list.empty() ? "" : ", ") + kind;
  return fmt::format(
      "{}: [[known_bad]] has seen '{}', which the plugin {} does not show, so it has no effect on it; "
      "it shows: {}",
      bad.source, bad.evidence, record.id, list);
}

}  // namespace

std::vector<std::string> doubts_of(const Config& config, const std::vector<PluginRecord>& records) {
  std::vector<std::string> doubts;
  const auto add = [&](std::string doubt) {
    if (!doubt.empty()) doubts.push_back(std::move(doubt));
  };
  for (const core::PolicyEntry& entry : config.policy)
    if (!entry.off.empty() && !entry.value.empty()) add(doubt_of_off(entry, records));
  for (const KnownBad& bad : config.known_bad) {
    for (const PluginRecord& record : records) {
      // One that is meant for every plugin is about those that show such a thing.
      const bool is_named = bad.plugin == record.id || bad.plugin == record.backend;
      if (is_named && is_in_use(record)) add(doubt_of_known_bad(bad, record));
    }
  }
  return doubts;
}

}  // namespace rlk::loader
