// How does a data error reach the stream's record? On the device, in stream order: the first error stays.
#pragma once

#include "plan.hpp"

namespace rlk::ascend {

struct TokenConstants {
  TokenConstants(Constants& constants, int64_t nothing) : i0(constants.add(nothing)) {}
  Operand i0;  // 0, as the record's state is before an error
};

// The stream's record becomes `candidate`, an INT64 [4] of DeviceErrorRecord, where `wanted` (BOOL [1]; absent: always)
// and nothing is recorded yet. zero: INT64 [1].
void merge_record(Builder& b, const Operand& zero, const Operand& candidate, const Operand& wanted);

// Records an error that the host knows.
void add_known_error(Builder& b, const TokenConstants& c, int64_t kind, int64_t row, int64_t value);

}  // namespace rlk::ascend
