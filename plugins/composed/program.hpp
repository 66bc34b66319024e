// A recorded formula as a sequence of a vendor's primitives, with memory for what is in between. The same for every
// vendor; what runs it says it in the vendor's calls (plugins/VENDOR/composed.cpp).
#pragma once

#include <functional>
#include <string>

#include "primitives.hpp"
#include "recorder.hpp"

namespace rlk::composed {

// A tensor of a step. Its first element is byte_offset behind the start of its place.
struct Operand {
  // kept: between the parts of a program in chunks; part of the workspace once the program is whole.
  enum class Place : uint8_t { workspace, input, output, number, kept, record };

  Place place = Place::workspace;
  uint32_t index = 0;  // of the input or output
  int64_t byte_offset = 0;
  sdk::Dtype dtype = sdk::Dtype::f32;
  Dims dims, strides;
  double number = 0;  // with Place::number: one element that has it, wherever the vendor keeps such
};

struct Step {
  size_t primitive = 0;  // its row in the vendor's table
  std::vector<Operand> in;
  double number = 0;  // of a primitive that has one, what a fill writes, and the row that a report begins with
  int64_t whole = 0;  // the same of a primitive that compares i64, to the last bit
  Operand out;        // of a report the stream's record, with the sizes of the masks
};

struct Program {
  std::vector<Step> steps;
  uint64_t workspace_bytes = 0;
  double cost_us = 0;    // by Primitives::speed
  sdk::Refusal refusal;  // the first word for which the vendor, or its runtime, has nothing
};

// An output and the input whose memory it is.
struct Alias {
  uint32_t output, input;
};

Program program_of(const Recorder& recorder, const Primitives& primitives, const std::vector<Alias>& aliases);

// The same of what `record` records, in chunks of rows where the whole would need too much memory.
using Record = std::function<void(Recorder&)>;
Program chunked_program_of(const Record& record, const Primitives& primitives, const std::vector<Alias>& aliases);

}  // namespace rlk::composed
