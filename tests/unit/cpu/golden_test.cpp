// The golden reference against answers that can be worked out by hand.
#include <cmath>

#include "unit/cpu/attention_case.hpp"
#include "unit/cpu/logp_case.hpp"

namespace rlk::test {
namespace {

TEST(Golden, UniformLogitsGiveLogV) {
  LogpCase c = make_logp_case(Dtype::f64, 2, 8, 1);
  c.logits.fill([](int64_t) { return 2.5; });
  const auto result = golden_logp(c);
  EXPECT_NEAR(result.logp.value[0], -std::log(8.0), 1e-15);
  EXPECT_NEAR(result.lse.value[1], 2.5 + std::log(8.0), 1e-15);
  EXPECT_NEAR(result.entropy.value[0], std::log(8.0), 1e-15);
}

TEST(Golden, TwoLogitsGiveTheLogisticFunction) {
  LogpCase c = make_logp_case(Dtype::f64, 1, 2, 1);
  c.logits.set(0, 3.0).set(1, 1.0);
  c.ids.set_int(0, 0);
  c.params.temperature = 0.5;
  const auto result = golden_logp(c);
  EXPECT_NEAR(result.logp.value[0], -std::log1p(std::exp(-4.0)), 1e-15);
}

TEST(Golden, TemperatureComesAfterSoftcapAndBiasBefore) {
  LogpCase c = make_logp_case(Dtype::f64, 1, 2, 1);
  c.logits.set(0, 3.0).set(1, 1.0);
  c.bias = Tensor(Dtype::f64, {2}).set(0, 1.0).set(1, -1.0);
  c.ids.set_int(0, 1);
  c.params.temperature = 0.5, c.params.softcap = 2.0;
  const double z0 = 2 * std::tanh(2.0) / 0.5, z1 = 0.0;
  EXPECT_NEAR(golden_logp(c).logp.value[0], z1 - std::log(std::exp(z0) + std::exp(z1)), 1e-14);
}

TEST(Golden, IgnoredRowsAreZeroWhateverTheirIdAndRow) {
  LogpCase c = make_logp_case(Dtype::f32, 2, 4, 1);
  c.ids.set_int(0, -100).set_int(1, 1 << 20);
  c.mask = Tensor(Dtype::u8, {2}).set_int(0, 1).set_int(1, 0);
  c.row_indices = Tensor(Dtype::i64, {2}).set_int(0, -9).set_int(1, 99);
  const auto result = golden_logp(c);
  EXPECT_EQ(result.logp.value, (std::vector<double>{0, 0}));
  EXPECT_EQ(result.error.kind, golden::kNoDataError);
}

TEST(Golden, GradientOfLogpIsTargetMinusSoftmax) {
  LogpCase c = make_logp_case(Dtype::f64, 1, 4, 1);
  c.logits.fill([](int64_t) { return 0.0; });
  c.ids.set_int(0, 2);
  add_gradients(c, false, false, 1);
  c.grad_logp.set(0, 1.0);
  const auto result = golden_logp_backward(c);
  for (size_t v = 0; v < 4; ++v) EXPECT_NEAR(result.grad_logits.value[v], v == 2 ? 0.75 : -0.25, 1e-15);
}

// exp makes of a rounded score of 1e10 any number at all; a score that is the logit itself is not rounded.
TEST(Golden, AsksNothingOfGradientsWhoseScoresRoundingMovesTooFar) {
  const auto cond = [](Dtype dtype, double temperature) {
    LogpCase c = make_logp_case(dtype, 1, 3, 1);
    c.logits.set(0, 1e10).set(1, 0.0).set(2, 0.0);
    c.ids.set_int(0, 1);
    c.params.temperature = temperature;
    add_gradients(c, false, false, 1);
    return golden_logp_backward(c).grad_logits.cond[0];
  };
  EXPECT_TRUE(std::isinf(cond(Dtype::f32, 0.7)));
  EXPECT_TRUE(std::isinf(cond(Dtype::bf16, 0.7)));
  EXPECT_TRUE(std::isfinite(cond(Dtype::f64, 0.7)));
  EXPECT_TRUE(std::isfinite(cond(Dtype::f32, 1.0)));
}

// However large its score, what is certain has a log-probability of 0 to the last digit.
TEST(Golden, HoldsCertainTokensToTheDigitsOfTheirProbability) {
  for (const double magnitude : {60.0, 6e4, 1e10}) {
    LogpCase c = make_logp_case(Dtype::f32, 1, 3, 1);
    c.logits.set(0, magnitude).set(1, 0.0).set(2, 0.0);
    c.ids.set_int(0, 0);
    const auto result = golden_logp(c);
    EXPECT_LT(result.logp.cond[0], 4) << magnitude;
    EXPECT_LT(result.entropy.cond[0], 4) << magnitude;
  }
}

// One head of size 1, keys 0: every visible key weighs the same, so out is the mean of the visible values.
Attention mean_of_visible_keys(int64_t queries, int64_t keys) {
  Attention c;
  c.q = Tensor(Dtype::f64, {1, queries, 1, 1}).fill([](int64_t) { return 1.0; });
  c.k = Tensor(Dtype::f64, {1, keys, 1, 1}).fill([](int64_t) { return 0.0; });
  c.v = Tensor(Dtype::f64, {1, keys, 1, 1}).fill([](int64_t j) { return static_cast<double>(j); });
  c.lse = wanted();
  return c;
}

TEST(Golden, CausalAttentionIsAlignedAtTheEnd) {
  Attention c = mean_of_visible_keys(2, 4);
  c.params.causal = Causal::on;
  const auto result = golden_answer(c);
  EXPECT_NEAR(result.out.value[0], 1.0, 1e-15);  // keys 0 1 2
  EXPECT_NEAR(result.out.value[1], 1.5, 1e-15);  // all four
  EXPECT_NEAR(result.lse.value[0], std::log(3.0), 1e-15);
}

TEST(Golden, WindowsCountFromTheQuerysOwnPosition) {
  Attention c = mean_of_visible_keys(4, 4);
  c.params.window_left = 1, c.params.window_right = 0;
  EXPECT_EQ(golden_answer(c).out.value, (std::vector<double>{0.0, 0.5, 1.5, 2.5}));
}

TEST(Golden, AQueryThatSeesNothingIsZeroWithLseMinusInfinity) {
  Attention c = mean_of_visible_keys(3, 1);
  c.params.causal = Causal::on;
  const auto result = golden_answer(c);
  EXPECT_EQ(result.out.value[0], 0.0);
  EXPECT_EQ(result.lse.value[0], -kInfinity);
  EXPECT_EQ(result.lse.value[2], 0.0);
}

TEST(Golden, AbsentAndEmptyTensorsDiffer) {
  const int64_t shape[1] = {0}, strides[1] = {1};
  golden::View empty{nullptr, Dtype::f32, 1, shape, strides};
  EXPECT_TRUE(empty.present());
  EXPECT_FALSE(golden::View().present());
}

}  // namespace
}  // namespace rlk::test
