// What is the right answer to a call?
#pragma once

#include <vector>

#include "core/conformance/call.hpp"
#include "core/golden/golden.hpp"

namespace rlk::core::conformance {

class Answers;  // core/conformance/answers.hpp

struct Answer {
  std::vector<golden::Output> outputs;  // one per declared output, empty where absent
  std::vector<Fault> faults;            // empty: no data error; otherwise the stream reports one of these
  bool has_more_faults = false;         // or one of the same kind
};

// Whether there is a golden function for the operator.
bool has_golden(const OpDecl& decl);

// The inputs of the call are filled.
Answer golden_answer(const ConcreteCall& call);

// The call of another operator with the inputs and parameters of the same names; of its outputs those that are always
// there.
ConcreteCall forward_call(const ConcreteCall& call, const OpDecl& decl);

// The values of an input of domain `forward`: another operator's output on the inputs and parameters of the same names.
struct ForwardInput {
  size_t input;
  std::vector<double> values;
};
// They are looked for among the answers, where there are some.
std::vector<ForwardInput> forward_inputs(const ConcreteCall& call, Answers* answers = nullptr);

}  // namespace rlk::core::conformance
