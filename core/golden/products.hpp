// Products of matrices: dot products whose condition is the sum of their terms' magnitudes.
#pragma once

#include <vector>

#include "core/golden/tracked.hpp"

namespace rlk::golden {

// Every number of a tensor, in the order of its indices: read often.
inline std::vector<double> numbers_of(const View& view) {
  std::vector<int64_t> offsets = {0};
  for (int axis = 0; axis < view.ndim; ++axis) {
    std::vector<int64_t> next;
    for (const int64_t offset : offsets) {
      for (int64_t i = 0; i < view.shape[axis]; ++i) next.push_back(offset + i * view.strides[axis]);
    }
    offsets = std::move(next);
  }
  std::vector<double> numbers;
  for (const int64_t offset : offsets) numbers.push_back(view.load_at(offset));
  return numbers;
}

// Some of them, at one distance from each other.
struct Numbers {
  const std::vector<double>& all;
  int64_t first, step;
  double operator[](int64_t i) const { return all[static_cast<size_t>(first + i * step)]; }
};

// A dot product. An implementation may flush to zero what is subnormal.
inline void add_products(Numbers a, Numbers b, int64_t count, Sum& sum, double& magnitudes) {
  for (int64_t i = 0; i < count; ++i) {
    const double product = a[i] * b[i];
    sum.add(product);
    magnitudes += std::fabs(product) + (product != 0 ? kTiny : 0.0);
  }
}
inline Tracked dot(Numbers a, Numbers b, int64_t count) {
  Sum sum;
  double magnitudes = 0;
  add_products(a, b, count, sum, magnitudes);
  return {sum.value(), magnitudes};
}

}  // namespace rlk::golden
