// Which unit is to blame? Collects what happened to every case of one implementation and dtype, and says at the end
// which units are verified, which are off and why.
//
// A variant's base is what all its cases have in common: the features without which it never runs (a variant that only
// serves the packed layout). A case with no feature beyond the base is a plain call of the variant. When a case fails,
// the features beyond the base that have passed without the others are innocent; when all have, they fail only together
// and all are off.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "core/conformance/buffers.hpp"
#include "core/conformance/conformance.hpp"
#include "core/conformance/quality.hpp"

namespace rlk::core::conformance {

using Words = std::set<std::string>;

struct Event {
  enum class Kind { passed, failed, declined, unrun } kind = Kind::declined;
  std::string variant;  // empty when declined
  Words words;          // the features of the case
  std::string code, reason;
  uint32_t numerics = 0;  // passed: classes that were claimed and held
  Quality quality{};      // passed
  uint32_t size_class = 0;
  bool tried = true;  // passed: false when it was not run, because a canary stands for it
};

class Units {
public:
  void add(Event event) {
    if (event.kind == Event::Kind::failed) failed_.push_back(events_.size());
    events_.push_back(std::move(event));
  }
  // A part of these features has failed for the variant: the case would tell nothing new.
  bool is_known_to_fail(const std::string& variant, const Words& words) const;
  const std::vector<Event>& events() const { return events_; }
  // op, implementation and dtype are left empty.
  std::vector<UnitResult> results() const;

private:
  std::vector<Event> events_;
  std::vector<size_t> failed_;  // of events_
};

}  // namespace rlk::core::conformance
