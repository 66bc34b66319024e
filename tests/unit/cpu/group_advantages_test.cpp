// group_advantages against each trainer's own formula, the rewards that upstream normalises wrongly, and every way to
// say which rows are a group.
#include <rlk/sdk/ops/group_advantages.hpp>

#include "unit/cpu/trainer_rows.hpp"

namespace rlk::test {
namespace {

using GroupCase = CallOf<ops::GroupAdvantages>;
using namespace ops::group_advantages;  // NOLINT(google-build-using-namespace): its enumerations

Tensor advantages_of(const GroupCase& c, const cpu::ParallelFor& hook = cpu::serial_parallel()) {
  return run(c, hook).advantages;
}
void set_boundaries(GroupCase& c, Tensor boundaries) {
  c.params.grouping = Grouping::boundaries;
  c.params.samples_per_prompt = 0;
  c.group_ids = Tensor();
  c.group_boundaries = std::move(boundaries);
}
void set_ids(GroupCase& c, Tensor ids) {
  c.params.grouping = Grouping::ids;
  c.params.samples_per_prompt = 0;
  c.group_boundaries = Tensor();
  c.group_ids = std::move(ids);
}

double mean(const List& r) {
  return Statistics(r).mean;
}
double deviation(const List& r, bool unbiased) {
  return Statistics(r).deviation(unbiased);
}

// ---- the trainers' formulas: one group of `all`, of one size ------------------------------------------------------

List centred(const List& group, double divisor, double factor = 1) {
  List list;
  for (const double r : group) list.push_back((r - mean(group)) * factor / divisor);
  return list;
}
List divided(const List& group, double divisor) {
  List list;
  for (const double r : group) list.push_back(r / divisor);
  return list;
}
List rloo(const List& group, const List& /*all*/) {
  const auto n = static_cast<double>(group.size());
  List list;
  for (const double r : group) list.push_back(r - (mean(group) * n - r) / (n - 1));
  return list;
}
List verl_rloo(const List& group, const List& /*all*/) {  // one sample keeps its reward
  const auto n = static_cast<double>(group.size());
  return group.size() == 1 ? group : centred(group, 1, n / (n - 1));
}
List verl_grpo(const List& group, const List& /*all*/) {
  return group.size() == 1 ? divided(group, 1 + 1e-6) : centred(group, deviation(group, true) + 1e-6);
}
List verl_pass_at_k(const List& group, const List& /*all*/) {
  List sorted = group, list(group.size());
  std::sort(sorted.rbegin(), sorted.rend());
  const auto best = static_cast<size_t>(std::max_element(group.begin(), group.end()) - group.begin());
  list[best] = (sorted[0] - sorted[1]) / (deviation(group, true) + 1e-6);
  return list;
}
List verl_gpg(const List& group, const List& all) {
  const auto nonzero = static_cast<double>(std::count_if(all.begin(), all.end(), [](double r) { return r != 0; }));
  const double alpha = static_cast<double>(all.size()) / std::max(nonzero, 1.0);
  return group.size() == 1 ? divided(group, 1 / alpha) : centred(group, 1, alpha);
}

// Conflict 2 is in the table: unbiased and population, additive and clamped eps.
TEST(CpuGroupAdvantages, MatchesEveryTrainersFormula) {
  struct Trainer {
    const char* name;
    Params params;
    List (*formula)(const List& group, const List& all);
  };
  const Params second_best = {.eps = 1e-6, .baseline = Baseline::second_best};
  const Params none = {.scale = Scale::none}, raw = {.scale = Scale::none, .singleton = Singleton::raw};
  Params raw_rloo = raw, no_rloo = none, gpg = raw;
  raw_rloo.baseline = no_rloo.baseline = Baseline::rloo;
  gpg.rescale = Rescale::nonzero;
  const Trainer trainers[] = {
      {"TRL", {.eps = 1e-4}, [](const List& g, const List&) { return centred(g, deviation(g, true) + 1e-4); }},
      {"TRL scale_rewards=batch",
       {.eps = 1e-4, .scale = Scale::batch},
       [](const List& g, const List& all) { return centred(g, deviation(all, true) + 1e-4); }},
      {"TRL scale_rewards=none, Dr.GRPO", none, [](const List& g, const List&) { return centred(g, 1); }},
      {"verl GRPO", {.eps = 1e-6, .singleton = Singleton::raw}, verl_grpo},
      {"verl RLOO", raw_rloo, verl_rloo},
      {"verl pass@k", second_best, verl_pass_at_k},
      {"verl GPG", gpg, verl_gpg},
      {"TRL RLOO, OpenRLHF rloo", no_rloo, rloo},
      {"OpenRLHF", {.eps = 1e-9}, [](const List& g, const List&) { return centred(g, deviation(g, true) + 1e-9); }},
      {"slime", {.eps = 1e-6}, [](const List& g, const List&) { return centred(g, deviation(g, true) + 1e-6); }},
      {"RL-Kernel",
       {.std = Std::population, .eps_mode = EpsMode::max_clamp, .eps = 1e-6},
       [](const List& g, const List&) { return centred(g, std::max(deviation(g, false), 1e-6)); }},
  };
  const List rewards = {1, 0.5, -2, 0.25, 1e-7, 2e-7, 1.5e-7, 3e-7, 5, 5, 0, 5};
  for (const Trainer& trainer : trainers) {
    for (const int64_t size : {4, 2, 1, 12}) {
      if (size == 1 && trainer.params.singleton == Singleton::zero) continue;  // the others ask for two and more
      GroupCase c;
      c.rewards = numbers(rewards);
      c.params = trainer.params;
      c.params.samples_per_prompt = size;
      const Tensor advantages = advantages_of(c);
      for (size_t first = 0; first < rewards.size(); first += static_cast<size_t>(size)) {
        const List group(rewards.begin() + static_cast<std::ptrdiff_t>(first),
                         rewards.begin() + static_cast<std::ptrdiff_t>(first) + size);
        const List want = trainer.formula(group, rewards);
        for (size_t k = 0; k < want.size(); ++k) {
          EXPECT_NEAR(advantages.get(static_cast<int64_t>(first + k)), want[k],
                      1e-12 * std::max(1.0, std::fabs(want[k])))
              << trainer.name << ", groups of " << size << ", row " << first + k;
        }
      }
    }
  }
}

// verl's OPO: rewards weighted by response length, no division, the reward itself for a single sample.
TEST(CpuGroupAdvantages, OpoSubtractsTheMeanWeightedByLengths) {
  GroupCase c;
  c.rewards = numbers({1, 0, 0.5, -2, 3, 7, 4, 6});
  c.lengths = integers({10, 30, 0, 5, 0, 0, 9, -3}, Dtype::i32);
  set_boundaries(c, integers({0, 3, 4, 6, 8}, Dtype::i32));
  c.params.baseline = Baseline::opo;
  c.params.scale = Scale::none;
  c.params.singleton = Singleton::raw;
  // Lengths that are all 0 weigh equally, and a length below 0 is 0.
  EXPECT_EQ(list_of(advantages_of(c)), (List{0.75, -0.25, 0.25, -2, -2, 2, 0, 2}));
  c.params.singleton = Singleton::zero;
  EXPECT_EQ(advantages_of(c).get(3), 0);
}

// A weight of 0 must not bring a large reward into the rounding of the others.
TEST(CpuGroupAdvantages, OpoIgnoresTheSizeOfRewardsWithoutLength) {
  GroupCase c;
  c.rewards = numbers({1e17, 0.25, 0.5, 0.25});
  c.lengths = integers({0, 1, 2, 1});
  c.params.baseline = Baseline::opo;
  c.params.scale = Scale::none;
  const Tensor advantages = advantages_of(c);
  EXPECT_EQ(advantages.get(1), 0.25 - 0.375);
  EXPECT_EQ(advantages.get(2), 0.5 - 0.375);
}

// verl's ReMax: the reward minus that of the greedy sample, also for a single sample of a prompt.
TEST(CpuGroupAdvantages, GivenBaselinesAreSubtracted) {
  GroupCase c;
  c.rewards = numbers({1, 0, 2, -1});
  c.baselines = numbers({0.5, 0.5, 2, 3});
  c.params.baseline = Baseline::given;
  c.params.scale = Scale::none;
  for (const int64_t size : {1, 2, 0}) {
    for (const bool raw : {false, true}) {
      c.params.samples_per_prompt = size;
      c.params.singleton = raw ? Singleton::raw : Singleton::zero;
      EXPECT_EQ(list_of(advantages_of(c)), (List{0.5, -0.5, 0, -4}));
    }
  }
  c.params.scale = Scale::group;
  c.params.std = Std::population;
  c.params.samples_per_prompt = 2;
  c.params.eps = 0.5;
  EXPECT_EQ(list_of(advantages_of(c)), (List{0.5, -0.5, 0, -2}));
}

TEST(CpuGroupAdvantages, OnlyTheBestRewardHasAnAdvantageAndTiesHaveNone) {
  GroupCase c;
  c.params.baseline = Baseline::second_best;
  c.params.scale = Scale::none;
  c.params.samples_per_prompt = 3;
  c.rewards = numbers({-3, -1, -2, 4, 1, 4, 2, kInfinity, 1, kInfinity, kInfinity, 1, 5, 4.5, 1, -1, -4, -3});
  EXPECT_EQ(list_of(advantages_of(c)), (List{0, 1, 0, 0, 0, 0, 0, kInfinity, 0, 0, 0, 0, 0.5, 0, 0, 2, 0, 0}));
  c.params.rescale = Rescale::nonzero;  // by 4
  c.rewards = numbers({0, 0, 2, 0, 1, 0, 0, 0, 0, 0, 0, 3});
  EXPECT_EQ(list_of(advantages_of(c)), (List{0, 0, 8, 0, 4, 0, 0, 0, 0, 0, 0, 12}));
  c.rewards = numbers({1, kNan, 2});
  for (int64_t b = 0; b < 3; ++b) EXPECT_TRUE(std::isnan(advantages_of(c).get(b)));
  c.rewards = numbers({7, 3});
  set_ids(c, integers({0, 1}));
  EXPECT_EQ(list_of(advantages_of(c)), (List{0, 0}));
}

TEST(CpuGroupAdvantages, NoRewardBut0LeavesTheRescalingFinite) {
  GroupCase c;
  c.rewards = numbers({0, 0, 0});
  c.params.rescale = Rescale::nonzero;
  EXPECT_EQ(list_of(advantages_of(c)), (List{0, 0, 0}));
}

// TRL: a sample without a reward (None, then NaN) is in no mean, deviation or count, and its advantage is 0.
TEST(CpuGroupAdvantages, MaskedSamplesAreInNoStatistic) {
  for (const Scale scale : {Scale::group, Scale::batch, Scale::none}) {
    for (const auto baseline : {Baseline::mean, Baseline::rloo, Baseline::opo, Baseline::second_best}) {
      GroupCase few;
      few.rewards = numbers({1, 3, 4, 0, 7});
      if (baseline == Baseline::opo) few.lengths = integers({3, 1, 2, 4, 5});
      set_boundaries(few, integers({0, 3, 3, 5}));
      few.params.baseline = baseline;
      few.params.scale = scale;
      few.params.rescale = Rescale::nonzero;
      const List want = list_of(advantages_of(few));
      GroupCase many = few;
      many.rewards = numbers({kNan, 1, 3, kNan, 4, kNan, 1e300, 0, 7});
      if (baseline == Baseline::opo) many.lengths = integers({9, 3, 1, 9, 2, 9, 9, 4, 5});
      many.mask = flags({0, 1, 255, 0, 1, 0, 0, 1, 1});
      set_boundaries(many, integers({0, 5, 7, 9}));
      const List padded = {0, want[0], want[1], 0, want[2], 0, 0, want[3], want[4]};
      EXPECT_EQ(list_of(advantages_of(many)), padded);
      set_ids(many, integers({-5, 2, 2, 99, 2, 3, 3, 0, 0}));  // the ids of masked rows are not read
      EXPECT_EQ(list_of(advantages_of(many)), padded);
      EXPECT_EQ(run(many).error.kind, cpu::kNoDataError);
    }
  }
}

// E[r^2] - E[r]^2 in fp32 has variance 0 here: upstream's first advantage is -15014.6.
TEST(CpuGroupAdvantages, LargeRewardsWithSmallDifferencesKeepTheirVariance) {
  GroupCase c;
  c.rewards = numbers({1000, 1000.01, 1000.02, 1000.03}, {}, Dtype::f32);
  c.params.std = Std::population;
  c.params.eps_mode = EpsMode::max_clamp;
  const Tensor advantages = advantages_of(c);
  const List want = {-1.3416, -0.4472, 0.4472, 1.3416};
  for (int64_t b = 0; b < 4; ++b) EXPECT_NEAR(advantages.get(b), want[static_cast<size_t>(b)], 5e-3);
}

// Upstream: -61 for eight times 1000.1, -0.12 for sixteen times 1.1.
TEST(CpuGroupAdvantages, EqualRewardsGiveExactlyZero) {
  for (const Dtype dtype : kFloatDtypes) {
    for (const auto& [reward, n] :
         std::vector<std::pair<double, int64_t>>{{1000.1, 8}, {1.1, 16}, {0.1, 3}, {-7.3, 1}}) {
      for (const Scale scale : {Scale::group, Scale::batch, Scale::none}) {
        for (const bool unbiased : {false, true}) {
          GroupCase c;
          c.rewards = Tensor(dtype, {n}).fill([r = reward](int64_t) { return r; });
          c.params.scale = scale;
          c.params.std = unbiased ? Std::unbiased : Std::population;
          Tensor lengths(Dtype::i64, {n});
          for (int64_t b = 0; b < n; ++b) lengths.set_int(b, b * b % 7);
          for (const auto baseline : {Baseline::mean, Baseline::rloo, Baseline::opo, Baseline::second_best}) {
            c.params.baseline = baseline;
            c.lengths = baseline == Baseline::opo ? lengths : Tensor();
            EXPECT_EQ(list_of(advantages_of(c)), List(static_cast<size_t>(n), 0.0)) << name(dtype) << " " << reward;
          }
        }
      }
    }
  }
}

TEST(CpuGroupAdvantages, ASingleRewardIsZeroOrRaw) {
  GroupCase c;
  c.rewards = numbers({3, -2});
  c.params.samples_per_prompt = 1;
  c.params.eps = 0.5;
  EXPECT_EQ(list_of(advantages_of(c)), (List{0, 0}));
  c.params.singleton = Singleton::raw;
  EXPECT_EQ(list_of(advantages_of(c)), (List{2, -2 / 1.5}));
  c.params.eps_mode = EpsMode::max_clamp;
  EXPECT_EQ(list_of(advantages_of(c)), (List{3, -2}));
}

// The same groups said in three ways give the same bits; ids in any order give the same up to that order.
TEST(CpuGroupAdvantages, SizesBoundariesAndIdsSayTheSame) {
  for (const Scale scale : {Scale::group, Scale::batch}) {
    GroupCase by_size;
    by_size.rewards = random_tensor(Dtype::f32, {12}, 1, 3);
    by_size.params.samples_per_prompt = 4;
    by_size.params.scale = scale;
    const List want = list_of(advantages_of(by_size));
    GroupCase by_boundaries = by_size;
    set_boundaries(by_boundaries, integers({0, 0, 4, 8, 8, 12}, Dtype::i32));  // empty groups are legal
    EXPECT_EQ(list_of(advantages_of(by_boundaries)), want);
    GroupCase by_ids = by_size;
    set_ids(by_ids, integers({11, 11, 11, 11, 0, 0, 0, 0, 5, 5, 5, 5}));
    EXPECT_EQ(list_of(advantages_of(by_ids)), want);

    // Rows dealt out one to each group in turn.
    GroupCase dealt = by_ids;
    dealt.rewards.fill([&](int64_t i) { return by_size.rewards.get(i % 3 * 4 + i / 3); });
    set_ids(dealt, integers({2, 0, 7, 2, 0, 7, 2, 0, 7, 2, 0, 7}, Dtype::i32));
    const List got = list_of(advantages_of(dealt));
    for (size_t i = 0; i < 12; ++i) EXPECT_NEAR(got[i], want[i % 3 * 4 + i / 3], 1e-6);
  }
}

TEST(CpuGroupAdvantages, AnIdOutOfRangeIsTheRowsOwnError) {
  GroupCase c;
  c.rewards = numbers({1, 100, 3, 200});
  c.params.scale = Scale::batch;
  c.params.eps = 1;
  set_ids(c, integers({0, 4, 0, -1}));
  const auto result = run(c);
  const Tensor& advantages = result.advantages;
  EXPECT_EQ(result.error.kind, cpu::kIdOutOfRange);
  EXPECT_EQ(result.error.row, 1);
  EXPECT_EQ(result.error.value, 4);
  EXPECT_TRUE(std::isnan(advantages.get(1)) && std::isnan(advantages.get(3)));
  EXPECT_NEAR(advantages.get(0), -1 / (std::sqrt(2.0) + 1), 1e-15);  // the bad rows are in no deviation either
  EXPECT_NEAR(advantages.get(2), 1 / (std::sqrt(2.0) + 1), 1e-15);
}

TEST(CpuGroupAdvantages, ManyGroupsHaveNoCapAndBitsDoNotDependOnThreads) {
  GroupCase c;
  c.rewards = random_tensor(Dtype::f32, {40000}, 1, 5);
  for (const int64_t size : {0, 5000, 8}) {  // upstream stops at groups of 1024
    c.params.samples_per_prompt = size;
    const Tensor want = advantages_of(c);
    double sum = 0;
    for (int64_t b = 0; b < 5000; ++b) sum += size == 5000 ? want.get(b) : 0;
    EXPECT_NEAR(sum, 0, 1e-2);
    for (const cpu::ParallelFor& hook : other_hooks()) EXPECT_EQ(advantages_of(c, hook).bytes(), want.bytes());
  }
  GroupCase by_ids = c;
  set_ids(by_ids, Tensor(Dtype::i64, {40000}));
  for (int64_t b = 0; b < 40000; ++b) by_ids.group_ids.set_int(b, b * 7919 % 40000 / 8);
  const Tensor want = advantages_of(by_ids);
  for (const cpu::ParallelFor& hook : other_hooks()) EXPECT_EQ(advantages_of(by_ids, hook).bytes(), want.bytes());
}

}  // namespace
}  // namespace rlk::test
