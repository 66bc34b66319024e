// Are the draws distributed as they should be? Pearson's chi-square against probabilities that std::exp gives, with
// fixed seeds: a right implementation passes always, since its ids are specified. The limits are quantiles of 0.999.
#include <cmath>

#include "unit/cpu/sample_case.hpp"

namespace rlk::test {
namespace {

constexpr int64_t kDraws = 20000;
constexpr double kLimit15 = 37.697;  // of 15 degrees of freedom
constexpr double kLimit5 = 20.515;   // of 5

const std::vector<double> kLogits = {0.3,  -1.2, 0.9, 0.0, 1.4, -0.4, 0.65, -2.0,
                                     0.15, 1.1,  0.5, 1.3, 0.8, -0.9, 0.25, -0.1};

// exp(logit / temperature) over the tokens of at least `least`.
double chi_square(const std::vector<int64_t>& ids, double temperature, double least) {
  std::vector<double> weight, seen(kLogits.size());
  double sum = 0, chi = 0;
  for (const double logit : kLogits) weight.push_back(logit >= least ? std::exp(logit / temperature) : 0);
  for (const double w : weight) sum += w;
  for (const int64_t id : ids) seen[static_cast<size_t>(id)] += 1;
  for (size_t v = 0; v < weight.size(); ++v) {
    const double expected = weight[v] / sum * static_cast<double>(ids.size());
    if (expected == 0) {
      EXPECT_EQ(seen[v], 0) << "token " << v << " was filtered";
      continue;
    }
    chi += (seen[v] - expected) * (seen[v] - expected) / expected;
  }
  return chi;
}

TEST(CpuSampleDistribution, OfRowsOfOneSeed) {
  SampleCase c = rows_of(kLogits, kDraws);
  c.params.seed = 42;
  EXPECT_LT(chi_square(integers_of(run_sample(c).ids), 1.0, -9), kLimit15);
  c.params.temperature = 0.6;
  EXPECT_LT(chi_square(integers_of(run_sample(c).ids), 0.6, -9), kLimit15);
  EXPECT_GT(chi_square(integers_of(run_sample(c).ids), 0.64, -9), kLimit15);  // it can tell
}

TEST(CpuSampleDistribution, OfStepsOfOneRow) {
  SampleCase c = rows_of(kLogits, kDraws);
  c.per_row(c.row_ids, Dtype::i64, [](int64_t) { return 77.0; });
  c.per_row(c.steps, Dtype::i64, [](int64_t n) { return static_cast<double>(n); });
  EXPECT_LT(chi_square(integers_of(run_sample(c).ids), 1.0, -9), kLimit15);
}

TEST(CpuSampleDistribution, OfSeedsOfOneRow) {
  SampleCase c = rows_of(kLogits, kDraws);
  c.per_row(c.row_ids, Dtype::i64, [](int64_t) { return 77.0; });
  c.per_row(c.seeds, Dtype::i64, [](int64_t n) { return static_cast<double>(n); });
  EXPECT_LT(chi_square(integers_of(run_sample(c).ids), 1.0, -9), kLimit15);
}

// 1.4, 1.3, 1.1, 0.9, 0.8, 0.65 are the six largest, and the seventh is 0.5.
TEST(CpuSampleDistribution, OfFilteredTokens) {
  SampleCase c = rows_of(kLogits, kDraws);
  c.params.temperature = 1.5;
  c.params.top_k = 6;
  EXPECT_LT(chi_square(integers_of(run_sample(c).ids), 1.5, 0.6), kLimit5);
}

// Rejection does not change the distribution: given success it is that of the filtered tokens.
TEST(CpuSampleDistribution, OfTheRoundsThatSucceed) {
  SampleCase c = rows_of(kLogits, kDraws);
  c.params.top_k = 6;
  std::mt19937 engine(3);
  c.uniform_samples =
      Tensor(Dtype::f32, {3, kDraws}).fill([&](int64_t) { return static_cast<double>(engine() >> 8) * 0x1p-24; });
  const SampleOutputs got = run_sample(c);
  std::vector<int64_t> ids;
  for (const int64_t id : integers_of(got.ids)) {
    if (id >= 0) ids.push_back(id);
  }
  const double kept_share = 1 - std::pow(1 - static_cast<double>(ids.size()) / kDraws, 1.0 / 3);
  EXPECT_GT(kept_share, 0.5);
  EXPECT_LT(ids.size(), static_cast<size_t>(kDraws));
  EXPECT_LT(chi_square(ids, 1.0, 0.6), kLimit5);
}

}  // namespace
}  // namespace rlk::test
