// Is the outcome of a run right? Values against golden, data errors against those that the call contains, and two runs
// against each other, bit by bit.
#pragma once

#include "core/conformance/golden_bridge.hpp"
#include "core/conformance/harness.hpp"
#include "core/conformance/quality.hpp"

namespace rlk::core::conformance {

// A failure of the run itself, a data error that is missing or should not be there, or an element that is beyond what
// class `tolerance` allows. `quality` takes up the rest.
std::optional<Failure> check(const ConcreteCall& call, const Answer& answer, const Outcome& outcome, uint8_t poison,
                             Quality& quality);

// Whether every output has the very bits of golden's answer, which is what an operator with specified arithmetic means
// by RLK_NUMERICS_PORTABLE. For the outcome of a run that passed check().
std::optional<Failure> check_portable(const ConcreteCall& call, const Answer& answer, const Outcome& outcome);

// The first element of an output where two runs differ in bits, in words; any NaN equals any other. Empty: none.
std::string first_difference(const ConcreteCall& call, size_t output, const std::vector<std::byte>& a,
                             const std::vector<std::byte>& b);

// "lse[3]" or "grad_logits[2, 17]".
std::string element_name(const ConcreteCall& call, size_t output, int64_t index);

}  // namespace rlk::core::conformance
