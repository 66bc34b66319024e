// What may a program consist of? The words that a formula is recorded in, and that a vendor has primitives for.
#pragma once

#include <cstdint>

namespace rlk::composed {

enum class Word : uint8_t {
  input,   // a tensor of the call; no step
  number,  // one number for all elements; no step
  cast,
  copy,    // strides change
  expand,  // sizes of 1 repeat
  fill,
  positions,  // 0, 1, ... in order
  add,
  subtract,
  multiply,
  divide,
  absolute,
  root,
  exp,
  log,
  less,
  less_equal,
  greater,  // with a number only: two tensors are swapped
  greater_equal,
  equal,
  not_equal,
  both,
  either,
  select,    // a mask, what it chooses, what it does not
  sum,       // along the last dimension, which stays with size 1
  largest,   // the same; a NaN is the largest
  sum_rows,  // along the first dimension, which stays with size 1
};

// As it stands in a reason to decline.
const char* name_of(Word word);

constexpr bool is_comparison(Word word) {
  return word >= Word::less && word <= Word::not_equal;
}
constexpr bool is_reduction(Word word) {
  return word >= Word::sum;
}

}  // namespace rlk::composed
