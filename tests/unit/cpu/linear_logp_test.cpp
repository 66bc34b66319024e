// linear_logp against the golden reference, and its promises: bits that depend on the row alone, shards that merge to
// the whole, data errors, nothing read that is ignored.
#include <cmath>
#include <limits>

#include "core/cpu/linear/linear_operands.hpp"
#include "core/cpu/tbb_parallel.hpp"
#include "unit/cpu/linear_case.hpp"

namespace rlk::test {
namespace {

LinearOutputs expect_golden(LinearCase& c) {
  const auto expected = golden_linear(c);
  LinearOutputs got = run_linear(c, cpu::serial_parallel());
  EXPECT_TRUE(matches(got.logp, expected.logp, c.dtype())) << "logp";
  if (c.want_lse) {
    EXPECT_TRUE(matches(got.lse, expected.lse, c.dtype())) << "lse";
  }
  if (c.want_entropy) {
    EXPECT_TRUE(matches(got.entropy, expected.entropy, c.dtype())) << "entropy";
  }
  EXPECT_EQ(got.error.kind, expected.error.kind);
  EXPECT_EQ(got.error.row, expected.error.row);
  EXPECT_EQ(got.error.value, expected.error.value);
  // Serial and threaded, forwards and backwards: the same bits.
  for (const cpu::ParallelFor& hook : {cpu::tbb_parallel(), backwards_parallel()}) {
    const LinearOutputs again = run_linear(c, hook);
    EXPECT_EQ(again.logp.bytes(), got.logp.bytes());
    EXPECT_EQ(again.lse.bytes(), got.lse.bytes());
    EXPECT_EQ(again.entropy.bytes(), got.entropy.bytes());
    EXPECT_EQ(again.error.row, got.error.row);
  }
  return got;
}

TEST(CpuLinearLogp, MatchesGoldenForEveryOption) {
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
        if (option == 7) c.narrow_logp = true;
        if (option == 8) c.params.vocab_start = 5, c.params.global_vocab = 142, c.ids.set_int(0, 2).set_int(1, 141);
        if (option >= 9) {  // all at once, with strides
          c.bias = random_tensor(dtype, {131}, 1.0, 6, c.output_strides);
          c.params.softcap = 20, c.params.temperature = 1.5;
        }
        if (option == 11) c.narrow_logp = true, c.want_entropy = false, c.want_lse = false;
        expect_golden(c);
      }
    }
  });
}

// The vocabulary of GPT-2, whose size is a multiple of nothing.
TEST(CpuLinearLogp, MatchesGoldenForAnOddLargeVocabulary) {
  for (Dtype dtype : {Dtype::f32, Dtype::bf16}) {
    LinearCase c = make_linear_case(dtype, 3, 50257, 80, 7);
    c.ids.set_int(0, 50256).set_int(1, 0);
    expect_golden(c);
  }
}

// More rows than are worked on together.
TEST(CpuLinearLogp, MatchesGoldenForMoreRowsThanABatch) {
  LinearCase c = make_linear_case(Dtype::f32, 2 * cpu::kLinearBatch + 3, 40, 9, 7);
  for (int64_t n = 0; n < c.rows(); n += 3) c.ids.set_int(n, -100);
  expect_golden(c);
}

TEST(CpuLinearLogp, MatchesGoldenForRowsAroundThoseOfATask) {
  for_each_target([] {
    const int64_t rows = cpu::kLinearTilesPerTask * cpu::linear_tile_rows(false);
    for (const int64_t more : {-1, 0, 1}) {
      LinearCase c = make_linear_case(Dtype::f32, rows + more, 5, 3, 7);
      expect_golden(c);
    }
  });
}

TEST(CpuLinearLogp, HandComputedValues) {
  LinearCase c = make_linear_case(Dtype::f64, 1, 3, 2, 1);
  c.hidden.set(0, 1).set(1, 2);
  for (int64_t i = 0; i < 6; ++i) c.weight.set(i, 0);
  c.weight.set(2, std::log(2.0)).set(5, std::log(2.0));  // scores 0, log 2, 2 log 2: probabilities 1/7, 2/7, 4/7
  c.ids.set_int(0, 2);
  const LinearOutputs got = expect_golden(c);
  EXPECT_NEAR(got.logp.get(0), std::log(4.0 / 7), 1e-15);
  EXPECT_NEAR(got.lse.get(0), std::log(7.0), 1e-15);
  EXPECT_NEAR(got.entropy.get(0), std::log(7.0) - 10 * std::log(2.0) / 7, 1e-15);
}

