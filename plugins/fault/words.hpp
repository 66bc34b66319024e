// Every word that RLK_FAULT may have. A misspelt one is refused: a host that survives nothing would seem to survive it.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>

namespace rlk::fault {

struct Words {
  std::string_view where;  // "" is anywhere, "raw_" any place that begins so
  std::string_view words;  // with spaces between
};

constexpr std::string_view kPlaces = "load entry create probe count describe open enqueue attach tag";
// Behind "raw_".
constexpr std::string_view kRawPlaces =
    "create destroy probe count describe open close allocate deallocate stream_create stream_destroy stream_query "
    "synchronize copy event_create event_destroy query plan_create enqueue plan_destroy";

constexpr Words kFaults[] = {
    {"",
     "crash abort exit killed end_thread crash_later cancel hang stall slow hold throw throw_int absent round_up flush "
     "chdir print scribble close_all many_files daemon daemon_stall undo_death stop_parent trace_parent "
     "trace_grandparent"},
    {"raw_", "lost no_memory error"},
    {"enqueue", "wrong_f32 wrong_f64 one_element nan beyond"},
    {"probe", "not_mine none nonsense escapes"},
    {"count", "zero many"},
    {"open", "null"},
    {"attach", "refuse"},
    {"entry",
     "null silent_null tiny_table short_table other_major other_draft newer_minor needs_newer_host other_id "
     "missing_slots"}};

inline bool has_word(std::string_view words, std::string_view word) {
  for (size_t at = 0; at < words.size();) {
    const size_t end = std::min(words.find(' ', at), words.size());
    if (!word.empty() && words.substr(at, end - at) == word) return true;
    at = end + 1;
  }
  return false;
}

inline bool is_raw(std::string_view where) {
  return where.substr(0, 4) == "raw_";
}

inline bool is_at(const Words& faults, std::string_view where) {
  return faults.where.empty() || faults.where == where || (faults.where == "raw_" && is_raw(where));
}

inline std::string clipped(std::string_view word) {
  constexpr size_t kLongest = 40;
  return word.size() <= kLongest ? std::string(word) : std::string(word.substr(0, kLongest)) + "...";
}

// What is wrong with one "where:what", "" when nothing is.
inline std::string problem_of_fault(std::string_view fault) {
  const size_t colon = fault.find(':');
  if (colon == std::string_view::npos) return "'" + clipped(fault) + "' is not where:what, as create:crash is";
  const std::string_view where = fault.substr(0, colon), what = fault.substr(colon + 1);
  if (!(is_raw(where) ? has_word(kRawPlaces, where.substr(4)) : has_word(kPlaces, where)))
    return "no place is called '" + clipped(where) + "'; known: " + std::string(kPlaces) + ", and raw_ before " +
           std::string(kRawPlaces);
  std::string known;
  for (const Words& faults : kFaults) {
    if (!is_at(faults, where)) continue;
    if (has_word(faults.words, what)) return {};
    known = std::string(faults.words) + (known.empty() ? "" : " ") + known;  // the place's own words come first
  }
  if (where == "tag") return {};
  return "no fault of " + std::string(where) + " is called '" + clipped(what) + "'; known: " + known;
}

// Of faults with commas between, of which each may have `host.` before it; the first thing that is wrong.
inline std::string problem_of_faults(std::string_view faults, bool of_file) {
  for (size_t at = 0; at < faults.size();) {
    const size_t end = std::min(faults.find(',', at), faults.size());
    std::string_view fault = faults.substr(at, end - at);
    constexpr std::string_view kHost = "host.";
    if (of_file && fault.substr(0, kHost.size()) == kHost) fault.remove_prefix(kHost.size());
    at = end + 1;
    if (fault.empty()) continue;
    std::string problem = problem_of_fault(fault);
    if (!problem.empty()) return problem;
  }
  return {};
}

}  // namespace rlk::fault
