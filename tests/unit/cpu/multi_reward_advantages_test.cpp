// multi_reward_advantages against TRL's two aggregations and GDPO, and what a missing reward must not do.
#include <cmath>
#include <limits>

#include "core/cpu/advantages/multi_reward_advantages.hpp"
#include "unit/cpu/token_case.hpp"

namespace rlk::test {
namespace {

using List = std::vector<double>;
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

struct MultiCase {
  Tensor rewards, weights, mask, group_boundaries, group_ids;
  cpu::GroupAdvantagesArgs group;
  bool normalize_first = false;
};

Tensor run(MultiCase& c, cpu::DataError* error = nullptr, const cpu::ParallelFor& hook = cpu::serial_parallel()) {
  const int64_t rows = c.rewards.shape()[0];
  Tensor advantages(accumulator(c.rewards.dtype()), {rows});
  cpu::MultiRewardArgs args;
  args.group = c.group;
  args.group.grouping.rows = rows;
  if (c.group_boundaries.present()) {
    args.group.grouping.kind = cpu::GroupingArgs::Kind::boundaries;
    args.group.grouping.groups = c.group_boundaries.size() - 1;
    args.group.grouping.group_boundaries = int_array_of(c.group_boundaries);
  }
  if (c.group_ids.present()) {
    args.group.grouping.kind = cpu::GroupingArgs::Kind::ids;
    args.group.grouping.group_ids = int_array_of(c.group_ids);
  }
  args.kinds = c.rewards.shape()[1];
  args.rewards = array_of(c.rewards);
  args.weights = array_of(c.weights);
  args.mask = mask_of(c.mask);
  args.normalize_first = c.normalize_first;
  args.advantages = array_of(advantages);
  std::vector<double> workspace(
      static_cast<size_t>(cpu::multi_reward_workspace_bytes(args.group.grouping.kind, rows) / 8 + 1));
  args.workspace = workspace.data();
  const cpu::DataError told = cpu::multi_reward_advantages(args, hook);
  if (error != nullptr) *error = told;
  return advantages;
}

// Mean and unbiased deviation of the numbers that are no NaN; the deviation of one number is NaN, as TRL's nanstd has
// it.
struct Statistics {
  double mean = 0, deviation = 0;
};
Statistics statistics_of(const List& list) {
  double n = 0, sum = 0, squares = 0;
  for (const double x : list) {
    if (std::isnan(x)) continue;
    ++n;
    sum += x;
  }
  for (const double x : list) squares += std::isnan(x) ? 0 : (x - sum / n) * (x - sum / n);
  return {sum / n, n > 1 ? std::sqrt(squares / (n - 1)) : kNan};
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
    const double advantage = (sums[b] - group.mean) / (group.deviation + 1e-4);
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
      normalized[b][k] = (rewards[b][k] - group.mean) / (group.deviation + eps);
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
  for (double& sum : sums) sum = std::isnan(sum) ? 0 : (sum - batch.mean) / (batch.deviation + 1e-4);
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
  c.group.grouping.samples_per_prompt = 4;
  c.group.eps = 1e-4;
  return c;
}

void expect_near(const Tensor& got, const List& want) {
  ASSERT_EQ(got.size(), static_cast<int64_t>(want.size()));
  for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got.get(static_cast<int64_t>(i)), want[i], 1e-12) << i;
}

TEST(CpuMultiReward, MatchesTrlsSumThenNormalize) {
  MultiCase c = trl_case();
  expect_near(run(c), trl_sum_then_normalize(kRewards, kWeights, 4));
}

TEST(CpuMultiReward, NormalizeThenSumThenWhitenIsTrlsNormalizeThenSum) {
  MultiCase c = trl_case();
  c.normalize_first = true;
  ops::whiten::Params whiten;
  whiten.eps_mode = ops::whiten::EpsMode::deviation;
  whiten.eps = 1e-4;
  const Tensor sums = run(c);
  EXPECT_EQ(sums.get(3), 0);
  expect_near(whitened(numbers(list_of(sums), {8, 1}), flags({1, 1, 1, 0, 1, 1, 1, 1}, {8, 1}), whiten),
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
  c.group.grouping.samples_per_prompt = 2;
  c.group.raw_singletons = true;
  c.normalize_first = true;
  const std::vector<List> normalized = trl_normalized(rewards, 2, 1e-6);
  List tokens, kept, counted;
  std::vector<int> mask;
  const Tensor advantages = run(c);
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
    want.push_back(mask[i] * (kept[i] - batch.mean) / std::sqrt(batch.deviation * batch.deviation + 1e-8));
  }
  expect_near(whitened(numbers(tokens, {6, 4}), flags(mask, {6, 4}), {}), want);
}

TEST(CpuMultiReward, TheWeightOfAMissingRewardIsNotUsed) {
  for (const bool normalize_first : {false, true}) {
    MultiCase c;
    c.rewards = numbers({1, kNan, 2, kNan, 6, kNan}, {3, 2});
    c.mask = flags({1, 0, 1, 0, 1, 0}, {3, 2});
    c.weights = numbers({2, kNan});
    c.group.scale = cpu::GroupAdvantagesArgs::Scale::none;
    c.normalize_first = normalize_first;
    EXPECT_EQ(list_of(run(c)), (List{-4, -2, 6}));
  }
}

TEST(CpuMultiReward, OneRewardIsGroupAdvantagesInBothOrders) {
  using Scale = cpu::GroupAdvantagesArgs::Scale;
  using Baseline = cpu::GroupAdvantagesArgs::Baseline;
  for (const bool normalize_first : {false, true}) {
    for (const Scale scale : {Scale::group, Scale::batch, Scale::none}) {
      for (const Baseline baseline : {Baseline::mean, Baseline::rloo}) {
        MultiCase c;
        c.rewards = random_tensor(Dtype::f32, {9, 1}, 1, 3);
        c.group_boundaries = integers({0, 4, 5, 5, 9});
        c.group.scale = scale;
        c.group.baseline = baseline;
        c.group.raw_singletons = true;
        c.group.unbiased = false;
        c.group.additive_eps = false;
        c.group.eps = 0.75;
        c.normalize_first = normalize_first;
        Tensor want(Dtype::f32, {9});
        cpu::GroupAdvantagesArgs args = c.group;
        args.grouping.kind = cpu::GroupingArgs::Kind::boundaries;
        args.grouping.rows = 9;
        args.grouping.groups = 4;
        args.grouping.group_boundaries = int_array_of(c.group_boundaries);
        args.rewards = array_of(c.rewards);
        args.advantages = array_of(want);
        cpu::group_advantages(args, cpu::serial_parallel());
        EXPECT_EQ(run(c).bytes(), want.bytes());
      }
    }
  }
}

TEST(CpuMultiReward, DataErrorsAreThoseOfTheSamplesThatHaveARewardOfTheirOwn) {
  for (const bool normalize_first : {false, true}) {
    MultiCase c;
    c.rewards = numbers({1, 2, kNan, kNan, 5, 6, 7, 8, 9, 1}, {5, 2});
    c.mask = flags({1, 1, 0, 0, 0, 1, 1, 0, 1, 1}, {5, 2});
    c.group_ids = integers({1, 77, 5, -1, 1});  // nobody looks at the id of a sample without a reward
    c.group.scale = cpu::GroupAdvantagesArgs::Scale::none;
    c.normalize_first = normalize_first;
    cpu::DataError error;
    const Tensor advantages = run(c, &error);
    EXPECT_EQ(error.kind, cpu::kIdOutOfRange);
    EXPECT_EQ(error.row, 2);  // seen with the second reward, row 3 already with the first
    EXPECT_EQ(error.value, 5);
    EXPECT_EQ(advantages.get(1), 0);
    EXPECT_TRUE(std::isnan(advantages.get(2)) && std::isnan(advantages.get(3)));
    EXPECT_EQ(advantages.get(0), -3.5);
    EXPECT_EQ(advantages.get(4), 3.5);
    c.mask = flags({1, 1, 0, 0, 1, 0, 0, 1, 1, 1}, {5, 2});
    run(c, &error);
    EXPECT_EQ(error.row, 2);  // seen with the first reward, row 3 afterwards
    c.group_ids = Tensor();
    c.group_boundaries = integers({0, 6});
    run(c, &error);
    EXPECT_EQ(error.kind, cpu::kBadSeqlens);
    EXPECT_EQ(error.row, 1);
    EXPECT_EQ(error.value, 6);
  }
}

TEST(CpuMultiReward, BitsDoNotDependOnThreadsAndNoSamplesAreNoWork) {
  for (const bool normalize_first : {false, true}) {
    MultiCase c;
    c.rewards = random_tensor(Dtype::f16, {20000, 3}, 1, 5, Strides::reversed);
    c.mask = Tensor(Dtype::u8, {20000, 3});
    c.group_ids = Tensor(Dtype::i64, {20000});
    for (int64_t i = 0; i < 60000; ++i) c.mask.set_int(i, i * 7 % 5 == 0 ? 0 : 1);
    for (int64_t b = 0; b < 20000; ++b) c.group_ids.set_int(b, b * 7919 % 20000 / 8);
    c.normalize_first = normalize_first;
    const Tensor want = run(c);
    for (const cpu::ParallelFor& hook : other_hooks()) EXPECT_EQ(run(c, nullptr, hook).bytes(), want.bytes());
    MultiCase empty;
    empty.rewards = Tensor(Dtype::f32, {0, 3});
    empty.normalize_first = normalize_first;
    EXPECT_EQ(run(empty).size(), 0);
    empty.group_boundaries = integers({0, 1});
    cpu::DataError error;
    run(empty, &error);
    EXPECT_EQ(error.kind, cpu::kBadSeqlens);
  }
}

}  // namespace
}  // namespace rlk::test