TEST(CpuLinearLogp, ABiasOfMinusInfinityIsLegal) {
  for_each_target([] {
    for (Dtype dtype : kFloatDtypes) {
      for (double softcap : {0.0, 3.0}) {
        LinearCase c = make_linear_case(dtype, 4, 130, 20, 3);
        c.params.softcap = softcap;
        c.bias = Tensor(dtype, {130}).fill([](int64_t v) { return v % 3 == 0 || v < 70 ? -kInfinity : 0.5; });
        c.ids.set_int(0, 3).set_int(1, 71);  // the target itself, and a number
        const LinearOutputs got = expect_golden(c);
        EXPECT_EQ(std::isinf(got.logp.get(0)), softcap == 0);
        EXPECT_TRUE(std::isfinite(got.logp.get(1)));
      }
    }
  });
}

TEST(CpuLinearLogp, ARowWithoutFiniteScoreIsADataErrorUnlessOfAShard) {
  LinearCase c = make_linear_case(Dtype::f32, 3, 70, 8, 3);
  c.bias = Tensor(Dtype::f32, {70}).fill([](int64_t) { return -kInfinity; });
  c.ids.set_int(0, -100);
  LinearOutputs got = expect_golden(c);
  EXPECT_EQ(got.error.kind, cpu::kNoFiniteLogit);
  EXPECT_EQ(got.error.row, 1);
  EXPECT_EQ(got.logp.get(0), 0.0);
  EXPECT_TRUE(std::isnan(got.logp.get(1)));
  c.params.global_vocab = 80;
  got = expect_golden(c);
  EXPECT_EQ(got.error.kind, cpu::kNoDataError);
  EXPECT_EQ(got.logp.get(1), -kInfinity);
  EXPECT_EQ(got.lse.get(1), -kInfinity);
  EXPECT_EQ(got.entropy.get(1), 0.0);
}

TEST(CpuLinearLogp, NanStaysInItsRow) {
  for_each_target([] {
    for (Dtype dtype : kFloatDtypes) {
      LinearCase c = make_linear_case(dtype, 5, 70, 40, 3);
      c.hidden.set(40 + 39, kNan).set(3 * 40, kInfinity);
      const LinearOutputs got = expect_golden(c);
      for (int64_t n : {1, 3}) EXPECT_TRUE(std::isnan(got.logp.get(n))) << n;
      for (int64_t n : {0, 2, 4}) EXPECT_TRUE(std::isfinite(got.logp.get(n))) << n;
      for (const int64_t at : {0, 64, 69}) {  // alone in the first block, the first and the last of the second
        for (const double odd : {kNan, kInfinity}) {
          c.bias = Tensor(dtype, {70}).fill([&](int64_t v) { return v == at ? odd : -kInfinity; });
          expect_golden(c);
        }
      }
    }
  });
}

// Neither the id nor the hidden state of an ignored row is looked at: TRL and verl drop prompt tokens with -100.
TEST(CpuLinearLogp, IgnoredRowsAreZeroAndNotRead) {
  LinearCase c = make_linear_case(Dtype::f32, 60, 100, 20, 3);
  c.mask = Tensor(Dtype::u8, {60}).fill([](int64_t n) { return n % 3 == 0 ? 0 : 1; });
  for (int64_t n = 0; n < 60; ++n) {
    if (n % 3 == 0) c.ids.set_int(n, std::numeric_limits<int64_t>::max() - n);
    if (n % 3 == 1) c.ids.set_int(n, -100);
    if (n % 3 == 2) continue;
    for (int64_t d = 0; d < 20; ++d) c.hidden.set(n * 20 + d, kNan);
  }
  const LinearOutputs got = expect_golden(c);
  EXPECT_EQ(got.error.kind, cpu::kNoDataError);
  for (int64_t n = 0; n < 60; ++n) {
    if (n % 3 == 2) {
      EXPECT_LT(got.logp.get(n), 0.0);
    } else {
      EXPECT_EQ(got.logp.get(n), 0.0);
      EXPECT_EQ(got.lse.get(n), 0.0);
      EXPECT_EQ(got.entropy.get(n), 0.0);
    }
  }
}

