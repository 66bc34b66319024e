// What results of units mean together: of several devices, and for the plugin.
#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "loader/probe/examine.hpp"

namespace rlk::loader {

using core::UnitResult;

namespace {

// The names of operators, each once: "attention, logp".
std::string operators_of(const std::vector<const UnitResult*>& units) {
  std::set<std::string> names;
  for (const UnitResult* unit : units) names.insert(unit->op);
  std::string out;
  for (const std::string& name : names) out += (out.empty() ? "" : ", ") + name;
  return out;
}

}  // namespace

std::vector<UnitResult> merge_units(const std::vector<std::vector<UnitResult>>& per_device) {
  std::vector<UnitResult> merged;
  std::map<std::tuple<std::string, std::string, std::string, std::string, std::string>, size_t> places;
  for (const std::vector<UnitResult>& units : per_device) {
    for (const UnitResult& unit : units) {
      const auto [place, is_new] =
          places.try_emplace({unit.op, unit.implementation, unit.dtype, unit.feature, unit.variant}, merged.size());
      if (is_new) {
        merged.push_back(unit);
        continue;
      }
      UnitResult& known = merged[place->second];
      const auto rank = [](const UnitResult& result) {
        return result.verdict == UnitResult::Verdict::failed     ? 2
               : result.verdict == UnitResult::Verdict::declined ? 1
                                                                 : 0;
      };
      const UnitResult& worse = rank(unit) > rank(known) ? unit : known;
      UnitResult sum = worse;
      // Both are verified: a size counts as tried where every kind of card has tried it.
      if (rank(worse) == 0)
        std::erase_if(sum.size_classes, [&](uint32_t size) {
          return std::find(unit.size_classes.begin(), unit.size_classes.end(), size) == unit.size_classes.end();
        });
      sum.numerics = known.numerics & unit.numerics;
      sum.worst_error_ratio = std::max(known.worst_error_ratio, unit.worst_error_ratio);
      sum.worst_error_ulp = std::max(known.worst_error_ulp, unit.worst_error_ulp);
      sum.cases = known.cases + unit.cases;
      known = std::move(sum);
    }
  }
  return merged;
}

void conclude(PluginRecord* record, Place place) {
  std::vector<const UnitResult*> verified;
  std::vector<const UnitResult*> failed;
  std::vector<const UnitResult*> unreached;
  const bool some_wait = std::any_of(record->units.begin(), record->units.end(), core::is_waiting);
  for (const UnitResult& unit : record->units) {
    if (unit.verdict == UnitResult::Verdict::verified) verified.push_back(&unit);
    if (unit.verdict == UnitResult::Verdict::failed) failed.push_back(&unit);
    if (unit.verdict == UnitResult::Verdict::declined && unit.reason_code == kUnitNotReached)
      unreached.push_back(&unit);
  }
  const std::string of_all = fmt::format(" of {} units", record->units.size());
  const auto first = [](const UnitResult& unit) {
    return fmt::format("{} {} {}{}: {}, {}", unit.op, unit.implementation, unit.dtype,
                       unit.feature.empty() ? "" : " " + unit.feature, unit.reason_code, unit.reason);
  };
  record->advance(State::smoke_tested, place);
  if (!unreached.empty() && failed.empty()) {
    record->stop(verified.empty() && !some_wait ? State::deferred : State::partial, place, reason::kTimedOut,
                 fmt::format("the smoke test's time was up before {}{} ({})", unreached.size(), of_all,
                             operators_of(unreached)));
    if (record->state == State::partial)
      record->broken = false;  // what was tested is right: a slow machine is no fault
  } else if (!failed.empty() && (!verified.empty() || some_wait)) {
    record->stop(
        State::partial, place, reason::kSomeFailed,
        fmt::format("{}{} failed ({}), first {}", failed.size(), of_all, operators_of(failed), first(*failed.front())));
  } else if (verified.empty() && !some_wait && !record->units.empty()) {
    const UnitResult& example = failed.empty() ? record->units.front() : *failed.front();
    record->stop(State::rejected, place, reason::kNothingVerified,
                 fmt::format("none{} was verified: {} failed, the others were declined; {}", of_all, failed.size(),
                             first(example)),
                 failed.empty()
                     ? fmt::format("nothing failed: the plugin declined every call that was tried; what it misses is "
                                   "in the reasons, all of them with `rlk-plugins inspect {}`",
                                   record->id)
                     : "");
  }
}

}  // namespace rlk::loader
