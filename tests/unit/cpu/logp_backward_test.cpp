// logp_backward against the golden reference, and its promises: exact zeros, one order of summation, data errors.
#include <rlk/sdk/ops/logp_backward.hpp>

#include <cmath>

#include "core/cpu/logp/logp_backward.hpp"
#include "core/cpu/tbb_parallel.hpp"
#include "unit/cpu/logp_case.hpp"
#include "unit/cpu/token_case.hpp"

namespace rlk::test {
namespace {

void expect_golden_gradients(LogpCase& c) {
  const auto expected = golden_logp_backward(c);
  const LogpBackwardOutputs got = run_logp_backward(c, cpu::serial_parallel());
  const Dtype dtype = c.logits.dtype();
  EXPECT_TRUE(matches(got.grad_logits, expected.grad_logits, dtype)) << "grad_logits";
  if (c.want_grad_bias) {
    EXPECT_TRUE(matches(got.grad_bias, expected.grad_bias, dtype)) << "grad_bias";
  }
  EXPECT_EQ(got.error.kind, expected.error.kind);
  EXPECT_EQ(got.error.row, expected.error.row);
  EXPECT_EQ(got.error.value, expected.error.value);
  for (const cpu::ParallelFor& hook : {cpu::tbb_parallel(), backwards_parallel()}) {
    const LogpBackwardOutputs again = run_logp_backward(c, hook);
    EXPECT_EQ(again.grad_logits.bytes(), got.grad_logits.bytes());
    EXPECT_EQ(again.grad_bias.bytes(), got.grad_bias.bytes());
    EXPECT_EQ(again.error.row, got.error.row);
  }
}

TEST(CpuLogpBackward, MatchesGoldenForEveryOption) {
  for_each_target([] {
    for (Dtype dtype : kFloatDtypes) {
      for (int option = 0; option < 12; ++option) {
        SCOPED_TRACE(name(dtype) + " option " + std::to_string(option));
        LogpCase c = make_logp_case(dtype, 6, 1031, 5,
                                    option == 9    ? Strides::gaps
                                    : option == 10 ? Strides::reversed
                                                   : Strides::contiguous);
        if (option == 1) c.bias = random_tensor(dtype, {1031}, 1.0, 6);
        if (option == 2) c.params.temperature = 0.7;
        if (option == 3) c.params.softcap = 3.0;
        if (option == 4) c.mask = Tensor(Dtype::u8, {6}).fill([](int64_t n) { return n % 2 == 0 ? 7 : 0; });
        if (option == 5) c.params.ignore_index = -1, c.ids.set_int(2, -1).set_int(5, -1);
        if (option == 6) {
          c.ids = Tensor(Dtype::i32, {6}).fill([](int64_t n) { return static_cast<double>(n * 100); });
        }
        if (option == 7) {  // three logits rows that no index names
          c.logits = random_tensor(dtype, {9, 1031}, 4.0, 5);
          c.row_indices = Tensor(Dtype::i64, {6});
          for (int64_t n = 0; n < 6; ++n) c.row_indices.set_int(n, n + n / 2);
        }
        if (option == 8) c.params.vocab_start = 5, c.params.global_vocab = 1042, c.ids.set_int(0, 2).set_int(1, 1041);
        if (option >= 9) {
          c.bias = random_tensor(dtype, {1031}, 1.0, 6, c.output_strides);
          c.params.softcap = 20, c.params.temperature = 1.5;
        }
        c.narrow_logp = option == 11;
        add_gradients(c, option % 2 == 0, option % 3 == 0, 12);
        c.want_grad_bias = option % 4 == 1;
        c.in_place = option % 2 == 0;
        expect_golden_gradients(c);
        c.in_place = !c.in_place;
        c.want_grad_bias = !c.want_grad_bias;
        expect_golden_gradients(c);
      }
    }
  });
}

TEST(CpuLogpBackward, MinusInfinityLogitsGetExactlyZero) {
  for_each_target([] {
    for (Dtype dtype : kFloatDtypes) {
      for (double softcap : {0.0, 3.0}) {
        LogpCase c = make_logp_case(dtype, 3, 100, 3);
        c.params.softcap = softcap;
        for (int64_t v = 0; v < 100; v += 3) c.logits.set(100 + v, -kInfinity).set(200 + v, -kInfinity);
        c.ids.set_int(1, 3);  // the target itself
        add_gradients(c, true, true, 4);
        c.lse.set(2, kNan);  // as of a row with a NaN
        c.want_grad_bias = true;
        expect_golden_gradients(c);
        const LogpBackwardOutputs got = run_logp_backward(c, cpu::serial_parallel());
        for (int64_t v = 0; v < 100; v += 3) {
          EXPECT_EQ(got.grad_logits.get(100 + v), 0.0) << v;
          EXPECT_EQ(got.grad_logits.get(200 + v), 0.0) << v;
        }
      }
    }
  });
}

TEST(CpuLogpBackward, ARowWithoutFiniteLogitIsADataError) {
  for (bool bias : {false, true}) {
    for (int64_t vocab : {40, 9000}) {
      for (const int64_t row : {0, 2, 3}) {
        LogpCase c = make_logp_case(Dtype::f32, 4, vocab, 3);
        for (int64_t v = 0; v < vocab; ++v) c.logits.set(row * vocab + v, -kInfinity);
        add_gradients(c, false, false, 4);
        c.want_grad_bias = bias;
        expect_golden_gradients(c);
        const LogpBackwardOutputs got = run_logp_backward(c, cpu::serial_parallel());
        EXPECT_EQ(got.error.kind, cpu::kNoFiniteLogit);
        EXPECT_EQ(got.error.row, row);
        EXPECT_TRUE(std::isnan(got.grad_logits.get(row * vocab + vocab - 1)));
        c.params.global_vocab = vocab + 5;  // of a shard it is legal
        c.lse.set(row, 1.0);
        expect_golden_gradients(c);
        EXPECT_EQ(run_logp_backward(c, cpu::serial_parallel()).error.kind, cpu::kNoDataError);
      }
    }
  }
}

// Ignored rows are filled block by block: 4096 columns, with grad_bias 2048. One column less than whole blocks must not
// make a block that ends before it begins.
TEST(CpuLogpBackward, IgnoredRowsAroundWholeBlocksOfColumns) {
  for (bool bias : {false, true}) {
    for (int64_t vocab : {2047, 2048, 2049, 4095, 4096, 4097}) {
      SCOPED_TRACE(vocab);
      LogpCase c = make_logp_case(Dtype::f32, 3, vocab, 7);
      c.ids.set_int(1, c.params.ignore_index);
      add_gradients(c, false, false, 4);
      c.want_grad_bias = bias;
      expect_golden_gradients(c);
    }
  }
}

TEST(CpuLogpBackward, ARowWhoseFirstBlocksAreMaskedIsNoDataError) {
  for (bool bias : {false, true}) {
    LogpCase c = make_logp_case(Dtype::f32, 3, 5000, 9);
    for (int64_t v = 0; v < 4096; ++v) c.logits.set(5000 + v, -kInfinity);
    c.ids.set_int(1, 4500);
    add_gradients(c, true, true, 12);
    c.want_grad_bias = bias;
    expect_golden_gradients(c);
    EXPECT_EQ(run_logp_backward(c, cpu::serial_parallel()).error.kind, cpu::kNoDataError);
  }
}

TEST(CpuLogpBackward, GradientsWhoseDifferenceLeavesFp32AreNotLost) {
  for_each_target([] {
    LogpCase c = make_logp_case(Dtype::f32, 2, 1031, 10);
    add_gradients(c, true, false, 12);
    c.grad_logp.fill([](int64_t) { return -3e38; });
    c.grad_lse.fill([](int64_t) { return 3e38; });
    expect_golden_gradients(c);
  });
}

// A row whose first token has all of the probability.
LogpCase certain_case(double other) {
  LogpCase c = make_logp_case(Dtype::f32, 1, 3, 1);
  c.logits = numbers({0, other, other}, {1, 3}, Dtype::f32);
  c.ids.set_int(0, 0);
  add_gradients(c, false, true, 2);
  c.lse.set(0, 0);
  c.entropy.set(0, 0);
  return c;
}

// Infinity times a probability of 0 would be NaN.
TEST(CpuLogpBackward, WhatLeavesFp32OnlyWithItsFactorsIsMultipliedInFp64) {
  for_each_target([] {
    LogpCase small = certain_case(-1);
    small.params.temperature = 1e-10;
    small.grad_logp.set(0, 1e30);
    small.grad_entropy.set(0, 0);
    LogpCase entropy = certain_case(-1000);
    entropy.params.temperature = 0.5;
    entropy.grad_entropy.set(0, 3e38);
    for (const LogpCase* c : {&small, &entropy}) {
      const Tensor got = run_logp_backward(*c, cpu::serial_parallel()).grad_logits;
      for (int64_t v = 0; v < 3; ++v) EXPECT_EQ(got.get(v), 0) << v;
    }
  });
}

// As scores beyond the accumulator's dtype have.
TEST(CpuLogpBackward, BesideAnInfiniteLseNoTokenHasAProbability) {
  for_each_target([] {
    for (const Dtype dtype : kFloatDtypes) {
      LogpCase c = make_logp_case(dtype, 1, 37, 1);
      add_gradients(c, false, false, 2);
      c.lse.set(0, kInfinity);
      c.grad_logp.set(0, 0.5);
      const Tensor got = run_logp_backward(c, cpu::serial_parallel()).grad_logits;
      for (int64_t v = 0; v < 37; ++v) EXPECT_EQ(got.get(v), v == c.ids.get_int(0) ? 0.5 : 0) << name(dtype) << v;
    }
  });
}

TEST(CpuLogpBackward, RowIndicesMustIncrease) {
  const std::vector<std::vector<int64_t>> cases = {{0, 2, 2, 5}, {0, 3, 1, 5},  {5, 4, 3, 2},
                                                   {0, 1, 9, 3}, {0, -1, 2, 3}, {6, 0, 0, 1}};
  for (const auto& indices : cases) {
    for (int ignored = -1; ignored < 4; ++ignored) {
      LogpCase c = make_logp_case(Dtype::f32, 4, 37, 3);
      c.logits = random_tensor(Dtype::f32, {7, 37}, 4.0, 8);
      c.row_indices = Tensor(Dtype::i64, {4});
      for (int64_t n = 0; n < 4; ++n) c.row_indices.set_int(n, indices[static_cast<size_t>(n)]);
      if (ignored >= 0) c.ids.set_int(ignored, -100);
      add_gradients(c, false, false, 4);
      c.want_grad_bias = true;
      expect_golden_gradients(c);
    }
  }
}

// What is present and empty has no address: the indices of no rows are not absent indices, which name every row.
TEST(CpuLogpBackward, RowIndicesOfNoRowsLeaveEveryGradientZero) {
  std::vector<float> grad_logits(3 * 40, 7.0f), logits(3 * 40, 1.0f);
  std::vector<double> workspace(64);
  cpu::CallOf<ops::LogpBackward> call;
  call.logits = cpu::Array::vector(logits.data(), Dtype::f32, 40);
  call.grad_logits = cpu::Array::vector(grad_logits.data(), Dtype::f32, 40);
  call.logits.strides[1] = call.grad_logits.strides[1] = 1;
  call.row_indices.ndim = 1;
  call.N = 0;
  call.R = 3;
  call.V = 40;
  EXPECT_EQ(cpu::logp_backward(call, {cpu::serial_parallel(), workspace.data()}).kind, cpu::kNoDataError);
  EXPECT_EQ(grad_logits, std::vector<float>(3 * 40, 0.0f));
}

TEST(CpuLogpBackward, PastTheCachesTheBitsAreTheSame) {
  constexpr int64_t kRows = 3, kColumns = 2347;  // rows begin anywhere in a cache line
  for_each_target([&] {
    for (const Dtype dtype : {Dtype::f32, Dtype::bf16, Dtype::f16}) {
      LogpCase c = make_logp_case(dtype, kRows, kColumns, 3);
      add_gradients(c, false, false, 4);
      for (const bool with_bias : {false, true}) {
        Tensor results[2], sums[2];
        for (const bool past_caches : {false, true}) {
          results[past_caches] = Tensor(dtype, {kRows, kColumns});
          sums[past_caches] = Tensor(dtype, {kColumns});
          cpu::CallOf<ops::LogpBackward> call;
          call.logits = array_of(c.logits);
          call.ids = array_of(c.ids);
          call.lse = array_of(c.lse);
          call.grad_logp = array_of(c.grad_logp);
          call.grad_logits = array_of(results[past_caches]);
          call.grad_logits.exceeds_caches = past_caches;
          if (with_bias) call.grad_bias = array_of(sums[past_caches]);
          call.params = c.params;
          call.N = call.R = kRows;
          call.V = kColumns;
          std::vector<double> workspace(1 << 16);
          EXPECT_EQ(cpu::logp_backward(call, {cpu::serial_parallel(), workspace.data()}).kind, cpu::kNoDataError);
        }
        EXPECT_EQ(results[0].bytes(), results[1].bytes()) << name(dtype);
        EXPECT_EQ(sums[0].bytes(), sums[1].bytes()) << name(dtype);
      }
    }
  });
}

TEST(CpuLogpBackward, AnIdOutOfRangeMakesItsRowNan) {
  LogpCase c = make_logp_case(Dtype::bf16, 4, 37, 3);
  add_gradients(c, false, false, 4);
  c.ids.set_int(1, 37).set_int(3, -2);
  c.want_grad_bias = true;
  expect_golden_gradients(c);
  const LogpBackwardOutputs got = run_logp_backward(c, cpu::serial_parallel());
  EXPECT_EQ(got.error.kind, cpu::kIdOutOfRange);
  EXPECT_EQ(got.error.row, 1);
  EXPECT_EQ(got.error.value, 37);
  EXPECT_TRUE(std::isnan(got.grad_logits.get(37)));
  EXPECT_FALSE(std::isnan(got.grad_logits.get(0)));
}

TEST(CpuLogpBackward, ExtremeGradientsAndParametersStayInRange) {
  for (int variant = 0; variant < 4; ++variant) {
    SCOPED_TRACE(variant);
    LogpCase c = make_logp_case(Dtype::f32, 3, 300, 3);
    if (variant == 0) c.params.temperature = 1e-25;
    if (variant == 1) c.params.temperature = 1e25;
    if (variant == 2) c.params.softcap = 1e22;
    add_gradients(c, true, true, 4);
    if (variant == 3) c.grad_logp.set(0, 3e38).set(1, 1e-38);
    expect_golden_gradients(c);
  }
}

}  // namespace
}  // namespace rlk::test