TEST(CpuLinearLogp, AnIdOutOfRangeMakesItsRowNan) {
  LinearCase c = make_linear_case(Dtype::bf16, 5, 37, 9, 3);
  c.ids.set_int(2, 37).set_int(3, std::numeric_limits<int64_t>::min()).set_int(1, 36);
  const LinearOutputs got = expect_golden(c);
  EXPECT_EQ(got.error.kind, cpu::kIdOutOfRange);
  EXPECT_EQ(got.error.row, 2);
  EXPECT_EQ(got.error.value, 37);
  EXPECT_TRUE(std::isnan(got.logp.get(2)) && std::isnan(got.lse.get(3)) && std::isnan(got.entropy.get(2)));
  EXPECT_FALSE(std::isnan(got.logp.get(1)));
}

TEST(CpuLinearLogp, ExtremeScoresAndParametersStayFinite) {
  for_each_target([] {
    for (int variant = 0; variant < 8; ++variant) {
      SCOPED_TRACE(variant);
      LinearCase c = make_linear_case(Dtype::f32, 3, 300, 16, 8);
      const auto scale = [](Tensor& tensor, double by) {
        for (int64_t i = 0; i < tensor.size(); ++i) tensor.set(i, tensor.get(i) * by);
      };
      if (variant == 0) c.params.temperature = 1e-30;
      if (variant == 1) c.params.temperature = 1e30;
      if (variant == 2) c.params.softcap = 1e25;
      if (variant == 3) scale(c.hidden, 1e4), scale(c.weight, 1e4);
      if (variant == 4) scale(c.hidden, 1e15), scale(c.weight, 1e15);
      if (variant == 5) c.bias = Tensor(Dtype::f32, {300}).fill([](int64_t) { return -3.4028234663852886e38; });
      if (variant == 6) c.bias = Tensor(Dtype::f32, {300}).fill([](int64_t v) { return v < 299 ? -3.4e38 : 1.0; });
      if (variant == 7) c.bias = Tensor(Dtype::f32, {300}).fill([](int64_t v) { return v == 299 ? 300.0 : -300.0; });
      expect_golden(c);
    }
  });
}

// Equal terms all round the same way, here up by 0.4 ulp in the longer half of a chain: one of 4096 misses the bound.
TEST(CpuLinearLogp, EqualTermsDoNotAddUpTheirRounding) {
  LinearCase c = make_linear_case(Dtype::f32, 2, 3000, 4096, 8);
  c.hidden.fill([](int64_t) { return 1.0; });
  c.weight.fill([](int64_t) { return 1 + 0x26p-23; });
  expect_golden(c);
}

TEST(CpuLinearLogp, LogProbabilitiesOfSixteenBitTensorsAreWithin2e5) {
  for (Dtype dtype : {Dtype::bf16, Dtype::f16}) {
    LinearCase c = make_linear_case(dtype, 4, 20001, 128, 21);
    const auto expected = golden_linear(c);
    const LinearOutputs got = run_linear(c, cpu::tbb_parallel());
    for (int64_t n = 0; n < 4; ++n) {
      const auto at = static_cast<size_t>(n);
      EXPECT_NEAR(got.logp.get(n), expected.logp.value[at], 2e-5);
      EXPECT_NEAR(got.lse.get(n), expected.lse.value[at], 2e-5);
    }
  }
}

// Few rows and many take different ways through the kernel; ignored rows are neither.
TEST(CpuLinearLogp, BitsDoNotDependOnHowFewRowsThereAre) {
  for_each_target([] {
    for (Dtype dtype : kFloatDtypes) {
      for (int64_t depth : {1, 30, 127, 300}) {
        LinearCase c = make_linear_case(dtype, 60, 150, depth, 31);
        const Tensor ids = c.ids;
        const LinearOutputs many = run_linear(c, cpu::serial_parallel());
        for (int64_t rows : {1, 2, 3, 4, 5, 7, 8, 9, 16, 17}) {
          for (int64_t n = 0; n < 60; ++n) c.ids.set_int(n, n < rows ? ids.get_int(n) : -100);
          const LinearOutputs few = run_linear(c, cpu::tbb_parallel());
          EXPECT_EQ(few.logp.bits(0, rows), many.logp.bits(0, rows)) << name(dtype) << " " << rows << "x" << depth;
          EXPECT_EQ(few.lse.bits(0, rows), many.lse.bits(0, rows)) << name(dtype) << " " << rows << "x" << depth;
          EXPECT_EQ(few.entropy.bits(0, rows), many.entropy.bits(0, rows));
        }
      }
    }
  });
}

}  // namespace
}  // namespace rlk::test
