// Activations where a generated case does not look: far from 0, at infinities, and torch's own numbers.
#include <rlk/sdk/ops/gelu.hpp>
#include <rlk/sdk/ops/gelu_backward.hpp>
#include <rlk/sdk/ops/relu.hpp>
#include <rlk/sdk/ops/sigmoid.hpp>
#include <rlk/sdk/ops/silu.hpp>
#include <rlk/sdk/ops/silu_backward.hpp>
#include <rlk/sdk/ops/swiglu_backward.hpp>

#include <cmath>

#include "unit/cpu/token_case.hpp"

namespace rlk::test {
namespace {

using ops::gelu::Approximate;

TEST(CpuActivations, FarFromZeroNothingOverflows) {
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16, Dtype::f64}) {
    const Tensor x = numbers({-1e30, -1000, 1000, 1e30}, {2, 2}, dtype), ones = numbers(List(4, 1.0), {2, 2}, dtype);
    CallOf<ops::Silu> silu;
    silu.x = x;
    CallOf<ops::SiluBackward> silu_backward;
    silu_backward.x = x;
    silu_backward.grad_y = ones;
    EXPECT_EQ(list_of(run(silu).y), (List{0, 0, x.get(2), x.get(3)}));
    EXPECT_EQ(list_of(run(silu_backward).grad_x), (List{0, 0, 1, 1}));
    for (const Approximate approximate : {Approximate::none, Approximate::tanh}) {
      CallOf<ops::Gelu> gelu;
      gelu.x = x;
      gelu.params.approximate = approximate;
      CallOf<ops::GeluBackward> gelu_backward;
      gelu_backward.x = x;
      gelu_backward.grad_y = ones;
      gelu_backward.params.approximate = approximate;
      const Tensor y = run(gelu).y;
      for (const int64_t i : {0, 1}) EXPECT_EQ(y.get(i), 0) << name(dtype);
      for (const int64_t i : {2, 3}) EXPECT_EQ(y.get(i), x.get(i)) << name(dtype);
      EXPECT_EQ(list_of(run(gelu_backward).grad_x), (List{0, 0, 1, 1})) << name(dtype);
    }
  }
}

// The formulas of torch.nn.functional.gelu in 30 digits.
TEST(CpuActivations, GeluIsTorchsInBothForms) {
  CallOf<ops::Gelu> c;
  c.x = numbers({-3, -0.5, 0.25, 2}, {1, 4});
  const List exact = {-0.0040496940948902836, -0.15426876936299345, 0.14967658142073093, 1.9544997361036416};
  const List tanh = {-0.0036373920817730188, -0.15428599017485608, 0.149675350701685, 1.954597694087775};
  for (int64_t i = 0; i < 4; ++i) EXPECT_NEAR(run(c).y.get(i), exact[static_cast<size_t>(i)], 1e-13);
  c.params.approximate = Approximate::tanh;
  for (int64_t i = 0; i < 4; ++i) EXPECT_NEAR(run(c).y.get(i), tanh[static_cast<size_t>(i)], 1e-13);
}

// x (1 + erf) / 2 in fp32 has no digit left at -6. What is left to lose is that of the rounded square: x^2 / 2 halves
// of a last digit.
TEST(CpuActivations, GeluKeepsItsDigitsFarBelowZero) {
  for_each_target([] {
    CallOf<ops::Gelu> c;
    List points;
    for (double x = -12; x < 6; x += 0.0078125) points.push_back(x);
    const auto count = static_cast<int64_t>(points.size());
    c.x = numbers(points, {1, count}, Dtype::f32);
    const Tensor y = run(c).y;
    for (int64_t i = 0; i < count; ++i) {
      const double x = points[static_cast<size_t>(i)], right = x * std::erfc(-x / std::sqrt(2)) / 2;
      EXPECT_NEAR(y.get(i), right, std::abs(right) * (6 + x * x) * 0x1p-24) << x;
    }
  });
}

