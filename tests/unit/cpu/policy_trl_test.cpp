// policy_loss against the formulas that TRL publishes, each option by itself. policy_trl_defaults_test.cpp has every
// loss type with the defaults.
#include <rlk/sdk/ops/policy_loss.hpp>

#include <algorithm>
#include <cmath>

#include "unit/cpu/policy_case.hpp"

namespace rlk::test {
namespace {

using namespace ops::policy_loss;  // NOLINT(google-build-using-namespace): its enumerations

PolicyCase trl_case(uint32_t seed) {
  PolicyCase c = make_policy_case(Dtype::f64, 4, 6, seed);
  mask_some(c);
  c.rollout_logp = {};  // until a test asks for the sampler
  return c;
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
  return each(d, [&](size_t b, size_t) { return row_sum(token[b], d.mask[b]) / std::max(tokens_of(d.mask[b]), 1.0); });
}

// ((per_token_loss * mask).sum(-1) / mask.sum(-1).clamp(min=1.0)).mean()
double trl_grpo_mean(const TrainerBatch& d, const Matrix& loss) {
  return sum_of_means(loss, d.mask) / static_cast<double>(loss.size());
}

TEST(PolicyTrl, GrpoIsTheMeanOfSequenceMeansAndCountsEmptySequences) {
  PolicyCase c = trl_case(1);
  c.params.aggregation = Aggregation::seq_mean_token_mean;
  c.params.beta = 0.04;
  expect_trainer(c, [](const TrainerBatch& d) {
    return trl_grpo_mean(d, trl_surrogate(d, token_log_ratio(d), 0.2, 0.2, 0, 0.04));
  });
}

TEST(PolicyTrl, DapoDividesByItsShareOfTheGlobalTokens) {
  PolicyCase c = trl_case(4);
  c.params.clip_high = 0.28;
  c.params.denominator = 57.0 / 4;  // num_items_in_batch / num_processes
  expect_trainer(c, [](const TrainerBatch& d) {
    return sum_of(trl_surrogate(d, token_log_ratio(d), 0.2, 0.28, 0, 0), d.mask) / (57.0 / 4);
  });
}

TEST(PolicyTrl, DeltaCapsTheUnclippedTerm) {
  PolicyCase c = trl_case(5);
  c.params.delta = 1.3;
  expect_trainer(c, [](const TrainerBatch& d) {
    return sum_of(trl_surrogate(d, token_log_ratio(d), 0.2, 0.2, 1.3, 0), d.mask) / tokens_of(d.mask);
  });
}

TEST(PolicyTrl, SequenceLevelSendsTheGradientThroughTheMean) {
  PolicyCase c = trl_case(6);
  c.params.importance_ratio = ImportanceRatio::sequence;
  c.params.aggregation = Aggregation::seq_mean_token_mean;
  expect_trainer(c, [](const TrainerBatch& d) {
    return trl_grpo_mean(d, trl_surrogate(d, sequence_log_ratio(d), 0.2, 0.2, 0, 0));
  });
}

TEST(PolicyTrl, SapoOfSequencesGatesTheirRatio) {
  PolicyCase c = trl_case(41);
  c.params.kind = Kind::sapo;
  c.params.importance_ratio = ImportanceRatio::sequence;
  c.params.aggregation = Aggregation::seq_mean_token_mean;
  expect_trainer(c, [](const TrainerBatch& d) {
    const Matrix log_ratio = sequence_log_ratio(d);
    return trl_grpo_mean(d, each(d, [&](size_t b, size_t t) {
                           const double a = d.advantage[b][t], tau = a > 0 ? 1.0 : 1.05;
                           return -sigmoid(tau * (std::exp(log_ratio[b][t]) - 1)) * 4 / tau * a;
                         }));
  });
}

// RLOO's ratio is that of the whole completion: logps.sum(1) - old_logps, one advantage, the mean over completions.
TEST(PolicyTrl, RlooTakesTheRatioOfTheSum) {
  for (const bool clips : {false, true}) {
    PolicyCase c = trl_case(42);
    c.mask = Tensor(Dtype::u8, {4, 6});  // no completion is empty: of one TRL's loss is -advantage
    for (int64_t i = 0; i < 24; ++i) {
      c.mask.set_int(i, i % 6 < 3 + i / 6 ? 1 : 0);
      const double a = (i / 6) % 2 == 0 ? 0.8 : -1.2;
      c.logp.set(i, -1 - 0.01 * static_cast<double>(i % 5));
      c.old_logp.set(i, c.logp.get(i) - (clips ? 0.2 : 0.02) * (i % 3 == 0 ? a : 0.3 * a));
      c.advantages.set(i, a);
    }
    c.params.importance_ratio = ImportanceRatio::sequence_sum;
    c.params.aggregation = Aggregation::seq_mean_token_mean;
    expect_trainer(c, [](const TrainerBatch& d) {
      double loss = 0;
      for (size_t b = 0; b < d.sequences(); ++b) {
        double log_ratio = 0;
        for (size_t t = 0; t < d.tokens(); ++t) log_ratio += d.mask[b][t] != 0 ? d.lp[b][t] - d.old[b][t] : 0.0;
        const double ratio = std::exp(log_ratio), a = d.advantage[b][0];
        loss -= std::min(ratio * a, clip(ratio, 0.8, 1.2) * a);
      }
      return loss / static_cast<double>(d.sequences());
    });
    EXPECT_EQ(run_policy_loss(c).metrics[3] > 0, clips);  // clip_fraction
  }
}

// torch.nan_to_num(per_token_logps_diff, nan=0.0), and of get_off_policy_mask: vLLM had no number for the token.
TEST(PolicyTrl, ASamplersMissingLogpIsARatioOfOne) {
  for (const RolloutIs mode : {RolloutIs::token_truncate, RolloutIs::token_mask, RolloutIs::sequence_truncate,
                               RolloutIs::sequence_mask, RolloutIs::geometric_mask}) {
    for (const Opsm opsm : {Opsm::off, Opsm::rollout}) {
      PolicyCase c = make_policy_case(Dtype::f64, 4, 6, 43);
      mask_some(c);
      c.params.rollout_is = mode;
      c.params.opsm = opsm;
      c.params.opsm_threshold = 0.05;
      c.params.rollout_missing = RolloutMissing::one;
      PolicyCase filled = c;
      for (const int64_t i : {0, 7, 8}) {
        c.rollout_logp.set(i, std::nan(""));
        filled.rollout_logp.set(i, c.old_logp.get(i));
      }
      const PolicyOutputs got = run_policy_loss(c);
      EXPECT_TRUE(std::isfinite(got.loss));
      EXPECT_NEAR(golden_answer(c).loss.value[0], got.loss, 1e-13);
      if (opsm == Opsm::off) {
        EXPECT_EQ(got.loss, run_policy_loss(filled).loss);
        EXPECT_EQ(got.metrics, run_policy_loss(filled).metrics);
        EXPECT_EQ(run_policy_loss_backward(c).grad_logp.bytes(), run_policy_loss_backward(filled).grad_logp.bytes());
      } else {  // the token gives no evidence: it counts in the mean's tokens, and adds nothing
        for (const int64_t i : {0, 7, 8}) filled.rollout_logp.set(i, c.logp.get(i));
        filled.params.rollout_is = RolloutIs::none;
        c.params.rollout_is = RolloutIs::none;
        EXPECT_EQ(run_policy_loss(c).loss, run_policy_loss(filled).loss);
      }
      c.params.rollout_missing = RolloutMissing::nan;
      if (mode == RolloutIs::token_truncate && opsm == Opsm::off) {
        EXPECT_TRUE(std::isnan(run_policy_loss(c).loss));
      }
    }
  }
}

TEST(PolicyTrl, LuspoWeighsSequencesByTheirLengths) {
  PolicyCase c = trl_case(7);
  for (int64_t i = 0; i < c.advantages.size(); ++i) {  // (B,): one advantage for a sequence
    if (c.mask.get_int(i) != 0) c.advantages.set(i, i / 6 == 0 ? 0.7 : -1.1);
  }
  c.params.importance_ratio = ImportanceRatio::sequence;
  c.params.aggregation = Aggregation::seq_mean_token_sum;
  expect_trainer(c, [](const TrainerBatch& d) {  // (per_token_loss (B,1) * mask.sum(1, keepdim=True)).mean()
    const Matrix loss = trl_surrogate(d, sequence_log_ratio(d), 0.2, 0.2, 0, 0);
    double sum = 0;
    for (size_t b = 0; b < loss.size(); ++b) sum += loss[b][0] * tokens_of(d.mask[b]);
    return sum / static_cast<double>(loss.size());
  });
}

TEST(PolicyTrl, LuspoMasksItsKl) {
  PolicyCase c = trl_case(7);
  for (int64_t i = 0; i < c.advantages.size(); ++i) {
    if (c.mask.get_int(i) != 0) c.advantages.set(i, i / 6 == 0 ? 0.7 : -1.1);
  }
  c.params.importance_ratio = ImportanceRatio::sequence;
  c.params.aggregation = Aggregation::seq_mean_token_sum;
  c.params.beta = 0.3;
  expect_trainer(c, [](const TrainerBatch& d) {  // (per_token_loss (B,T) * mask).sum(-1).mean()
    const Matrix loss = trl_surrogate(d, sequence_log_ratio(d), 0.2, 0.2, 0, 0);
    const Matrix kl = each(d, [&](size_t b, size_t t) {
      const double diff = d.ref[b][t] - d.lp[b][t];
      return std::exp(diff) - diff - 1;
    });
    return (sum_of(loss, d.mask) + 0.3 * sum_of(kl, d.mask)) / static_cast<double>(loss.size());
  });
}

TEST(PolicyTrl, BiasCorrectedKlIsMultipliedByTheUnclippedRatioWithItsGradient) {
  for (const bool of_sequence : {false, true}) {
    PolicyCase c = trl_case(8);
    c.params.beta = 0.5;
    c.params.kl_bias_correction = KlBiasCorrection::on;
    c.params.importance_ratio = of_sequence ? ImportanceRatio::sequence : ImportanceRatio::token;
    expect_trainer(c, [of_sequence](const TrainerBatch& d) {
      const Matrix log_ratio = of_sequence ? sequence_log_ratio(d) : token_log_ratio(d);
      const Matrix loss = trl_surrogate(d, log_ratio, 0.2, 0.2, 0, 0);
      const Matrix kl = each(d, [&](size_t b, size_t t) {
        const double diff = d.ref[b][t] - d.lp[b][t];
        return (std::exp(diff) - diff - 1) * std::exp(log_ratio[b][t]);
      });
      return (sum_of(loss, d.mask) + 0.5 * sum_of(kl, d.mask)) / tokens_of(d.mask);
    });
  }
}

TEST(PolicyTrl, CispoBoundsAreRawAndHaveNoLowerSide) {
  PolicyCase c = trl_case(9);
  c.params.kind = Kind::cispo;
  c.params.clip_form = ClipForm::raw;
  c.params.clip_low = 0;
  c.params.clip_high = 1.5;
  expect_trainer(c, [](const TrainerBatch& d) {
    const Matrix loss = each(d, [&](size_t b, size_t t) {
      const double clamped = std::min(std::exp(d.sg[b][t] - d.old[b][t]), 1.5);  // detached
      return -clamped * d.advantage[b][t] * d.lp[b][t];
    });
    return sum_of(loss, d.mask) / tokens_of(d.mask);
  });
}

TEST(PolicyTrl, SapoGatesByTheSignOfTheAdvantage) {
  PolicyCase c = trl_case(10);
  c.params.kind = Kind::sapo;
  c.params.aggregation = Aggregation::seq_mean_token_mean;
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
  return sum_of(loss, d.mask) / tokens_of(d.mask);
}

TEST(PolicyTrl, VespoShapesTheWeightOfTheSequence) {
  PolicyCase c = trl_case(11);
  c.params.kind = Kind::vespo;
  expect_trainer(c, [](const TrainerBatch& d) { return trl_vespo(d, false); });
}

TEST(PolicyTrl, VespoTakesTheSamplersWeightsIntoPhi) {
  PolicyCase c = make_policy_case(Dtype::f64, 4, 6, 12);
  mask_some(c);
  c.params.kind = Kind::vespo;
  expect_trainer(c, [](const TrainerBatch& d) { return trl_vespo(d, true); });
}

TEST(PolicyTrl, SamplerCorrectionsOfEveryModeMultiplyThePolicyLossBeforeTheKl) {
  struct Mode {
    RolloutIs mode;
    bool of_sequence, masks;
  };
  for (const Mode mode :
       {Mode{RolloutIs::token_truncate, false, false}, Mode{RolloutIs::token_mask, false, true},
        Mode{RolloutIs::sequence_truncate, true, false}, Mode{RolloutIs::sequence_mask, true, true}}) {
    PolicyCase c = make_policy_case(Dtype::f64, 4, 6, 13);
    mask_some(c);
    c.params.rollout_is = mode.mode;
    c.params.rollout_is_max = 1.2;
    c.params.beta = 0.04;
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
      return sum_of(loss, d.mask) / tokens_of(d.mask);
    });
    EXPECT_GT(cut, 0);
  }
}

