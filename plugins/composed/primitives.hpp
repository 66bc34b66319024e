// What does a vendor bring? A table of primitives: which word each of its functions computes, in which dtypes, and what
// it asks of its operands. How each rounds stands beside the rows (plugins/VENDOR/primitives.cpp); the words of a
// formula ask for one rounding each, a cast to a dtype of fewer digits for the nearest number, ties to even.
#pragma once

#include <rlk/sdk.hpp>

#include <cmath>
#include <initializer_list>
#include <vector>

#include "words.hpp"

namespace rlk::composed {

// A set of dtypes.
class Dtypes {
public:
  constexpr Dtypes() = default;
  constexpr Dtypes(std::initializer_list<sdk::Dtype> dtypes) {
    for (const sdk::Dtype dtype : dtypes) bits_ |= uint32_t{1} << static_cast<int>(dtype);
  }
  constexpr bool has(sdk::Dtype dtype) const { return (bits_ >> static_cast<int>(dtype) & 1) != 0; }

private:
  uint32_t bits_ = 0;
};

// A number as an integer of so many bits and a sign: the nearest that there is, 0 for NaN.
inline int64_t nearest(double number, int bits) {
  const int64_t most = bits == 63 ? INT64_MAX : (int64_t{1} << bits) - 1;
  const double end = std::ldexp(1.0, bits);
  if (std::isnan(number)) return 0;
  return number >= end ? most : number < -end ? -most - 1 : static_cast<int64_t>(number);
}

struct Primitive {
  Word word;
  bool has_number;       // the last operand is a number on the host, not a tensor
  const char* function;  // the vendor's name
  bool is_present;       // in the runtime that was found
  Dtypes dtypes;         // of a cast: from these; of a selection: what is chosen; of a comparison: what is compared
  Dtypes to = {};        // of a cast
  // Bits by operand: may be smaller than the output and repeat. What may not is expanded first.
  uint32_t repeats = 0;
  bool takes_strides = false;  // in any tensor; else what has gaps is copied first
  bool in_place = false;       // the output may be an operand's memory
};

// Roughly what a step takes, so that the host can choose among implementations of an operator. No device has been
// measured, and the numbers are rounded guesses for a small card: they only need to be in proportion.
struct Speed {
  double step_us = 0;            // of a call, however little it does
  double bytes_per_us = 1;       // of memory
  double operations_per_us = 1;  // of products of fp32 matrices, two for each product
};

struct Primitives {
  const char* runtime;  // as a reason names it, "the installed CANN"
  std::vector<Primitive> table;
  int64_t alignment;         // bytes, of every tensor in the workspace
  uint64_t workspace_bytes;  // a program that needs more runs in chunks of rows
  Abilities abilities = {};
  Speed speed = {};
};

}  // namespace rlk::composed
