// How much is tried, and in which order? The smoke test and the full suite as walks over the case lists, which follow
// the variants that an implementation names: every variant is tried with every variation.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/conformance/cases.hpp"

namespace rlk::core::conformance {

// The simple cases come first: a failure can be put down to a feature only if the calls without it have passed.
enum class Stage { plain, size, content, single, single_content, together };

// Takes a case, and says which variants would run it (none: declined).
using Offer = std::function<std::vector<std::string>(const Case&, Stage)>;

enum class Extent {
  full,
  smoke,
  outline,  // of the smoke test what tells its units and size classes: no hurting contents, no variations together
};

void schedule(const OpDecl& decl, int dtype_choice, int form, Extent extent,
              std::span<const rlk_switch* const> switches, uint64_t seed, const Offer& offer);

// Sizes at which variations show: nothing is empty.
bool shows_variations(const ConcreteCall& call);

}  // namespace rlk::core::conformance
