// adamw_step: the recursion of torch.optim.AdamW over several steps.
#include <rlk/sdk/ops/adamw_step.hpp>

#include <cmath>

#include "unit/cpu/token_case.hpp"

namespace rlk::test {
namespace {

TEST(CpuAdamwStep, IsTorchsRecursionStepAfterStep) {
  const double gradients[] = {0.5, -2, 1e-3, 4};
  double param = 1.5, m = 0, v = 0;
  const Tensor params = numbers({param}), first = numbers({0}), second = numbers({0});
  for (int step = 1; step <= 4; ++step) {
    const double g = gradients[step - 1];
    const Tensor grad = numbers({g});
    cpu::CallOf<ops::AdamwStep> c;
    c.grad = array_of(grad);
    c.param = c.out_param = array_of(params);
    c.exp_avg = c.out_exp_avg = array_of(first);
    c.exp_avg_sq = c.out_exp_avg_sq = array_of(second);
    c.params.step = step;
    cpu::kernel<ops::AdamwStep>().run(c, {cpu::serial_parallel()});
    param *= 1 - 1e-3 * 1e-2;
    m += (g - m) * (1 - 0.9);
    v = v * 0.999 + (1 - 0.999) * g * g;
    const double denominator = std::sqrt(v) / std::sqrt(1 - std::pow(0.999, step)) + 1e-8;
    param -= 1e-3 / (1 - std::pow(0.9, step)) * (m / denominator);
    EXPECT_NEAR(params.get(0), param, 1e-14) << step;
    EXPECT_NEAR(first.get(0), m, 1e-14);
    EXPECT_NEAR(second.get(0), v, 1e-14);
  }
}

}  // namespace
}  // namespace rlk::test