TEST(PolicyTrl, OffPolicySequencesWithNegativeAdvantageAreDroppedNotUncounted) {
  PolicyCase c = make_policy_case(Dtype::f64, 4, 6, 14);
  mask_some(c);
  c.params.rollout_is = RolloutIs::none;
  c.params.opsm = Opsm::rollout;
  c.params.opsm_threshold = 0.1;
  int dropped = 0, kept = 0;
  expect_trainer(c, [&](const TrainerBatch& d) {
    const Matrix surrogate = trl_surrogate(d, token_log_ratio(d), 0.2, 0.2, 0, 0);
    const Matrix diff = each(d, [&](size_t b, size_t t) { return d.sampled[b][t] - d.sg[b][t]; });
    const Matrix loss = each(d, [&](size_t b, size_t t) {
      const double kl = row_sum(diff[b], d.mask[b]) / std::max(tokens_of(d.mask[b]), 1.0);
      const bool keep = d.advantage[b][t] >= 0 || kl <= 0.1;
      ++(keep ? kept : dropped);
      return keep ? surrogate[b][t] : 0.0;
    });
    return sum_of(loss, d.mask) / tokens_of(d.mask);
  });
  EXPECT_GT(dropped, 0);
  EXPECT_GT(kept, 0);
}

// torch.quantile with linear interpolation.
double torch_quantile(std::vector<double> values, double q) {
  std::sort(values.begin(), values.end());
  const double place = q * static_cast<double>(values.size() - 1);
  const double below = values[static_cast<size_t>(std::floor(place))],
               above = values[static_cast<size_t>(std::ceil(place))];
  return below + (place - std::floor(place)) * (above - below);
}

