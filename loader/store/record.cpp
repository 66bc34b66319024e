// Names of states and the two ways in which a record changes its state.
#include "loader/store/record.hpp"

#include <algorithm>
#include <chrono>
#include <map>
#include <set>
#include <tuple>
#include <utility>

namespace rlk::loader {
namespace {

constexpr struct {
  std::string_view name, meaning;
} kStates[] = {{"discovered", "found, and not looked at yet"},
               {"screened", "looked at without running it"},
               {"loaded", "loaded into a child process"},
               {"negotiated", "its ABI fits"},
               {"probed", "it says that the hardware is its own"},
               {"capability_checked", "its devices and operators are known"},
               {"smoke_tested", "its operators were tested"},
               {"registered", "in use"},
               {"shadowed", "another file of the same identity was found first; see its own line"},
               {"absent", "nothing is broken: this machine has no such hardware or runtime"},
               {"rejected", "not used; the reason says why"},
               {"deferred", "not used for now; tried again later"},
               {"partial", "in use, but for some operators or dtypes"},
               {"quarantined", "switched off after a failure at run time"},
               {"retired", "replaced by a newer file"}};
constexpr std::string_view kPlaces[] = {"static", "child", "host"};

template <class Enum>
bool find_name(const auto& names, std::string_view text, Enum* value, auto&& name_of) {
  for (size_t i = 0; i < std::size(names); ++i) {
    if (name_of(names[i]) != text) continue;
    *value = static_cast<Enum>(i);
    return true;
  }
  return false;
}

int64_t now_unix_us() {
  return std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::system_clock::now().time_since_epoch())
      .count();
}

}  // namespace

std::string_view to_string(State state) {
  return kStates[static_cast<size_t>(state)].name;
}
std::string_view meaning_of(State state) {
  return kStates[static_cast<size_t>(state)].meaning;
}
std::string_view to_string(Place place) {
  return kPlaces[static_cast<size_t>(place)];
}
bool parse(std::string_view text, State* state) {
  return find_name(kStates, text, state, [](const auto& row) { return row.name; });
}
bool parse(std::string_view text, Place* place) {
  return find_name(kPlaces, text, place, [](std::string_view name) { return name; });
}

void PluginRecord::advance(State next, Place place) {
  state = next;
  history.push_back({next, place, now_unix_us(), {}});
}

void PluginRecord::stop(State next, Place place, const Reason& why, std::string text, std::string better_hint) {
  if (next == State::rejected && is_absence(why)) next = State::absent;
  state = next;
  reason_code = why.code;
  reason = std::move(text);
  broken = why.broken;
  hint = better_hint.empty() ? std::string(why.hint) : std::move(better_hint);
  history.push_back({next, place, now_unix_us(), reason_code});
}

bool may_run(const PluginRecord& record) {
  return record.state == State::smoke_tested || record.state == State::partial;
}

bool serves(const PluginRecord& record) {
  return record.state == State::registered || record.state == State::partial;
}

OperatorCounts count_operators(const PluginRecord& record) {
  struct Seen {
    bool verified = false;
    bool failed = false;
    bool quarantined = false;
    bool waiting = false;
  };
  std::map<std::string_view, Seen> operators;
  for (const core::UnitResult& unit : record.units) {
    Seen& seen = operators[unit.op];
    seen.verified |= unit.verdict == core::UnitResult::Verdict::verified;
    seen.failed |= unit.verdict == core::UnitResult::Verdict::failed;
    seen.quarantined |= unit.reason_code == reason::kQuarantined.code;
    seen.waiting |= is_waiting(unit) || unit.reason_code == kUnitNotReached;
  }
  OperatorCounts counts;
  for (const auto& [op, seen] : operators) {
    if (record.state == State::quarantined || (seen.quarantined && !seen.verified)) {
      ++counts.quarantined;
    } else if (seen.failed) {
      ++counts.partial;
    } else if (seen.waiting) {
      ++counts.waiting;
    } else if (seen.verified) {
      ++counts.verified;
    } else {
      ++counts.unsupported;
    }
  }
  return counts;
}

std::vector<core::UnitResult> representative_units(const std::vector<core::UnitResult>& units) {
  std::vector<core::UnitResult> out;
  std::set<std::tuple<std::string_view, core::UnitResult::Verdict, std::string_view, bool>> seen;
  for (const core::UnitResult& unit : units)
    if (seen.emplace(unit.op, unit.verdict, unit.reason_code, unit.cases > 0).second) out.push_back(unit);
  return out;
}

std::vector<std::string> waiting_operators(const PluginRecord& record) {
  std::vector<std::string> found;
  for (const char* code : {core::kWaiting, core::kPutOff}) {
    for (const core::UnitResult& unit : record.units) {
      if (is_waiting(unit) && unit.reason_code == code && std::find(found.begin(), found.end(), unit.op) == found.end())
        found.push_back(unit.op);
    }
  }
  return found;
}

}  // namespace rlk::loader
