// Mean and reciprocal standard deviation of numbers, their normalisation, and its gradients.
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

// Samples of C channels of S numbers each, which are normalised by groups of channels. A row of layer_norm is a sample
// of one group, whose channels have a number each.
struct Groups {
  int64_t N, C, S, channels;  // of a group

  // Calls function(moments, first channel, load(view) of the group's numbers by their index) for every group.
  template <class Call, class Function>
  void for_each(const Call& call, const Function& function) const {
    for (int64_t n = 0; n < N; ++n) {
      for (int64_t first = 0; first < C; first += channels) {
        const auto load = [this, n, first](const View& view) {
          return [=, this, &view](int64_t i) {
            const int64_t c = first + i / S;
            return view.ndim == 2 ? view.load(n, c) : view.load(n, c, i % S);
          };
        };
        function(Moments(channels * S, call.params.eps, load(call.x)), first, load);
      }
    }
  }

  // y, and told(moments) of each group.
  template <class Call, class Told>
  void normalise(Call& call, const Told& told) const {
    for_each(call, [&](const Moments& m, int64_t first, const auto& load) {
      for (int64_t i = 0; i < channels * S; ++i) {
        const int64_t c = first + i / S;
        const Tracked scaled = m.normal(load(call.x)(i)) * Tracked(or_number(call.weight, c, 1));
        put(call.y, scaled + Tracked(or_number(call.bias, c, 0)));
      }
      told(m);
    });
  }

  // grad_x, grad_weight, grad_bias.
  template <class Call>
  void gradients(Call& call) const {
    std::vector<TrackedSum> of_weight(static_cast<size_t>(C)), of_bias(of_weight);
    for_each(call, [&](const Moments& m, int64_t first, const auto& load) {
      std::vector<Tracked> scaled, normal;
      for (int64_t i = 0; i < channels * S; ++i) {
        const int64_t c = first + i / S;
        const Tracked grad = load(call.grad_y)(i);
        scaled.push_back(grad * Tracked(or_number(call.weight, c, 1)));
        normal.push_back(m.normal(load(call.x)(i)));
        of_weight[static_cast<size_t>(c)].add(grad * normal.back());
        of_bias[static_cast<size_t>(c)].add(grad);
      }
      for (const Tracked& gradient : m.gradient(scaled, normal)) put(call.grad_x, gradient);
    });
    for (const TrackedSum& sum : of_weight) put(call.grad_weight, sum.total());
    for (const TrackedSum& sum : of_bias) put(call.grad_bias, sum.total());
  }
};

}  // namespace rlk::golden
