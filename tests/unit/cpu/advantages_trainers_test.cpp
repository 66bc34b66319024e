// Estimators that trainers have and rlk composes: the operators in the order that the notes of group_advantages give,
// against each trainer's own recursion over a whole batch, at the tokens that count.

#include <rlk/sdk/ops/group_advantages.hpp>
#include <rlk/sdk/ops/returns.hpp>
#include <rlk/sdk/ops/whiten.hpp>

#include <cmath>

#include "unit/cpu/scan_case.hpp"
#include "unit/cpu/trainer_rows.hpp"

namespace rlk::test {
namespace {

constexpr int64_t kB = 6, kL = 9;

// Rewards of samples, three of each prompt; penalties of tokens; responses of several lengths, with a turn of a tool.
struct Batch {
  List scores = {1, 0, 2.5, -1, -1, 4};
  Matrix penalties, values, mask;
  Batch() {
    const std::vector<int64_t> lengths = {9, 4, 7, 1, 8, 5};
    for (int64_t b = 0; b < kB; ++b) {
      List penalty, value, kept;
      for (int64_t t = 0; t < kL; ++t) {
        penalty.push_back(0.01 * static_cast<double>((b * 7 + t * 3) % 11));
        value.push_back(0.25 * static_cast<double>((b * 5 + t * 2) % 7));
        kept.push_back(t < lengths[static_cast<size_t>(b)] && (b % 2 != 0 || t != 2) ? 1 : 0);
      }
      penalties.push_back(penalty);
      values.push_back(value);
      mask.push_back(kept);
    }
  }
  // A score at the last token that counts, and the penalty of each one.
  Matrix token_rewards(const List& per_sample) const {
    Matrix rewards = penalties;
    for (size_t b = 0; b < kB; ++b) {
      size_t last = 0;
      for (size_t t = 0; t < kL; ++t) {
        rewards[b][t] *= -mask[b][t];
        if (mask[b][t] != 0) last = t;
      }
      rewards[b][last] += per_sample[b];
    }
    return rewards;
  }
  // Every token has the number of its sample.
  Matrix broadcast(const List& per_sample) const {
    Matrix tokens = mask;
    for (size_t b = 0; b < kB; ++b) {
      for (double& token : tokens[b]) token *= per_sample[b];
    }
    return tokens;
  }
};

// ---- the operators ------------------------------------------------------------------------------------------------

using Baseline = ops::group_advantages::Baseline;
using Singleton = ops::group_advantages::Singleton;
// Without division.
List group_advantages(const List& scores, Baseline baseline, Singleton singleton = Singleton::zero) {
  const ops::group_advantages::Params params = {.samples_per_prompt = 3,
                                                .scale = ops::group_advantages::Scale::none,
                                                .baseline = baseline,
                                                .singleton = singleton};
  return list_of(run(CallOf<ops::GroupAdvantages>{.rewards = numbers(scores), .params = params}).advantages);
}
Matrix discounted(const Matrix& rewards, const Matrix& mask, double gamma, ReturnsRule rule) {
  const ops::returns::Params params = {.gamma = gamma, .mask_rule = rule};
  return matrix_of(run(Returns{.rewards = tensor_of(rewards), .mask = flags_of(mask), .params = params}).returns);
}
Matrix gae(const Matrix& rewards, const Batch& batch, double gamma, double lam, Rule rule) {
  Gae call = gae_of(tensor_of(rewards), tensor_of(batch.values));
  call.mask = flags_of(batch.mask);
  call.params.gamma = gamma;
  call.params.lam = lam;
  call.params.mask_rule = rule;
  return matrix_of(run(call).advantages);
}
Matrix whiten(const Matrix& x, const Matrix& kept, const ops::whiten::Params& params = {}) {
  return matrix_of(run(CallOf<ops::Whiten>{.x = tensor_of(x), .mask = flags_of(kept), .params = params}).y);
}
ops::whiten::Params openrlhf_whiten() {
  return {.std = ops::whiten::Std::population, .eps_mode = ops::whiten::EpsMode::variance_floor};
}

// ---- the trainers -------------------------------------------------------------------------------------------------

List minus_group_mean(const List& scores) {
  List out;
  for (size_t b = 0; b < scores.size(); ++b) {
    const size_t first = b / 3 * 3;
    out.push_back(scores[b] - (scores[first] + scores[first + 1] + scores[first + 2]) / 3);
  }
  return out;
}
void expect_same(const Matrix& got, const Matrix& want, const Matrix& mask) {
  for (size_t b = 0; b < kB; ++b) {
    for (size_t t = 0; t < kL; ++t) EXPECT_NEAR(got[b][t], mask[b][t] * want[b][t], 1e-12) << b << " " << t;
  }
}

TEST(CpuAdvantagesOfTrainers, VerlReinforcePlusPlusIsReturnsThenWhiten) {
  const Batch batch;
  const Matrix rewards = batch.token_rewards(batch.scores);
  for (const double gamma : {1.0, 0.9}) {
    expect_same(whiten(discounted(rewards, batch.mask, gamma, ops::returns::Params().mask_rule), batch.mask),
                masked_normal(running_sums(rewards, batch.mask, gamma, ReturnsRule::carry), batch.mask, verl_divisor),
                batch.mask);
  }
}

// Before 0.9 a masked token ended what comes back from behind it.
TEST(CpuAdvantagesOfTrainers, OlderVerlsReinforcePlusPlusResets) {
  const Batch batch;
  const Matrix rewards = batch.token_rewards(batch.scores);
  for (const double gamma : {1.0, 0.9}) {
    const Matrix sums = running_sums(rewards, batch.mask, gamma, ReturnsRule::reset);
    expect_same(whiten(discounted(rewards, batch.mask, gamma, ReturnsRule::reset), batch.mask),
                masked_normal(sums, batch.mask, verl_divisor), batch.mask);
  }
}

TEST(CpuAdvantagesOfTrainers, VerlReinforcePlusPlusBaselineIsTheGroupMeanThenWhiten) {
  const Batch batch;
  const Matrix tokens = batch.broadcast(group_advantages(batch.scores, Baseline::mean, Singleton::raw));
  expect_same(whiten(tokens, batch.mask),
              masked_normal(batch.broadcast(minus_group_mean(batch.scores)), batch.mask, verl_divisor), batch.mask);
}

TEST(CpuAdvantagesOfTrainers, VerlRemaxOfTokenRewardsIsReturnsMinusTheBaselines) {
  const Batch batch;
  const List greedy = {0.5, 0.5, 0.5, -1, -1, -1};
  const Matrix rewards = batch.token_rewards(batch.scores);
  Matrix got = discounted(rewards, batch.mask, 1, ReturnsRule::zero), want = got;
  for (size_t b = 0; b < kB; ++b) {
    double to_go = 0;
    for (size_t t = kL; t-- > 0;) {
      to_go += rewards[b][t] * batch.mask[b][t];
      want[b][t] = to_go - greedy[b] * batch.mask[b][t];
      got[b][t] -= batch.mask[b][t] * greedy[b];
    }
  }
  expect_same(got, want, batch.mask);
}

TEST(CpuAdvantagesOfTrainers, VerlGaeIsGaeThenWhiten) {
  const Batch batch;
  const Matrix rewards = batch.token_rewards(batch.scores);
  const Matrix want = verl_gae(rewards, batch.values, batch.mask, 0.99, 0.95).advantages;
  expect_same(whiten(gae(rewards, batch, 0.99, 0.95, Rule::carry), batch.mask),
              masked_normal(want, batch.mask, verl_divisor), batch.mask);
}

TEST(CpuAdvantagesOfTrainers, OpenRlhfGaeIsGaeThenWhiten) {
  const Batch batch;
  const Matrix rewards = batch.token_rewards(batch.scores);
  const Matrix want = openrlhf_gae(rewards, batch.values, batch.mask, 1, 0.95).advantages;
  expect_same(whiten(gae(rewards, batch, 1, 0.95, Rule::zero), batch.mask, openrlhf_whiten()),
              masked_normal(want, batch.mask, openrlhf_divisor), batch.mask);
}

TEST(CpuAdvantagesOfTrainers, OpenRlhfReinforceBaselineIsTheGroupMeanThenReturnsThenWhiten) {
  const Batch batch;
  const Matrix rewards = batch.token_rewards(group_advantages(batch.scores, Baseline::mean));
  const Matrix centred = batch.token_rewards(minus_group_mean(batch.scores));
  const Matrix want = running_sums(centred, batch.mask, 1, ReturnsRule::zero);
  expect_same(whiten(discounted(rewards, batch.mask, 1, ReturnsRule::zero), batch.mask, openrlhf_whiten()),
              masked_normal(want, batch.mask, openrlhf_divisor), batch.mask);
}

TEST(CpuAdvantagesOfTrainers, OpenRlhfRlooIsLeaveOneOutThenReturns) {
  const Batch batch;
  List shaped;
  for (size_t b = 0; b < kB; ++b) {
    const size_t first = b / 3 * 3;
    const double all = batch.scores[first] + batch.scores[first + 1] + batch.scores[first + 2];
    shaped.push_back(batch.scores[b] - (all - batch.scores[b]) / 2);
  }
  const Matrix rewards = batch.token_rewards(group_advantages(batch.scores, Baseline::rloo));
  expect_same(discounted(rewards, batch.mask, 1, ReturnsRule::zero),
              running_sums(batch.token_rewards(shaped), batch.mask, 1, ReturnsRule::zero), batch.mask);
}

TEST(CpuAdvantagesOfTrainers, SlimeReinforcePlusPlusIsReturns) {
  const Batch batch;
  const Matrix rewards = batch.token_rewards(batch.scores);
  expect_same(discounted(rewards, batch.mask, 0.9, ReturnsRule::zero),
              running_sums(rewards, batch.mask, 0.9, ReturnsRule::zero), batch.mask);
}

TEST(CpuAdvantagesOfTrainers, TrlRlooWithNormalizedAdvantagesIsLeaveOneOutThenWhitenOverSamples) {
  const Batch batch;
  const Tensor rloo = numbers(group_advantages(batch.scores, Baseline::rloo), {kB, 1});
  const ops::whiten::Params params = {.eps_mode = ops::whiten::EpsMode::deviation, .eps = 1e-4};
  Matrix want;
  for (const double centred : minus_group_mean(batch.scores)) want.push_back({centred * 3 / 2});
  expect_near(run(CallOf<ops::Whiten>{.x = rloo, .params = params}).y,
              masked_normal(want, Matrix(kB, {1}), trl_divisor));
}

}  // namespace
}  // namespace rlk::test
