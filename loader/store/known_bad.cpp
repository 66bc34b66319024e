// By globs over the record's evidence.
#include "loader/store/known_bad.hpp"

#include <fmt/core.h>
#include <fnmatch.h>

#include <algorithm>

namespace rlk::loader {
namespace {

bool matches(const std::string& glob, const std::string& text) {
  return fnmatch(glob.c_str(), text.c_str(), 0) == 0;
}

bool names(const std::string& glob, const PluginRecord& record) {
  return matches(glob, record.id) || matches(glob, record.backend);
}

bool concerns(const KnownBad& bad, const core::UnitResult& unit) {
  return bad.operators.empty() ||
         std::any_of(bad.operators.begin(), bad.operators.end(), [&](const std::string& which) {
           return which == unit.op || which == unit.op + ":" + unit.implementation;
         });
}

bool is_verified(const core::UnitResult& unit) {
  return unit.verdict == core::UnitResult::Verdict::verified;
}

}  // namespace

void apply(const std::vector<KnownBad>& table, const std::vector<std::string>& used_anyway, PluginRecord* record) {
  if (record->state != State::smoke_tested && record->state != State::partial) return;
  const bool is_used = std::any_of(used_anyway.begin(), used_anyway.end(),
                                   [&](const std::string& glob) { return names(glob, *record); });
  std::string said;
  for (const KnownBad& bad : table) {
    if (!names(bad.plugin, *record)) continue;
    const auto seen = std::find_if(record->evidence.begin(), record->evidence.end(), [&](const Evidence& item) {
      return item.kind == bad.evidence && matches(bad.value, item.value);
    });
    if (seen == record->evidence.end()) continue;
    std::string what;
    for (const std::string& which : bad.operators) what += (what.empty() ? "" : ", ") + which;
    const std::string why = fmt::format("{} with {} {}: {} ({})", what.empty() ? "all operators" : what, seen->kind,
                                        seen->value, bad.reason, bad.source);
    size_t out = 0;
    for (core::UnitResult& unit : record->units) {
      if (is_used || !is_verified(unit) || !concerns(bad, unit)) continue;
      unit.verdict = core::UnitResult::Verdict::failed;
      unit.reason_code = reason::kKnownBad.code;
      unit.reason = fmt::format("{} {}: {} ({})", seen->kind, seen->value, bad.reason, bad.source);
      ++out;
    }
    if (is_used) record->notes.push_back("known to be bad, and used because the policy says so: " + why);
    if (out > 0) said += (said.empty() ? "" : "; ") + why;
  }
  if (said.empty()) return;
  const bool has_more = std::any_of(record->units.begin(), record->units.end(), is_verified);
  record->stop(has_more ? State::partial : State::rejected, Place::host, reason::kKnownBad, said);
}

}  // namespace rlk::loader
