// logp against the golden reference, and its promises: data errors, no false reads.
#include <cmath>

#include "core/cpu/tbb_parallel.hpp"
#include "unit/cpu/logp_case.hpp"

namespace rlk::test {
namespace {

void expect_golden(LogpCase& c) {
  const auto expected = golden_logp(c);
  const LogpOutputs got = run_logp(c, cpu::serial_parallel());
  const Dtype dtype = c.logits.dtype();
  double worst = 0;
  EXPECT_TRUE(matches(got.logp, expected.logp, dtype, &worst)) << "logp";
  if (c.want_lse) {
    EXPECT_TRUE(matches(got.lse, expected.lse, dtype, &worst)) << "lse";
  }
  if (c.want_entropy) {
    EXPECT_TRUE(matches(got.entropy, expected.entropy, dtype, &worst)) << "entropy";
  }
  EXPECT_EQ(got.error.kind, expected.error.kind);
  EXPECT_EQ(got.error.row, expected.error.row);
  EXPECT_EQ(got.error.value, expected.error.value);
  // Serial and threaded, forwards and backwards: the same bits.
  for (const cpu::ParallelFor& hook : {cpu::tbb_parallel(), backwards_parallel()}) {
    const LogpOutputs again = run_logp(c, hook);
    EXPECT_EQ(again.logp.bytes(), got.logp.bytes());
    EXPECT_EQ(again.lse.bytes(), got.lse.bytes());
    EXPECT_EQ(again.entropy.bytes(), got.entropy.bytes());
    EXPECT_EQ(again.error.row, got.error.row);
  }
}

// Sizes on both sides of a vector, of an unrolled group and of a block; one row and many.
const std::vector<std::pair<int64_t, int64_t>> kShapes = {{5, 37}, {1, 1},    {0, 8},    {3, 2},     {33, 129},
                                                          {7, 64}, {4, 1031}, {2, 4096}, {70, 4097}, {3, 12345}};

TEST(CpuLogp, MatchesGoldenForEveryOption) {
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
        if (option == 7) {  // rows in any order, some twice
          c.row_indices = Tensor(Dtype::i64, {9}).fill([](int64_t n) { return static_cast<double>(n * 5 % 6); });
          c.ids = Tensor(Dtype::i64, {9}).fill([](int64_t n) { return static_cast<double>(n); });
        }
        if (option == 8) c.params.vocab_start = 5, c.params.global_vocab = 1042, c.ids.set_int(0, 2).set_int(1, 1041);
        if (option >= 9) {  // all at once, with strides
          c.bias = random_tensor(dtype, {1031}, 1.0, 6, c.output_strides);
          c.params.softcap = 20, c.params.temperature = 1.5;
        }
        if (option == 11) c.narrow_logp = true, c.want_entropy = false, c.want_lse = false;
        expect_golden(c);
      }
    }
  });
}

TEST(CpuLogp, MinusInfinityLogitsAndNanRowsAreLegal) {
  for_each_target([] {
    for (Dtype dtype : kFloatDtypes) {
      for (int64_t vocab : {5, 40, 9000}) {
        SCOPED_TRACE(name(dtype) + " " + std::to_string(vocab));
        LogpCase c = make_logp_case(dtype, 8, vocab, 3);
        const auto at = [vocab](int64_t n, int64_t v) { return n * vocab + v; };
        for (int64_t v = 0; v < vocab; v += 2) c.logits.set(at(0, v), -kInfinity);               // half of the row
        for (int64_t v = 0; v + 1 < vocab; ++v) c.logits.set(at(1, v), -kInfinity);              // all but the last
        for (int64_t v = 0; v < vocab; ++v) c.logits.set(at(2, v), -kInfinity);                  // all: a data error
        c.logits.set(at(3, vocab - 1), kNan);                                                    // NaN at the end
        for (int64_t v = 0; v < vocab; ++v) c.logits.set(at(4, v), v == 1 ? kNan : -kInfinity);  // NaN among -inf
        c.logits.set(at(5, c.ids.get_int(5)), -kInfinity);                                       // the target
        c.logits.set(at(6, 0), kInfinity);
        expect_golden(c);
        EXPECT_EQ(run_logp(c, cpu::serial_parallel()).error.kind, cpu::kNoFiniteLogit);
      }
    }
  });
}

TEST(CpuLogp, AShardThatIsAllMaskedIsNoDataError) {
  for (bool owns_the_id : {true, false}) {
    LogpCase c = make_logp_case(Dtype::f32, 2, 40, 3);
    c.params.vocab_start = 40, c.params.global_vocab = 80;
    for (int64_t v = 0; v < 40; ++v) c.logits.set(v, -kInfinity);
    c.ids.set_int(0, owns_the_id ? 41 : 3).set_int(1, 50);
    expect_golden(c);
    const LogpOutputs got = run_logp(c, cpu::serial_parallel());
    EXPECT_EQ(got.logp.get(0), -kInfinity);
    EXPECT_EQ(got.lse.get(0), -kInfinity);
    EXPECT_EQ(got.entropy.get(0), 0.0);
    EXPECT_EQ(got.error.kind, cpu::kNoDataError);
  }
}

