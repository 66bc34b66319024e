// Rounds of given random numbers, uniform_samples [rounds, batch]: which of them succeed, what a caller is told of rows
// where none does, and that drawing these rows again with new numbers goes on where the first call stopped.
#include <rlk/sdk/ops/sample.hpp>

#include <cmath>
#include <random>

#include "unit/cpu/sample_case.hpp"

namespace rlk::test {
namespace {

using namespace ops::sample;  // NOLINT(google-build-using-namespace): its enumerations

using List = std::vector<int64_t>;

TEST(CpuSampleRounds, RoundsDrawFromAllTokensUntilOneIsKept) {
  SampleCase c = rows_of({1, 1, 1, 1}, 5);
  c.params.top_k = 2;
  c.params.top_k_ties = TopKTies::lowest_id;
  const double kNone = kNan;
  const double rounds[3][5] = {{0.9, 0.3, 0.8, 1.0, kNone}, {0.6, 0.1, 0.7, -0.1, 0.1}, {0.3, 0.9, 0.6, 2.0, 0.3}};
  c.uniform_samples = Tensor(Dtype::f32, {3, 5}).fill([&](int64_t i) { return rounds[i / 5][i % 5]; });
  const SampleOutputs got = run_sample(c);
  EXPECT_EQ(integers_of(got.ids), (List{1, 1, -1, -1, 0}));
  EXPECT_EQ(integers_of(got.status), (List{0, 0, 4, 4, 0}));
  EXPECT_EQ(integers_of(got.success), (List{1, 1, 0, 0, 1}));
  EXPECT_EQ(kept(got, 2), (List{0, 1}));
  EXPECT_EQ(got.error.kind, cpu::kNoDataError);
  EXPECT_TRUE(std::isnan(got.logp.get(2)));
  EXPECT_TRUE(std::isnan(got.processed_logp.get(2)));
  EXPECT_NEAR(got.processed_logp.get(0), -std::log(2.0), 1e-6);
  expect_golden(c);
}

TEST(CpuSampleRounds, ANumberOutsideTheRangeIsARoundWithoutAToken) {
  SampleCase c = rows_of({1, 1, 1, 1}, 5);
  const double kNone = kNan;
  const double rounds[2][5] = {{-0.1, -0.9, 1.0, 1e30, kNone}, {0.3, 0.3, 0.3, 0.3, 0.3}};
  c.uniform_samples = Tensor(Dtype::f32, {2, 5}).fill([&](int64_t i) { return rounds[i / 5][i % 5]; });
  EXPECT_EQ(integers_of(run_sample(c).ids), (List{1, 1, 1, 1, 1}));
  expect_golden(c);
}

TEST(CpuSampleRounds, NoRoundsAtAllDrawNothingButGreedyRows) {
  SampleCase c = rows_of({1, 2}, 2);
  c.per_row(c.temperatures, Dtype::f32, [](int64_t n) { return n == 0 ? 1.0 : 0.0; });
  c.uniform_samples = Tensor(Dtype::f32, {0, 2});
  EXPECT_EQ(integers_of(run_sample(c).ids), (List{-1, 1}));
  EXPECT_EQ(integers_of(run_sample(c).status), (List{4, 1}));
  expect_golden(c);
}

TEST(CpuSampleRounds, WhereEveryRoundFailsNoRowHasATokenAndNothingIsAnError) {
  SampleCase c = rows_of({3, 3, 3, 0}, 4);
  c.params.top_k = 1;
  c.params.top_k_ties = TopKTies::lowest_id;  // keeps token 0, below 0.33
  c.uniform_samples = Tensor(Dtype::f32, {5, 4}).fill([](int64_t i) { return 0.35 + 0.03 * static_cast<double>(i); });
  const SampleOutputs got = run_sample(c);
  EXPECT_EQ(integers_of(got.ids), (List{-1, -1, -1, -1}));
  EXPECT_EQ(integers_of(got.status), (List{4, 4, 4, 4}));
  EXPECT_EQ(integers_of(got.success), (List{0, 0, 0, 0}));
  EXPECT_EQ(got.error.kind, cpu::kNoDataError);
  for (int64_t n = 0; n < 4; ++n) EXPECT_EQ(kept(got, n), (List{0}));  // what the row may draw, all the same
  expect_golden(c);
}

TEST(CpuSampleRounds, OnlyTheFirstRoundThatSucceedsCounts) {
  SampleCase c = rows_of({1, 1, 1, 1});
  c.params.top_k = 3;
  c.params.top_k_ties = TopKTies::lowest_id;
  for (int64_t success = 0; success < 6; ++success) {
    c.uniform_samples = Tensor(Dtype::f32, {6, 1}).fill([&](int64_t k) {
      return k < success ? 0.8 : k == success ? 0.3 : 0.6;  // none, then token 1, then token 2
    });
    EXPECT_EQ(integers_of(run_sample(c).ids), (List{1})) << success;
    expect_golden(c);
  }
}

// New numbers help a row of status 4 and no other.
TEST(CpuSampleRounds, ARowWithoutADistributionSaysSoInsteadOfAskingForMoreNumbers) {
  SampleCase c = rows_of({1, 2, 0}, 3);
  for (int64_t v = 0; v < 3; ++v) c.logits.set(3 + v, -kInfinity);
  c.logits.set(8, kInfinity);
  for (const int64_t rounds : {0, 2}) {
    c.uniform_samples = Tensor(Dtype::f32, {rounds, 3}).fill([](int64_t) { return 1.0; });
    const SampleOutputs got = run_sample(c);
    EXPECT_EQ(integers_of(got.status), (List{4, 2, 3}));
    EXPECT_EQ(integers_of(got.success), (List{0, 0, 0}));
    EXPECT_EQ(got.error.kind, cpu::kNoFiniteLogit);
    EXPECT_EQ(got.error.row, 1);
    expect_golden(c);
  }
}

// The caller's loop: rows without success are drawn again, alone, with new numbers. It ends with the tokens, and their
// log-probabilities, of one call with all the rounds.
TEST(CpuSampleRounds, RowsDrawnAgainWithNewNumbersGoOnWhereTheFirstCallStopped) {
  constexpr int64_t kRows = 200, kVocab = 90, kRoundsOfACall = 2, kCalls = 40;
  SampleCase whole = random_rows(Dtype::f32, kRows, kVocab, 21);
  whole.params.top_k = 7;
  whole.params.temperature = 2.5;
  std::mt19937 engine(5);
  Tensor all = Tensor(Dtype::f32, {kRoundsOfACall * kCalls, kRows}).fill([&](int64_t) {
    return static_cast<double>(engine() >> 8) * 0x1p-24;
  });
  List open(kRows), ids(kRows, -1), open_after;
  std::vector<double> logp(kRows);
  for (int64_t n = 0; n < kRows; ++n) open[static_cast<size_t>(n)] = n;
  for (int64_t call = 0; call < kCalls; ++call) {
    const auto rows = static_cast<int64_t>(open.size());
    SampleCase part = random_rows(Dtype::f32, rows, kVocab, 1);
    part.params = whole.params;
    part.logits.fill(
        [&](int64_t i) { return whole.logits.get(open[static_cast<size_t>(i / kVocab)] * kVocab + i % kVocab); });
    part.uniform_samples = Tensor(Dtype::f32, {kRoundsOfACall, rows}).fill([&](int64_t i) {
      return all.get((call * kRoundsOfACall + i / rows) * kRows + open[static_cast<size_t>(i % rows)]);
    });
    const SampleOutputs got = run_sample(part);
    List failed;
    for (int64_t i = 0; i < rows; ++i) {
      const int64_t row = open[static_cast<size_t>(i)];
      if (got.success.get_int(i) == 0) {
        failed.push_back(row);
        continue;
      }
      ids[static_cast<size_t>(row)] = integers_of(got.ids)[static_cast<size_t>(i)];
      logp[static_cast<size_t>(row)] = got.processed_logp.get(i);
    }
    open = failed;
    open_after.push_back(static_cast<int64_t>(open.size()));
  }
  EXPECT_GT(open_after[0], kRows / 10);  // some rows do fail,
  EXPECT_LT(open_after[0], kRows);       // some do not,
  EXPECT_LT(open_after[3], open_after[0]);
  EXPECT_EQ(open_after.back(), 0);  // and numbers help in the end
  whole.uniform_samples = all;
  const SampleOutputs at_once = run_sample(whole);
  EXPECT_EQ(integers_of(at_once.ids), ids);
  for (int64_t n = 0; n < kRows; ++n) {
    EXPECT_EQ(at_once.processed_logp.get(n), logp[static_cast<size_t>(n)]);
  }
  expect_golden(whole);
}

}  // namespace
}  // namespace rlk::test
