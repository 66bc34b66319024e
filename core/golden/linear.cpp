// Rows times a weight matrix, and the gradients: the declarations' formulas, fp64.
#include <rlk/sdk/ops/linear.hpp>
#include <rlk/sdk/ops/linear_backward.hpp>

#include "core/golden/operator.hpp"
#include "core/golden/products.hpp"

namespace rlk::golden {

DataError linear(CallOf<sdk::ops::Linear>& call) {
  const std::vector<double> x = numbers_of(call.x), weight = numbers_of(call.weight);
  for (int64_t n = 0; n < call.N; ++n) {
    for (int64_t m = 0; m < call.M; ++m) {
      const Tracked product = dot({x, n * call.K, 1}, {weight, m * call.K, 1}, call.K);
      put(call.y, call.bias.present() ? product + Tracked(call.bias.load(m)) : product);
    }
  }
  return {};
}

DataError linear_backward(CallOf<sdk::ops::LinearBackward>& call) {
  const std::vector<double> grad_y = numbers_of(call.grad_y), x = numbers_of(call.x), weight = numbers_of(call.weight);
  const std::vector<double> one = {1.0};
  for (int64_t n = 0; n < call.N; ++n) {
    for (int64_t k = 0; k < call.K; ++k) put(call.grad_x, dot({grad_y, n * call.M, 1}, {weight, k, call.K}, call.M));
  }
  for (int64_t m = 0; m < call.M; ++m) {
    const Numbers of_feature = {grad_y, m, call.M};
    for (int64_t k = 0; call.grad_weight.wanted && k < call.K; ++k) {
      put(call.grad_weight, dot(of_feature, {x, k, call.K}, call.N));
    }
    put(call.grad_bias, dot(of_feature, {one, 0, 0}, call.N));
  }
  return {};
}

}  // namespace rlk::golden
