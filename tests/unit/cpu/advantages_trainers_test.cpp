// Estimators that trainers have and rlk composes: the operators in the order that the notes of group_advantages give,
// against each trainer's own recursion over a whole batch, at the tokens that count.

#include <rlk/sdk/ops/group_advantages.hpp>
#include <rlk/sdk/ops/returns.hpp>
#include <rlk/sdk/ops/whiten.hpp>

#include <cmath>

#include "unit/cpu/scan_case.hpp"
#include "unit/cpu/whitened.hpp"

namespace rlk::test {
namespace {

using Matrix = std::vector<List>;  // [sequence][token]
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

Tensor tensor_of(const Matrix& rows) {
  List flat;
  for (const List& row : rows) flat.insert(flat.end(), row.begin(), row.end());
  return numbers(flat, {kB, kL});
}
Tensor flags_of(const Matrix& rows) {
  std::vector<int> flat;
  for (const List& row : rows) flat.insert(flat.end(), row.begin(), row.end());
  return flags(flat, {kB, kL});
}
Matrix matrix_of(const Tensor& tensor) {
  Matrix rows(kB, List(kL));
  for (int64_t i = 0; i < kB * kL; ++i) rows[static_cast<size_t>(i / kL)][static_cast<size_t>(i % kL)] = tensor.get(i);
  return rows;
}

// ---- the operators ------------------------------------------------------------------------------------------------

using Baseline = ops::group_advantages::Baseline;
using Singleton = ops::group_advantages::Singleton;
// Without division.
List group_advantages(const List& scores, Baseline baseline, Singleton singleton = Singleton::zero) {
  CallOf<ops::GroupAdvantages> call;
  call.rewards = numbers(scores);
  call.params.samples_per_prompt = 3;
  call.params.baseline = baseline;
  call.params.singleton = singleton;
  call.params.scale = ops::group_advantages::Scale::none;
  return list_of(run(call).advantages);
}
Matrix discounted(const Matrix& rewards, const Matrix& mask, double gamma, ReturnsRule rule) {
  Returns call;
  call.rewards = tensor_of(rewards);
  call.mask = flags_of(mask);
  call.params.gamma = gamma;
  call.params.mask_rule = rule;
  return matrix_of(run(call).returns);
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
  return matrix_of(whitened(tensor_of(x), flags_of(kept), params));
}
ops::whiten::Params openrlhf_whiten() {
  ops::whiten::Params params;
  params.std = ops::whiten::Std::population;
  params.eps_mode = ops::whiten::EpsMode::variance_floor;
  return params;
}

// ---- the trainers -------------------------------------------------------------------------------------------------

// With x already as the trainer has it at every token: (x - mean) / root, both over the mask.
template <typename Root>
Matrix masked_normal(Matrix x, const Matrix& mask, Root&& root) {
  double n = 0, mean = 0, variance = 0;
  for (size_t b = 0; b < kB; ++b) {
    for (size_t t = 0; t < kL; ++t) {
      n += mask[b][t];
      mean += mask[b][t] * x[b][t];
    }
  }
  mean /= n;
  for (size_t b = 0; b < kB; ++b) {
    for (size_t t = 0; t < kL; ++t) variance += mask[b][t] * std::pow(x[b][t] - mean, 2);
  }
  for (List& row : x) {
    for (double& number : row) number = (number - mean) / root(variance, n);
  }
  return x;
}
double verl_root(double squares, double n) {
  return std::sqrt(squares / (n - 1) + 1e-8);
}
double openrlhf_root(double squares, double n) {
  return std::sqrt(std::max(squares / n, 1e-8));
}
List minus_group_mean(const List& scores) {
  List out;
  for (size_t b = 0; b < scores.size(); ++b) {
    const size_t first = b / 3 * 3;
    out.push_back(scores[b] - (scores[first] + scores[first + 1] + scores[first + 2]) / 3);
  }
  return out;
}
// The running sum times what the trainer multiplies it with after each token.
template <typename Factor>
Matrix running_sums(const Matrix& rewards, double gamma, Factor&& factor) {
  Matrix sums = rewards;
  for (size_t b = 0; b < kB; ++b) {
    double running = 0;
    for (size_t t = kL; t-- > 0;) {
      running = rewards[b][t] + gamma * running;
      sums[b][t] = running;
      running *= factor(b, t);
    }
  }
  return sums;
}

void expect_same(const Matrix& got, const Matrix& want, const Matrix& mask) {
  for (size_t b = 0; b < kB; ++b) {
    for (size_t t = 0; t < kL; ++t) EXPECT_NEAR(got[b][t], mask[b][t] * want[b][t], 1e-12) << b << " " << t;
  }
}

// A masked token leaves the return of verl 0.9.1 as it is.
Matrix verl_carried(const Matrix& rewards, const Matrix& mask, double gamma) {
  Matrix sums = rewards;
  for (size_t b = 0; b < kB; ++b) {
    double running = 0;
    for (size_t t = kL; t-- > 0;) {
      const double next = rewards[b][t] + gamma * running;
      sums[b][t] = next * mask[b][t];
      running = next * mask[b][t] + running * (1 - mask[b][t]);
    }
  }
  return sums;
}

TEST(CpuAdvantagesOfTrainers, VerlReinforcePlusPlusIsReturnsThenWhiten) {
  const Batch batch;
  const Matrix rewards = batch.token_rewards(batch.scores);
  for (const double gamma : {1.0, 0.9}) {
    expect_same(whiten(discounted(rewards, batch.mask, gamma, ops::returns::Params().mask_rule), batch.mask),
                masked_normal(verl_carried(rewards, batch.mask, gamma), batch.mask, verl_root), batch.mask);
  }
}

// Before 0.9 a masked token ended what comes back from behind it.
TEST(CpuAdvantagesOfTrainers, OlderVerlsReinforcePlusPlusResets) {
  const Batch batch;
  const Matrix rewards = batch.token_rewards(batch.scores);
  for (const double gamma : {1.0, 0.9}) {
    const Matrix sums = running_sums(rewards, gamma, [&](size_t b, size_t t) { return batch.mask[b][t]; });
    expect_same(whiten(discounted(rewards, batch.mask, gamma, ReturnsRule::reset), batch.mask),
                masked_normal(sums, batch.mask, verl_root), batch.mask);
  }
}

TEST(CpuAdvantagesOfTrainers, VerlReinforcePlusPlusBaselineIsTheGroupMeanThenWhiten) {
  const Batch batch;
  const Matrix tokens = batch.broadcast(group_advantages(batch.scores, Baseline::mean, Singleton::raw));
  expect_same(whiten(tokens, batch.mask),
              masked_normal(batch.broadcast(minus_group_mean(batch.scores)), batch.mask, verl_root), batch.mask);
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
  Matrix want = rewards;
  for (size_t b = 0; b < kB; ++b) {
    double next = 0, last = 0;
    for (size_t t = kL; t-- > 0;) {
      const double m = batch.mask[b][t];
      const double now = rewards[b][t] + 0.99 * next - batch.values[b][t] + 0.99 * 0.95 * last;
      next = batch.values[b][t] * m + (1 - m) * next;
      last = now * m + (1 - m) * last;
      want[b][t] = last;
    }
  }
  expect_same(whiten(gae(rewards, batch, 0.99, 0.95, Rule::carry), batch.mask),
              masked_normal(want, batch.mask, verl_root), batch.mask);
}

TEST(CpuAdvantagesOfTrainers, OpenRlhfGaeIsGaeThenWhiten) {
  const Batch batch;
  const Matrix rewards = batch.token_rewards(batch.scores);
  Matrix want = rewards;
  for (size_t b = 0; b < kB; ++b) {
    double next = 0, last = 0;
    for (size_t t = kL; t-- > 0;) {
      const double value = batch.values[b][t] * batch.mask[b][t];
      last = rewards[b][t] * batch.mask[b][t] + next - value + 0.95 * last;
      next = value;
      want[b][t] = last;
    }
  }
  expect_same(whiten(gae(rewards, batch, 1, 0.95, Rule::zero), batch.mask, openrlhf_whiten()),
              masked_normal(want, batch.mask, openrlhf_root), batch.mask);
}

TEST(CpuAdvantagesOfTrainers, OpenRlhfReinforceBaselineIsTheGroupMeanThenReturnsThenWhiten) {
  const Batch batch;
  const Matrix rewards = batch.token_rewards(group_advantages(batch.scores, Baseline::mean));
  const Matrix want =
      running_sums(batch.token_rewards(minus_group_mean(batch.scores)), 1, [](size_t, size_t) { return 1.0; });
  expect_same(whiten(discounted(rewards, batch.mask, 1, ReturnsRule::zero), batch.mask, openrlhf_whiten()),
              masked_normal(want, batch.mask, openrlhf_root), batch.mask);
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
              running_sums(batch.token_rewards(shaped), 1, [](size_t, size_t) { return 1.0; }), batch.mask);
}

TEST(CpuAdvantagesOfTrainers, SlimeReinforcePlusPlusIsReturns) {
  const Batch batch;
  const Matrix rewards = batch.token_rewards(batch.scores);
  expect_same(discounted(rewards, batch.mask, 0.9, ReturnsRule::zero),
              running_sums(rewards, 0.9, [](size_t, size_t) { return 1.0; }), batch.mask);
}

TEST(CpuAdvantagesOfTrainers, TrlRlooWithNormalizedAdvantagesIsLeaveOneOutThenWhitenOverSamples) {
  const Batch batch;
  ops::whiten::Params params;
  params.eps_mode = ops::whiten::EpsMode::deviation;
  params.eps = 1e-4;
  const List rloo = group_advantages(batch.scores, Baseline::rloo);
  const Tensor got = whitened(numbers(rloo, {kB, 1}), {}, params);
  double mean = 0, squares = 0;
  List want;
  for (const double centred : minus_group_mean(batch.scores)) want.push_back(centred * 3 / 2);
  for (const double x : want) mean += x / kB;
  for (const double x : want) squares += (x - mean) * (x - mean);
  for (int64_t b = 0; b < kB; ++b) {
    const double x = want[static_cast<size_t>(b)];
    EXPECT_NEAR(got.get(b), (x - mean) / (std::sqrt(squares / (kB - 1)) + 1e-4), 1e-12);
  }
}

}  // namespace
}  // namespace rlk::test
