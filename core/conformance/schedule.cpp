// The walk of one operator, dtype and form.
#include "core/conformance/schedule.hpp"

#include <algorithm>
#include <map>

#include "core/conformance/nan.hpp"

namespace rlk::core::conformance {
namespace {

// A size at which variations show: nothing is empty, and there are rows to tell apart where the declaration has any.
bool shows_variations(const Case& c) {
  Call call;
  if (!resolve(c, call)) return false;
  const auto empty = [](const Argument& a) { return a.present && a.count() == 0; };
  return std::none_of(call.inputs.begin(), call.inputs.end(), empty) &&
         std::none_of(call.outputs.begin(), call.outputs.end(), empty);
}

bool same_sizes(const Case& a, const Case& b) {
  return a.size_choice == b.size_choice && a.size_given == b.size_given && a.shape_case == b.shape_case;
}

class Walk {
public:
  Walk(bool smoke, uint64_t seed, const Offer& offer) : smoke_(smoke), seed_(seed), offer_(offer) {}

  // A base stands for its variant when no base before it had that one: then it gets everything.
  void base(const Case& base, bool stands_for_variant) {
    offer_(base, Stage::plain);
    all(content_cases(base), Stage::content);
    all(nan_cases(base, smoke_), Stage::content);
    all(rounding_cases(base), Stage::content);
    all(fault_cases(base, stands_for_variant), Stage::content);
    for (const Case& single : single_cases(base, smoke_)) {
      offer_(single, Stage::single);
      if (!stands_for_variant || single.variations[0].layout != Layout::contiguous) continue;
      const bool adds_an_input = (single.variations[0].present & 0xffffffffu) != 0;
      all(fault_cases(single, adds_an_input || !smoke_), Stage::single_content);
      // Variations change which rows and numbers count: what hurts is tried with each.
      all(content_cases(single), Stage::single_content);
      all(nan_cases(single, smoke_), Stage::single_content);
    }
    if (!stands_for_variant && smoke_) return;
    if (!smoke_) all(pair_cases(base), Stage::together);
    for (const Case& together : covering_cases(base, seed_)) {
      if (!offer_(together, Stage::together).empty() || !smoke_) continue;
      all(pairs_within(together), Stage::together);
    }
  }

private:
  void all(const std::vector<Case>& cases, Stage stage) {
    for (const Case& c : cases) offer_(c, stage);
  }

  bool smoke_;
  uint64_t seed_;
  const Offer& offer_;
};

}  // namespace

void schedule(const OpDecl& decl, int dtype_choice, int form, bool smoke, std::span<const rlk_switch* const> switches,
              uint64_t seed, const Offer& offer) {
  std::map<std::string, Case> variants;  // the first plain case of each that shows variations
  std::vector<Case> standing;
  for (const Case& c : plain_cases(decl, dtype_choice, form, smoke, switches)) {
    for (const std::string& variant : offer(c, Stage::plain)) {
      if (shows_variations(c) && variants.emplace(variant, c).second) standing.push_back(c);
    }
  }
  std::vector<Case> bases = variation_bases(decl, dtype_choice, form, smoke);
  // An implementation that takes no plain call may still take one with a variation.
  if (standing.empty() && !bases.empty()) standing.push_back(bases.front());
  Walk walk(smoke, seed, offer);
  std::vector<Case> done;
  const auto visit = [&](const Case& base, bool stands_for_variant) {
    const auto same = [&](const Case& other) { return same_sizes(base, other); };
    if (std::any_of(done.begin(), done.end(), same)) return;
    done.push_back(base);
    walk.base(base, stands_for_variant);
  };
  for (const Case& base : standing) visit(base, true);
  for (const Case& base : bases) visit(base, false);
}

}  // namespace rlk::core::conformance