// get_high_entropy_mask on one process: those tokens of the mask that are at least the quantile.
Matrix trl_entropy_mask(const TrainerBatch& d, double top) {
  std::vector<double> entropies;
  for (size_t b = 0; b < d.sequences(); ++b) {
    for (size_t t = 0; t < d.tokens(); ++t) {
      if (d.mask[b][t] != 0) entropies.push_back(d.entropy[b][t]);
    }
  }
  const double threshold = torch_quantile(entropies, 1 - top);
  return each(d, [&](size_t b, size_t t) { return d.entropy[b][t] >= threshold ? 1.0 : 0.0; });
}

TEST(PolicyTrl, TopEntropyQuantileKeepsThePolicyLossOfTheHighestEntropiesAndTheKlOfAll) {
  for (const double top : {0.0, 0.2, 0.3, 0.5, 0.7, 0.8, 0.99}) {
    SCOPED_TRACE(top);
    PolicyCase c = make_policy_case(Dtype::f64, 4, 6, 17);
    mask_some(c);
    c.entropy.set(1, c.entropy.get(0));  // equal ones stay or go together
    c.params.top_entropy_quantile = top;
    c.params.beta = 0.04;
    double kept = 0;
    expect_trainer(c, [&](const TrainerBatch& d) {
      const Matrix entropy_mask = trl_entropy_mask(d, top);
      kept = sum_of(entropy_mask, d.mask);
      const Matrix surrogate = trl_surrogate(d, token_log_ratio(d), 0.2, 0.2, 0, 0);
      const Matrix loss = each(d, [&](size_t b, size_t t) {
        const double w = std::min(std::exp(d.old[b][t] - d.sampled[b][t]), 3.0), kl_diff = d.ref[b][t] - d.lp[b][t];
        return surrogate[b][t] * entropy_mask[b][t] * w + 0.04 * (std::exp(kl_diff) - kl_diff - 1);
      });
      return sum_of(loss, d.mask) / tokens_of(d.mask);
    });
    EXPECT_LT(kept, 12);
    const PolicyOutputs got = run_policy_loss(c, backwards_parallel());
    EXPECT_NEAR(got.metrics[RLK_POLICY_LOSS_METRICS_SELECTED], kept / 12, 1e-15);
    // The same bound, told: as a process does whose quantile is that of all.
    const TrainerBatch d = trainer_batch(c);
    const Matrix entropy_mask = trl_entropy_mask(d, top);
    c.params.top_entropy_quantile = 1;
    c.params.least_entropy = 1e9;
    for (size_t i = 0; i < 24; ++i) {
      if (entropy_mask[i / 6][i % 6] != 0)
        c.params.least_entropy = std::min(c.params.least_entropy, d.entropy[i / 6][i % 6]);
    }
    EXPECT_EQ(run_policy_loss(c, backwards_parallel()).loss, got.loss);
  }
}

