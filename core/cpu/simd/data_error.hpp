// What a data error that is of no single row leaves: NaN in every element of every output.
#pragma once

#include "core/cpu/simd/elements.hpp"

namespace rlk::cpu {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// The array may be absent.
inline void fill_nan(const Array& array) {
  const int64_t size = array.present() ? elements_of(array) : 0;
  for (int64_t flat = 0; flat < size; ++flat) {
    int64_t at = 0;
    for (int64_t axis = array.ndim, rest = flat; axis-- > 0; rest /= array.shape[axis]) {
      at += rest % array.shape[axis] * array.strides[axis];
    }
    store_element(array.data, array.dtype, at, kNan);
  }
}

template <class Call>
DataError all_nan(const Call& call, const DataError& error) {
  Call::each_output(call, fill_nan);
  return error;
}

}  // namespace rlk::cpu