TEST(CpuLogp, ShardsCombineToTheWholeVocabulary) {
  LogpCase whole = make_logp_case(Dtype::f32, 4, 100, 9);
  const LogpOutputs expected = run_logp(whole, cpu::serial_parallel());
  for (int64_t n = 0; n < 4; ++n) {
    double target = -kInfinity, sum = 0;
    for (int64_t start : {0, 60}) {
      LogpCase shard = whole;
      const int64_t size = start == 0 ? 60 : 40;
      shard.logits = Tensor(Dtype::f32, {4, size}).fill([&](int64_t i) {
        return whole.logits.get(i / size * 100 + start + i % size);
      });
      shard.params.vocab_start = start, shard.params.global_vocab = 100;
      const LogpOutputs part = run_logp(shard, cpu::serial_parallel());
      target = std::max(target, part.logp.get(n) + part.lse.get(n));
      sum += std::exp(part.lse.get(n));
    }
    EXPECT_NEAR(target - std::log(sum), expected.logp.get(n), 2e-6);
  }
}

TEST(CpuLogp, DataErrorsReportTheLowestRowAndMakeItNan) {
  for (int64_t vocab : {37, 9000}) {
    LogpCase c = make_logp_case(Dtype::f32, 9, vocab, 4);
    c.row_indices = Tensor(Dtype::i64, {9}).fill([](int64_t n) { return static_cast<double>(n); });
    c.ids.set_int(7, vocab).set_int(5, -5).set_int(6, -100);
    c.row_indices.set_int(3, 9).set_int(6, 1 << 30);  // row 6 is ignored
    expect_golden(c);
    const LogpOutputs got = run_logp(c, cpu::tbb_parallel());
    EXPECT_EQ(got.error.kind, cpu::kRowOutOfRange);
    EXPECT_EQ(got.error.row, 3);
    EXPECT_EQ(got.error.value, 9);
    for (int64_t n : {3, 5, 7}) EXPECT_TRUE(std::isnan(got.lse.get(n))) << n;
    EXPECT_EQ(got.logp.get(6), 0.0);
  }
}

TEST(CpuLogp, ExtremeLogitsAndParametersStayFinite) {
  for_each_target([] {
    for (int variant = 0; variant < 12; ++variant) {
      SCOPED_TRACE(variant);
      LogpCase c = make_logp_case(Dtype::f32, 4, 5000, 8);
      const double lowest = -3.4028234663852886e38;
      if (variant == 0) c.logits.fill([&](int64_t) { return lowest; });
      if (variant == 1) c.logits.fill([&](int64_t i) { return i % 7 == 0 ? 1.0 : lowest; });
      if (variant == 2) c.logits.fill([&](int64_t i) { return i % 5000 == 4999 ? 300.0 : -300.0; });  // late peak
      if (variant == 3) c.logits.fill([&](int64_t i) { return i % 5000 == 0 ? 300.0 : -300.0; });     // early peak
      if (variant == 4) c.params.temperature = 1e-30;
      if (variant == 5) c.params.temperature = 1e30;
      if (variant == 6) c.params.softcap = 1e25;
      if (variant == 7) c.logits.fill([](int64_t i) { return 1e6 + static_cast<double>(i % 9); });
      if (variant == 8) c.logits.fill([](int64_t i) { return i % 5000 < 4096 ? -3e38 : 2.0; });  // a late normal block
      if (variant == 9) c.logits.fill([](int64_t i) { return i % 5000 < 4096 ? 2.0 : 3e30; });
      if (variant == 10) c.logits.fill([](int64_t i) { return i % 5000 < 4096 ? 0.0 : 7.5; });  // both blocks count
      if (variant == 11) {                                                                      // a slope beyond fp32
        c.params.temperature = 1e-42;
        c.logits.fill([](int64_t i) { return 1e-42 * static_cast<double>(i % 9); });
      }
      expect_golden(c);
    }
  });
}

TEST(CpuLogp, LogProbabilitiesOfSixteenBitLogitsAreWithin2e5) {
  for_each_target([] {
    for (Dtype dtype : {Dtype::bf16, Dtype::f16}) {
      LogpCase c = make_logp_case(dtype, 4, 151936, 21);
      const auto expected = golden_logp(c);
      const LogpOutputs got = run_logp(c, cpu::tbb_parallel());
      for (int64_t n = 0; n < 4; ++n) {
        EXPECT_NEAR(got.logp.get(n), expected.logp.value[static_cast<size_t>(n)], 4e-6);
        EXPECT_NEAR(got.lse.get(n), expected.lse.value[static_cast<size_t>(n)], 4e-6);
        EXPECT_NEAR(got.entropy.get(n), expected.entropy.value[static_cast<size_t>(n)], 2e-5);
      }
    }
  });
}

TEST(CpuLogp, EveryBlockOfALongRowHasItsOwnBias) {
  LogpCase c = make_logp_case(Dtype::f32, 2, 9001, 23);
  c.bias = random_tensor(Dtype::f32, {9001}, 3.0, 24);
  expect_golden(c);
}

}  // namespace
}  // namespace rlk::test