TEST(PolicyTrl, QuantileFallsOnATokenAlthoughItsShareIsRounded) {
  PolicyCase c = make_policy_case(Dtype::f64, 1, 11, 21);
  c.entropy.fill([](int64_t i) { return 0.1 * static_cast<double>(i * 7 % 11); });
  c.params.top_entropy_quantile = 0.7;
  ASSERT_GT((1 - 0.7) * 10, 3);  // of 11 tokens in order, the one at place 3 is the quantile and stays
  EXPECT_DOUBLE_EQ(run_policy_loss(c, backwards_parallel()).metrics[RLK_POLICY_LOSS_METRICS_SELECTED], 8.0 / 11);
  EXPECT_EQ(golden_answer(c).metrics.value[RLK_POLICY_LOSS_METRICS_SELECTED], 8.0 / 11);
}

TEST(PolicyTrl, EntropyBonusIsTheMeanOverItsOwnTokens) {
  struct Form {
    bool dapo;
    double top;
  };
  for (const Form form : {Form{false, 1}, Form{false, 0.4}, Form{true, 1}, Form{true, 0.4}}) {
    PolicyCase c = trl_case(18);
    c.params.aggregation = form.dapo ? Aggregation::token_mean : Aggregation::seq_mean_token_mean;
    c.params.denominator = form.dapo ? 57.0 / 4 : 0;
    c.params.entropy_coefficient = 0.3;
    c.params.entropy_aggregation = form.dapo ? EntropyAggregation::as_loss : EntropyAggregation::token_mean;
    c.params.top_entropy_quantile = form.top;
    const auto published = [&](const TrainerBatch& d, const Matrix& effective) {
      const Matrix surrogate = trl_surrogate(d, token_log_ratio(d), 0.2, 0.2, 0, 0);
      const Matrix loss = each(d, [&](size_t b, size_t t) { return surrogate[b][t] * effective[b][t]; });
      const Matrix entropy = each(d, [&](size_t b, size_t t) { return d.entropy[b][t] * effective[b][t]; });
      if (form.dapo) return (sum_of(loss, d.mask) - 0.3 * sum_of(entropy, d.mask)) / (57.0 / 4);
      return trl_grpo_mean(d, loss) - 0.3 * sum_of(entropy, d.mask) / std::max(sum_of(effective, d.mask), 1.0);
    };
    expect_trainer(c, [&](const TrainerBatch& d) { return published(d, trl_entropy_mask(d, form.top)); });

    const TrainerBatch d = trainer_batch(c);
    const Matrix effective = trl_entropy_mask(d, form.top);
    PolicyCase packed = packed_of(c);
    for (PolicyCase* layout : {&c, &packed}) {
      const Tensor gradient = run_policy_loss_backward(*layout, backwards_parallel()).grad_entropy;
      for (size_t i = 0; i < 24; ++i) {
        TrainerBatch above = d, below = d;
        above.entropy[i / 6][i % 6] += 1e-3;
        below.entropy[i / 6][i % 6] -= 1e-3;
        const bool masked = d.mask[i / 6][i % 6] == 0;
        const double slope = masked ? 0.0 : (published(above, effective) - published(below, effective)) / 2e-3;
        EXPECT_NEAR(gradient.get(static_cast<int64_t>(i)), slope, 1e-12) << i;
      }
    }
  }
}

