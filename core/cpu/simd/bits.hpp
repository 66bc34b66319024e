// Elements as bits and as integers, for kernels that take any dtype.
#pragma once

#include <utility>

#include "core/cpu/simd/kernel.hpp"

namespace rlk::cpu {

// Calls function(Bits{}): an unsigned integer as wide as the dtype.
template <class Function>
void with_bits(Dtype dtype, Function&& function) {
  switch (size_of(dtype)) {
    case 1:
      return function(uint8_t{});
    case 2:
      return function(uint16_t{});
    case 4:
      return function(uint32_t{});
    default:
      return function(uint64_t{});
  }
}

// Calls function(Integer{}) for an integer dtype, or bool, which is a byte.
template <class Function>
void with_integer(Dtype dtype, Function&& function) {
  switch (dtype) {
    case Dtype::i8:
      return function(int8_t{});
    case Dtype::i16:
      return function(int16_t{});
    case Dtype::i32:
      return function(int32_t{});
    case Dtype::i64:
      return function(int64_t{});
    default:
      return with_bits(dtype, std::forward<Function>(function));
  }
}

}  // namespace rlk::cpu
