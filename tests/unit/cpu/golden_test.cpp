// The golden reference against answers that can be worked out by hand.
#include <cmath>
#include <limits>

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

// Every gradient of the golden backward is the golden forward's central difference.
TEST(Golden, BackwardIsTheDerivativeOfForward) {
  LogpCase c = make_logp_case(Dtype::f64, 2, 7, 3);
  c.params.temperature = 1.3, c.params.softcap = 4.0;
  add_gradients(c, true, true, 4);
  const auto result = golden_logp_backward(c);
  for (int64_t i = 0; i < 14; ++i) {
    const double value = c.logits.get(i), step = 1e-5;
    double objective[2];
    for (int side = 0; side < 2; ++side) {
      c.logits.set(i, value + (side == 0 ? step : -step));
      const auto forward = golden_logp(c);
      objective[side] = 0;
      for (int64_t n = 0; n < 2; ++n) {
        const auto at = static_cast<size_t>(n);
        objective[side] += c.grad_logp.get(n) * forward.logp.value[at] + c.grad_lse.get(n) * forward.lse.value[at] +
                           c.grad_entropy.get(n) * forward.entropy.value[at];
      }
    }
    c.logits.set(i, value);
    EXPECT_NEAR(result.grad_logits.value[static_cast<size_t>(i)], (objective[0] - objective[1]) / (2 * step), 1e-9);
  }
}

// One head of size 1, keys 0: every visible key weighs the same, so out is the mean of the visible values.
struct MeanOfVisible {
  Tensor q, k, v;
  golden::AttentionCall call;
  MeanOfVisible(int64_t queries, int64_t keys)
      : q(Dtype::f64, {1, queries, 1, 1}), k(Dtype::f64, {1, keys, 1, 1}), v(Dtype::f64, {1, keys, 1, 1}) {
    q.fill([](int64_t) { return 1.0; });
    k.fill([](int64_t) { return 0.0; });
    v.fill([](int64_t j) { return static_cast<double>(j); });
    call.q = q.view();
    call.k = k.view();
    call.v = v.view();
    call.want_lse = true;
  }
};

TEST(Golden, CausalAttentionIsAlignedAtTheEnd) {
  MeanOfVisible mean(2, 4);
  mean.call.causal = golden::Causal::on;
  const golden::AttentionResult result = golden::attention(mean.call);
  EXPECT_NEAR(result.out.value[0], 1.0, 1e-15);  // keys 0 1 2
  EXPECT_NEAR(result.out.value[1], 1.5, 1e-15);  // all four
  EXPECT_NEAR(result.lse.value[0], std::log(3.0), 1e-15);
}

TEST(Golden, WindowsCountFromTheQuerysOwnPosition) {
  MeanOfVisible mean(4, 4);
  mean.call.window_left = 1, mean.call.window_right = 0;
  const golden::AttentionResult result = golden::attention(mean.call);
  EXPECT_EQ(result.out.value, (std::vector<double>{0.0, 0.5, 1.5, 2.5}));
}

TEST(Golden, AQueryThatSeesNothingIsZeroWithLseMinusInfinity) {
  MeanOfVisible mean(3, 1);
  mean.call.causal = golden::Causal::on;
  const golden::AttentionResult result = golden::attention(mean.call);
  EXPECT_EQ(result.out.value[0], 0.0);
  EXPECT_EQ(result.lse.value[0], -std::numeric_limits<double>::infinity());
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
