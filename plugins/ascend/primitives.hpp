// The aclnn operators as primitives of composed programs: what each computes, and how a step of it is added.
#pragma once

#include <functional>

#include "builder.hpp"
#include "plugins/composed/primitives.hpp"

namespace rlk::ascend {

// A step with aclnn's operands. number: of a primitive that has one. constant: one element that has it, made once.
struct ComposedStep {
  std::vector<Operand> in;
  double number = 0;
  int64_t whole = 0;  // the same of INT64
  Operand out;
  std::function<Operand(sdk::Dtype, double)> constant;
};
using Emit = std::function<void(Builder&, const ComposedStep&)>;

const composed::Primitives& primitives();
// By the row of the table.
const Emit& emit_of(size_t primitive);

}  // namespace rlk::ascend
