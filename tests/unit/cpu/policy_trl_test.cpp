// policy_loss against the formulas that TRL, Liger-Kernel and RL-Kernel publish, each with its own defaults.
#include <cmath>

#include "unit/cpu/policy_case.hpp"

namespace rlk::test {
namespace {

using cpu::PolicyAggregation;
using cpu::PolicyKind;
using cpu::RatioLevel;

PolicyCase trl_case(uint32_t seed) {
  PolicyCase c = make_policy_case(Dtype::f64, 4, 6, seed);
  mask_some(c);
  c.rollout_logp = {};  // until a test asks for the sampler
  return c;
}

double count(const Row& mask) {
  double n = 0;
  for (const double m : mask) n += m;
  return n;
}
double count(const Matrix& mask) {
  double n = 0;
  for (const Row& row : mask) n += count(row);
  return n;
}

// per_token_loss of _compute_loss: clipped surrogate on coef_1, plus the KL.
Matrix trl_surrogate(const TrainerBatch& d, const Matrix& log_ratio, double low, double high, double delta,
                     double beta) {
  return each(d, [&](size_t b, size_t t) {
    double coef1 = std::exp(log_ratio[b][t]);
    const double coef2 = clip(coef1, 1 - low, 1 + high);
    if (delta > 0) coef1 = std::min(coef1, delta);
    const double a = d.advantage[b][t];
    const double kl_diff = d.ref[b][t] - d.lp[b][t];
    return -std::min(coef1 * a, coef2 * a) + (beta != 0 ? beta * (std::exp(kl_diff) - kl_diff - 1) : 0.0);
  });
}
Matrix token_log_ratio(const TrainerBatch& d) {
  return each(d, [&](size_t b, size_t t) { return d.lp[b][t] - d.old[b][t]; });
}
// importance_sampling_level="sequence": (log_ratio * mask).sum(-1) / mask.sum(-1).clamp(min=1), unsqueezed.
Matrix sequence_log_ratio(const TrainerBatch& d) {
  const Matrix token = token_log_ratio(d);
  return each(d, [&](size_t b, size_t) { return row_sum(token[b], d.mask[b]) / std::max(count(d.mask[b]), 1.0); });
}

// ((per_token_loss * mask).sum(-1) / mask.sum(-1).clamp(min=1.0)).mean()
double trl_grpo_mean(const TrainerBatch& d, const Matrix& loss) {
  double sum = 0;
  for (size_t b = 0; b < loss.size(); ++b) sum += row_sum(loss[b], d.mask[b]) / std::max(count(d.mask[b]), 1.0);
  return sum / static_cast<double>(loss.size());
}

TEST(PolicyTrl, GrpoIsTheMeanOfSequenceMeansAndCountsEmptySequences) {
  PolicyCase c = trl_case(1);
  c.options.aggregation = PolicyAggregation::seq_mean_token_mean;
  c.options.beta = 0.04;
  expect_trainer(c, [](const TrainerBatch& d) {
    return trl_grpo_mean(d, trl_surrogate(d, token_log_ratio(d), 0.2, 0.2, 0, 0.04));
  });
}

TEST(PolicyTrl, BnpoIsTheMeanOverLocalTokens) {
  PolicyCase c = trl_case(2);
  expect_trainer(c, [](const TrainerBatch& d) {
    return sum_of(trl_surrogate(d, token_log_ratio(d), 0.2, 0.2, 0, 0), d.mask) / std::max(count(d.mask), 1.0);
  });
}

TEST(PolicyTrl, DrGrpoDividesByTheLongestCompletionsTokens) {
  PolicyCase c = trl_case(3);
  c.options.aggregation = PolicyAggregation::seq_mean_token_sum;
  c.options.denominator = 4.0 * 256;  // per_token_loss.size(0) * max_completion_length
  expect_trainer(c, [](const TrainerBatch& d) {
    return sum_of(trl_surrogate(d, token_log_ratio(d), 0.2, 0.2, 0, 0), d.mask) / (4.0 * 256);
  });
}

TEST(PolicyTrl, DapoDividesByItsShareOfTheGlobalTokens) {
  PolicyCase c = trl_case(4);
  c.options.clip_high = 0.28;
  c.options.denominator = 57.0 / 4;  // num_items_in_batch / num_processes
  expect_trainer(c, [](const TrainerBatch& d) {
    return sum_of(trl_surrogate(d, token_log_ratio(d), 0.2, 0.28, 0, 0), d.mask) / (57.0 / 4);
  });
}

TEST(PolicyTrl, DeltaCapsTheUnclippedTerm) {
  PolicyCase c = trl_case(5);
  c.options.delta = 1.3;
  expect_trainer(c, [](const TrainerBatch& d) {
    return sum_of(trl_surrogate(d, token_log_ratio(d), 0.2, 0.2, 1.3, 0), d.mask) / count(d.mask);
  });
}

TEST(PolicyTrl, SequenceLevelSendsTheGradientThroughTheMean) {
  PolicyCase c = trl_case(6);
  c.options.importance_ratio = RatioLevel::sequence;
  c.options.aggregation = PolicyAggregation::seq_mean_token_mean;
  expect_trainer(c, [](const TrainerBatch& d) {
    return trl_grpo_mean(d, trl_surrogate(d, sequence_log_ratio(d), 0.2, 0.2, 0, 0));
  });
}

TEST(PolicyTrl, LuspoWeighsSequencesByTheirLengths) {
  PolicyCase c = trl_case(7);
  for (int64_t i = 0; i < c.advantages.size(); ++i) {  // (B,): one advantage for a sequence
    if (c.mask.get_int(i) != 0) c.advantages.set(i, i / 6 == 0 ? 0.7 : -1.1);
  }
  c.options.importance_ratio = RatioLevel::sequence;
  c.options.aggregation = PolicyAggregation::seq_mean_token_sum;
  expect_trainer(c, [](const TrainerBatch& d) {  // (per_token_loss (B,1) * mask.sum(1, keepdim=True)).mean()
    const Matrix loss = trl_surrogate(d, sequence_log_ratio(d), 0.2, 0.2, 0, 0);
    double sum = 0;
    for (size_t b = 0; b < loss.size(); ++b) sum += loss[b][0] * count(d.mask[b]);
    return sum / static_cast<double>(loss.size());
  });
}

TEST(PolicyTrl, BiasCorrectedKlIsMultipliedByTheUnclippedRatioWithItsGradient) {
  for (const bool of_sequence : {false, true}) {
    PolicyCase c = trl_case(8);
    c.options.beta = 0.5;
    c.options.kl_bias_correction = true;
    c.options.importance_ratio = of_sequence ? RatioLevel::sequence : RatioLevel::token;
    expect_trainer(c, [of_sequence](const TrainerBatch& d) {
      const Matrix log_ratio = of_sequence ? sequence_log_ratio(d) : token_log_ratio(d);
      const Matrix loss = trl_surrogate(d, log_ratio, 0.2, 0.2, 0, 0);
      const Matrix kl = each(d, [&](size_t b, size_t t) {
        const double diff = d.ref[b][t] - d.lp[b][t];
        return (std::exp(diff) - diff - 1) * std::exp(log_ratio[b][t]);
      });
      return (sum_of(loss, d.mask) + 0.5 * sum_of(kl, d.mask)) / count(d.mask);
    });
  }
}

TEST(PolicyTrl, CispoBoundsAreRawAndHaveNoLowerSide) {
  PolicyCase c = trl_case(9);
  c.options.kind = PolicyKind::cispo;
  c.options.clip_form = cpu::ClipForm::raw;
  c.options.clip_low = 0;
  c.options.clip_high = 1.5;
  expect_trainer(c, [](const TrainerBatch& d) {
    const Matrix loss = each(d, [&](size_t b, size_t t) {
      const double clamped = std::min(std::exp(d.sg[b][t] - d.old[b][t]), 1.5);  // detached
      return -clamped * d.advantage[b][t] * d.lp[b][t];
    });
    return sum_of(loss, d.mask) / count(d.mask);
  });
}

TEST(PolicyTrl, SapoGatesByTheSignOfTheAdvantage) {
  PolicyCase c = trl_case(10);
  c.options.kind = PolicyKind::sapo;
  c.options.aggregation = PolicyAggregation::seq_mean_token_mean;
  expect_trainer(c, [](const TrainerBatch& d) {
    return trl_grpo_mean(d, each(d, [&](size_t b, size_t t) {
                           const double tau = d.advantage[b][t] > 0 ? 1.0 : 1.05;
                           const double coef = std::exp(d.lp[b][t] - d.old[b][t]);
                           return -sigmoid(tau * (coef - 1)) * 4 / tau * d.advantage[b][t];
                         }));
  });
}

// get_gamma_weights and the loss of vespo, with the weights of token-level truncation where there is a sampler.
double trl_vespo(const TrainerBatch& d, bool sampler) {
  const Matrix loss = each(d, [&](size_t b, size_t t) {
    const double least = std::log(1e-8);
    double seq = 0;
    for (size_t u = 0; u < d.tokens(); ++u) {
      if (d.mask[b][u] == 0) continue;
      seq += clip(d.sg[b][u] - d.old[b][u], -20, 20);
      if (sampler) seq += clip(std::log(std::min(std::exp(d.old[b][u] - d.sampled[b][u]), 3.0)), least, 20);
    }
    const double log_w = clip(seq, least, 20), a = d.advantage[b][t];
    const double k = a >= 0 ? 2 : 3, lambda = a >= 0 ? 3 : 2;
    return -std::exp(lambda + k * log_w - lambda * std::exp(log_w)) * a * d.lp[b][t];
  });
  return sum_of(loss, d.mask) / count(d.mask);
}

TEST(PolicyTrl, VespoShapesTheWeightOfTheSequence) {
  PolicyCase c = trl_case(11);
  c.options.kind = PolicyKind::vespo;
  expect_trainer(c, [](const TrainerBatch& d) { return trl_vespo(d, false); });
}

TEST(PolicyTrl, VespoTakesTheSamplersWeightsIntoPhi) {
  PolicyCase c = make_policy_case(Dtype::f64, 4, 6, 12);
  mask_some(c);
  c.options.kind = PolicyKind::vespo;
  expect_trainer(c, [](const TrainerBatch& d) { return trl_vespo(d, true); });
}

TEST(PolicyTrl, SamplerCorrectionsOfEveryModeMultiplyThePolicyLossBeforeTheKl) {
  struct Mode {
    cpu::RolloutIs mode;
    bool of_sequence, masks;
  };
  for (const Mode mode :
       {Mode{cpu::RolloutIs::token_truncate, false, false}, Mode{cpu::RolloutIs::token_mask, false, true},
        Mode{cpu::RolloutIs::sequence_truncate, true, false}, Mode{cpu::RolloutIs::sequence_mask, true, true}}) {
    PolicyCase c = make_policy_case(Dtype::f64, 4, 6, 13);
    mask_some(c);
    c.options.rollout_is = mode.mode;
    c.options.rollout_is_max = 1.2;
    c.options.beta = 0.04;
    int cut = 0;
    expect_trainer(c, [&](const TrainerBatch& d) {
      const Matrix surrogate = trl_surrogate(d, token_log_ratio(d), 0.2, 0.2, 0, 0);
      const Matrix diff = each(d, [&](size_t b, size_t t) { return d.old[b][t] - d.sampled[b][t]; });
      const Matrix loss = each(d, [&](size_t b, size_t t) {
        double w = std::exp(mode.of_sequence ? row_sum(diff[b], d.mask[b]) : diff[b][t]);
        if (w > 1.2) {
          w = mode.masks ? 0 : 1.2;
          ++cut;
        }
        const double kl_diff = d.ref[b][t] - d.lp[b][t];
        return surrogate[b][t] * w + 0.04 * (std::exp(kl_diff) - kl_diff - 1);
      });
      return sum_of(loss, d.mask) / count(d.mask);
    });
    EXPECT_GT(cut, 0);
  }
}

TEST(PolicyTrl, OffPolicySequencesWithNegativeAdvantageAreDroppedNotUncounted) {
  PolicyCase c = make_policy_case(Dtype::f64, 4, 6, 14);
  mask_some(c);
  c.options.rollout_is = cpu::RolloutIs::none;
  c.options.opsm = cpu::Opsm::rollout;
  c.options.opsm_threshold = 0.1;
  int dropped = 0, kept = 0;
  expect_trainer(c, [&](const TrainerBatch& d) {
    const Matrix surrogate = trl_surrogate(d, token_log_ratio(d), 0.2, 0.2, 0, 0);
    const Matrix diff = each(d, [&](size_t b, size_t t) { return d.sampled[b][t] - d.sg[b][t]; });
    const Matrix loss = each(d, [&](size_t b, size_t t) {
      const double kl = row_sum(diff[b], d.mask[b]) / std::max(count(d.mask[b]), 1.0);
      const bool keep = d.advantage[b][t] >= 0 || kl <= 0.1;
      ++(keep ? kept : dropped);
      return keep ? surrogate[b][t] : 0.0;
    });
    return sum_of(loss, d.mask) / count(d.mask);
  });
  EXPECT_GT(dropped, 0);
  EXPECT_GT(kept, 0);
}

TEST(PolicyTrl, WithoutOldLogpTheRatioIsOneAndKeepsItsGradient) {
  PolicyCase c = trl_case(15);
  c.old_logp = {};
  expect_trainer(c, [](const TrainerBatch& d) {
    TrainerBatch own = d;
    own.old = d.sg;  // per_token_logps.detach()
    return sum_of(trl_surrogate(own, token_log_ratio(own), 0.2, 0.2, 0, 0), d.mask) / count(d.mask);
  });
}

TEST(PolicyRlKernel, LossIsTheMaskedMeanOfTheSurrogatePlusBetaTimesThatOfK3) {
  PolicyCase c = trl_case(16);
  c.options.beta = 0.1;
  expect_trainer(c, [](const TrainerBatch& d) {
    const Matrix surrogate = each(d, [&](size_t b, size_t t) {
      const double ratio = std::exp(d.lp[b][t] - d.old[b][t]), a = d.advantage[b][t];
      return -std::min(ratio * a, clip(ratio, 0.8, 1.2) * a);
    });
    const Matrix k3 = each(d, [&](size_t b, size_t t) {
      const double x = d.ref[b][t] - d.lp[b][t];
      return std::exp(x) - x - 1;
    });
    const double n = std::max(count(d.mask), 1e-8);
    return sum_of(surrogate, d.mask) / n + 0.1 * sum_of(k3, d.mask) / n;
  });
}

}  // namespace
}  // namespace rlk::test
