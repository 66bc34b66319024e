// The walk of one operator, dtype and form.
#include "core/conformance/schedule.hpp"

#include <algorithm>
#include <map>

#include "core/conformance/layouts.hpp"
#include "core/conformance/nan.hpp"
#include "core/conformance/orders.hpp"
#include "core/conformance/sizes.hpp"

namespace rlk::core::conformance {

bool shows_variations(const ConcreteCall& call) {
  const auto empty = [](const Argument& a) { return a.present && a.count() == 0; };
  return std::none_of(call.inputs.begin(), call.inputs.end(), empty) &&
         std::none_of(call.outputs.begin(), call.outputs.end(), empty);
}

namespace {

bool shows_variations(const Case& c) {
  ConcreteCall call;
  return resolve(c, call) && conformance::shows_variations(call);
}

bool same_sizes(const Case& a, const Case& b) {
  return a.size_choice == b.size_choice && a.size_given == b.size_given && a.shape_case == b.shape_case &&
         a.first_given == b.first_given && a.last_given == b.last_given && a.shapes_given == b.shapes_given;
}

class Walk {
public:
  Walk(Extent extent, uint64_t seed, const Offer& offer)
      : smoke_(extent != Extent::full), outline_(extent == Extent::outline), seed_(seed), offer_(offer) {}

  // A base stands for its variant when no base before it had that one: then it gets everything.
  void base(const Case& base, bool stands_for_variant) {
    offer_(base, Stage::plain);
    Case with_content = base;
    with_content.brief = smoke_ && !stands_for_variant;
    contents(with_content, stands_for_variant, Stage::content);
    all(rounding_cases(base), Stage::content);
    for (Case& single : single_cases(base, smoke_)) {
      single.brief = smoke_ && !stands_for_variant;
      offer_(single, Stage::single);
      if (!stands_for_variant || single.variations[0].layout != Layout::contiguous) continue;
      const bool adds_an_input = (single.variations[0].present & 0xffffffffu) != 0;
      const bool has_other_integers = single.variations[0].dtype_variable > 0;
      // Variations change which rows and numbers count: what hurts is tried with each.
      contents(single, adds_an_input || has_other_integers || !smoke_, Stage::single_content);
      if (adds_an_input && !outline_) faults_in_other_dtypes(single);
    }
    if (outline_ || (!stands_for_variant && smoke_)) return;
    if (!smoke_) all(pair_cases(base), Stage::together);
    for (const Case& together : covering_cases(base, seed_)) {
      if (!offer_(together, Stage::together).empty() || !smoke_) continue;
      all(pairs_within(together), Stage::together);
    }
  }

private:
  void contents(const Case& base, bool every_fault, Stage stage) {
    for (const Case& c : content_cases(base)) {
      if (!outline_ || c.content == base.content) offer_(c, stage);
    }
    if (outline_) return;
    all(nan_cases(base, smoke_), stage);
    all(fault_cases(base, every_fault), stage);
  }
  // Integers of the other width too: what narrows a number before looking at it is right in 32 bits.
  void faults_in_other_dtypes(const Case& single) {
    const OpDecl& decl = *single.decl;
    for (size_t i = 0; i < decl.inputs.size(); ++i) {
      const int variable = decl.inputs[i].dtype.variable;
      if ((single.variations[0].present >> i & 1) == 0 || variable <= 0) continue;
      for (size_t k = 1; k < decl.dtypes[static_cast<size_t>(variable)].choices.size(); ++k) {
        Case other = single;
        Variation& v = other.variations.emplace_back();
        v.dtype_variable = variable;
        v.dtype_choice = static_cast<int>(k);
        all(fault_cases(other, true), Stage::single_content);
      }
    }
  }
  void all(const std::vector<Case>& cases, Stage stage) {
    for (const Case& c : cases) offer_(c, stage);
  }

  bool smoke_, outline_;
  uint64_t seed_;
  const Offer& offer_;
};

}  // namespace

void schedule(const OpDecl& decl, int dtype_choice, int form, Extent extent,
              std::span<const rlk_switch* const> switches, uint64_t seed, const Offer& offer) {
  const bool smoke = extent != Extent::full;
  std::map<std::string, Case> variants;  // the first plain case of each that shows variations
  std::vector<Case> standing;
  const auto offer_plain = [&](Case c, Stage stage) {
    for (const std::string& variant : offer(c, stage)) {
      if (!shows_variations(c) || !variants.emplace(variant, c).second) continue;
      c.brief = false;
      standing.push_back(c);
    }
  };
  std::vector<Case> sizes = plain_cases(decl, dtype_choice, form, smoke, switches);
  for (const Case& c : sizes) offer_plain(c, Stage::plain);
  for (Case& c : size_cases(decl, dtype_choice, form, smoke)) {
    offer_plain(c, Stage::size);
    sizes.push_back(std::move(c));
  }
  for (const Case& c : order_cases(decl, dtype_choice, form, sizes)) offer(c, Stage::size);
  std::vector<Case> bases = variation_bases(decl, dtype_choice, form, smoke);
  // An implementation that takes no plain call may still take one with a variation, perhaps at its own sizes alone.
  if (standing.empty()) {
    for (const Case& c : sizes_of_switches(decl, dtype_choice, form, smoke, switches)) {
      const std::vector<Case> singles = single_cases(c, smoke);
      const auto is_taken = [&](const Case& single) { return !offer(single, Stage::single).empty(); };
      if (std::none_of(singles.begin(), singles.end(), is_taken)) continue;
      standing.push_back(c);
      break;
    }
  }
  if (standing.empty() && !bases.empty()) standing.push_back(bases.front());
  Walk walk(extent, seed, offer);
  std::vector<Case> done;
  const auto visit = [&](const Case& base, bool stands_for_variant) {
    const auto same = [&](const Case& other) { return same_sizes(base, other); };
    if (std::any_of(done.begin(), done.end(), same)) return;
    done.push_back(base);
    walk.base(base, stands_for_variant);
  };
  for (const Case& base : standing) visit(base, true);
  for (const Case& base : bases) visit(base, false);
  // Optional arguments beside sizes that are not small.
  for (const Case& base : middle_bases(decl, dtype_choice, form, smoke)) {
    for (Case& single : single_cases(base, smoke)) {
      if (single.variations[0].present != 0) offer(single, Stage::single);
    }
  }
  for (const Case& c : layout_cases(decl, dtype_choice, form, smoke)) offer(c, Stage::single);
  for (const Case& c : option_cases(decl, dtype_choice, form, smoke)) {
    if (!offer(c, Stage::together).empty()) continue;
    for (const Case& alone : each_alone(c)) offer(alone, Stage::single);
  }
}

}  // namespace rlk::core::conformance
