// What do the inputs hold? Values from the declared domains, by a seeded counter-based generator: the same call, seed
// and content give the same bits everywhere.
#pragma once

#include "core/conformance/answers.hpp"
#include "core/conformance/cases.hpp"

namespace rlk::core::conformance {

// Fills the inputs of a resolved call, and its faults where the content is one. Inputs that are outputs of another
// operator are computed, or found among the answers.
void fill_inputs(const Case& c, uint64_t seed, ConcreteCall& call, Answers* answers = nullptr);

}  // namespace rlk::core::conformance
