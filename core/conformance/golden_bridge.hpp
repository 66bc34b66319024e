// What is the right answer to a call? The only place that knows which golden function belongs to which operator.
#pragma once

#include <vector>

#include "core/conformance/call.hpp"
#include "core/golden/golden.hpp"

namespace rlk::core::conformance {

struct Answer {
  std::vector<golden::Output> outputs;  // one per declared output, empty where absent
  std::vector<Fault> faults;            // empty: no data error; otherwise one of these is told
};

// How far from the golden value an implementation may be, beside one ulp of the output dtype: `factor` times 2^-24
// (2^-53 for f64) times the condition that golden gives with each element. Never above golden.hpp's general limit.
struct ErrorBound {
  const char* op;
  double factor;
  const char* reason;
};
std::span<const ErrorBound> error_bounds();

// Whether there is a golden function for the operator.
bool has_golden(const OpDecl& decl);

// The inputs of the call are filled.
Answer golden_answer(const Call& call);

// The values of an input of domain `forward`: another operator's output on the inputs and parameters of the same names.
std::vector<double> forward_values(const Call& call, size_t input);

}  // namespace rlk::core::conformance
