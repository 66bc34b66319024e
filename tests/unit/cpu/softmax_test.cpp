// softmax, log_softmax and their siblings: torch's numbers, large scores, rows of -inf.
#include <rlk/sdk/ops/causal_softmax.hpp>
#include <rlk/sdk/ops/log_softmax.hpp>
#include <rlk/sdk/ops/scaled_softmax.hpp>
#include <rlk/sdk/ops/softmax.hpp>

#include <cmath>

#include "core/cpu/simd/scratch.hpp"
#include "unit/cpu/token_case.hpp"

namespace rlk::test {
namespace {

TEST(CpuSoftmax, LargeScoresKeepTheirDifferences) {
  for (const double size : {0.0, 1e4, -1e30, 3e38}) {
    CallOf<ops::Softmax> c;
    c.x = numbers({size, size, -kInfinity, size}, {1, 4}, Dtype::f32);
    const Tensor y = run(c).y;
    CallOf<ops::LogSoftmax> log;
    log.x = c.x;
    const Tensor logs = run(log).y;
    for (const int64_t i : {0, 1, 3}) {
      EXPECT_NEAR(y.get(i), 1.0 / 3, 1e-7) << size;
      EXPECT_NEAR(logs.get(i), -std::log(3.0), 1e-6) << size;
    }
    EXPECT_EQ(y.get(2), 0);
    EXPECT_EQ(logs.get(2), -kInfinity);
  }
}

TEST(CpuSoftmax, ARowOfMinusInfinityIsNanAsInTorch) {
  CallOf<ops::Softmax> c;
  c.x = numbers({-kInfinity, -kInfinity, 0, 1}, {2, 2}, Dtype::bf16);
  const Tensor y = run(c).y;
  EXPECT_TRUE(std::isnan(y.get(0)) && std::isnan(y.get(1)));
  EXPECT_NEAR(y.get(2), 1 / (1 + std::exp(1.0)), 1e-3);
  CallOf<ops::LogSoftmax> log;
  log.x = c.x;
  EXPECT_TRUE(std::isnan(run(log).y.get(1)));
}

TEST(CpuSoftmax, CausalRowsSeeTheKeysUpToTheirOwnAndReadNoOther) {
  CallOf<ops::CausalSoftmax> c;
  const double nan = std::nan("");
  c.x = numbers({0, 0, nan, 0, std::log(2.0), 0}, {1, 2, 3});
  const Tensor y = run(c).y;
  const double expected[] = {0.5, 0.5, 0, 0.25, 0.5, 0.25};
  for (int64_t i = 0; i < 6; ++i) EXPECT_NEAR(y.get(i), expected[i], 1e-15) << i;
}

TEST(CpuSoftmax, AScaleThatFp32CannotHoldIsAScale) {
  CallOf<ops::ScaledSoftmax> c;
  c.x = numbers({0, 3e38}, {1, 2}, Dtype::f32);
  c.params.scale = 1e-45 / 3;
  EXPECT_NEAR(run(c).y.get(1), 0.5, 1e-6);
  c.params.scale = std::log(3.0) / 3e38;
  EXPECT_NEAR(run(c).y.get(1), 0.75, 1e-6);
  c.x = numbers({4, 8}, {1, 2}, Dtype::f32);  // both products leave fp32
  c.params.scale = 1e38;
  EXPECT_EQ(list_of(run(c).y), (List{0, 1}));
}

TEST(CpuSoftmax, ProductsWithAScaleMayBeBeyondTheRange) {
  const auto rows = [](double scale, const List& x, Dtype dtype) {
    CallOf<ops::ScaledSoftmax> c;
    c.x = numbers(x, {1, static_cast<int64_t>(x.size())}, dtype);
    c.params.scale = scale;
    const Tensor y = run(c).y;
    EXPECT_TRUE(matches(y, golden_answer(c).y, dtype)) << scale;
    return list_of(y);
  };
  for_each_target([&] {
    for (const Dtype dtype : {Dtype::f32, Dtype::bf16, Dtype::f64}) {
      const double most = dtype == Dtype::f64 ? 1e308 : 3e38, large = dtype == Dtype::f64 ? 1e200 : 1e20;
      EXPECT_EQ(rows(2, {most, 0}, dtype), (List{1, 0}));
      EXPECT_EQ(rows(-2, {most, 0}, dtype), (List{0, 1}));
      EXPECT_EQ(rows(-2, {most, most}, dtype), (List{0.5, 0.5}));
      EXPECT_EQ(rows(large, {large, -large}, dtype), (List{1, 0}));
      EXPECT_EQ(rows(-large, {large, -large}, dtype), (List{0, 1}));
      EXPECT_EQ(rows(1e300, {most, most, -most, 0, -kInfinity}, dtype), (List{0.5, 0.5, 0, 0, 0}));
      for (const double score : rows(3, {1, kInfinity}, dtype)) EXPECT_TRUE(std::isnan(score));
      for (const double score : rows(3, {-kInfinity, -kInfinity}, dtype)) EXPECT_TRUE(std::isnan(score));
    }
  });
}

// Rows that a mask filled with the lowest number: a product that one pass rounds and another does not is off by
// millions.
TEST(CpuSoftmax, ScaledScoresOfAnySizeAreComparedAsRoundedOnce) {
  for_each_target([] {
    for (const double size : {1.0, 3e9, 1e30, -3.4e38}) {
      for (const double scale : {0.1, 1 / std::sqrt(96.0), -0.3}) {
        CallOf<ops::ScaledSoftmax> c;
        c.x = numbers(List(40, size), {2, 20}, Dtype::f32);
        c.params.scale = scale;
        const Tensor y = run(c).y;
        for (int64_t i = 0; i < 40; ++i) EXPECT_NEAR(y.get(i), 0.05, 1e-8) << size << " " << scale;
      }
    }
  });
}

// A row's powers are kept where there is room, and computed again where there is none.
TEST(CpuSoftmax, WithoutScratchTheBitsAreTheSame) {
  for_each_target([] {
    for (const Dtype dtype : {Dtype::f32, Dtype::bf16, Dtype::f64}) {
      CallOf<ops::Softmax> c;
      List scores;
      for (int i = 0; i < 2 * 1003; ++i) scores.push_back(std::sin(i) * 20);
      c.x = numbers(scores, {2, 1003}, dtype);
      const List kept = list_of(run(c).y);
      cpu::deny_scratch(true);
      const List again = list_of(run(c).y);
      const int64_t denials = cpu::deny_scratch(false);
      EXPECT_EQ(kept, again) << name(dtype);
      EXPECT_EQ(denials > 0, dtype == Dtype::bf16);
    }
  });
}

}  // namespace
}  // namespace rlk::test
