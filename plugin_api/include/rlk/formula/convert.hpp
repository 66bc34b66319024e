// Numbers of fp64 as integers and back: plain functions of one number, which need no vectors.
#pragma once

#include <cstdint>

#if defined(RLK_FORMULA)
#define RLK_FORMULA_OF_NUMBERS RLK_FORMULA
#else
#define RLK_FORMULA_OF_NUMBERS inline
#endif

namespace rlk::formula {

// Without the fraction; the nearest that there is, 0 for NaN.
template <class Integer>
RLK_FORMULA_OF_NUMBERS Integer to_integer(double value) {
  constexpr bool kIsSigned = static_cast<Integer>(-1) < Integer{0};
  // 2^digits, which fp64 has, is one more than the largest.
  constexpr int kDigits = 8 * static_cast<int>(sizeof(Integer)) - (kIsSigned ? 1 : 0);
  constexpr auto kMax = static_cast<Integer>(~uint64_t{0} >> (64 - kDigits));
  constexpr double kBeyond = 2 * static_cast<double>(uint64_t{1} << (kDigits - 1));
  if (!(value > (kIsSigned ? -kBeyond : 0.0))) {
    return value != value || !kIsSigned ? Integer{0} : static_cast<Integer>(-kMax - 1);
  }
  return value >= kBeyond ? kMax : static_cast<Integer>(value);
}

// A double that rounds to fewer digits as the integer does: what fp64 has no room for leaves a trace in the last digit.
template <class Integer>
RLK_FORMULA_OF_NUMBERS double to_odd_double(Integer value) {
  if constexpr (sizeof(Integer) < 8) {
    return static_cast<double>(value);
  } else {
    const bool is_negative = static_cast<Integer>(-1) < Integer{0} && static_cast<int64_t>(value) < 0;
    uint64_t magnitude = is_negative ? uint64_t{0} - static_cast<uint64_t>(value) : static_cast<uint64_t>(value);
    constexpr uint64_t kCut = (uint64_t{1} << 11) - 1;
    if (magnitude >> 53 != 0) magnitude = ((magnitude & kCut) != 0 ? magnitude | (kCut + 1) : magnitude) & ~kCut;
    return is_negative ? -static_cast<double>(magnitude) : static_cast<double>(magnitude);
  }
}

}  // namespace rlk::formula
