// The experts of each token and their shares: the declaration's formula, fp64.
#include <rlk/sdk/ops/topk_softmax.hpp>

#include <numeric>

#include "core/golden/moved.hpp"
#include "core/golden/softmax.hpp"

namespace rlk::golden {

DataError topk_softmax(CallOf<sdk::ops::TopkSoftmax>& call) {
  const bool renormalizes = call.params.renormalize == sdk::ops::topk_softmax::Renormalize::on;
  for (int64_t n = 0; n < call.N; ++n) {
    std::vector<Tracked> scores;
    for (int64_t e = 0; e < call.E; ++e) scores.emplace_back(call.x.load(n, e));
    std::vector<int64_t> order(scores.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {  // a NaN is above every number
      const double left = scores[static_cast<size_t>(a)].value, right = scores[static_cast<size_t>(b)].value;
      return std::isnan(left) ? !std::isnan(right) : left > right;
    });
    order.resize(static_cast<size_t>(call.params.k));
    const std::vector<Tracked> shares = softmax_of(scores);
    TrackedSum sum;
    for (const int64_t e : order) sum.add(shares[static_cast<size_t>(e)]);
    for (const int64_t e : order) {
      const Tracked share = shares[static_cast<size_t>(e)];
      put(call.weights, renormalizes ? share / sum.total() : share);
      put_integer(call.ids, e);
    }
  }
  return {};
}

}  // namespace rlk::golden
