// sample against the golden reference on every instruction set, and what its specification promises: published vectors
// of the generator, the stated exponential.
#include <rlk/sdk/ops/sample.hpp>

#include <cmath>
#include <numeric>

#include "core/cpu/sampling/sample_block.hpp"
#include "core/cpu/sampling/sample_random.hpp"
#include "unit/cpu/sample_case.hpp"

namespace rlk::test {
namespace {

using namespace ops::sample;  // NOLINT(google-build-using-namespace): its enumerations

using List = std::vector<int64_t>;

// kat_vectors of Random123: philox4x32 with 10 rounds; counter words 0 to 3, key words 0 and 1, result words 0 and 1.
TEST(CpuSample, RandomBitsAreThePublishedVectorsOfPhilox) {
  EXPECT_EQ(cpu::sample_random(0, 0, 0), 0xe169c58d6627e8d5u);
  EXPECT_EQ(cpu::sample_random(~uint64_t{0}, ~uint64_t{0}, ~uint64_t{0}), 0x41c83b0e408f276du);
  EXPECT_EQ(cpu::sample_random(0x299f31d0a4093822u, 0x85a308d3243f6a88u, 0x0370734413198a2eu), 0x94fdccebd16cfe09u);
}

// A row of 2^20 equal scores draws floor(U / 2^44): 20 bits of U are seen in the id, for the kernel and for golden.
TEST(CpuSample, DrawsByTheHighestBitsOfPhilox) {
  SampleCase c;
  c.logits = Tensor(Dtype::f32, {1, 1 << 20}).fill([](int64_t) { return 1.5; });
  c.row_ids = Tensor(Dtype::i64, {1}).set_int(0, static_cast<int64_t>(0x85a308d3243f6a88u));
  c.params.seed = static_cast<int64_t>(0x299f31d0a4093822u);
  c.params.step = static_cast<int64_t>(0x0370734413198a2eu);
  EXPECT_EQ(integers_of(run_sample(c).ids), (List{0x94fdc}));
  EXPECT_EQ(golden_answer(c).ids.value[0], 0x94fdc);
}

TEST(CpuSample, WeightsAreTheExponentialAndNeverRise) {
  constexpr int64_t kCount = 4096;
  std::vector<uint64_t> first_target;
  for_each_target([&] {
    std::vector<uint64_t> all;
    for (const float step : {0x1p-24f, 0x1p-12f, 0x1.fp-8f}) {  // at the maximum, near it, and to 2^-44 of it
      std::vector<float> x(kCount);
      for (int64_t i = 0; i < kCount; ++i) x[static_cast<size_t>(i)] = 3.0f - step * static_cast<float>(i);
      std::vector<uint64_t> w(kCount);
      const uint64_t sum = cpu::sample_weights(x.data(), kCount, 3.0f, 1.0f, 0, w.data(), nullptr).all;
      EXPECT_EQ(sum, std::accumulate(w.begin(), w.end(), uint64_t{0}));
      EXPECT_EQ(w[0], uint64_t{1} << 40);
      EXPECT_TRUE(std::is_sorted(w.rbegin(), w.rend()));
      for (size_t i = 0; i < w.size(); ++i) {
        const double exact = std::exp(static_cast<double>(x[i]) - 3.0) * 0x1p40;
        EXPECT_NEAR(static_cast<double>(w[i]), exact, 3e-8 * exact + 1) << x[i];
      }
      all.insert(all.end(), w.begin(), w.end());
    }
    EXPECT_EQ(all.back(), 0u);
    if (first_target.empty()) first_target = all;
    EXPECT_EQ(all, first_target);
  });
}

// Sizes on both sides of a vector and of the padding.
const std::vector<std::pair<int64_t, int64_t>> kShapes = {{5, 37}, {1, 1},  {0, 8},    {3, 63},    {2, 64},
                                                          {4, 65}, {9, 17}, {2, 4097}, {33, 1031}, {2, 16385}};

// Filtered draws that look at every kind of input per token, which AddressSanitizer sees end with the last one.
TEST(CpuSample, MatchesGoldenForEverySize) {
  for (const auto& [rows, vocab] : kShapes) {
    SCOPED_TRACE(testing::Message() << rows << " rows of " << vocab);
    SampleCase c = random_rows(Dtype::f32, rows, vocab, 9);
    c.params.temperature = 2;
    c.params.top_k = 2 + vocab / 3;
    c.params.top_p = 0.9;
    c.params.repetition_penalty = 1.5;
    c.params.presence_penalty = 0.5;
    c.per_token(c.prompt_mask, Dtype::u8, {0, 1, 0});
    c.per_token(c.output_counts, Dtype::i32, {0, 0, 2, 0, 1});
    c.per_token(c.allowed, Dtype::u8, {1, 1, 0, 1});
    expect_golden(c);
  }
}

// Every option at once, of every order and rule, per row and with gaps between elements.
TEST(CpuSample, MatchesGoldenForEveryCombinationOfRules) {
  for_each_target([] {
    for (int rules = 0; rules < 32; ++rules) {
      for (Strides strides : {Strides::contiguous, Strides::gaps, Strides::reversed}) {
        SCOPED_TRACE(rules);
        const Dtype dtype = kFloatDtypes[static_cast<size_t>(rules % 4)];
        SampleCase c = random_rows(dtype, 23, 131, static_cast<uint32_t>(rules), strides);
        Tensor& logits = c.logits;
        for (int64_t i = 0; i < logits.size(); i += 2) logits.set(i, std::round(logits.get(i)));  // ties
        c.params.filter_order = static_cast<FilterOrder>(rules & 1);
        c.params.top_k_ties = static_cast<TopKTies>(rules >> 1 & 1);
        c.params.top_p_boundary = static_cast<TopPBoundary>(rules >> 2 & 1);
        c.params.top_p_ties = static_cast<TopPTies>(rules >> 3 & 1);
        c.params.min_p_order = static_cast<MinPOrder>(rules >> 4 & 1);
        const auto real = [&](Tensor& input, double low, double step) {
          c.per_row(input, Dtype::f32, [=](int64_t n) { return low + step * static_cast<double>(n * 7 % 11); });
        };
        real(c.temperatures, 0.0, 0.2);
        real(c.top_ps, 0.0, 0.1);
        real(c.min_ps, -0.01, 0.01);
        real(c.repetition_penalties, 0.5, 0.15);
        real(c.frequency_penalties, -0.7, 0.13);
        real(c.presence_penalties, -0.6, 0.17);
        c.per_row(c.top_ks, Dtype::i64, [](int64_t n) { return static_cast<double>(n * 13 % 140 - 2); });
        c.per_row(c.seeds, Dtype::i64, [](int64_t n) { return static_cast<double>(n) * 0x1p33 - 7; });
        c.per_row(c.steps, Dtype::i64, [](int64_t n) { return static_cast<double>(n) * 0x1p34 + 1; });
        c.per_token(c.prompt_mask, Dtype::u8, {0, 0, 255, 0, 1});
        c.per_token(c.output_counts, Dtype::i32, {0, 3, -2, 0, 0, 1, 0});
        c.per_token(c.allowed, Dtype::u8, {1, 9, 0, 1});
        expect_golden(c);
        c.uniform_samples = Tensor(Dtype::f32, {2, 23}, strides).fill([](int64_t i) {
          return static_cast<double>(i * 37 % 101) / 100;
        });
        expect_golden(c);
      }
    }
  });
}

// top_k below a hundredth of the vocabulary: without a mask few tokens are weighed. Scores from a few values to all
// different, tokens that are forbidden, fewer left than top_k, and filters behind it.
TEST(CpuSample, AFewTokensOfManyAreThoseOfTheWholeRow) {
  for_each_target([] {
    for (const int64_t vocab : {1031, 20011}) {
      for (int rules = 0; rules < 16; ++rules) {
        SCOPED_TRACE(testing::Message() << vocab << " tokens, rules " << rules);
        SampleCase c =
            random_rows(kFloatDtypes[static_cast<size_t>(rules % 4)], 12, vocab, static_cast<uint32_t>(rules));
        const auto of_row = [&](int64_t n) { return n % 3; };
        for (int64_t i = 0; i < c.logits.size(); ++i) {
          const int64_t n = i / vocab, v = i % vocab;
          if (of_row(n) == 1) c.logits.set(i, std::round(c.logits.get(i) / 2));
          if (of_row(n) == 2 && v % 257 != 3) c.logits.set(i, -kInfinity);
        }
        c.params.top_k_ties = static_cast<TopKTies>(rules & 1);
        c.params.top_p_ties = static_cast<TopPTies>(rules >> 1 & 1);
        c.params.top_p_boundary = static_cast<TopPBoundary>(rules >> 2 & 1);
        c.params.min_p_order = static_cast<MinPOrder>(rules >> 3 & 1);
        c.per_row(c.top_ks, Dtype::i64, [](int64_t n) { return static_cast<double>(1 + n * 5 % 8); });
        c.per_row(c.top_ps, Dtype::f32, [](int64_t n) { return n % 4 == 0 ? 1.0 : 0.15 * static_cast<double>(n % 7); });
        c.per_row(c.min_ps, Dtype::f32, [](int64_t n) { return n % 5 < 3 ? 0.0 : 0.3; });
        c.per_row(c.temperatures, Dtype::f32, [](int64_t n) { return 0.5 + static_cast<double>(n % 2); });
        c.per_row(c.repetition_penalties, Dtype::f32, [](int64_t n) { return n % 4 == 1 ? 2.0 : 1.0; });
        c.per_token(c.prompt_mask, Dtype::u8, {0, 1, 0});
        expect_golden(c);
      }
    }
  });
}

TEST(CpuSample, RoundsWideLogitsToFp32) {
  // 1 + 2^-24 is between two fp32 numbers and goes to the even one, 1; a little more goes up.
  SampleCase c = rows_of({0, 0});
  c.logits = Tensor(Dtype::f64, {2, 2});
  c.per_row(c.row_ids, Dtype::i64, [](int64_t n) { return static_cast<double>(n); });
  c.logits.set(0, 1.0).set(1, 1.0 + 0x1p-24).set(2, 1.0).set(3, 1.0 + 0x1.8p-24);
  c.params.temperature = 0;
  EXPECT_EQ(integers_of(run_sample(c).ids), (List{0, 1}));
  expect_golden(c);
}

TEST(CpuSample, RowsWithoutADistributionHaveAStatusAndNoToken) {
  for_each_target([] {
    for (Dtype dtype : kFloatDtypes) {
      SampleCase c = random_rows(dtype, 7, 70, 4);
      const auto fill = [&](int64_t n, double value) {
        for (int64_t v = 0; v < 70; ++v) c.logits.set(n * 70 + v, value);
      };
      fill(1, -kInfinity);
      c.logits.set(2 * 70 + 69, kNan);
      c.logits.set(3 * 70 + 7, kInfinity);
      fill(4, -kInfinity);
      fill(5, -kInfinity);
      c.logits.set(5 * 70 + 68, -3.0);
      for (const double temperature : {1.0, 0.0}) {
        c.params.temperature = temperature;
        const SampleOutputs got = run_sample(c);
        const int drawn = temperature > 0 ? 0 : 1;
        EXPECT_EQ(integers_of(got.status), (List{drawn, 2, 3, 3, 2, drawn, drawn}));
        EXPECT_EQ(integers_of(got.success), (List{1, 0, 0, 0, 0, 1, 1}));
        for (const int64_t n : {1, 2, 3, 4}) {
          EXPECT_EQ(integers_of(got.ids)[static_cast<size_t>(n)], -1);
          EXPECT_TRUE(std::isnan(got.logp.get(n)));
          EXPECT_TRUE(std::isnan(got.processed_logp.get(n)));
          EXPECT_EQ(kept(got, n), List{});
        }
        EXPECT_EQ(integers_of(got.ids)[5], 68);
        EXPECT_EQ(got.processed_logp.get(5), 0.0);
        EXPECT_EQ(got.error.kind, cpu::kNoFiniteLogit);
        EXPECT_EQ(got.error.row, 1);
        expect_golden(c);
      }
    }
  });
}

TEST(CpuSample, ARowThatIsCutIntoTasksHasItsDataErrorToo) {
  SampleCase c = rows_of(std::vector<double>(40000, -kInfinity));
  const SampleOutputs got = run_sample(c, threads_parallel(8));
  EXPECT_EQ(integers_of(got.ids), (List{-1}));
  EXPECT_EQ(got.error.kind, cpu::kNoFiniteLogit);
  EXPECT_EQ(got.error.row, 0);
}

// The first token of the second part of a row, which is worked before the first part where the hook is backwards.
// Penalised once its score is 1.6, twice 1.28.
TEST(CpuSample, PenaltiesOfARowThatIsCutIntoTasksCountOnce) {
  constexpr int64_t kFirstOfPart = 16384;
  std::vector<double> logits(kFirstOfPart + 1, -100), prompt(logits.size());
  logits[0] = 1.5;
  logits[kFirstOfPart] = 2;
  prompt[kFirstOfPart] = 1;
  SampleCase c = rows_of(logits);
  c.per_token(c.prompt_mask, Dtype::u8, prompt);
  c.params.repetition_penalty = 1.25;
  c.params.temperature = 0;
  EXPECT_EQ(integers_of(run_sample(c, backwards_parallel()).ids), (List{kFirstOfPart}));
  expect_golden(c);
}

// Philox gives 2^63 here, half of all numbers: the target is the very weight of the first of two equal tokens.
TEST(CpuSample, ADrawAtTheEndOfAKeptTokenTakesTheNext) {
  SampleCase c = rows_of({0, 0, -1});
  c.params.top_k = 2;
  c.params.seed = 0;
  c.row_ids.set_int(0, 6674204841902880013);
  c.params.step = 4195597425190192908;
  EXPECT_EQ(cpu::sample_random(0, 6674204841902880013u, 4195597425190192908u), uint64_t{1} << 63);
  EXPECT_EQ(integers_of(run_sample(c).ids), (List{1}));
  expect_golden(c);
}

TEST(CpuSample, ANanTemperatureHasNoDistribution) {
  SampleCase c = rows_of({1, 2}, 2);
  c.per_row(c.temperatures, Dtype::f32, [](int64_t n) { return n == 0 ? kNan : 0.5; });
  EXPECT_EQ(integers_of(run_sample(c).status), (List{3, 0}));
  expect_golden(c);
}

// Each of the 192 bits of seed, row id and step counts: all draws among 2^16 equal scores differ from the plain one.
TEST(CpuSample, EveryBitOfSeedRowIdAndStepChangesTheDraw) {
  SampleCase c;
  c.logits = Tensor(Dtype::f32, {1, 1 << 16}).fill([](int64_t) { return 0.0; });
  c.row_ids = Tensor(Dtype::i64, {1}).set_int(0, 5);
  const List plain = integers_of(run_sample(c).ids);
  for (int bit = 0; bit < 64; ++bit) {
    const auto flip = static_cast<int64_t>(uint64_t{1} << bit);
    SampleCase other = c;
    other.params.seed ^= flip;
    EXPECT_NE(integers_of(run_sample(other).ids), plain) << "seed bit " << bit;
    other = c;
    other.params.step ^= flip;
    EXPECT_NE(integers_of(run_sample(other).ids), plain) << "step bit " << bit;
    other = c;
    other.row_ids.set_int(0, 5 ^ flip);
    EXPECT_NE(integers_of(run_sample(other).ids), plain) << "row id bit " << bit;
  }
}

}  // namespace
}  // namespace rlk::test