TEST(PolicyTrl, OwnMeanOfEntropiesIsNoPartOfPerToken) {
  PolicyCase c = trl_case(19);
  const PolicyOutputs plain = run_policy_loss(c, backwards_parallel());
  c.params.entropy_coefficient = 0.5;
  c.params.entropy_aggregation = EntropyAggregation::token_mean;
  c.params.entropy_denominator = 40;
  c.grad_per_token = random_tensor(Dtype::f64, {4, 6}, 1.0, 3);
  const PolicyOutputs got = run_policy_loss(c, backwards_parallel());
  EXPECT_EQ(got.per_token.bytes(), plain.per_token.bytes());
  EXPECT_NEAR(got.loss, plain.loss - 0.5 * 12 * got.metrics[RLK_POLICY_LOSS_METRICS_ENTROPY] / 40, 1e-15);
  c.grad_loss = 3;
  EXPECT_NEAR(run_policy_loss_backward(c, backwards_parallel()).grad_entropy.get(0), -3 * 0.5 / 40, 1e-16);
}

TEST(PolicyTrl, OneNanEntropySelectsNoTokenAsInTorchQuantile) {
  PolicyCase c = trl_case(20);
  c.params.top_entropy_quantile = 0.5;
  EXPECT_GT(run_policy_loss(c, backwards_parallel()).metrics[RLK_POLICY_LOSS_METRICS_SELECTED], 0);
  c.entropy.set(0, std::nan(""));
  const PolicyOutputs got = run_policy_loss(c, backwards_parallel());
  EXPECT_EQ(got.metrics[RLK_POLICY_LOSS_METRICS_SELECTED], 0);
  EXPECT_EQ(got.loss, 0);
  EXPECT_EQ(golden_answer(c).loss.value[0], 0);
  c.mask.set_int(0, 0);  // what is masked is never read
  EXPECT_GT(run_policy_loss(c, backwards_parallel()).metrics[RLK_POLICY_LOSS_METRICS_SELECTED], 0);
}

TEST(PolicyTrl, WithoutOldLogpTheRatioIsOneAndKeepsItsGradient) {
  PolicyCase c = trl_case(15);
  c.old_logp = {};
  expect_trainer(c, [](const TrainerBatch& d) {
    TrainerBatch own = d;
    own.old = d.sg;  // per_token_logps.detach()
    return sum_of(trl_surrogate(own, token_log_ratio(own), 0.2, 0.2, 0, 0), d.mask) / tokens_of(d.mask);
  });
}

}  // namespace
}  // namespace rlk::test
