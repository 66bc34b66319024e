// What may a program consist of? The words that a formula is recorded in, and that a vendor has primitives for.
#pragma once

#include <cstdint>

namespace rlk::composed {

enum class Word : uint8_t {
  input,      // a tensor of the call; no step
  number,     // one number for all elements; no step
  part,       // places of a value along one dimension; no step
  reshape,    // the same numbers in other sizes; no step
  transpose,  // a dimension and the next exchanged; no step
  bits,       // a piece of each number's memory, as a number of another dtype; no step
  rows,       // some rows of a tensor [sequences, tokens, columns], of which each token is one
  join,       // columns put beside those that a value has so far
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
  tanh,  // where the vendor has it (Abilities), else formulas make it of exp
  floor,
  bit_and,
  bit_xor,
  less,
  less_equal,
  greater,  // with a number only: two tensors are swapped
  greater_equal,
  equal,
  not_equal,
  both,
  either,
  select,        // a mask, what it chooses, what it does not
  index,         // an id as i32; one that i32 does not hold may become any number
  whole,         // a whole number of fp32 as i64; one outside [-2147483520, 2147483520] may become any number
  gather,        // of each row the column that an index of one column names
  take_rows,     // rows of a table, by an index of one column
  take_columns,  // the same columns of every row, by an index without rows
  put_rows,      // a table with rows written over, by an index of one column; of one place the same bits. The table is
                 // an input in whose memory they are written, or made for it
  product,       // of matrices, which are the last two dimensions; sizes of 1 before them repeat
  order,         // of each row the first places in rising order, as i32; equals in the order of places; without a NaN
  shift,         // along the last dimension, with zeros for what comes from outside
  report,        // masks of rows in error, to the stream's record of data errors (Recorder::Errors); no value
  sum,           // along the last dimension, which stays with size 1
  largest,       // the same; a NaN is the largest
  largest_at,    // the first place of the largest along the last dimension, as i32; of numbers without a NaN
  sum_rows,      // along one dimension, the first unless it is said, which stays with size 1
};

// By what a formula records itself.
struct Abilities {
  bool has_f64 = false;  // else formulas that ask for fp64 are recorded in fp32
  bool has_tanh = false;
  bool rounds_products = false;  // matrices of 16 bits are multiplied in fp32, rounded once; else they are cast before
  int64_t block_bytes = int64_t{1} << 62;  // half of the workspace, for what a formula cuts into blocks by itself
  bool has_integers = false;               // sums, products and bits of i64 (integers.hpp)
};

// As it stands in a reason to decline.
const char* name_of(Word word);

constexpr bool is_comparison(Word word) {
  return word >= Word::less && word <= Word::not_equal;
}
constexpr bool is_reduction(Word word) {
  return word >= Word::sum;
}
// What is looked up, multiplied as matrices or put in order has sizes of its own.
constexpr bool is_lookup(Word word) {
  return word >= Word::gather && word <= Word::order;
}

}  // namespace rlk::composed
