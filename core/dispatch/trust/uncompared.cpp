// The list of classes, and its words.
#include "core/dispatch/trust/uncompared.hpp"

#include <fmt/core.h>

namespace rlk::core {

const char* code_of(WhyNot why) {
  static constexpr const char* kCodes[] = {"TOO_LARGE",  "SCATTERED",   "NO_MEMORY", "NO_ROOM", "UNUSUAL_NUMBERS",
                                           "DATA_ERROR", "CALL_FAILED", "CAPTURED",  "STAGED"};
  return kCodes[static_cast<size_t>(why)];
}

std::optional<UncomparedClass> Uncompared::note(const CallClass& of, WhyNot why, const std::string& reason,
                                                bool final) {
  const std::pair key(of.name, why);
  auto at = entries_.find(key);
  if (at == entries_.end()) {
    if (entries_.size() >= kMost) return std::nullopt;
    at = entries_.emplace(key, Entry{}).first;
    at->second.what.unit = of.unit;
    at->second.what.reason_code = code_of(why);
  }
  Entry& entry = at->second;
  entry.what.sizes = of.sizes;
  entry.what.reason = reason;
  ++entry.what.calls;
  if (!final || entry.told) return std::nullopt;
  entry.told = true;
  return entry.what;
}

void Uncompared::forget(const std::string& name) {
  auto at = entries_.lower_bound({name, WhyNot{}});
  while (at != entries_.end() && at->first.first == name) at = entries_.erase(at);
}

std::vector<UncomparedClass> Uncompared::list() const {
  std::vector<UncomparedClass> list;
  for (const auto& [key, entry] : entries_) list.push_back(entry.what);
  return list;
}

std::string text_of(const UncomparedClass& uncompared) {
  const ComparedClass& unit = uncompared.unit;
  return fmt::format("{} by {}/{} ({}{}{}) is not compared with the reference: {} ({})", unit.op, unit.plugin,
                     unit.implementation, unit.dtype, uncompared.sizes.empty() ? "" : ", ", uncompared.sizes,
                     uncompared.reason, uncompared.reason_code);
}

}  // namespace rlk::core
