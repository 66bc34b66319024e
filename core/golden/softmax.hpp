// Softmax of a row that knows its condition, and its gradient.
#pragma once

#include <algorithm>
#include <limits>
#include <vector>

#include "core/golden/operator.hpp"
#include "core/golden/tracked.hpp"

namespace rlk::golden {

inline std::vector<Tracked> softmax_of(std::vector<Tracked> scores) {
  double largest = -std::numeric_limits<double>::infinity();
  for (const Tracked& score : scores) largest = std::max(largest, score.value);
  TrackedSum sum;
  for (Tracked& score : scores) {
    score = exp(score - Tracked(largest));
    sum.add(score);
  }
  for (Tracked& score : scores) score = score / sum.total();
  return scores;
}

// Of row `index` with so many columns: y (grad_y - sum of grad_y y).
template <class... Index>
std::vector<Tracked> softmax_gradient(const View& grad_y, const View& y, int64_t columns, Index... index) {
  TrackedSum sum;
  for (int64_t d = 0; d < columns; ++d) sum.add(Tracked(grad_y.load(index..., d)) * Tracked(y.load(index..., d)));
  std::vector<Tracked> gradient;
  for (int64_t d = 0; d < columns; ++d) {
    gradient.push_back(Tracked(y.load(index..., d)) * (Tracked(grad_y.load(index..., d)) - sum.total()));
  }
  return gradient;
}

}  // namespace rlk::golden
