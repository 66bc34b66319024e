// A recorded formula as a sequence of a vendor's primitives, with memory for what is in between. The same for every
// vendor; what runs it says it in the vendor's calls (plugins/VENDOR/composed.cpp).
#pragma once

#include <functional>
#include <optional>
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

// What the host has found wrong in an input: a kind of rlk_data_error_kind, where, and what stands there.
struct DataError {
  int32_t kind;
  int64_t row, value;
};

struct Program {
  std::vector<Step> steps;
  uint64_t workspace_bytes = 0;
  double cost_us = 0;              // by Primitives::speed
  sdk::Refusal refusal;            // the first word for which the vendor, or its runtime, has nothing
  std::optional<DataError> error;  // for the stream's record, behind the steps
  bool has_lost_number = false;    // of a program in parts: Recorder::has_lost_number
};

// An output and the input whose memory it is.
struct Alias {
  uint32_t output, input;
};

// Reasons to decline: the vendor has nothing for a word, or its runtime lacks functions.
sdk::Support lacking_word(const Primitives& primitives, const std::string& word);
sdk::Support lacking_function(const Primitives& primitives, const std::string& names);

Program program_of(const Recorder& recorder, const Primitives& primitives, const std::vector<Alias>& aliases);

// The same of what `record` records, in chunks of rows where the whole would need more than so many bytes.
using Record = std::function<void(Recorder&)>;
Program chunked_program_of(const Record& record, const Primitives& primitives, const std::vector<Alias>& aliases,
                           uint64_t workspace_bytes);

}  // namespace rlk::composed
