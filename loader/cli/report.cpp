// Printing of records.
#include "loader/cli/report.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <set>
#include <utility>

#include "core/declaration/numerics.hpp"
#include "loader/cli/call.hpp"
#include "loader/cli/output.hpp"
#include "loader/store/support.hpp"

namespace rlk::cli {

using core::UnitResult;
using loader::PluginRecord;
using loader::State;

Tone tone_of(const PluginRecord& record) {
  if (record.broken) return Tone::bad;
  if (record.state == State::registered || record.state == State::smoke_tested)
    return record.reason_code.empty() ? Tone::good : Tone::caution;
  const bool is_off =
      record.state == State::rejected || record.state == State::absent || record.state == State::shadowed;
  return is_off ? Tone::faint : Tone::caution;
}

std::string reason_text(const PluginRecord& record) {
  if (record.reason_code.empty() || record.reason.empty()) return record.reason_code + record.reason;
  return record.reason_code + ": " + record.reason;
}

std::string tried_text(const PluginRecord& record) {
  if (const size_t waiting = waiting_operators(record).size(); waiting > 0) {
    return fmt::format("{} operators are tried when a program wants them; to try all now: rlk-plugins probe {}",
                       waiting, shell_word(record.id));
  }
  if (record.tried != loader::kTriedCanary) return {};
  return "tried on this machine: a canary, one call of each operator and dtype; the rest when rlk was built. To try "
         "everything here: rlk-plugins probe --fresh " +
         shell_word(record.id);
}

std::string unit_name(const UnitResult& unit) {
  return fmt::format("{} {} {}{}{}", unit.op, unit.implementation, unit.dtype,
                     unit.feature.empty() ? "" : " " + unit.feature,
                     unit.variant.empty() ? "" : ", variant " + unit.variant);
}

std::string number_text(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.3g", value);
  return text;
}

namespace {

// What the states mean that are there and need a word.
void print_legend(const std::vector<PluginRecord>& records) {
  std::set<State> states;
  for (const PluginRecord& record : records) {
    if (!record.is_place && record.state != State::registered) states.insert(record.state);
  }
  if (!states.empty()) std::fprintf(output(), "\n");
  for (const State state : states) {
    const std::string line = fmt::format("{}: {}", to_string(state), meaning_of(state));
    std::fprintf(output(), "%s\n", coloured(line, Tone::faint).c_str());
  }
}

}  // namespace

namespace {

constexpr size_t kWidthOfAllColumns = 110, kNarrowDevices = 16;

// Of the operators that count as partial those of which nothing is left.
size_t failed_operators(const PluginRecord& record) {
  std::map<std::string, std::pair<bool, bool>> seen;  // failed; verified or switched off
  for (const UnitResult& unit : record.units) {
    auto& [failed, otherwise] = seen[unit.op];
    failed |= unit.verdict == UnitResult::Verdict::failed;
    otherwise |= unit.verdict == UnitResult::Verdict::verified ||
                 unit.reason_code == loader::reason::kQuarantined.code || record.state == State::quarantined;
  }
  return static_cast<size_t>(std::count_if(
      seen.begin(), seen.end(), [](const auto& entry) { return entry.second.first && !entry.second.second; }));
}

}  // namespace

void print_list(const std::vector<PluginRecord>& records, loader::Store* store) {
  // A row stays within the terminal: what only sometimes matters is left out of a narrow one.
  const bool narrow = line_width() < kWidthOfAllColumns;
  Table table(narrow ? std::vector<std::string>{"plugin", "backend", "version", "state", "devices", "operators"}
                     : std::vector<std::string>{"plugin", "backend", "version", "abi", "state", "support", "devices",
                                                "operators", "source"});
  if (narrow) table.wrap(4, kNarrowDevices, line_width());
  Table places({"place", "named by", "finding"});
  for (const PluginRecord& record : records) {
    if (record.is_place) {
      places.row({record.path, record.source, {record.reason_code, record.broken ? Tone::bad : Tone::caution}});
      places.note(record.reason, record.broken ? Tone::bad : Tone::faint);
      places.note("hint: " + record.hint);
      continue;
    }
    const loader::OperatorCounts counts = count_operators(record);
    const loader::Support support = support_of(record, store);
    const size_t failed = failed_operators(record);
    std::string operators = fmt::format("{} verified", counts.verified);
    if (counts.partial > failed) operators += fmt::format(", {} partial", counts.partial - failed);
    if (failed > 0) operators += fmt::format(", {} failed", failed);
    if (counts.unsupported > 0) operators += fmt::format(", {} unsupported", counts.unsupported);
    if (counts.quarantined > 0) operators += fmt::format(", {} quarantined", counts.quarantined);
    if (counts.waiting > 0) operators += fmt::format(", {} waiting", counts.waiting);
    if (record.units.empty()) operators.clear();
    std::string devices;
    if (!record.devices.empty()) {
      devices = record.devices.front().name;
      if (record.devices.size() > 1) devices = fmt::format("{} x {}", record.devices.size(), devices);
    }
    const Cell state = {std::string(to_string(record.state)), tone_of(record)};
    if (narrow) {
      table.row({record.id, record.backend, record.version, state, devices, operators});
    } else {
      table.row({record.id,
                 record.backend,
                 record.version,
                 record.abi,
                 state,
                 {std::string(support.tier()), support.active ? Tone::plain : Tone::faint},
                 devices,
                 operators,
                 record.source});
    }
    if (!record.reason_code.empty()) table.note(reason_text(record), tone_of(record));
    if (!record.reason_code.empty() && !record.hint.empty()) table.note("hint: " + record.hint);
    if (const std::string tried = tried_text(record); !tried.empty()) table.note(tried, Tone::faint);
  }
  table.print();
  if (narrow) std::fprintf(output(), "\n%s", wrapped("a wider terminal has abi, support and source too", 0).c_str());
  print_legend(records);
  if (places.empty()) return;
  std::fprintf(output(), "\n");
  places.print();
}

void print_failures(const PluginRecord& record) {
  for (const UnitResult& unit : record.units) {
    if (unit.verdict != UnitResult::Verdict::failed) continue;
    std::fprintf(output(), "%s\n%s", coloured("failed: " + printable(unit_name(unit)), Tone::bad).c_str(),
                 wrapped(unit.reason_code + ": " + unit.reason, 4).c_str());
  }
}

void print_operators(const PluginRecord& record) {
  struct Sum {
    int verified = 0, failed = 0, declined = 0, cases = 0;
    double worst = 0;
    uint32_t numerics = ~0u;
  };
  std::map<std::pair<std::string, std::string>, Sum> sums;
  for (const UnitResult& unit : record.units) {
    Sum& sum = sums[{unit.op, unit.implementation}];
    sum.verified += unit.verdict == UnitResult::Verdict::verified;
    sum.failed += unit.verdict == UnitResult::Verdict::failed;
    sum.declined += unit.verdict == UnitResult::Verdict::declined;
    sum.cases += unit.cases;
    if (unit.verdict != UnitResult::Verdict::verified) continue;
    sum.worst = std::max(sum.worst, unit.worst_error_ratio);
    if (unit.feature.empty()) sum.numerics &= unit.numerics;
  }
  Table table({"operator", "implementation", "verified", "failed", "declined", "cases", "error / allowed", "numerics"});
  for (const auto& [key, sum] : sums) {
    table.row({key.first,
               key.second,
               std::to_string(sum.verified),
               {std::to_string(sum.failed), sum.failed > 0 ? Tone::bad : Tone::plain},
               std::to_string(sum.declined),
               std::to_string(sum.cases),
               sum.verified > 0 ? number_text(sum.worst) : "-",
               sum.verified > 0 && sum.numerics != ~0u ? core::text_of_numerics(sum.numerics) : "-"});
  }
  if (!table.empty()) table.print();
}

}  // namespace rlk::cli
