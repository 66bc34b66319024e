// How many elements an array has: its shape is known before its data is.
#pragma once

#include <functional>
#include <numeric>

#include "core/cpu/simd/array.hpp"

namespace rlk::cpu {

inline int64_t elements_of(const Array& array) {
  return std::accumulate(array.shape, array.shape + array.ndim, int64_t{1}, std::multiplies<>());
}

// An estimate of operations for a registration: so many for each element of the first output, or of the first input.
template <int kOfElement, class Call>
double per_element(const Call& call) {
  double elements = -1;
  Call::each_output(call, [&](const Array& output) {
    if (elements < 0) elements = static_cast<double>(elements_of(output));
  });
  return elements * kOfElement;
}
template <int kOfElement, class Call>
double per_input_element(const Call& call) {
  double elements = -1;
  Call::each_input(call, [&](const Array& input) {
    if (elements < 0) elements = static_cast<double>(elements_of(input));
  });
  return elements * kOfElement;
}

}  // namespace rlk::cpu
