// Groups of channels less their mean, divided by their standard deviation, and the gradients: fp64.
#include <rlk/sdk/ops/group_norm.hpp>
#include <rlk/sdk/ops/group_norm_backward.hpp>

#include "core/golden/moments.hpp"

namespace rlk::golden {
namespace {

// Calls function(moments, first channel, numbers, load(i) of the group) for every group of every sample.
template <class Call, class Function>
void for_each_group(const Call& call, const Function& function) {
  const int64_t channels = call.C / call.params.groups;
  for (int64_t n = 0; n < call.N; ++n) {
    for (int64_t first = 0; first < call.C; first += channels) {
      const auto load = [&](const View& view) {
        return [&, n, first](int64_t i) { return view.load(n, first + i / call.S, i % call.S); };
      };
      function(Moments(channels * call.S, call.params.eps, load(call.x)), first, channels * call.S, load);
    }
  }
}

}  // namespace

DataError group_norm(CallOf<sdk::ops::GroupNorm>& call) {
  for_each_group(call, [&](const Moments& m, int64_t first, int64_t numbers, const auto& load) {
    for (int64_t i = 0; i < numbers; ++i) {
      const int64_t c = first + i / call.S;
      const Tracked scaled = m.normal(load(call.x)(i)) * Tracked(or_number(call.weight, c, 1));
      put(call.y, scaled + Tracked(or_number(call.bias, c, 0)));
    }
  });
  return {};
}

DataError group_norm_backward(CallOf<sdk::ops::GroupNormBackward>& call) {
  std::vector<TrackedSum> of_weight(static_cast<size_t>(call.C)), of_bias(of_weight);
  for_each_group(call, [&](const Moments& m, int64_t first, int64_t numbers, const auto& load) {
    std::vector<Tracked> scaled, normal;
    for (int64_t i = 0; i < numbers; ++i) {
      const int64_t c = first + i / call.S;
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
  return {};
}

}  // namespace rlk::golden
