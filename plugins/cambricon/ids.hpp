// Ids and data errors in what CNNL compares and selects, integers of 32 bits: what it does with 64-bit ones differs
// between its versions.
#pragma once

#include "program.hpp"

namespace rlk::cambricon {

// The words of ids, [n] each.
struct IdWords {
  Operand low, high;
};
// ids: [n] of kInt32, or [..., 2] where they are of 64 bits.
IdWords words_of(Calls& c, const Operand& ids, bool is_wide);
// `operation` is kLess, kGreaterEqual, kEqual or kNotEqual; out: [n] of kBool.
void compare_wide_ids(Calls& c, int operation, const Operand& ids, int64_t number, const Operand& out);
// Of each row of ids [rows, columns, 2] those at places [rows, n], to out [rows, n, 2].
void gather_wide_ids(Calls& c, const Operand& ids, const Operand& places, const Operand& out);
// Integers of 32 bits as fp32, rounded once.
void numbers_of(Calls& c, const Operand& integers, const Operand& out);

// Of the first row with a score above 0, if any, `told` becomes the stream's record, unless that has one. score: fp32
// [n]; told: kind, low and high word of the value, [3, n]; first_row: what rows are counted from.
struct FirstError {
  Operand score, told;
  int32_t first_row, tag;
  int32_t* record;  // null while workspace is measured
};
void record_first_error(Calls& c, const FirstError& error);

}  // namespace rlk::cambricon
