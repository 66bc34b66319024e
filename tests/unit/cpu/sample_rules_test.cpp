// The rules of sample on rows small enough to work out by hand: each filter, its ties and boundaries from both sides,
// both orders, penalties, greedy; and the defects that samplers have had.
#include <rlk/sdk/ops/sample.hpp>

#include <cmath>

#include "core/cpu/sampling/sample_block.hpp"
#include "unit/cpu/sample_case.hpp"

namespace rlk::test {
namespace {

using namespace ops::sample;  // NOLINT(google-build-using-namespace): its enumerations

using List = std::vector<int64_t>;

const double kLn2 = std::log(2.0), kLn3 = std::log(3.0), kLn4 = std::log(4.0);

// The tokens that the kernel keeps; golden must agree.
List kept_of(SampleCase c) {
  expect_golden(c);
  return kept(run_sample(c));
}

// The token that inversion by u gives, for each u.
List inverted(SampleCase c, const std::vector<float>& us) {
  List ids;
  for (const float u : us) {
    c.uniform_samples = Tensor(Dtype::f32, {1, 1}).set(0, static_cast<double>(u));
    expect_golden(c);
    ids.push_back(integers_of(run_sample(c).ids)[0]);
  }
  return ids;
}

float below(float x) {
  return std::nextafter(x, -1.0f);
}
float above(float x) {
  return std::nextafter(x, 2.0f);
}

TEST(CpuSampleRules, InversionTakesTheFirstTokenWhoseSumExceedsTheNumber) {
  const SampleCase c = rows_of({7, 7, 7, 7});
  EXPECT_EQ(inverted(c, {0.0f, below(0.25f), 0.25f, below(0.5f), 0.5f, 0.75f, below(1.0f)}),
            (List{0, 0, 1, 1, 2, 3, 3}));
}

TEST(CpuSampleRules, ATokenOfMinusInfinityIsNeverDrawn) {
  const double inf = kInfinity;
  const SampleCase c = rows_of({-inf, 1, -inf, 1, -inf});
  EXPECT_EQ(inverted(c, {0.0f, below(0.5f), 0.5f, below(1.0f)}), (List{1, 1, 3, 3}));
  EXPECT_EQ(kept_of(c), (List{1, 3}));
}

TEST(CpuSampleRules, TokensOfMinusInfinityDoNotFillUpTopK) {
  const double inf = kInfinity;
  SampleCase c = rows_of({-inf, 1, -inf, 0});
  for (const int64_t k : {1, 2, 3}) {
    c.params.top_k = k;
    EXPECT_EQ(kept_of(c), k == 1 ? (List{1}) : (List{1, 3}));
  }
}

// Upstream divided logits by the temperature twice. Scores 0 and -2 at temperature 2 are 1 : exp(-1), 0.731 of the sum;
// divided twice 0.622, not at all 0.881.
TEST(CpuSampleRules, TemperatureDividesOnce) {
  SampleCase c = rows_of({0, -2});
  c.params.temperature = 2;
  EXPECT_EQ(inverted(c, {0.70f, 0.7310f, 0.7311f, 0.74f, 0.87f}), (List{0, 0, 1, 1, 1}));
  c.params.temperature = 1;
  c.per_row(c.temperatures, Dtype::f32, [](int64_t) { return 2.0; });  // the row's, not both
  EXPECT_EQ(inverted(c, {0.70f, 0.7310f, 0.7311f, 0.74f}), (List{0, 0, 1, 1}));
}

// Upstream's fallback ignored top_p.
TEST(CpuSampleRules, TopPIsNotIgnored) {
  SampleCase c = rows_of({0, -1, -2, -3, -4}, 400);
  c.params.top_p = 0.8;  // 0.636 alone, 0.870 with the second
  bool second = false;
  for (const int64_t id : integers_of(run_sample(c).ids)) {
    EXPECT_LE(id, 1);
    second |= id == 1;
  }
  EXPECT_TRUE(second);
  expect_golden(c);
}

TEST(CpuSampleRules, TopKKeepsTheLargestAndTiesByRule) {
  SampleCase c = rows_of({3, 1, 2, 2, 0});
  const auto keep = [&](int64_t k, TopKTies ties) {
    c.params.top_k = k;
    c.params.top_k_ties = ties;
    return kept_of(c);
  };
  EXPECT_EQ(keep(1, TopKTies::keep), (List{0}));
  EXPECT_EQ(keep(2, TopKTies::keep), (List{0, 2, 3}));
  EXPECT_EQ(keep(2, TopKTies::lowest_id), (List{0, 2}));
  EXPECT_EQ(keep(3, TopKTies::lowest_id), (List{0, 2, 3}));
  EXPECT_EQ(keep(4, TopKTies::keep), (List{0, 1, 2, 3}));
  for (const int64_t off : {0, -1, 5, 6}) EXPECT_EQ(keep(off, TopKTies::lowest_id), (List{0, 1, 2, 3, 4}));
}

// A draw passes whole blocks of tokens by the sums of what is kept in them. The tie at id 1 is dropped: if it counted,
// some draws of the last token would end at the one before.
TEST(CpuSampleRules, ADroppedTieDoesNotMoveTheDrawsBehindIt) {
  std::vector<double> logits(2048, -50);
  logits[0] = logits[1] = 0;
  logits[1500] = logits[1501] = 0.1;
  SampleCase c = rows_of(logits, 200);
  c.params.top_k = 3;
  c.params.top_k_ties = TopKTies::lowest_id;
  EXPECT_EQ(kept_of(c), (List{0, 1500, 1501}));
}

TEST(CpuSampleRules, TopKOfZerosOfBothSignsIsATie) {
  SampleCase c = rows_of({-0.0, 0.0, -1});
  c.params.top_k = 1;
  EXPECT_EQ(kept_of(c), (List{0, 1}));
  c.params.top_k_ties = TopKTies::lowest_id;
  EXPECT_EQ(kept_of(c), (List{0}));
}

TEST(CpuSampleRules, TopPReachesOrExceedsItsShareAndTiesByRule) {
  SampleCase c = rows_of({5, 5, 5, 5});  // a quarter each, exactly
  const auto keep = [&](float p, TopPBoundary boundary, TopPTies ties) {
    c.params.top_p = static_cast<double>(p);
    c.params.top_p_boundary = boundary;
    c.params.top_p_ties = ties;
    return kept_of(c);
  };
  constexpr TopPBoundary kReach = TopPBoundary::reach, kExceed = TopPBoundary::exceed;
  constexpr TopPTies kLowest = TopPTies::lowest_id, kAll = TopPTies::keep;
  EXPECT_EQ(keep(0.5f, kReach, kLowest), (List{0, 1}));
  EXPECT_EQ(keep(0.5f, kExceed, kLowest), (List{0, 1, 2}));
  EXPECT_EQ(keep(0.5f, kReach, kAll), (List{0, 1, 2, 3}));
  EXPECT_EQ(keep(below(0.5f), kReach, kLowest), (List{0, 1}));
  EXPECT_EQ(keep(below(0.5f), kExceed, kLowest), (List{0, 1}));
  EXPECT_EQ(keep(above(0.5f), kReach, kLowest), (List{0, 1, 2}));
  EXPECT_EQ(keep(above(0.5f), kExceed, kLowest), (List{0, 1, 2}));
  EXPECT_EQ(keep(0.0f, kReach, kLowest), (List{0}));  // one token is always kept
  EXPECT_EQ(keep(0.0f, kExceed, kLowest), (List{0}));
  EXPECT_EQ(keep(below(1.0f), kReach, kLowest), (List{0, 1, 2, 3}));
  EXPECT_EQ(keep(1.0f, kReach, kLowest), (List{0, 1, 2, 3}));
  EXPECT_EQ(keep(2.0f, kExceed, kLowest), (List{0, 1, 2, 3}));
}

// A second token of 65537 units beside the 2^40 of the first: a share of 1 - 2^-24 is 2^40 + 1 - 2^-8 units, so the
// first alone does not reach it. With 65536 units it is 2^40 - 2^-8.
TEST(CpuSampleRules, AShareBetweenTwoIntegersIsRoundedUp) {
  for (const uint64_t units : {uint64_t{65536}, uint64_t{65537}}) {
    float second = -16.64f;
    std::vector<uint64_t> w(cpu::kSampleLanes);
    do {
      second = above(second);
      const std::vector<float> x(cpu::kSampleLanes, second);
      cpu::sample_weights(x.data(), cpu::kSampleLanes, 0.0f, 1.0f, 0, w.data(), nullptr);
    } while (w[0] < units);
    ASSERT_EQ(w[0], units);
    SampleCase c = rows_of({static_cast<double>(second), 0});
    c.params.top_p = static_cast<double>(below(1.0f));
    EXPECT_EQ(kept_of(c), units == 65536 ? (List{1}) : (List{0, 1}));
  }
}

TEST(CpuSampleRules, TopPOffKeepsTokensThatWeighNothing) {
  SampleCase c = rows_of({0, -100});
  EXPECT_EQ(kept_of(c), (List{0, 1}));
  c.params.top_p = static_cast<double>(below(1.0f));
  EXPECT_EQ(kept_of(c), (List{0}));
}

TEST(CpuSampleRules, MinPKeepsItsShareOfTheLargest) {
  SampleCase c = rows_of({1, 0, -1, 1});  // 1, 0.3679, 0.1353, 1 of the largest
  const auto keep = [&](double min_p) {
    c.params.min_p = min_p;
    return kept_of(c);
  };
  EXPECT_EQ(keep(0.0), (List{0, 1, 2, 3}));
  EXPECT_EQ(keep(0.135), (List{0, 1, 2, 3}));
  EXPECT_EQ(keep(0.136), (List{0, 1, 3}));
  EXPECT_EQ(keep(0.367), (List{0, 1, 3}));
  EXPECT_EQ(keep(0.368), (List{0, 3}));
  EXPECT_EQ(keep(1.0), (List{0, 3}));  // the largest itself, exactly at the boundary
  EXPECT_EQ(keep(7.0), (List{0, 3}));
}

TEST(CpuSampleRules, MinPFollowsTemperature) {
  SampleCase c = rows_of({0, -2});
  c.params.min_p = 0.2;  // exp(-2) is 0.135, exp(-1) is 0.368
  EXPECT_EQ(kept_of(c), (List{0}));
  c.params.temperature = 2;
  EXPECT_EQ(kept_of(c), (List{0, 1}));
}

// Probabilities 0.4, 0.3, 0.2, 0.1; among the first two 0.571 and 0.429.
TEST(CpuSampleRules, OrderDecidesWhatTopPIsAShareOf) {
  SampleCase c = rows_of({0, kLn3, kLn4, kLn2});
  c.params.top_k = 2;
  c.params.top_p = 0.5;
  EXPECT_EQ(kept_of(c), (List{2}));
  c.params.filter_order = FilterOrder::joint;
  EXPECT_EQ(kept_of(c), (List{1, 2}));
  c.params.top_p = 0.95;  // top_k alone decides
  EXPECT_EQ(kept_of(c), (List{1, 2}));
  c.params.top_p = 0.3;  // top_p alone decides
  EXPECT_EQ(kept_of(c), (List{2}));
  c.params.top_k = 0;
  c.params.top_p = 0.75;
  EXPECT_EQ(kept_of(c), (List{1, 2, 3}));
}

TEST(CpuSampleRules, OfTwoBoundariesAmongEqualScoresTheFirstCounts) {
  SampleCase c = rows_of({1, 2, 1, 1, 1, 1, 1});
  c.params.top_k_ties = TopKTies::lowest_id;
  for (const FilterOrder order : {FilterOrder::top_k_first, FilterOrder::joint}) {
    c.params.filter_order = order;
    c.params.top_k = 5;
    c.params.top_p = 0.5;  // of e + 4 or e + 6: the largest and one or two
    EXPECT_EQ(kept_of(c), order == FilterOrder::joint ? (List{0, 1, 2}) : (List{0, 1}));
    c.params.top_k = 3;
    c.params.top_p = 0.95;
    EXPECT_EQ(kept_of(c), (List{0, 1, 2}));
  }
}

// In rows shorter than a vector, and where the largest is among the tokens that fill no vector.
TEST(CpuSampleRules, MinPOfOneKeepsTheLargest) {
  for (const int64_t vocab : {2, 38}) {
    std::vector<double> logits(static_cast<size_t>(vocab), 0);
    logits.back() = 1;
    SampleCase c = rows_of(logits);
    c.params.min_p = 1;
    EXPECT_EQ(kept_of(c), (List{vocab - 1}));
    EXPECT_EQ(integers_of(run_sample(c).ids), (List{vocab - 1}));
  }
}

// min_p leaves 0.4 and 0.3, of which 0.4 is 0.571: in both orders top_p is a share of what min_p leaves.
TEST(CpuSampleRules, MinPComesFirst) {
  SampleCase c = rows_of({0, kLn3, kLn4, kLn2});
  c.params.min_p = 0.6;
  c.params.top_p = 0.5;
  EXPECT_EQ(kept_of(c), (List{2}));
  c.params.top_k = 3;
  EXPECT_EQ(kept_of(c), (List{2}));
  c.params.filter_order = FilterOrder::joint;
  EXPECT_EQ(kept_of(c), (List{2}));
}

// Probabilities 0.4, 0.3, 0.2, 0.1: transformers takes top_p's share of all of them, or of what top_k keeps, and min_p
// of the largest that is left.
TEST(CpuSampleRules, MinPComesLastOnDemand) {
  SampleCase c = rows_of({0, kLn3, kLn4, kLn2});
  c.params.min_p_order = MinPOrder::last;
  c.params.min_p = 0.6;  // leaves 0.4 and 0.3
  EXPECT_EQ(kept_of(c), (List{1, 2}));
  c.params.top_p = 0.5;  // needs both: before min_p 0.4 is no half
  EXPECT_EQ(kept_of(c), (List{1, 2}));
  c.params.top_p = 0.95;  // min_p alone decides
  EXPECT_EQ(kept_of(c), (List{1, 2}));
  c.params.min_p = 0.2;
  c.params.top_p = 0.5;  // top_p alone decides
  EXPECT_EQ(kept_of(c), (List{1, 2}));
  c.params.top_k = 2;  // of 0.7, 0.4 is more than half
  EXPECT_EQ(kept_of(c), (List{2}));
  c.params.filter_order = FilterOrder::joint;
  EXPECT_EQ(kept_of(c), (List{1, 2}));
}

TEST(CpuSampleRules, AFilteredDrawRenormalises) {
  SampleCase c = rows_of({0, kLn3, kLn4, kLn2}, 2000);
  c.params.top_k = 2;
  const SampleOutputs got = run_sample(c);
  double threes = 0;
  for (int64_t n = 0; n < 2000; ++n) {
    const int64_t id = integers_of(got.ids)[static_cast<size_t>(n)];
    EXPECT_NEAR(got.processed_logp.get(n), std::log((id == 1 ? 3.0 : 4.0) / 7), 1e-6);
    EXPECT_NEAR(got.logp.get(n), std::log((id == 1 ? 3.0 : 4.0) / 10), 1e-6);
    threes += id == 1 ? 1 : 0;
  }
  EXPECT_NEAR(threes, 2000 * 3.0 / 7, 5 * std::sqrt(2000 * 12.0 / 49));
}

TEST(CpuSampleRules, GreedyBelowItsTemperatureIsTheLowestOfTheLargest) {
  SampleCase c = rows_of({1, 3, 3, 2}, 3);
  c.per_row(c.temperatures, Dtype::f32,
            [](int64_t n) { return n == 0 ? 0.0 : static_cast<double>(n == 1 ? below(1e-5f) : 1e-5f); });
  const SampleOutputs got = run_sample(c);
  EXPECT_EQ(integers_of(got.status), (List{1, 1, 0}));
  EXPECT_EQ(integers_of(got.ids)[0], 1);
  EXPECT_EQ(integers_of(got.ids)[1], 1);
  EXPECT_EQ(kept(got, 0), (List{1}));
  EXPECT_EQ(kept(got, 2), (List{0, 1, 2, 3}));
  EXPECT_EQ(got.processed_logp.get(1), 0.0);
  EXPECT_NEAR(got.logp.get(1), 3 - std::log(std::exp(1.0) + 2 * std::exp(3.0) + std::exp(2.0)), 1e-6);
  expect_golden(c);
}

// The greedy token of two, after a change of the first one's score.
int64_t greedy(SampleCase c) {
  c.params.temperature = 0;
  expect_golden(c);
  return integers_of(run_sample(c).ids)[0];
}

TEST(CpuSampleRules, RepetitionDividesPositiveAndMultipliesNegativeScoresOnce) {
  SampleCase c = rows_of({2, 1.5});
  c.params.repetition_penalty = 1.25;  // 1.6 once, 1.28 twice
  c.per_token(c.prompt_mask, Dtype::u8, {200, 0});
  EXPECT_EQ(greedy(c), 0);
  c.per_token(c.output_counts, Dtype::i32, {4, 0});  // in prompt and output, often: still once
  EXPECT_EQ(greedy(c), 0);
  c.params.repetition_penalty = 1.5;
  EXPECT_EQ(greedy(c), 1);
  c.prompt_mask = Tensor();
  EXPECT_EQ(greedy(c), 1);
  c.per_token(c.output_counts, Dtype::i32, {-4, 0});
  EXPECT_EQ(greedy(c), 0);

  SampleCase negative = rows_of({-1, -1.5});
  negative.per_token(negative.prompt_mask, Dtype::u8, {1, 0});
  negative.params.repetition_penalty = 1.25;
  EXPECT_EQ(greedy(negative), 0);
  negative.params.repetition_penalty = 2;
  EXPECT_EQ(greedy(negative), 1);
}

// 1e-60 is 0 in fp32: dividing the zero by it would give NaN.
TEST(CpuSampleRules, RepetitionMultipliesAScoreOfZero) {
  SampleCase c = rows_of({0, -1});
  c.per_token(c.prompt_mask, Dtype::u8, {1, 0});
  c.params.repetition_penalty = 1e-60;
  EXPECT_EQ(greedy(c), 0);
}

TEST(CpuSampleRules, FrequencyCountsAndPresenceDoesNot) {
  SampleCase c = rows_of({2, 1});
  c.per_token(c.prompt_mask, Dtype::u8, {1, 0});
  c.params.frequency_penalty = 0.75;
  c.per_token(c.output_counts, Dtype::i32, {1, 0});
  EXPECT_EQ(greedy(c), 0);
  c.per_token(c.output_counts, Dtype::i32, {2, 0});
  EXPECT_EQ(greedy(c), 1);
  c.params.frequency_penalty = 0;
  c.params.presence_penalty = 0.75;
  EXPECT_EQ(greedy(c), 0);
  c.params.presence_penalty = 1.25;
  EXPECT_EQ(greedy(c), 1);
  c.per_token(c.output_counts, Dtype::i32, {0, 0});  // the prompt alone does not count
  EXPECT_EQ(greedy(c), 0);
}

TEST(CpuSampleRules, RawLogpKnowsNoPenaltyAndNoMask) {
  SampleCase c = rows_of({2, 1, 0});
  c.per_token(c.output_counts, Dtype::i32, {0, 1, 0});
  c.per_token(c.allowed, Dtype::u8, {0, 1, 1});
  c.params.presence_penalty = 3;
  c.params.temperature = 0;
  const SampleOutputs got = run_sample(c);
  EXPECT_EQ(integers_of(got.ids), (List{2}));
  EXPECT_NEAR(got.logp.get(0), -std::log(1 + std::exp(1.0) + std::exp(2.0)), 1e-6);
}

TEST(CpuSampleRules, ATokenThatIsNotAllowedIsNotLookedAt) {
  SampleCase c = rows_of({kNan, 1, kInfinity, 0});
  c.per_token(c.allowed, Dtype::u8, {0, 1, 0, 2});
  c.per_token(c.output_counts, Dtype::i32, {1, 1, 1, 1});
  c.params.frequency_penalty = -1;
  EXPECT_EQ(kept_of(c), (List{1, 3}));
  EXPECT_EQ(integers_of(run_sample(c).status), (List{0}));
  c.per_token(c.allowed, Dtype::u8, {0, 0, 0, 0});
  expect_golden(c);
  EXPECT_EQ(run_sample(c).error.kind, cpu::kNoFiniteLogit);
}

}  // namespace
}  // namespace rlk::test
