// The reciprocal root of a row's mean square, and the gradient of its normalisation.
#pragma once

#include <vector>

#include "core/golden/moments.hpp"

namespace rlk::golden {

inline Tracked reciprocal_root(const std::vector<Tracked>& row, double eps) {
  TrackedSum squares;
  for (const Tracked& x : row) squares.add(x * x);
  return Tracked(1.0) / sqrt(squares.total() / Tracked(static_cast<double>(row.size())) + Tracked(eps));
}

inline std::vector<Tracked> row_of(const View& x, int64_t n, int64_t columns) {
  std::vector<Tracked> row;
  for (int64_t h = 0; h < columns; ++h) row.emplace_back(x.load(n, h));
  return row;
}

// Of row n of x, and what the row adds to the gradient of the weight.
template <class Call>
std::vector<Tracked> rms_gradient(const Call& call, const View& x, int64_t n, std::vector<TrackedSum>& of_weight) {
  const std::vector<Tracked> row = row_of(x, n, call.H);
  const Tracked r = reciprocal_root(row, call.params.eps);
  std::vector<Tracked> gradient;
  TrackedSum products;
  for (int64_t h = 0; const Tracked& v : row) {
    const Tracked grad = call.grad_y.load(n, h);
    gradient.push_back(grad * Tracked(or_number(call.weight, h, 1)));
    products.add(gradient.back() * v);
    of_weight[static_cast<size_t>(h++)].add(grad * v * r);
  }
  const Tracked mean = products.total() / Tracked(static_cast<double>(call.H));
  for (size_t h = 0; h < row.size(); ++h) gradient[h] = r * (gradient[h] - row[h] * r * r * mean);
  return gradient;
}

}  // namespace rlk::golden