// At -17 the gradient is some -1e-160, most of it x times the derivative.
TEST(CpuActivations, GeluByTanhHasAnFp64GradientFarBelowZero) {
  for_each_target([] {
    CallOf<ops::GeluBackward> c;
    const List points = {-15.5, -16.5, -17, -20};
    c.x = numbers(points, {1, 4});
    c.grad_y = numbers(List(4, 1.0), {1, 4});
    c.params.approximate = Approximate::tanh;
    const Tensor grad = run(c).grad_x;
    for (int64_t i = 0; i < 4; ++i) {
      const double x = points[static_cast<size_t>(i)], root = std::sqrt(2 / std::acos(-1.0));
      const double u = root * (x + 0.044715 * x * x * x), power = std::exp(2 * u), share = 1 / (1 + power);
      const double right = power * share + x * 2 * power * share * share * root * (1 + 3 * 0.044715 * x * x);
      EXPECT_NEAR(grad.get(i), right, std::abs(right) * 1e-12) << x;
      EXPECT_LT(right, 0);
    }
  });
}

// The same of tanh's form: what is left to lose is that of u, for u of the size of x^3.
TEST(CpuActivations, GeluByTanhKeepsItsDigitsFarBelowZero) {
  for_each_target([] {
    CallOf<ops::Gelu> c;
    List points;
    for (double x = -9.75; x < 6; x += 0.0078125) points.push_back(x);  // below, the exponential is not normal
    const auto count = static_cast<int64_t>(points.size());
    c.x = numbers(points, {1, count}, Dtype::f32);
    c.params.approximate = Approximate::tanh;
    const Tensor y = run(c).y;
    for (int64_t i = 0; i < count; ++i) {
      const double x = points[static_cast<size_t>(i)], u = std::sqrt(2 / std::acos(-1.0)) * (x + 0.044715 * x * x * x);
      const double right = x / (1 + std::exp(-2 * u));
      EXPECT_NEAR(y.get(i), right, std::abs(right) * (6 + 8 * std::abs(u)) * 0x1p-24) << x;
    }
  });
}

// grad times input is beyond fp32, the gradient is not.
TEST(CpuActivations, AGatesGradientIsFiniteWhereTheResultIs) {
  for (const double gate : {-1.0, -20.0}) {
    CallOf<ops::SwigluBackward> c;
    c.grad_y = numbers({2}, {1, 1}, Dtype::f32);
    c.input = numbers({3e38}, {1, 1}, Dtype::f32);
    c.gate = numbers({gate}, {1, 1}, Dtype::f32);
    const double s = 1 / (1 + std::exp(-gate)), right = 2 * 3e38 * s * (1 + gate * (1 - s));
    EXPECT_NEAR(run(c).grad_gate.get(0), right, std::abs(right) * 1e-5) << gate;
  }
}

// So it is of silu alone, and keeps its digits where s is less than the smallest normal number.
TEST(CpuActivations, SilusGradientIsFiniteWhereTheResultIs) {
  for_each_target([] {
    for (const auto& [x, grad] :
         {std::pair(1.0, 3.2e38), {0.5, 3.2e38}, {30.0, 3.4e38}, {-2.0, -3.4e38}, {-95.0, 1e30}}) {
      CallOf<ops::SiluBackward> c;
      c.x = numbers({x}, {1}, Dtype::f32);
      c.grad_y = numbers({grad}, {1}, Dtype::f32);
      const double s = 1 / (1 + std::exp(-x)), right = c.grad_y.get(0) * s * (1 + x * (1 - s));
      EXPECT_NEAR(run(c).grad_x.get(0), right, std::abs(right) * 1e-5) << x;
    }
  });
}

TEST(CpuActivations, InfinitiesAreTorchs) {
  const Tensor x = numbers({-kInfinity, kInfinity}, {1, 2}, Dtype::f32);
  CallOf<ops::Sigmoid> sigmoid;
  sigmoid.x = x;
  EXPECT_EQ(list_of(run(sigmoid).y), (List{0, 1}));
  CallOf<ops::Relu> relu;
  relu.x = x;
  EXPECT_EQ(list_of(run(relu).y), (List{0, kInfinity}));
  CallOf<ops::Silu> silu;
  silu.x = x;
  EXPECT_TRUE(std::isnan(run(silu).y.get(0)));
  EXPECT_EQ(run(silu).y.get(1), kInfinity);
}

}  // namespace
}  // namespace rlk::test
