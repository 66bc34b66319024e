// From events to verdicts.
#include "core/conformance/units.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <iterator>
#include <map>

namespace rlk::core::conformance {
namespace {

bool contains(const Words& all, const Words& part) {
  return std::includes(all.begin(), all.end(), part.begin(), part.end());
}

Words without(const Words& words, const Words& base) {
  Words rest;
  std::set_difference(words.begin(), words.end(), base.begin(), base.end(), std::inserter(rest, rest.end()));
  return rest;
}

std::string joined(const Words& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " + ") + word;
  return text;
}

// The events of one variant.
class Variant {
public:
  explicit Variant(std::vector<const Event*> events) : events_(std::move(events)) {
    base_ = events_.front()->words;
    for (const Event* event : events_) {
      Words common;
      std::set_intersection(base_.begin(), base_.end(), event->words.begin(), event->words.end(),
                            std::inserter(common, common.end()));
      base_ = common;
    }
    blame();
  }

  // The plain unit and every feature that the variant was tried with.
  std::vector<UnitResult> results() const {
    Words words = {""};
    for (const Event* event : events_) words.insert(event->words.begin(), event->words.end());
    std::vector<UnitResult> list;
    for (const std::string& word : words) list.push_back(result(word));
    return list;
  }

private:
  bool is_plain(const Event& event) const { return event.words.size() == base_.size(); }

  // Whether the word's unit stands or falls with the plain calls.
  bool is_base(const std::string& word) const { return word.empty() || base_.count(word) != 0; }

  void blame() {
    std::vector<const Event*> failed;
    for (const Event* event : events_) {
      if (event->kind == Event::Kind::failed) failed.push_back(event);
    }
    for (const Event* event : failed) {
      const bool explained = std::any_of(failed.begin(), failed.end(), [&](const Event* other) {
        return other->words.size() < event->words.size() && contains(event->words, other->words);
      });
      if (!explained) blame(*event);
    }
  }

  void blame(const Event& event) {
    const Words suspects = without(event.words, base_);
    if (suspects.empty()) {
      off_.emplace("", verdict_of(event, ""));
      return;
    }
    Words guilty;
    for (const std::string& word : suspects) {
      if (!has_passed_without_others(word, event.words)) guilty.insert(word);
    }
    const bool together = guilty.empty();
    if (together) guilty = suspects;
    const std::string note = together && suspects.size() > 1 ? joined(suspects) + " fail only together: " : "";
    for (const std::string& word : guilty) off_.emplace(word, verdict_of(event, note));
  }

  static UnitResult verdict_of(const Event& event, const std::string& note) {
    UnitResult result;
    result.verdict = UnitResult::Verdict::failed;
    result.reason_code = event.code;
    result.reason = note + event.reason;
    return result;
  }

  // Of the plain calls and of each feature alone: pairs would be thousands, and first uses of them are few.
  std::vector<uint32_t> size_classes() const {
    std::set<uint32_t> classes;
    for (const Event* event : events_) {
      if (event->kind == Event::Kind::passed && event->words.size() <= base_.size() + 1) {
        classes.insert(event->size_class);
      }
    }
    return {classes.begin(), classes.end()};
  }

  bool has_passed_without_others(const std::string& word, const Words& words) const {
    return std::any_of(events_.begin(), events_.end(), [&](const Event* event) {
      return event->kind == Event::Kind::passed && event->words.count(word) != 0 &&
             event->words.size() < words.size() && contains(words, event->words);
    });
  }

  UnitResult result(const std::string& word) const {
    UnitResult result;
    const auto off = off_.find(is_base(word) ? "" : word);
    if (off != off_.end()) result = off->second;
    result.feature = word;
    if (word.empty()) result.size_classes = size_classes();
    const Event* unrun = nullptr;
    bool plain_passed = false, any_passed = false, all_tried = true;
    for (const Event* event : events_) plain_passed |= event->kind == Event::Kind::passed && is_plain(*event);
    for (const Event* event : events_) {
      // The plain unit is proved by plain calls; where a variant has none, by all it serves.
      const bool own = is_base(word) ? is_plain(*event) || !plain_passed : event->words.count(word) != 0;
      if (!own) continue;
      if (event->kind == Event::Kind::unrun && (!is_base(word) || is_plain(*event))) unrun = event;
      if (event->kind == Event::Kind::unrun) continue;
      result.cases += event->tried;
      all_tried &= event->tried;
      if (event->kind != Event::Kind::passed) continue;
      any_passed = true;
      if (!event->reason.empty() && result.reason.empty()) {  // what was not tried whole
        result.reason_code = event->code;
        result.reason = event->reason;
      }
      result.numerics |= event->numerics;
      result.worst_error_ratio = std::max(result.worst_error_ratio, event->quality.ratio);
      result.worst_error_ulp = std::max(result.worst_error_ulp, event->quality.ulp);
      result.worst_shrinkage = std::max(result.worst_shrinkage, event->quality.shrinkage);
    }
    if (off != off_.end()) {
      result.numerics = 0;
    } else if (unrun != nullptr || !any_passed) {
      result.verdict = UnitResult::Verdict::declined;
      result.numerics = 0;
      const Event* why = unrun;
      for (const Event* event : events_) {
        if (why == nullptr && event->kind != Event::Kind::passed) why = event;
      }
      if (why != nullptr) result.reason_code = why->code;
      if (why != nullptr) result.reason = why->reason;
    } else {
      result.verdict = UnitResult::Verdict::verified;
      if (!all_tried) tell_of_canary(result);
    }
    return result;
  }

  static void tell_of_canary(UnitResult& result) {
    result.reason_code = kCanary;
    result.reason = result.cases > 0 ? fmt::format("a canary: {} {} tried on this machine, the rest when rlk was built",
                                                   result.cases, result.cases == 1 ? "call was" : "calls were")
                                     : "tried when rlk was built; on this machine a canary of its operator was";
  }

  std::vector<const Event*> events_;
  Words base_;
  std::map<std::string, UnitResult> off_;
};

}  // namespace

bool Units::is_known_to_fail(const std::string& variant, const Words& words) const {
  return std::any_of(failed_.begin(), failed_.end(), [&](const size_t at) {
    return events_[at].variant == variant && contains(words, events_[at].words);
  });
}

std::vector<UnitResult> Units::results() const {
  std::map<std::string, std::vector<const Event*>> variants;
  Words seen;
  for (const Event& event : events_) {
    if (event.kind == Event::Kind::declined) continue;
    variants[event.variant].push_back(&event);
    seen.insert(event.words.begin(), event.words.end());
  }
  std::vector<UnitResult> list;
  for (const auto& [name, events] : variants) {
    for (UnitResult& result : Variant(events).results()) {
      result.variant = name;
      list.push_back(std::move(result));
    }
  }
  // What no variant took: the plain call when nothing was taken at all, else a feature that only ever got a no.
  std::map<std::string, UnitResult> declined;
  for (const Event& event : events_) {
    if (event.kind != Event::Kind::declined) continue;
    const Words unseen = without(event.words, seen);
    if (unseen.size() > 1 || (unseen.empty() && !(variants.empty() && event.words.empty()))) continue;
    UnitResult result;
    result.feature = unseen.empty() ? "" : *unseen.begin();
    result.reason_code = event.code;
    result.reason = event.reason;
    if (!variants.empty() || unseen.empty()) declined.emplace(result.feature, std::move(result));
  }
  for (auto& [word, result] : declined) list.push_back(std::move(result));
  return list;
}

}  // namespace rlk::core::conformance
