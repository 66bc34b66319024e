// Names of states and the two ways in which a record changes its state.
#include "loader/record.hpp"

#include <chrono>
#include <map>
#include <utility>

namespace rlk::loader {
namespace {

constexpr std::string_view kStates[] = {"discovered",         "screened",     "loaded",      "negotiated", "probed",
                                        "capability_checked", "smoke_tested", "registered",  "shadowed",   "rejected",
                                        "deferred",           "partial",      "quarantined", "retired"};
constexpr std::string_view kPlaces[] = {"static", "child", "host"};

template <class Enum, size_t N>
bool find_name(const std::string_view (&names)[N], std::string_view text, Enum* value) {
  for (size_t i = 0; i < N; ++i) {
    if (names[i] != text) continue;
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
  return kStates[static_cast<size_t>(state)];
}
std::string_view to_string(Place place) {
  return kPlaces[static_cast<size_t>(place)];
}
bool parse(std::string_view text, State* state) {
  return find_name(kStates, text, state);
}
bool parse(std::string_view text, Place* place) {
  return find_name(kPlaces, text, place);
}

void PluginRecord::advance(State next, Place place) {
  state = next;
  history.push_back({next, place, now_unix_us(), {}});
}

void PluginRecord::stop(State next, Place place, const Reason& why, std::string text, std::string better_hint) {
  state = next;
  reason_code = why.code;
  reason = std::move(text);
  broken = why.broken;
  hint = better_hint.empty() ? std::string(why.hint) : std::move(better_hint);
  history.push_back({next, place, now_unix_us(), reason_code});
}

OperatorCounts count_operators(const PluginRecord& record) {
  struct Seen {
    bool verified = false;
    bool failed = false;
  };
  std::map<std::string_view, Seen> operators;
  for (const core::UnitResult& unit : record.units) {
    Seen& seen = operators[unit.op];
    seen.verified |= unit.verdict == core::UnitResult::Verdict::verified;
    seen.failed |= unit.verdict == core::UnitResult::Verdict::failed;
  }
  OperatorCounts counts;
  for (const auto& [op, seen] : operators) {
    if (record.state == State::quarantined) {
      ++counts.quarantined;
    } else if (seen.failed) {
      ++counts.partial;
    } else if (seen.verified) {
      ++counts.verified;
    } else {
      ++counts.unsupported;
    }
  }
  return counts;
}

}  // namespace rlk::loader
