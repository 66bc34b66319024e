// The functions of CNNL as primitives of composed programs: what each computes, and how it is called.
#pragma once

#include "plugins/composed/primitives.hpp"
#include "program.hpp"

namespace rlk::cambricon {

// A step with CNNL's operands. number: of a primitive that has one, what a fill writes, and where a report begins. Ids
// of 64 bits are pairs of words: their operands have a last dimension of 2.
struct ComposedStep {
  std::vector<Operand> in;
  double number = 0;
  int64_t whole = 0;  // the same of ids of 64 bits
  Operand out;
  int32_t* record = nullptr;  // of the stream, with a report; null while workspace is measured
  int32_t tag = 0;

  float real() const { return static_cast<float>(number); }
};
using Emit = std::function<void(Calls&, const ComposedStep&)>;

const composed::Primitives& primitives();
// By the row of the table.
const Emit& emit_of(size_t primitive);

}  // namespace rlk::cambricon
