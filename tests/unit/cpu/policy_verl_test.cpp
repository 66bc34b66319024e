// policy_loss against the formulas that verl publishes: its KL, its entropy bonus and its rejections, and each mode
// with numbers at which its options matter. policy_verl_modes_test.cpp has every mode with the defaults.
#include <rlk/sdk/ops/policy_loss.hpp>

#include <cmath>
#include <string>

#include "unit/cpu/policy_case.hpp"

namespace rlk::test {
namespace {

using namespace ops::policy_loss;  // NOLINT(google-build-using-namespace): its enumerations

PolicyCase verl_case(uint32_t seed, bool sampler = false) {
  PolicyCase c = make_policy_case(Dtype::f64, 4, 6, seed);
  mask_some(c);
  if (!sampler) c.rollout_logp = {};
  return c;
}

double masked_mean(const TrainerBatch& d, const Matrix& values) {
  return sum_of(values, d.mask) / tokens_of(d.mask);
}
// agg_loss seq-mean-token-mean: sequences without a token are left out.
double seq_mean_token_mean(const TrainerBatch& d, const Matrix& values) {
  return sum_of_means(values, d.mask) / nonempty_of(d.mask);
}

// compute_policy_loss_vanilla
Matrix verl_vanilla(const TrainerBatch& d, double c) {
  return each(d, [&](size_t b, size_t t) {
    const double ratio = std::exp(clip(d.lp[b][t] - d.old[b][t], -20, 20)), a = d.advantage[b][t];
    const double losses = std::max(-a * ratio, -a * clip(ratio, 0.8, 1.2));
    return a < 0 ? std::min(-a * c, losses) : losses;
  });
}

TEST(PolicyVerl, VanillaWithDualClipAndClampedLowVarKl) {
  PolicyCase c = verl_case(21);
  c.ref_logp.set(0, -40.0);  // beyond both clamps
  c.ref_logp.set(1, 5.0);
  c.logp.set(4, 30.0);  // ratio beyond the clamp, A made negative: dual clip
  c.advantages.set(4, -1.0);
  c.params.dual_clip = 3.0;
  c.params.log_ratio_clamp_low = c.params.log_ratio_clamp_high = 20;
  c.params.beta = 0.001;
  c.params.kl_diff_clamp = 20;
  c.params.kl_value_clamp = 10;
  expect_trainer(c, [](const TrainerBatch& d) {
    const Matrix kl = each(d, [&](size_t b, size_t t) {
      const double x = clip(d.ref[b][t] - d.lp[b][t], -20, 20);
      return clip(std::exp(x) - x - 1, -10, 10);
    });
    return masked_mean(d, verl_vanilla(d, 3.0)) + 0.001 * masked_mean(d, kl);
  });
}

TEST(PolicyVerl, EmptySequencesDoNotCountInSeqMeanTokenMean) {
  PolicyCase c = verl_case(22);
  c.params.dual_clip = 3.0;
  c.params.aggregation = Aggregation::seq_mean_token_mean;
  c.params.exclude_empty_sequences = ExcludeEmptySequences::on;
  expect_trainer(c, [](const TrainerBatch& d) { return seq_mean_token_mean(d, verl_vanilla(d, 3.0)); });
}

TEST(PolicyVerl, TokenSumTakesTheDataParallelFactorAsItsDenominator) {
  PolicyCase c = verl_case(24);
  c.params.dual_clip = 3.0;
  c.params.aggregation = Aggregation::token_sum;
  c.params.denominator = 1.0 / 8;  // times dp_size
  expect_trainer(c, [](const TrainerBatch& d) { return sum_of(verl_vanilla(d, 3.0), d.mask) * 8; });
}

TEST(PolicyVerl, GspoHasTheValueOfTheSequenceAndTheGradientOfTheToken) {
  PolicyCase c = verl_case(25);
  c.params.importance_ratio = ImportanceRatio::sequence_token;
  c.params.log_ratio_clamp_high = 10;
  c.params.aggregation = Aggregation::seq_mean_token_mean;
  c.params.exclude_empty_sequences = ExcludeEmptySequences::on;
  expect_trainer(c, [](const TrainerBatch& d) {
    return seq_mean_token_mean(d, each(d, [&](size_t b, size_t t) {
                                 double seq = 0;
                                 for (size_t u = 0; u < d.tokens(); ++u) {
                                   if (d.mask[b][u] != 0) seq += d.sg[b][u] - d.old[b][u];
                                 }
                                 seq /= std::max(tokens_of(d.mask[b]), 1.0);
                                 const double ratio = std::exp(std::min(d.lp[b][t] - d.sg[b][t] + seq, 10.0));
                                 const double a = d.advantage[b][t];
                                 return std::max(-a * ratio, -a * clip(ratio, 0.8, 1.2));
                               }));
  });
}

TEST(PolicyVerl, CispoBoundsAreAroundOne) {
  PolicyCase c = verl_case(26);
  c.params.kind = Kind::cispo;
  expect_trainer(c, [](const TrainerBatch& d) {
    return masked_mean(d, each(d, [&](size_t b, size_t t) {
                         const double ratio = std::exp(d.sg[b][t] - d.old[b][t]);
                         return -d.advantage[b][t] * d.lp[b][t] * clip(ratio, 0.8, 1.2);
                       }));
  });
}

// compute_policy_loss_geo_mean, with the weights of the sampler where there is one.
double verl_geo_mean(const TrainerBatch& d, bool sampler) {
  double sum = 0;
  for (size_t b = 0; b < d.sequences(); ++b) {
    double exponent = 0, advantage = 0, log_w = 0;
    const double n = std::max(tokens_of(d.mask[b]), 1e-8);
    for (size_t t = 0; t < d.tokens(); ++t) {
      if (d.mask[b][t] == 0) continue;
      const double x = d.lp[b][t] - d.old[b][t], a = d.advantage[b][t];
      const double sign = a > 0 ? 1 : a < 0 ? -1 : 0;
      exponent += sign * std::min(sign * x, sign * clip(x, -0.2, 0.3));
      advantage += a;
      if (sampler) log_w += std::log(std::min(std::exp(d.old[b][t] - d.sampled[b][t]), 2.0) + 1e-10);
    }
    sum += -advantage / n * std::exp(exponent / n) * std::exp(log_w / n);
  }
  return sum / static_cast<double>(d.sequences());
}

TEST(PolicyVerl, GeoMeanIsTheMeanOverAllSequences) {
  for (const bool sampler : {false, true}) {
    PolicyCase c = verl_case(27, sampler);
    c.params.kind = Kind::gmpo;
    c.params.clip_high = 0.3;
    c.params.rollout_is_max = 2.0;
    c.params.aggregation = Aggregation::seq_mean_token_mean;
    expect_trainer(c, [sampler](const TrainerBatch& d) { return verl_geo_mean(d, sampler); });
  }
}

TEST(PolicyVerl, GpgIsThePlainPolicyGradient) {
  PolicyCase c = verl_case(28);
  c.params.kind = Kind::gpg;
  expect_trainer(c, [](const TrainerBatch& d) {
    return masked_mean(d, each(d, [&](size_t b, size_t t) { return -d.lp[b][t] * d.advantage[b][t]; }));
  });
}

TEST(PolicyVerl, DroPenalisesTheSquaredLogRatio) {
  PolicyCase c = verl_case(29);
  c.params.kind = Kind::dro;
  c.params.dro_beta = 0.4;
  expect_trainer(c, [](const TrainerBatch& d) {
    return masked_mean(d, each(d, [&](size_t b, size_t t) {
                         const double x = d.lp[b][t] - d.old[b][t];
                         return -(d.lp[b][t] * d.advantage[b][t] - 0.5 * 0.4 * x * x);
                       }));
  });
}

TEST(PolicyVerl, DppoKeepsTokensWhoseDivergenceIsSmallOrShrinks) {
  for (const bool tv : {true, false}) {
    PolicyCase c = verl_case(30);
    c.params.kind = tv ? Kind::dppo_tv : Kind::dppo_kl;
    c.params.clip_low = 0.05;
    c.params.clip_high = 0.04;
    c.params.delta = 1.2;  // truncated ratio
    c.params.log_ratio_clamp_low = c.params.log_ratio_clamp_high = 20;
    int dropped = 0, kept = 0;
    expect_trainer(c, [&](const TrainerBatch& d) {
      return masked_mean(d, each(d, [&](size_t b, size_t t) {
                           const double lp = d.sg[b][t], lo = d.old[b][t], a = d.advantage[b][t];
                           const double p = std::exp(lp), q = std::exp(lo);
                           const double kl = q * (lo - lp) + (1 - q) * std::log((1 - q + 1e-8) / (1 - p + 1e-8));
                           bool valid = a > 0 ? p - q <= 0.04 : p - q >= -0.05;
                           if (!tv) valid = a > 0 ? kl <= 0.04 || p <= q : kl <= 0.05 || p >= q;
                           ++(valid ? kept : dropped);
                           return valid ? -a * std::min(std::exp(lp - lo), 1.2) * d.lp[b][t] : 0.0;
                         }));
    });
    EXPECT_GT(dropped, 0) << tv;
    EXPECT_GT(kept, 0) << tv;
  }
}

TEST(PolicyVerl, EntropyBonusIsAggregatedLikeTheLoss) {
  PolicyCase c = verl_case(31);
  c.params.dual_clip = 3.0;
  c.params.entropy_coefficient = 0.01;
  expect_trainer(
      c, [](const TrainerBatch& d) { return masked_mean(d, verl_vanilla(d, 3.0)) - 0.01 * masked_mean(d, d.entropy); });
  const auto gradients = run_policy_loss_backward(c, backwards_parallel());
  EXPECT_NEAR(gradients.grad_entropy.get(0), -0.01 / 12, 1e-15);
  EXPECT_EQ(gradients.grad_entropy.get(2), 0);  // masked
}

TEST(PolicyVerl, StraightThroughKlHasTheValueOfK3AndTheGradientOfK2) {
  PolicyCase c = verl_case(32);
  c.params.dual_clip = 3.0;
  c.params.beta = 0.3;
  c.params.kl_gradient = KlGradient::k2;
  expect_trainer(c, [](const TrainerBatch& d) {
    const Matrix kl = each(d, [&](size_t b, size_t t) {
      const double forward = d.ref[b][t] - d.sg[b][t];  // detached
      const double x = d.lp[b][t] - d.ref[b][t], x0 = d.sg[b][t] - d.ref[b][t];
      return 0.5 * x * x - 0.5 * x0 * x0 + std::exp(forward) - forward - 1;
    });
    return masked_mean(d, verl_vanilla(d, 3.0)) + 0.3 * masked_mean(d, kl);
  });
}

// compute_rollout_correction_weights, with the mean of rollout_is_batch_normalize.
Matrix verl_weights(const TrainerBatch& d, bool of_sequence, double threshold) {
  const Matrix log_ratio = each(d, [&](size_t b, size_t t) { return d.old[b][t] - d.sampled[b][t]; });
  Matrix weights = each(d, [&](size_t b, size_t t) {
    const double r = of_sequence ? row_sum(log_ratio[b], d.mask[b]) : log_ratio[b][t];
    return std::min(std::exp(clip(r, -20, 20)), threshold);
  });
  double mean = masked_mean(d, weights);
  if (of_sequence) {  // masked_mean per sequence, then over the sequences with a token
    double sum = 0, sequences = 0;
    for (size_t b = 0; b < d.sequences(); ++b) {
      if (tokens_of(d.mask[b]) == 0) continue;
      sum += row_sum(weights[b], d.mask[b]) / tokens_of(d.mask[b]);
      sequences += 1;
    }
    mean = sum / sequences;
  }
  for (Row& row : weights) {
    for (double& w : row) w = mean > 1e-8 ? w / mean : w;
  }
  return weights;
}

TEST(PolicyVerl, BatchNormalizedWeightsHaveMeanOneOverTokensOrSequences) {
  for (const bool of_sequence : {false, true}) {
    PolicyCase c = verl_case(36, true);
    // Lengths differ, so that the mean over sequences is not that over tokens.
    c.mask.set_int(0, 0);
    c.mask.set_int(1, 0);
    c.params.dual_clip = 3.0;
    c.params.rollout_is = of_sequence ? RolloutIs::sequence_truncate : RolloutIs::token_truncate;
    c.params.rollout_is_max = 2.0;
    c.params.rollout_log_clamp = 20;
    c.params.rollout_is_normalize = RolloutIsNormalize::on;
    expect_trainer(c, [&](const TrainerBatch& d) {
      const Matrix losses = verl_vanilla(d, 3.0), weights = verl_weights(d, of_sequence, 2.0);
      return masked_mean(d, each(d, [&](size_t b, size_t t) { return losses[b][t] * weights[b][t]; }));
    });
    const double loss = run_policy_loss(c, backwards_parallel()).loss;
    c.params.rollout_is_normalize = RolloutIsNormalize::off;
    const PolicyOutputs plain = run_policy_loss(c, backwards_parallel());
    const double mean = plain.metrics[RLK_POLICY_LOSS_METRICS_ROLLOUT_IS_MEAN];
    EXPECT_GT(std::fabs(mean - 1), 0.01);
    EXPECT_NEAR(plain.loss / mean, loss, 1e-14);
    // The same mean, told.
    c.params.rollout_is_normalize = RolloutIsNormalize::on;
    c.params.rollout_is_mean = mean;
    EXPECT_NEAR(run_policy_loss(c, backwards_parallel()).loss, loss, 1e-15);
  }
}

TEST(PolicyVerl, WeightsAreAveragedBeforeRejectionAndNotDividedByNothing) {
  PolicyCase c = verl_case(37, true);
  const double mean = run_policy_loss(c, backwards_parallel()).metrics[RLK_POLICY_LOSS_METRICS_ROLLOUT_IS_MEAN];
  c.params.reject_token_k1_high = 1.1;
  const PolicyOutputs plain = run_policy_loss(c, backwards_parallel());
  EXPECT_GT(plain.metrics[RLK_POLICY_LOSS_METRICS_REJECTED], 0);
  EXPECT_EQ(plain.metrics[RLK_POLICY_LOSS_METRICS_ROLLOUT_IS_MEAN], mean);
  c.params.rollout_is_normalize = RolloutIsNormalize::on;
  EXPECT_NEAR(run_policy_loss(c, backwards_parallel()).loss, plain.loss / mean, 1e-15);
  c.params.rollout_is = RolloutIs::token_mask;
  c.params.rollout_is_min = 2.9;  // no weight is inside
  c.params.rollout_is_max = 2.95;
  const PolicyOutputs nothing = run_policy_loss(c, backwards_parallel());
  EXPECT_EQ(nothing.metrics[RLK_POLICY_LOSS_METRICS_ROLLOUT_IS_MEAN], 0);
  EXPECT_EQ(nothing.loss, 0);
}

// compute_rollout_rejection_mask: every listed option must pass. k1 has bounds of the ratio, the others an upper one.
struct RejectionOption {
  const char* name;
  double low, high;
};

double divergence(char kind, double r) {
  return kind == '1' ? -r : kind == '2' ? 0.5 * r * r : std::exp(r) - 1 - r;
}

TrainerBatch rejected_by_verl(const TrainerBatch& d, const std::vector<RejectionOption>& options) {
  TrainerBatch filtered = d;
  for (const RejectionOption& option : options) {
    const std::string name = option.name;
    const char kind = name.back();
    for (size_t b = 0; b < d.sequences(); ++b) {
      Row own(d.tokens(), 0.0);
      double max = -kInfinity;
      for (size_t t = 0; t < own.size(); ++t) {
        if (d.mask[b][t] == 0) continue;
        own[t] = divergence(kind, clip(d.old[b][t] - d.sampled[b][t], -0.8, 0.8));
        max = std::max(max, own[t]);
      }
      const double sum = row_sum(own, d.mask[b]), n = tokens_of(d.mask[b]);
      for (size_t t = 0; t < own.size(); ++t) {
        const double k = name.rfind("token", 0) == 0      ? own[t]
                         : name.rfind("seq_sum", 0) == 0  ? sum
                         : name.rfind("seq_mean", 0) == 0 ? sum / n
                                                          : max;
        const bool keep = kind == '1' ? k >= std::log(option.low) && k <= std::log(option.high) : k <= option.high;
        if (!keep) filtered.mask[b][t] = 0;
      }
    }
  }
  return filtered;
}

void set_option(const RejectionOption& option, Params& params) {
  struct Bounds {
    std::string name;
    double Params::*high;
    double Params::*low = nullptr;
  };
  const Bounds all[] = {
      {"token_k1", &Params::reject_token_k1_high, &Params::reject_token_k1_low},
      {"token_k2", &Params::reject_token_k2_high},
      {"token_k3", &Params::reject_token_k3_high},
      {"seq_sum_k1", &Params::reject_sequence_sum_k1_high, &Params::reject_sequence_sum_k1_low},
      {"seq_sum_k2", &Params::reject_sequence_sum_k2_high},
      {"seq_sum_k3", &Params::reject_sequence_sum_k3_high},
      {"seq_mean_k1", &Params::reject_sequence_mean_k1_high, &Params::reject_sequence_mean_k1_low},
      {"seq_mean_k2", &Params::reject_sequence_mean_k2_high},
      {"seq_mean_k3", &Params::reject_sequence_mean_k3_high},
      {"seq_max_k2", &Params::reject_sequence_max_k2_high},
      {"seq_max_k3", &Params::reject_sequence_max_k3_high},
  };
  const auto* own =
      std::find_if(std::begin(all), std::end(all), [&](const Bounds& b) { return b.name == option.name; });
  ASSERT_NE(own, std::end(all)) << option.name;
  params.*own->high = option.high;
  if (own->low != nullptr) params.*own->low = option.low;
}

// Rejects what verl rejects, in both layouts, and gives it no gradient.
void expect_rejection(const std::vector<RejectionOption>& options) {
  PolicyCase c = make_policy_case(Dtype::f64, 8, 6, 33);
  mask_some(c);
  c.params.rollout_is = RolloutIs::none;
  c.params.rollout_log_clamp = 0.8;
  c.params.dual_clip = 3.0;
  for (const RejectionOption& option : options) set_option(option, c.params);
  const TrainerBatch before = trainer_batch(c), filtered = rejected_by_verl(before, options);
  const double unmasked = tokens_of(before.mask), kept = tokens_of(filtered.mask);
  EXPECT_GT(kept, 0);
  // Each of them matters: without it more would stay.
  for (size_t i = 0; i < options.size(); ++i) {
    std::vector<RejectionOption> others = options;
    others.erase(others.begin() + static_cast<std::ptrdiff_t>(i));
    EXPECT_LT(kept, tokens_of(rejected_by_verl(before, others).mask)) << options[i].name;
  }
  const double expected = masked_mean(filtered, verl_vanilla(filtered, 3.0));
  PolicyCase packed = packed_of(c);
  for (PolicyCase* form : {&c, &packed}) {
    const PolicyOutputs got = run_policy_loss(*form, backwards_parallel());
    EXPECT_NEAR(got.loss, expected, 1e-12);
    EXPECT_NEAR(got.metrics[RLK_POLICY_LOSS_METRICS_REJECTED], (unmasked - kept) / unmasked, 1e-15);
    const auto gradients = run_policy_loss_backward(*form, backwards_parallel());
    for (size_t i = 0; i < 48; ++i) {
      if (filtered.mask[i / 6][i % 6] == 0) {
        EXPECT_EQ(gradients.grad_logp.get(static_cast<int64_t>(i)), 0);
      }
    }
  }
}

TEST(PolicyVerl, RejectedTokensAndSequencesLeaveTheMaskAndTheDenominator) {
  for (const RejectionOption& option :
       {RejectionOption{"token_k1", 0.7, 1.3}, RejectionOption{"token_k2", 0, 0.05},
        RejectionOption{"token_k3", 0, 0.05}, RejectionOption{"seq_sum_k1", 0.7, 1.6},
        RejectionOption{"seq_sum_k2", 0, 0.6}, RejectionOption{"seq_sum_k3", 0, 0.6},
        RejectionOption{"seq_mean_k1", 0.9, 1.2}, RejectionOption{"seq_mean_k2", 0, 0.15},
        RejectionOption{"seq_mean_k3", 0, 0.15}, RejectionOption{"seq_max_k2", 0, 0.25},
        RejectionOption{"seq_max_k3", 0, 0.25}}) {
    SCOPED_TRACE(option.name);
    expect_rejection({option});
  }
}

TEST(PolicyVerl, EveryOneOfSeveralRejectionsMustBePassed) {
  SCOPED_TRACE("several");
  expect_rejection({{"token_k1", 0.7, 1.9}, {"seq_mean_k3", 0, 0.15}});
  expect_rejection({{"token_k2", 0, 0.05}, {"seq_sum_k1", 0.3, 3.0}});
  expect_rejection({{"token_k3", 0, 0.2}, {"seq_max_k2", 0, 0.31}, {"seq_mean_k1", 0.7, 1.4}});
}

TEST(PolicyVerl, ANanLogRatioToTheSamplerPassesNoTest) {
  for (const char* name : {"token_k1", "token_k2", "token_k3", "seq_sum_k1", "seq_sum_k2", "seq_sum_k3", "seq_mean_k1",
                           "seq_mean_k2", "seq_mean_k3", "seq_max_k2", "seq_max_k3"}) {
    for (const int64_t at : {0, 1, 2}) {  // the first, one amid others and the last
      SCOPED_TRACE(name + std::string(", token ") + std::to_string(at));
      PolicyCase c = make_policy_case(Dtype::f64, 2, 3, 39);
      c.params.rollout_is = RolloutIs::none;
      set_option({name, 1e-30, 1e30}, c.params);
      c.rollout_logp.set(at, std::nan(""));
      const double active = std::string(name).rfind("token", 0) == 0 ? 5 : 3;
      EXPECT_EQ(run_policy_loss(c, backwards_parallel()).metrics[RLK_POLICY_LOSS_METRICS_ACTIVE_TOKENS], active);
      EXPECT_EQ(golden_answer(c).metrics.value[RLK_POLICY_LOSS_METRICS_ACTIVE_TOKENS], active);
    }
  }
}

// compute_policy_loss_bypass_mode with ppo_clip: the sampler is the old policy of the ratio, and what is rejected is
// decided by the current policy over the sampler.
TEST(PolicyVerl, BypassPpoClipRejectsByTheCurrentPolicyOverTheSampler) {
  const std::vector<RejectionOption> rejections = {{"token_k1", 0.7, 1.9}, {"seq_mean_k3", 0, 0.15}};
  PolicyCase c = make_policy_case(Dtype::f64, 8, 6, 33);
  mask_some(c);
  c.old_logp = c.rollout_logp;
  c.params.dual_clip = 3.0;
  c.params.log_ratio_clamp_low = c.params.log_ratio_clamp_high = 20;
  c.params.rollout_is = RolloutIs::none;
  c.params.rollout_log_clamp = 0.8;
  for (const RejectionOption& rejection : rejections) set_option(rejection, c.params);
  EXPECT_EQ(run_policy_loss(c, backwards_parallel()).metrics[RLK_POLICY_LOSS_METRICS_REJECTED], 0);
  c.params.rollout_ratio = RolloutRatio::current;
  expect_trainer(c, [&](const TrainerBatch& d) {
    TrainerBatch current = d, kept = d;
    current.old = d.sg;
    kept.mask = rejected_by_verl(current, rejections).mask;
    EXPECT_LT(tokens_of(kept.mask), tokens_of(d.mask));
    EXPECT_GT(tokens_of(kept.mask), 0);
    return masked_mean(kept, verl_vanilla(kept, 3.0));
  });
}

TEST(PolicyVerl, OneSideOfK1CanBeOff) {
  PolicyCase c = make_policy_case(Dtype::f64, 8, 6, 33);
  const auto active = [&](double low, double high) {
    c.params.reject_token_k1_low = low;
    c.params.reject_token_k1_high = high;
    return run_policy_loss(c, backwards_parallel()).metrics[RLK_POLICY_LOSS_METRICS_ACTIVE_TOKENS];
  };
  const double below = active(0.7, 0), above = active(0, 1.3);
  EXPECT_EQ(active(0, 0), 48);
  EXPECT_LT(below, 48);
  EXPECT_LT(above, 48);
  EXPECT_EQ(active(0.7, 1.3), below + above - 48);
}

}  // namespace
}  // namespace rlk::test
