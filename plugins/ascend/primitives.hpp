// The aclnn operators as primitives of composed programs: what each computes, and how a step of it is added.
#pragma once

#include <functional>

#include "builder.hpp"
#include "plugins/composed/primitives.hpp"

namespace rlk::ascend {

// A step with aclnn's operands. number: of a primitive that has one.
struct ComposedStep {
  std::vector<Operand> in;
  double number = 0;
  Operand out;
};
using Emit = std::function<void(Builder&, const ComposedStep&)>;

const composed::Primitives& primitives();
// By the row of the table.
const Emit& emit_of(size_t primitive);

}  // namespace rlk::ascend
