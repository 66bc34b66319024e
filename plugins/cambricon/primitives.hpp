// The functions of CNNL as primitives of composed programs: what each computes, and how it is called.
#pragma once

#include "plugins/composed/primitives.hpp"
#include "program.hpp"

namespace rlk::cambricon {

// A step with CNNL's operands. number: of a primitive that has one, and what a fill writes.
struct ComposedStep {
  std::vector<Operand> in;
  float number = 0;
  Operand out;
};
using Emit = std::function<void(Calls&, const ComposedStep&)>;

const composed::Primitives& primitives();
// By the row of the table.
const Emit& emit_of(size_t primitive);

}  // namespace rlk::cambricon
