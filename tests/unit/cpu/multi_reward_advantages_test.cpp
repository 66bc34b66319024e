// multi_reward_advantages against TRL's two aggregations and GDPO, and what a missing reward must not do.
#include <rlk/sdk/ops/group_advantages.hpp>
#include <rlk/sdk/ops/multi_reward_advantages.hpp>
#include <rlk/sdk/ops/whiten.hpp>

#include "unit/cpu/trainer_rows.hpp"

namespace rlk::test {
namespace {

using MultiCase = CallOf<ops::MultiRewardAdvantages>;
using namespace ops::multi_reward_advantages;  // NOLINT(google-build-using-namespace): its enumerations
constexpr Combine kBoth[] = {Combine::sum_then_normalize, Combine::normalize_then_sum};

Tensor advantages_of(const MultiCase& c, const cpu::ParallelFor& hook = cpu::serial_parallel()) {
  return run(c, hook).advantages;
}

// Of the numbers that are no NaN; the unbiased deviation of one is NaN, as TRL's nanstd has it.
Statistics statistics_of(List list) {
  list.erase(std::remove_if(list.begin(), list.end(), [](double x) { return std::isnan(x); }), list.end());
  return Statistics(list);
}
double nan_sum(const List& list, const List& weights) {
  double sum = 0;
  for (size_t k = 0; k < list.size(); ++k) sum += std::isnan(list[k]) ? 0 : list[k] * weights[k];
  return sum;
}

// TRL: rewards [sample][kind] with NaN for None, groups of `size`.
List trl_sum_then_normalize(const std::vector<List>& rewards, const List& weights, size_t size) {
  List sums, advantages;
  for (const List& row : rewards) {
    bool any = false;
    for (const double r : row) any |= !std::isnan(r);
    sums.push_back(any ? nan_sum(row, weights) : kNan);
  }
  for (size_t b = 0; b < sums.size(); ++b) {
    const auto first = sums.begin() + static_cast<std::ptrdiff_t>(b / size * size);
    const Statistics group = statistics_of(List(first, first + static_cast<std::ptrdiff_t>(size)));
    const double advantage = (sums[b] - group.mean) / (group.deviation(true) + 1e-4);
    advantages.push_back(std::isnan(advantage) ? 0 : advantage);
  }
  return advantages;
}
std::vector<List> trl_normalized(const std::vector<List>& rewards, size_t size, double eps) {
  std::vector<List> normalized = rewards;
  for (size_t b = 0; b < rewards.size(); ++b) {
    for (size_t k = 0; k < rewards[b].size(); ++k) {
      List column;
      for (size_t i = b / size * size; i < (b / size + 1) * size; ++i) column.push_back(rewards[i][k]);
      const Statistics group = statistics_of(column);
      normalized[b][k] = (rewards[b][k] - group.mean) / (group.deviation(true) + eps);
    }
  }
  return normalized;
}
List trl_normalize_then_sum(const std::vector<List>& rewards, const List& weights, size_t size) {
  const std::vector<List> normalized = trl_normalized(rewards, size, 1e-4);
  List sums;
  for (size_t b = 0; b < rewards.size(); ++b) {
    bool any = false;
    for (const double r : rewards[b]) any |= !std::isnan(r);
    sums.push_back(any ? nan_sum(normalized[b], weights) : kNan);
  }
  const Statistics batch = statistics_of(sums);
  for (double& sum : sums) sum = std::isnan(sum) ? 0 : (sum - batch.mean) / (batch.deviation(true) + 1e-4);
  return sums;
}

const List kWeights = {1, 0.25, -2};
// Two groups of four; the fourth sample has no reward at all, and one of the third kind is the only one of its group.
const std::vector<List> kRewards = {{1, 0.5, kNan}, {0, -2, 3},   {0.25, kNan, 1}, {kNan, kNan, kNan},
                                    {2, 7, kNan},   {2, 5, kNan}, {-1, 6, 0.5},    {1, 5, kNan}};

MultiCase trl_case() {
  MultiCase c;
  List flat;
  std::vector<int> has;
  for (const List& row : kRewards) {
    for (const double r : row) {
      flat.push_back(r);
      has.push_back(std::isnan(r) ? 0 : 1);
    }
  }
  c.rewards = numbers(flat, {8, 3}, Dtype::f64, Strides::gaps);
  c.mask = flags(has, {8, 3});
  c.weights = numbers(kWeights);
  c.params.samples_per_prompt = 4;
  c.params.eps = 1e-4;
  return c;
}

TEST(CpuMultiReward, MatchesTrlsSumThenNormalize) {
  MultiCase c = trl_case();
  expect_near(advantages_of(c), trl_sum_then_normalize(kRewards, kWeights, 4));
}

TEST(CpuMultiReward, NormalizeThenSumThenWhitenIsTrlsNormalizeThenSum) {
  MultiCase c = trl_case();
  c.params.combine = Combine::normalize_then_sum;
  const ops::whiten::Params whiten = {.eps_mode = ops::whiten::EpsMode::deviation, .eps = 1e-4};
  const Tensor sums = advantages_of(c);
  EXPECT_EQ(sums.get(3), 0);
  const Tensor x = numbers(list_of(sums), {8, 1}), mask = flags({1, 1, 1, 0, 1, 1, 1, 1}, {8, 1});
  expect_near(run(CallOf<ops::Whiten>{.x = x, .mask = mask, .params = whiten}).y,
              trl_normalize_then_sum(kRewards, kWeights, 4));
}

// verl: the weighted sum of each reward's GRPO, at every token of the response, whitened over these tokens.
TEST(CpuMultiReward, NormalizeThenSumThenWhitenOverTokensIsGdpo) {
  const std::vector<List> rewards = {{1, 0}, {0, 0.5}, {2, 2}, {0, 1}, {3, 0}, {1, 1}};
  const List weights = {1, 0.5};
  const std::vector<int> lengths = {3, 1, 4, 2, 0, 4};
  MultiCase c;
  c.rewards = numbers({1, 0, 0, 0.5, 2, 2, 0, 1, 3, 0, 1, 1}, {6, 2});
  c.weights = numbers(weights);
  c.params.samples_per_prompt = 2;
  c.params.singleton = Singleton::raw;
  c.params.combine = Combine::normalize_then_sum;
  const std::vector<List> normalized = trl_normalized(rewards, 2, 1e-6);
  List tokens, kept, counted;
  std::vector<int> mask;
  const Tensor advantages = advantages_of(c);
  for (size_t b = 0; b < 6; ++b) {
    for (int t = 0; t < 4; ++t) {
      tokens.push_back(advantages.get(static_cast<int64_t>(b)));
      mask.push_back(t < lengths[b] ? 1 : 0);
      kept.push_back(nan_sum(normalized[b], weights));
      if (t < lengths[b]) counted.push_back(kept.back());
    }
  }
  const Statistics batch = statistics_of(counted);
  List want;
  for (size_t i = 0; i < kept.size(); ++i) {
    want.push_back(mask[i] * (kept[i] - batch.mean) / verl_divisor(batch));
  }
  expect_near(run(CallOf<ops::Whiten>{.x = numbers(tokens, {6, 4}), .mask = flags(mask, {6, 4})}).y, want);
}

TEST(CpuMultiReward, TheWeightOfAMissingRewardIsNotUsed) {
  for (const Combine combine : kBoth) {
    MultiCase c;
    c.rewards = numbers({1, kNan, 2, kNan, 6, kNan}, {3, 2});
    c.mask = flags({1, 0, 1, 0, 1, 0}, {3, 2});
    c.weights = numbers({2, kNan});
    c.params.scale = Scale::none;
    c.params.combine = combine;
    EXPECT_EQ(list_of(advantages_of(c)), (List{-4, -2, 6}));
  }
}

TEST(CpuMultiReward, OneRewardIsGroupAdvantagesInBothOrders) {
  namespace group = ops::group_advantages;
  for (const Combine combine : kBoth) {
    for (const Scale scale : {Scale::group, Scale::batch, Scale::none}) {
      for (const Baseline baseline : {Baseline::mean, Baseline::rloo}) {
        MultiCase c;
        c.rewards = random_tensor(Dtype::f32, {9, 1}, 1, 3);
        c.group_boundaries = integers({0, 4, 5, 5, 9});
        c.params.grouping = Grouping::boundaries;
        c.params.scale = scale;
        c.params.baseline = baseline;
        c.params.singleton = Singleton::raw;
        c.params.std = Std::population;
        c.params.eps_mode = EpsMode::max_clamp;
        c.params.eps = 0.75;
        c.params.combine = combine;
        CallOf<ops::GroupAdvantages> one;
        one.rewards = numbers(list_of(c.rewards), {9}, Dtype::f32);
        one.group_boundaries = c.group_boundaries;
        one.params.grouping = c.params.grouping;
        one.params.scale = scale;
        one.params.baseline = baseline == Baseline::rloo ? group::Baseline::rloo : group::Baseline::mean;
        one.params.singleton = c.params.singleton;
        one.params.std = c.params.std;
        one.params.eps_mode = c.params.eps_mode;
        one.params.eps = c.params.eps;
        EXPECT_EQ(advantages_of(c).bytes(), run(one).advantages.bytes());
      }
    }
  }
}

TEST(CpuMultiReward, DataErrorsAreThoseOfTheSamplesThatHaveARewardOfTheirOwn) {
  for (const Combine combine : kBoth) {
    MultiCase c;
    c.rewards = numbers({1, 2, kNan, kNan, 5, 6, 7, 8, 9, 1}, {5, 2});
    c.mask = flags({1, 1, 0, 0, 0, 1, 1, 0, 1, 1}, {5, 2});
    c.params.grouping = Grouping::ids;
    c.group_ids = integers({1, 77, 5, -1, 1});  // the id of a sample without a reward is not read
    c.params.scale = Scale::none;
    c.params.combine = combine;
    const auto result = run(c);
    const Tensor& out = result.advantages;
    const cpu::DataError error = result.error;
    EXPECT_EQ(error.kind, cpu::kIdOutOfRange);
    EXPECT_EQ(error.row, 2);  // seen with the second reward, row 3 already with the first
    EXPECT_EQ(error.value, 5);
    EXPECT_EQ(out.get(1), 0);
    EXPECT_TRUE(std::isnan(out.get(2)) && std::isnan(out.get(3)));
    EXPECT_EQ(out.get(0), -3.5);
    EXPECT_EQ(out.get(4), 3.5);
    c.mask = flags({1, 1, 0, 0, 1, 0, 0, 1, 1, 1}, {5, 2});
    EXPECT_EQ(run(c).error.row, 2);  // seen with the first reward, row 3 afterwards
    c.group_ids = Tensor();
    c.params.grouping = Grouping::boundaries;
    c.group_boundaries = integers({0, 6});
    const cpu::DataError bad = run(c).error;
    EXPECT_EQ(bad.kind, cpu::kBadSeqlens);
    EXPECT_EQ(bad.row, 1);
    EXPECT_EQ(bad.value, 6);
  }
}

}  // namespace
}  // namespace rlk::test
