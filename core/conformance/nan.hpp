// Numbers that are no numbers: a NaN in one element of one input, for each of them, and what a mask hides.
#pragma once

#include <vector>

#include "core/conformance/cases.hpp"

namespace rlk::core::conformance {

// Whether the declaration says that the element of the input is never read: its row is masked, ignored or not named.
bool is_hidden(const ConcreteCall& call, size_t input, int64_t element);

// Fills everything that is hidden with NaN and infinities, which would show in every result.
void spoil_hidden(ConcreteCall& call);

// One NaN in the input, where it counts: near the middle of what is not hidden. Several where the declaration's word is
// `text`. False: all of it is hidden.
bool plant_nan(size_t input, ConcreteCall& call);

// The base with a NaN in each of its real inputs, one at a time. In the smoke test only the first dtype tries every
// parameter with every input: the others try each input with the parameters at their defaults.
std::vector<Case> nan_cases(const Case& base, bool smoke);

}  // namespace rlk::core::conformance
