// linear_logp_backward against the golden reference, and its promises: exact zeros, one order of
// summation, data errors, shards whose contributions add up.
#include <cmath>

#include "core/cpu/linear/linear_operands.hpp"
#include "core/cpu/tbb_parallel.hpp"
#include "unit/cpu/linear_case.hpp"

namespace rlk::test {
namespace {

LinearGradients expect_golden_gradients(LinearCase& c) {
  const auto expected = golden_linear_backward(c);
  LinearGradients got = run_linear_backward(c, cpu::serial_parallel());
  EXPECT_TRUE(matches(got.grad_hidden, expected.grad_hidden, c.dtype())) << "grad_hidden";
  if (c.want_grad_weight) {
    EXPECT_TRUE(matches(got.grad_weight, expected.grad_weight, c.dtype())) << "grad_weight";
  }
  if (c.want_grad_bias) {
    EXPECT_TRUE(matches(got.grad_bias, expected.grad_bias, c.dtype())) << "grad_bias";
  }
  EXPECT_EQ(got.error.kind, expected.error.kind);
  EXPECT_EQ(got.error.row, expected.error.row);
  EXPECT_EQ(got.error.value, expected.error.value);
  for (const cpu::ParallelFor& hook : {cpu::tbb_parallel(), backwards_parallel()}) {
    const LinearGradients again = run_linear_backward(c, hook);
    EXPECT_EQ(again.grad_hidden.bytes(), got.grad_hidden.bytes());
    EXPECT_EQ(again.grad_weight.bytes(), got.grad_weight.bytes());
    EXPECT_EQ(again.grad_bias.bytes(), got.grad_bias.bytes());
    EXPECT_EQ(again.error.row, got.error.row);
  }
  return got;
}

TEST(CpuLinearLogpBackward, MatchesGoldenForEveryOption) {
  for_each_target([] {
    for (Dtype dtype : kFloatDtypes) {
      for (int option = 0; option < 12; ++option) {
        SCOPED_TRACE(name(dtype) + " option " + std::to_string(option));
        LinearCase c = make_linear_case(dtype, 6, 131, 33, 5,
                                        option == 9    ? Strides::gaps
                                        : option == 10 ? Strides::reversed
                                                       : Strides::contiguous);
        if (option == 1) c.bias = random_tensor(dtype, {131}, 1.0, 6);
        if (option == 2) c.params.temperature = 0.7;
        if (option == 3) c.params.softcap = 3.0;
        if (option == 4) c.mask = Tensor(Dtype::u8, {6}).fill([](int64_t n) { return n % 2 == 0 ? 7 : 0; });
        if (option == 5) c.params.ignore_index = -1, c.ids.set_int(2, -1).set_int(5, -1);
        if (option == 6) {
          c.ids = Tensor(Dtype::i32, {6}).fill([](int64_t n) { return static_cast<double>(n * 20); });
        }
        if (option == 7) c.wide_grad_hidden = true;
        if (option == 8) c.params.vocab_start = 5, c.params.global_vocab = 142, c.ids.set_int(0, 2).set_int(1, 141);
        if (option >= 9) {
          c.bias = random_tensor(dtype, {131}, 1.0, 6, c.output_strides);
          c.params.softcap = 20, c.params.temperature = 1.5;
        }
        c.narrow_logp = option == 11;
        add_gradients(c, option % 2 == 0, option % 3 == 0, 12);
        c.want_grad_weight = option % 4 != 2;
        c.want_grad_bias = option % 4 != 3;
        expect_golden_gradients(c);
      }
    }
  });
}

TEST(CpuLinearLogpBackward, MatchesGoldenForMoreRowsThanABatch) {
  LinearCase c = make_linear_case(Dtype::f32, 2 * cpu::kLinearBatch + 3, 40, 9, 7);
  for (int64_t n = 0; n < c.rows(); n += 3) c.ids.set_int(n, -100);
  add_gradients(c, true, true, 12);
  expect_golden_gradients(c);
}

TEST(CpuLinearLogpBackward, MatchesGoldenForAKeepMaskOfSeveralTilesAndBlocks) {
  LinearCase c = make_linear_case(Dtype::f32, 60, 131, 9, 7);
  c.bias = random_tensor(Dtype::f32, {131}, 1.0, 6);
  c.keep_mask = Tensor(Dtype::u8, {60, 131}).fill([](int64_t i) { return i % 3 == 0 ? 0 : 1; });
  add_gradients(c, true, true, 12);
  expect_golden_gradients(c);
}

// Nothing of an ignored row enters a sum: also not a NaN times 0.
TEST(CpuLinearLogpBackward, IgnoredRowsGiveExactZerosAndAreNotRead) {
  LinearCase c = make_linear_case(Dtype::f32, 10, 100, 20, 3);
  c.bias = random_tensor(Dtype::f32, {100}, 1.0, 4);
  add_gradients(c, true, true, 4);
  LinearCase kept = c;
  c.mask = Tensor(Dtype::u8, {10}).fill([](int64_t n) { return n == 2 ? 0 : 1; });
  c.ids.set_int(2, int64_t{1} << 50).set_int(7, -100);
  for (int64_t d = 0; d < 20; ++d) c.hidden.set(40 + d, kNan).set(140 + d, kInfinity);
  for (Tensor* tensor : {&c.lse, &c.grad_logp, &c.grad_lse, &c.grad_entropy, &c.entropy})
    tensor->set(2, kNan).set(7, kNan);
  const LinearGradients got = expect_golden_gradients(c);
  EXPECT_EQ(got.error.kind, cpu::kNoDataError);
  for (int64_t d = 0; d < 20; ++d) {
    EXPECT_EQ(got.grad_hidden.get(40 + d), 0.0);
    EXPECT_EQ(got.grad_hidden.get(140 + d), 0.0);
  }
  for (int64_t i = 0; i < got.grad_weight.size(); ++i) EXPECT_TRUE(std::isfinite(got.grad_weight.get(i))) << i;
  const LinearGradients all = run_linear_backward(kept, cpu::serial_parallel());
  EXPECT_EQ(got.grad_hidden.bits(0, 40), all.grad_hidden.bits(0, 40));  // and the other rows' bits stay what they are
}

TEST(CpuLinearLogpBackward, AllRowsIgnoredGivesZeros) {
  LinearCase c = make_linear_case(Dtype::bf16, 3, 70, 9, 3);
  for (int64_t n = 0; n < 3; ++n) c.ids.set_int(n, -100);
  add_gradients(c, false, false, 4);
  const LinearGradients got = expect_golden_gradients(c);
  for (const Tensor* tensor : {&got.grad_hidden, &got.grad_weight, &got.grad_bias}) {
    for (int64_t i = 0; i < tensor->size(); ++i) EXPECT_EQ(tensor->get(i), 0.0);
  }
}

TEST(CpuLinearLogpBackward, ABiasOfMinusInfinityHasNoGradient) {
  for_each_target([] {
    for (double softcap : {0.0, 3.0}) {
      LinearCase c = make_linear_case(Dtype::f32, 3, 100, 12, 3);
      c.params.softcap = softcap;
      c.bias = Tensor(Dtype::f32, {100}).fill([](int64_t v) { return v % 3 == 0 ? -kInfinity : 0.25; });
      c.ids.set_int(1, 3);  // the target itself
      add_gradients(c, true, true, 4);
      c.lse.set(2, kNan);  // as of a row with a NaN
      const LinearGradients got = expect_golden_gradients(c);
      for (int64_t v = 0; v < 100; v += 3) {
        EXPECT_EQ(got.grad_bias.get(v), 0.0) << v;
        EXPECT_EQ(got.grad_weight.get(v * 12), 0.0) << v;
      }
    }
  });
}

TEST(CpuLinearLogpBackward, ACappedRowOfMinusInfinityIsNoDataError) {
  for_each_target([] {
    LinearCase c = make_linear_case(Dtype::f32, 3, 37, 20, 8);
    c.bias = Tensor(Dtype::f32, {37}).fill([](int64_t) { return -kInfinity; });
    c.params.softcap = 2;  // makes every score -2
    add_gradients(c, true, false, 9);
    const LinearGradients got = run_linear_backward(c, cpu::serial_parallel());
    EXPECT_EQ(got.error.kind, cpu::kNoDataError);
    for (int64_t i = 0; i < 60; ++i) EXPECT_EQ(got.grad_hidden.get(i), 0) << i;  // the cap is flat there
  });
}

TEST(CpuLinearLogpBackward, DataErrorsMakeTheirRowsAndTheSumsNan) {
  LinearCase c = make_linear_case(Dtype::f32, 5, 37, 9, 3);
  add_gradients(c, false, false, 4);
  c.ids.set_int(1, 37).set_int(3, -2);
  LinearGradients got = expect_golden_gradients(c);
  EXPECT_EQ(got.error.kind, cpu::kIdOutOfRange);
  EXPECT_EQ(got.error.row, 1);
  EXPECT_EQ(got.error.value, 37);
  EXPECT_TRUE(std::isnan(got.grad_hidden.get(9)) && std::isnan(got.grad_weight.get(0)) &&
              std::isnan(got.grad_bias.get(36)));
  EXPECT_TRUE(std::isfinite(got.grad_hidden.get(0)));

  c.ids.set_int(1, 3).set_int(3, 3);
  c.bias = Tensor(Dtype::f32, {37}).fill([](int64_t) { return -kInfinity; });
  got = expect_golden_gradients(c);
  EXPECT_EQ(got.error.kind, cpu::kNoFiniteLogit);
  EXPECT_EQ(got.error.row, 0);
  c.params.global_vocab = 40;  // of a shard it is legal
  got = expect_golden_gradients(c);
  EXPECT_EQ(got.error.kind, cpu::kNoDataError);
  EXPECT_EQ(got.grad_hidden.get(0), 0.0);
}

// Shards are given the lse and entropy of the whole; their contributions to grad_hidden add up, the rest is their own.
TEST(CpuLinearLogpBackward, UnevenShardsGiveTheGradientsOfTheWhole) {
  LinearCase c = make_linear_case(Dtype::f64, 7, 100, 12, 3);
  c.bias = random_tensor(Dtype::f64, {100}, 1.0, 6);
  c.params.temperature = 0.8;
  add_gradients(c, true, true, 4);
  const LinearGradients whole = run_linear_backward(c, cpu::serial_parallel());
  std::vector<double> sum(static_cast<size_t>(whole.grad_hidden.size()), 0.0);
  const std::vector<int64_t> cuts = {0, 1, 66, 100};
  for (size_t s = 0; s + 1 < cuts.size(); ++s) {
    LinearCase shard = shard_of(c, cuts[s], cuts[s + 1]);
    const LinearGradients part = expect_golden_gradients(shard);
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += part.grad_hidden.get(static_cast<int64_t>(i));
    for (int64_t i = 0; i < part.grad_weight.size(); ++i) {
      EXPECT_NEAR(part.grad_weight.get(i), whole.grad_weight.get(cuts[s] * 12 + i), 1e-13);
    }
    for (int64_t v = 0; v < part.grad_bias.size(); ++v)
      EXPECT_NEAR(part.grad_bias.get(v), whole.grad_bias.get(cuts[s] + v), 1e-14);
  }
  for (size_t i = 0; i < sum.size(); ++i) EXPECT_NEAR(sum[i], whole.grad_hidden.get(static_cast<int64_t>(i)), 1e-13);
}

// Equal terms all round the same way: long chains of them in fp32 would miss the bound.
TEST(CpuLinearLogpBackward, EqualTermsDoNotAddUpTheirRounding) {
  LinearCase c = make_linear_case(Dtype::f32, 1500, 2000, 3, 8);
  c.hidden.fill([](int64_t) { return 0.1; });
  c.weight.fill([](int64_t) { return 0.3; });
  for (int64_t n = 0; n < c.rows(); ++n) c.ids.set_int(n, 5);
  add_gradients(c, false, false, 4);
  c.grad_logp.fill([](int64_t) { return 0.7; });
  expect_golden_gradients(c);
}

// Logits that differ by more than fp32 has once they are divided by the temperature, and an lse (row 1) that does.
TEST(CpuLinearLogpBackward, ScoresBeyondFp32GiveFiniteGradients) {
  for_each_target([] {
    LinearCase c = make_linear_case(Dtype::f32, 2, 150, 2, 9);
    c.params.temperature = 0x1p-10;
    c.hidden.fill([](int64_t i) { return i == 0 ? 1.0 : i == 2 ? 128.0 : 0.0; });
    c.weight.fill([](int64_t i) { return i == 2 * 7 ? 0x1p117 : i == 2 * 140 ? -0x1p117 : 0.01; });
    c.ids.set_int(0, 8).set_int(1, 8);
    add_gradients(c, false, false, 12);
    c.grad_logp.fill([](int64_t) { return 0x1p-10; });
    EXPECT_EQ(c.lse.get(1), kInfinity);
    const LinearGradients got = run_linear_backward(c, cpu::serial_parallel());
    for (int64_t v = 0; v < 150; ++v) EXPECT_NEAR(got.grad_bias.get(v), v == 7 ? -1 : v == 8 ? 2 : 0, 1e-6) << v;
  });
}

// What a row's elements share, 2e39 here, is infinite in fp32; times a p that is 0 there it would be NaN.
TEST(CpuLinearLogpBackward, FactorsBeyondFp32GiveFiniteGradients) {
  for_each_target([] {
    for (const double capped : {0.0, 40.0}) {
      LinearCase c = make_linear_case(Dtype::f32, 3, 150, 2, 9);
      c.params.temperature = 0.05;
      c.params.softcap = capped;
      c.hidden.fill([](int64_t i) { return i % 2 == 0 ? 1.0 : 0.0; });
      c.weight.fill([](int64_t i) {
        if (i == 2 * 64) return 19.5;  // the first of a block
        const int64_t fifty = i / 100;
        return i % 2 == 0 && i / 2 % 50 == 7 ? 20.0 - 5.0 * static_cast<double>(fifty) : 0.01;
      });
      for (int64_t n = 0; n < 3; ++n) c.ids.set_int(n, 7);
      add_gradients(c, true, false, 12);
      c.grad_logp.fill([](int64_t n) { return n == 1 ? 1e38 : 0.5; });
      c.grad_lse.fill([](int64_t) { return 0.25; });
      const LinearGradients got = expect_golden_gradients(c);
      EXPECT_TRUE(std::isfinite(got.grad_hidden.get(2)) && got.grad_hidden.get(2) != 0) << got.grad_hidden.get(2);
    }
  });
}

}  // namespace
}  // namespace rlk::test
