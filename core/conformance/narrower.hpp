// Other parts of a call than sample_of's: with the rows at which indices run out, and smaller ones, for calls of which
// a few whole rows are too much or lie too far apart.
#pragma once

#include <optional>

#include "core/conformance/sample.hpp"

namespace rlk::core::conformance {

// The part with rows about boundaries (elementwise.hpp) beside its own, where it is made of rows and stays within the
// bytes.
Sample with_boundary_rows(const ConcreteCall& whole, Sample part, const SampleLimits& limits);

// The step-th smaller part, from 0 to kNarrowerSteps: fewer rows, then fewer columns of products too. nullopt for one
// that the call does not have, or that is beyond the limits.
std::optional<Sample> narrower_part(const ConcreteCall& whole, uint64_t seed, int step, const SampleLimits& limits);
constexpr int kNarrowerSteps = 4;

}  // namespace rlk::core::conformance
