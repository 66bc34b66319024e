// One step of AdamW: the declaration's formula, fp64.
#include <rlk/sdk/ops/adamw_step.hpp>

#include "core/golden/elementwise.hpp"
#include "core/golden/operator.hpp"
#include "core/golden/tracked.hpp"

namespace rlk::golden {

DataError adamw_step(CallOf<sdk::ops::AdamwStep>& call) {
  const auto& p = call.params;
  const auto number = [](double x) { return Tracked(x, std::fabs(x)); };
  const auto left = [&](double beta) { return 1 - std::pow(beta, static_cast<double>(p.step)); };
  const double sign = p.maximize == sdk::ops::adamw_step::Maximize::on ? -1 : 1;
  for_each_element(
      [&](double grad, double param, double first, double second) {
        const Tracked g = sign * grad;
        const Tracked m = number(p.beta1) * Tracked(first) + number(1 - p.beta1) * g;
        const Tracked v = number(p.beta2) * Tracked(second) + number(1 - p.beta2) * g * g;
        const Tracked root = sqrt(v) / number(std::sqrt(left(p.beta2))) + number(p.eps);
        const Tracked step = number(p.lr / left(p.beta1)) * (m / root);
        put(call.out_param, Tracked(param) * number(1 - p.lr * p.weight_decay) - step);
        put(call.out_exp_avg, m);
        put(call.out_exp_avg_sq, v);
      },
      call.grad, call.param, call.exp_avg, call.exp_avg_sq);
  return {};
}

}  // namespace rlk::golden
