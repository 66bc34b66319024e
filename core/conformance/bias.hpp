// Are errors biased to one side? A truncated number is as near to the exact one as two rounded ones, so that no bound
// per element tells it from them; but truncation always shrinks, and rounding does not.
#pragma once

#include <cstdint>
#include <optional>

#include "core/conformance/buffers.hpp"
#include "core/conformance/golden_bridge.hpp"
#include "core/conformance/harness.hpp"
#include "core/conformance/quality.hpp"

namespace rlk::core::conformance {

// For the elements of one output, e the error and a what is allowed: the common factor by which results are shrunk, as
// the least squares of e / a over value / a. In units of half an ulp of 16 bits, relative: 2^-(m+1).
//
// A number x = f 2^k, 1 <= f < 2, loses half an ulp on average when it is truncated, which is 1 / f of the unit: 0.69
// on average over evenly spread f, never below 0.5. Truncated operands of a product give that, truncated results too,
// both the sum. To nearest, each number is off by at most 1 / f units, 0.42 in the square mean, to either side: over
// 128 elements that have nothing in common 0.04. Elements of one row share its operands, whose errors come to 0.42 /
// sqrt(operands) in common, and average over the rows. So half of what truncation gives is 4 deviations and more away
// from both.
constexpr double kLargestBias = 0.35;
constexpr int64_t kEnoughElements = 128;  // effective ones: (sum w)^2 / sum w^2 of their weights w = (value / a)^2
constexpr int64_t kEnoughRows = 12;       // likewise

struct Bias {
  double units = 0;               // of 2^-(m+1) of the value; negative: results are too small in magnitude
  double elements = 0, rows = 0;  // effective
  bool is_known() const { return elements >= kEnoughElements && rows >= kEnoughRows; }
};
// Of an output that has 16 bits, or products of intermediates that may be rounded to them; nothing for another.
std::optional<Bias> bias_of(const ConcreteCall& call, size_t output, const Answer& answer, const Outcome& outcome);

// BIASED when an output leans further than kLargestBias towards zero. For the outcome of a run that passed check(), on
// data without negative numbers: sums of both signs hide what each term has lost.
std::optional<Failure> check_bias(const ConcreteCall& call, const Answer& answer, const Outcome& outcome,
                                  Quality& quality);

}  // namespace rlk::core::conformance
