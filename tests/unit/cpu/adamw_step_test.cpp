// adamw_step: the recursion of torch.optim.AdamW over several steps.
#include <rlk/sdk/ops/adamw_step.hpp>

#include <cmath>

#include "unit/cpu/token_case.hpp"

namespace rlk::test {
namespace {

// A step of tensors where they are.
cpu::CallOf<ops::AdamwStep> in_place(const Tensor& grad, const Tensor& param, const Tensor& first,
                                     const Tensor& second) {
  cpu::CallOf<ops::AdamwStep> c;
  c.grad = array_of(grad);
  c.param = c.out_param = array_of(param);
  c.exp_avg = c.out_exp_avg = array_of(first);
  c.exp_avg_sq = c.out_exp_avg_sq = array_of(second);
  return c;
}

TEST(CpuAdamwStep, IsTorchsRecursionStepAfterStep) {
  const double gradients[] = {0.5, -2, 1e-3, 4};
  double param = 1.5, m = 0, v = 0;
  const Tensor params = numbers({param}), first = numbers({0}), second = numbers({0});
  for (int step = 1; step <= 4; ++step) {
    const double g = gradients[step - 1];
    const Tensor grad = numbers({g});
    cpu::CallOf<ops::AdamwStep> c = in_place(grad, params, first, second);
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

struct Step {
  double param, second;
};
// The first step from a parameter of 1 without decay: lr against the sign of the gradient, whatever its size.
Step first_step(Dtype dtype, double gradient, double eps) {
  const Tensor grad = numbers({gradient}, {}, dtype), param = numbers({1}, {}, dtype);
  const Tensor first = numbers({0}, {}, dtype), second = numbers({0}, {}, dtype);
  cpu::CallOf<ops::AdamwStep> c = in_place(grad, param, first, second);
  c.params.eps = eps;
  c.params.weight_decay = 0;
  cpu::kernel<ops::AdamwStep>().run(c, {cpu::serial_parallel()});
  return {param.get(0), second.get(0)};
}

// The square of a gradient leaves the range of its dtype before the moment that it becomes does, and that moment before
// its root does. The parameter takes moments before they are rounded.
TEST(CpuAdamwStep, TheSizeOfAGradientDoesNotChangeTheFirstStep) {
  for_each_target([] {
    for (const double eps : {0.0, 1e-8}) {
      for (const double gradient : {1e20, -1e20, 1e18, 3e38, 1.0}) {
        const Step step = first_step(Dtype::f32, gradient, eps);
        EXPECT_NEAR(step.param, gradient > 0 ? 0.999 : 1.001, 2e-7) << gradient;
        EXPECT_FLOAT_EQ(static_cast<float>(step.second), static_cast<float>(1e-3 * gradient * gradient)) << gradient;
      }
    }
    for (const double gradient : {1e-10, 1e-18, 1e-22, 1e-23, 1e-30}) {
      for (const double eps : {0.0, 1e-38, 1e-30, 1e-12}) {
        const double right = 1 - 1e-3 * gradient / (gradient + eps);
        EXPECT_NEAR(first_step(Dtype::f32, gradient, eps).param, right, 2e-7) << gradient << " " << eps;
      }
    }
    const Step step = first_step(Dtype::f64, 1e155, 0);
    EXPECT_NEAR(step.param, 0.999, 1e-15);
    EXPECT_NEAR(step.second, 1e307, 1e293);
  });
}

}  // namespace
}  // namespace rlk::test
