// keep_mask of logp and linear_logp: the distribution that sample drew from, forward and backward, and sum_p2 of it.
#include <rlk/sdk/ops/linear_logp.hpp>
#include <rlk/sdk/ops/linear_logp_backward.hpp>
#include <rlk/sdk/ops/logp.hpp>
#include <rlk/sdk/ops/logp_backward.hpp>

#include <cmath>

#include "unit/cpu/sample_case.hpp"

namespace rlk::test {
namespace {

double at(const Tensor& matrix, int64_t row, int64_t column) {
  return matrix.get(row * matrix.shape()[1] + column);
}
bool keeps(const Tensor& mask, int64_t row, int64_t column) {
  return !mask.present() || mask.get_int(row * mask.shape()[1] + column) != 0;
}

// A row's distribution over what is kept, renormalised, in fp64.
struct KeptRow {
  std::vector<double> p;
  double lse = 0, entropy = 0, sum_p2 = 0;
  KeptRow(const Tensor& logits, const Tensor& mask, int64_t row, double temperature) {
    const int64_t vocab = logits.shape()[1];
    double sum = 0;
    for (int64_t v = 0; v < vocab; ++v) {
      p.push_back(keeps(mask, row, v) ? std::exp(at(logits, row, v) / temperature) : 0.0);
      sum += p.back();
    }
    lse = std::log(sum);
    for (double& number : p) {
      number /= sum;
      sum_p2 += number * number;
      if (number > 0) entropy -= number * std::log(number);
    }
  }
};

// What sample drew under top_p, and what it kept.
SampleOutputs drawn(const Tensor& logits, double temperature, double top_p) {
  SampleCase c;
  c.logits = logits;
  c.per_row(c.row_ids, Dtype::i64, [](int64_t n) { return static_cast<double>(100 + n); });
  c.params.temperature = temperature;
  c.params.top_p = top_p;
  return run_sample(c);
}

TEST(CpuKeepMask, LogpOfWhatSampleDrewUnderTopPIsTheRenormalisedLogProbability) {
  for (const Dtype dtype : kFloatDtypes) {
    SCOPED_TRACE(name(dtype));
    const double temperature = 0.7;
    CallOf<ops::Logp> call;
    call.logits = random_tensor(dtype, {64, 1031}, 3.0, 5);
    call.params.temperature = temperature;
    const SampleOutputs sampled = drawn(call.logits, temperature, 0.8);
    call.ids = sampled.ids;
    call.keep_mask = sampled.keep_mask;
    call.lse = call.entropy = call.sum_p2 = wanted();
    const auto got = run(call);
    ASSERT_EQ(got.error.kind, cpu::kNoDataError);
    CallOf<ops::Logp> unmasked = call;
    unmasked.keep_mask = {};
    const auto all = run(unmasked);
    int64_t moved = 0;
    for (int64_t n = 0; n < 64; ++n) {
      const KeptRow right(call.logits, call.keep_mask, n, temperature);
      const auto id = static_cast<size_t>(call.ids.get_int(n));
      EXPECT_NEAR(got.logp.get(n), std::log(right.p[id]), 1e-5) << n;
      EXPECT_NEAR(got.logp.get(n), sampled.processed_logp.get(n), 1e-5) << n;
      EXPECT_NEAR(got.lse.get(n), right.lse, 1e-5) << n;
      EXPECT_NEAR(got.entropy.get(n), right.entropy, 1e-5) << n;
      EXPECT_NEAR(got.sum_p2.get(n), right.sum_p2, 1e-5) << n;
      if (std::fabs(all.logp.get(n) - got.logp.get(n)) > 1e-2) ++moved;
    }
    EXPECT_GT(moved, 60) << "top_p dropped next to nothing: the mask makes no difference";

    // What is dropped is not looked at.
    CallOf<ops::Logp> spoiled = call;
    for (int64_t i = 0; i < call.logits.size(); ++i) {
      if (call.keep_mask.get_int(i) == 0) spoiled.logits.set(i, i % 2 == 0 ? kNan : kInfinity);
    }
    EXPECT_EQ(run(spoiled).logp.bytes(), got.logp.bytes());
    EXPECT_EQ(run(spoiled).error.kind, cpu::kNoDataError);
  }
}

TEST(CpuKeepMask, LinearLogpOfWhatSampleDrewUnderTopPIsTheRenormalisedLogProbability) {
  for (const Dtype dtype : kFloatDtypes) {
    SCOPED_TRACE(name(dtype));
    CallOf<ops::LinearLogp> call;
    call.hidden = random_tensor(dtype, {64, 64}, 1.0, 5);
    call.weight = random_tensor(dtype, {257, 64}, 0.5, 6);
    Tensor logits(Dtype::f64, {64, 257});
    for (int64_t n = 0; n < 64; ++n) {
      for (int64_t v = 0; v < 257; ++v) {
        double sum = 0;
        for (int64_t d = 0; d < 64; ++d) sum += at(call.hidden, n, d) * at(call.weight, v, d);
        logits.set(n * 257 + v, sum);
      }
    }
    const SampleOutputs sampled = drawn(logits, 1.0, 0.8);
    call.ids = sampled.ids;
    call.keep_mask = sampled.keep_mask;
    call.entropy = call.sum_p2 = wanted();
    const auto got = run(call);
    ASSERT_EQ(got.error.kind, cpu::kNoDataError);
    for (int64_t n = 0; n < 64; ++n) {
      const KeptRow right(logits, call.keep_mask, n, 1.0);
      EXPECT_NEAR(got.logp.get(n), std::log(right.p[static_cast<size_t>(call.ids.get_int(n))]), 2e-5) << n;
      EXPECT_NEAR(got.logp.get(n), sampled.processed_logp.get(n), 2e-5) << n;
      EXPECT_NEAR(got.entropy.get(n), right.entropy, 2e-5) << n;
      EXPECT_NEAR(got.sum_p2.get(n), right.sum_p2, 2e-5) << n;
    }
  }
}

// Logits whose second token is dropped.
CallOf<ops::LogpBackward> second_dropped(int64_t id, double softcap) {
  CallOf<ops::LogpBackward> call;
  call.logits = Tensor(Dtype::f32, {1, 4}).fill([](int64_t v) { return v == 1 ? kNan : 0.5 * static_cast<double>(v); });
  call.ids = Tensor(Dtype::i64, {1});
  call.ids.set_int(0, id);
  call.keep_mask = Tensor(Dtype::u8, {1, 4}).fill([](int64_t v) { return v == 1 ? 0 : 1; });
  call.grad_logp = Tensor(Dtype::f32, {1}).fill([](int64_t) { return 2; });
  call.params.softcap = softcap;
  return call;
}

// As torch's log_softmax(logits.masked_fill(~keep, -inf)): the log-probability is -inf, its gradient minus p.
TEST(CpuKeepMask, ADroppedTargetHasALogpOfMinusInfinityAndPushesWhatIsKept) {
  for (const double softcap : {0.0, 3.0}) {
    for (const int64_t id : {1, 2}) {
      CallOf<ops::LogpBackward> call = second_dropped(id, softcap);
      CallOf<ops::Logp> forward;
      forward.logits = call.logits;
      forward.ids = call.ids;
      forward.keep_mask = call.keep_mask;
      forward.params.softcap = softcap;
      forward.lse = wanted();
      const auto got = run(forward);
      EXPECT_EQ(got.error.kind, cpu::kNoDataError);
      const auto capped = [&](double x) { return softcap > 0 ? softcap * std::tanh(x / softcap) : x; };
      const double lse = std::log(1 + std::exp(capped(1.0)) + std::exp(capped(1.5)));
      EXPECT_NEAR(got.lse.get(0), lse, 1e-6);
      if (id == 1) {
        EXPECT_EQ(got.logp.get(0), -kInfinity);
      } else {
        EXPECT_NEAR(got.logp.get(0), capped(1.0) - lse, 1e-6);
      }
      call.lse = got.lse;
      const auto gradient = run(call);
      EXPECT_EQ(gradient.error.kind, cpu::kNoDataError);
      for (int64_t v = 0; v < 4; ++v) {
        const double x = 0.5 * static_cast<double>(v), t = softcap > 0 ? std::tanh(x / softcap) : 0;
        const double p = std::exp(capped(x) - lse);
        const double right = v == 1 ? 0 : 2 * ((v == id ? 1 : 0) - p) * (1 - t * t);
        EXPECT_NEAR(gradient.grad_logits.get(v), right, 1e-6) << v;
      }
    }
  }
}

// Also under a softcap, which makes a finite score of a logit of -inf.
TEST(CpuKeepMask, ARowOfWhichNothingIsKeptIsTheDataErrorOfOneWithoutAFiniteLogit) {
  for (const double softcap : {0.0, 3.0}) {
    CallOf<ops::LogpBackward> call;
    call.logits = random_tensor(Dtype::f32, {3, 5000}, 1.0, 3);
    call.ids = Tensor(Dtype::i64, {3}).fill([](int64_t) { return 0; });
    call.keep_mask = Tensor(Dtype::u8, {3, 5000}).fill([](int64_t i) { return i / 5000 == 1 || i % 2 == 1 ? 0 : 1; });
    call.grad_logp = Tensor(Dtype::f32, {3}).fill([](int64_t) { return 1; });
    call.lse = Tensor(Dtype::f32, {3}).fill([](int64_t) { return 9; });
    call.params.softcap = softcap;
    CallOf<ops::Logp> forward;
    forward.logits = call.logits;
    forward.ids = call.ids;
    forward.keep_mask = call.keep_mask;
    forward.params.softcap = softcap;
    forward.sum_p2 = forward.entropy = wanted();
    const auto got = run(forward);
    EXPECT_EQ(got.error.kind, cpu::kNoFiniteLogit);
    EXPECT_EQ(got.error.row, 1);
    const auto gradient = run(call);
    EXPECT_EQ(gradient.error.kind, cpu::kNoFiniteLogit);
    EXPECT_EQ(gradient.error.row, 1);
    for (int64_t n = 0; n < 3; ++n) {
      EXPECT_EQ(std::isnan(got.logp.get(n)), n == 1);
      EXPECT_EQ(std::isnan(got.entropy.get(n)), n == 1);
      EXPECT_EQ(std::isnan(got.sum_p2.get(n)), n == 1);
      EXPECT_EQ(std::isnan(gradient.grad_logits.get(n * 5000)), n == 1);
    }
  }
}

// Nothing of row 1, and only the first token of row 2.
TEST(CpuKeepMask, ALinearRowOfWhichNothingIsKeptIsADataErrorAndADroppedBiasMayBeNan) {
  for (const double softcap : {0.0, 0.5}) {
    CallOf<ops::LinearLogpBackward> call;
    call.hidden = random_tensor(Dtype::f32, {3, 8}, 1.0, 3);
    call.weight = random_tensor(Dtype::f32, {130, 8}, 0.5, 4);
    call.bias = Tensor(Dtype::f32, {130}).fill([](int64_t v) { return v == 1 ? kNan : v == 3 ? kInfinity : 0.25; });
    call.ids = Tensor(Dtype::i64, {3}).fill([](int64_t) { return 0; });
    call.keep_mask = Tensor(Dtype::u8, {3, 130}).fill([](int64_t i) { return i == 260 || (i < 130 && i % 2 == 0); });
    call.grad_logp = Tensor(Dtype::f32, {3}).fill([](int64_t) { return 1; });
    call.lse = Tensor(Dtype::f32, {3}).fill([](int64_t) { return 5; });
    call.params.softcap = softcap;
    CallOf<ops::LinearLogp> forward;
    forward.hidden = call.hidden;
    forward.weight = call.weight;
    forward.bias = call.bias;
    forward.ids = call.ids;
    forward.keep_mask = call.keep_mask;
    forward.params.softcap = softcap;
    const auto got = run(forward);
    EXPECT_EQ(got.error.kind, cpu::kNoFiniteLogit);
    EXPECT_EQ(got.error.row, 1);
    const auto gradient = run(call);
    EXPECT_EQ(gradient.error.kind, cpu::kNoFiniteLogit);
    EXPECT_EQ(gradient.error.row, 1);
    for (int64_t n = 0; n < 3; ++n) {
      EXPECT_EQ(std::isnan(got.logp.get(n)), n == 1);
      EXPECT_EQ(std::isnan(gradient.grad_hidden.get(n * 8)), n == 1);
    }
  }
}

TEST(CpuKeepMask, SumP2IsThatOfTheUniformAndOfTheCertainDistribution) {
  CallOf<ops::Logp> call;
  call.logits = Tensor(Dtype::f32, {2, 5000}).fill([](int64_t i) { return i == 5000 + 17 ? 200.0 : 1.0; });
  call.ids = Tensor(Dtype::i64, {2}).fill([](int64_t) { return 17; });
  call.sum_p2 = wanted();
  const auto got = run(call);
  EXPECT_NEAR(got.sum_p2.get(0), 1.0 / 5000, 1e-9);
  EXPECT_EQ(got.sum_p2.get(1), 1.0);
}

}  // namespace
}  // namespace rlk::test
