// Mean and reciprocal standard deviation of numbers, and the gradient of their normalisation.
#pragma once

#include <vector>

#include "core/golden/operator.hpp"
#include "core/golden/tracked.hpp"

namespace rlk::golden {

// An element of an optional vector.
inline double or_number(const View& view, int64_t i, double number) {
  return view.present() ? view.load(i) : number;
}

struct Moments {
  Tracked mean, rstd;

  // Of load(0), ..., load(count - 1).
  template <class Load>
  Moments(int64_t count, double eps, const Load& load) {
    const Tracked size(static_cast<double>(count));
    TrackedSum sum, squares;
    for (int64_t i = 0; i < count; ++i) sum.add(load(i));
    mean = sum.total() / size;
    for (int64_t i = 0; i < count; ++i) {
      const Tracked difference = Tracked(load(i)) - mean;
      squares.add(difference * difference);
    }
    rstd = Tracked(1.0) / sqrt(squares.total() / size + Tracked(eps));
  }

  Tracked normal(double x) const { return (Tracked(x) - mean) * rstd; }

  // Of the numbers, from the gradients of the normalised ones.
  std::vector<Tracked> gradient(const std::vector<Tracked>& grad, const std::vector<Tracked>& normals) const {
    const Tracked size(static_cast<double>(grad.size()));
    TrackedSum sum, along;
    for (size_t i = 0; i < grad.size(); ++i) {
      sum.add(grad[i]);
      along.add(grad[i] * normals[i]);
    }
    std::vector<Tracked> gradient;
    for (size_t i = 0; i < grad.size(); ++i) {
      gradient.push_back(rstd * (grad[i] - sum.total() / size - normals[i] * (along.total() / size)));
    }
    return gradient;
  }
};

}  // namespace rlk::golden
