// out = a + alpha * b with broadcasting. fp64.
#include <rlk/sdk/ops/add.hpp>

#include <cmath>

#include "core/golden/elementwise.hpp"
#include "core/golden/operator.hpp"

namespace rlk::golden {

DataError add(CallOf<sdk::ops::Add>& call) {
  const auto sum = [&](double a, double b) {
    const double scaled_b = call.params.alpha * b;
    const double out = a + scaled_b;
    call.out.value.push_back(out);
    // alpha and the product are rounded before the sum. No kTiny: a sum of subnormal numbers is exact.
    call.out.cond.push_back(std::isfinite(out) ? std::fabs(a) + std::fabs(scaled_b) : 0.0);
  };
  for_each_element(sum, call.a, call.b);
  return {};
}

}  // namespace rlk::golden
