// policy_loss against the loss that Liger-Kernel publishes (LigerFusedLinearGRPOLoss): every loss type with its
// defaults, and each of its options at every loss type that takes it.
#include <rlk/sdk/ops/policy_loss.hpp>

#include <cmath>
#include <optional>
#include <string>
#include <string_view>

#include "unit/cpu/policy_case.hpp"

namespace rlk::test {
namespace {

using namespace ops::policy_loss;  // NOLINT(google-build-using-namespace): its enumerations

// The arguments of the loss, with Liger's defaults.
struct Liger {
  std::string_view loss_type = "dapo";
  bool sequence_level = false;  // importance_sampling_level
  double beta = 0.04;
  double epsilon_low = 0.2, epsilon_high = 0.2;
  std::optional<double> delta;
  bool use_bias_correction_kl = false;
  double sapo_temperature_pos = 1.0, sapo_temperature_neg = 1.05;
  double vespo_k_pos = 2.0, vespo_lambda_pos = 3.0, vespo_k_neg = 3.0, vespo_lambda_neg = 2.0;
  double max_completion_length = 256;
  std::optional<double> num_items_in_batch;
  double world_size = 1;
  Matrix vllm_is_ratio;  // empty, [B][1] or [B][T]
};

// log_importance_weights: of the token, or the masked mean of its sequence.
double log_weight(const TrainerBatch& d, const Liger& o, size_t b, size_t t) {
  if (!o.sequence_level) return d.lp[b][t] - d.old[b][t];
  double sum = 0;
  for (size_t u = 0; u < d.tokens(); ++u) sum += d.mask[b][u] != 0 ? d.lp[b][u] - d.old[b][u] : 0.0;
  return sum / std::max(tokens_of(d.mask[b]), 1.0);
}

// get_gamma_weights; the sampler's ratio has one column or one for every token.
double gamma_weight(const TrainerBatch& d, const Liger& o, size_t b) {
  double log_w = 0;
  for (size_t u = 0; u < d.tokens(); ++u) {
    log_w += d.mask[b][u] != 0 ? clip(d.sg[b][u] - d.old[b][u], -20, 20) : 0.0;
  }
  if (!o.vllm_is_ratio.empty()) {
    for (const double w : o.vllm_is_ratio[b]) log_w += clip(std::log(w), std::log(1e-8), 20);
  }
  log_w = clip(log_w, std::log(1e-8), 20);
  const bool positive = d.advantage[b][0] >= 0;
  const double k = positive ? o.vespo_k_pos : o.vespo_k_neg;
  const double lambda = std::max(positive ? o.vespo_lambda_pos : o.vespo_lambda_neg, 1e-4);
  const double phi = std::exp(lambda + k * log_w - lambda * std::exp(log_w));
  return std::isfinite(phi) ? phi : 0.0;
}

double policy_term(const TrainerBatch& d, const Liger& o, size_t b, size_t t) {
  const double a = d.advantage[b][0];
  const double coef = std::exp(log_weight(d, o, b, t));
  if (o.loss_type == "cispo") {
    return -std::min(std::exp(d.sg[b][t] - d.old[b][t]), o.epsilon_high) * a * d.lp[b][t];  // detached
  }
  if (o.loss_type == "sapo") {
    const double tau = a > 0 ? o.sapo_temperature_pos : o.sapo_temperature_neg;
    return -a * sigmoid(tau * (coef - 1)) * 4 / tau;
  }
  if (o.loss_type == "vespo") return -gamma_weight(d, o, b) * a * d.lp[b][t];
  const double capped = o.delta ? std::min(coef, *o.delta) : coef;
  return -std::min(capped * a, clip(coef, 1 - o.epsilon_low, 1 + o.epsilon_high) * a);
}

double kl_term(const TrainerBatch& d, const Liger& o, size_t b, size_t t) {
  const double x = d.ref[b][t] - d.lp[b][t];
  return (std::exp(x) - x - 1) * (o.use_bias_correction_kl ? std::exp(log_weight(d, o, b, t)) : 1.0);
}

// _compute_dapo_normalizer
double dapo_normalizer(const TrainerBatch& d, const Liger& o) {
  return std::max(o.num_items_in_batch.value_or(tokens_of(d.mask)) / o.world_size, 1.0);
}

double liger_loss(const TrainerBatch& d, const Liger& o) {
  const Matrix loss = each(d, [&](size_t b, size_t t) {
    double own = policy_term(d, o, b, t);
    if (!o.vllm_is_ratio.empty() && o.loss_type != "vespo") {
      own *= o.vllm_is_ratio[b].size() == 1 ? o.vllm_is_ratio[b][0] : o.vllm_is_ratio[b][t];
    }
    return own + (o.beta != 0 ? o.beta * kl_term(d, o, b, t) : 0.0);
  });
  const auto batch = static_cast<double>(d.sequences());
  double sum = 0;
  if (o.loss_type == "grpo" || o.loss_type == "sapo") {
    return sum_of_means(loss, d.mask) / batch;
  }
  if (o.loss_type == "bnpo") return sum_of(loss, d.mask) / std::max(tokens_of(d.mask), 1.0);
  if (o.loss_type == "dr_grpo") return sum_of(loss, d.mask) / (batch * o.max_completion_length);
  if (o.loss_type != "luspo") return sum_of(loss, d.mask) / dapo_normalizer(d, o);
  // (per_token_loss * mask.sum(1, keepdim=True)).mean(): per_token_loss is [B, 1] where nothing of the token is in it.
  const bool one_column =
      o.sequence_level && o.beta == 0 && (o.vllm_is_ratio.empty() || o.vllm_is_ratio[0].size() == 1);
  const size_t columns = one_column ? 1 : d.tokens();
  for (size_t b = 0; b < d.sequences(); ++b) {
    for (size_t t = 0; t < columns; ++t) sum += loss[b][t] * tokens_of(d.mask[b]);
  }
  return sum / (batch * static_cast<double>(columns));
}

// ---- the same arguments as parameters of policy_loss --------------------------------------------------------------

const char* const kClippedTypes[] = {"grpo", "bnpo", "dr_grpo", "dapo"};
const char* const kMaskedTypes[] = {"grpo", "bnpo", "dr_grpo", "dapo", "cispo", "sapo", "vespo"};

PolicyCase liger_case(const Liger& o, uint32_t seed, bool masked = true) {
  PolicyCase c = make_policy_case(Dtype::f64, 4, 6, seed);
  const double advantages[] = {0.9, -1.3, 0.4, -0.2};  // one for each sequence
  for (int64_t i = 0; i < c.advantages.size(); ++i) c.advantages.set(i, advantages[i / 6]);
  if (masked) mask_some(c);
  c.rollout_logp = {};
  Params& p = c.params;
  p.clip_low = o.epsilon_low;
  p.clip_high = o.epsilon_high;
  p.beta = o.beta;
  p.kl_bias_correction = o.use_bias_correction_kl ? KlBiasCorrection::on : KlBiasCorrection::off;
  p.delta = o.delta.value_or(0);
  p.importance_ratio = o.sequence_level ? ImportanceRatio::sequence : ImportanceRatio::token;
  if (o.loss_type == "grpo" || o.loss_type == "sapo") p.aggregation = Aggregation::seq_mean_token_mean;
  if (o.loss_type == "dr_grpo" || o.loss_type == "luspo") p.aggregation = Aggregation::seq_mean_token_sum;
  if (o.loss_type == "dr_grpo") p.denominator = 4 * o.max_completion_length;
  if (o.loss_type == "cispo") {
    p.kind = Kind::cispo;
    p.clip_form = ClipForm::raw;
    p.clip_low = 0;
  }
  if (o.loss_type == "sapo") p.kind = Kind::sapo;
  if (o.loss_type == "vespo") p.kind = Kind::vespo;
  p.sapo_tau_positive = o.sapo_temperature_pos;
  p.sapo_tau_negative = o.sapo_temperature_neg;
  p.vespo_k_positive = o.vespo_k_pos;
  p.vespo_lambda_positive = o.vespo_lambda_pos;
  p.vespo_k_negative = o.vespo_k_neg;
  p.vespo_lambda_negative = o.vespo_lambda_neg;
  const bool global = o.loss_type == "dapo" || o.loss_type == "cispo" || o.loss_type == "vespo";
  if (global && o.num_items_in_batch) p.denominator = std::max(*o.num_items_in_batch / o.world_size, 1.0);
  return c;
}

void expect_liger(const Liger& o, PolicyCase& c) {
  SCOPED_TRACE(std::string(o.loss_type) + (o.sequence_level ? ", sequence" : ", token"));
  expect_trainer(c, [&](const TrainerBatch& d) { return liger_loss(d, o); });
}
void expect_liger(const Liger& o, uint32_t seed, bool masked = true) {
  PolicyCase c = liger_case(o, seed, masked);
  expect_liger(o, c);
}

TEST(PolicyLiger, EveryLossTypeWithItsDefaults) {
  for (const char* type : kMaskedTypes) {
    Liger o;
    o.loss_type = type;
    expect_liger(o, 61);
  }
  // luspo is meant for the sequence level; without padding, since its mean over [B, T] counts masked tokens.
  for (const bool sequence_level : {false, true}) {
    Liger o;
    o.loss_type = "luspo";
    o.sequence_level = sequence_level;
    expect_liger(o, 62, false);
  }
}

TEST(PolicyLiger, WithoutAReferenceThereIsNoKl) {
  for (const char* type : kMaskedTypes) {
    Liger o;
    o.loss_type = type;
    o.beta = 0;
    PolicyCase c = liger_case(o, 63);
    c.ref_logp = {};
    expect_liger(o, c);
  }
}

TEST(PolicyLiger, SequenceLevelSendsItsGradientThroughTheMean) {
  for (const char* type : kClippedTypes) {
    Liger o;
    o.loss_type = type;
    o.sequence_level = true;
    expect_liger(o, 64);
  }
  Liger o;
  o.loss_type = "luspo";
  o.sequence_level = true;
  o.beta = 0;  // [B, 1]: padding is not counted
  expect_liger(o, 65);
}

TEST(PolicyLiger, CispoWithTheBoundOfItsPaper) {
  Liger o;
  o.loss_type = "cispo";
  o.epsilon_high = 1.2;
  PolicyCase c = liger_case(o, 66);
  expect_liger(o, c);
  const double above = run_policy_loss(c, backwards_parallel()).metrics[6];
  EXPECT_GT(above, 0);
  EXPECT_LT(above, 1);
}

TEST(PolicyLiger, DeltaCapsTheUnclippedTermOfTokensAndSequences) {
  for (const char* type : kClippedTypes) {
    for (const bool sequence_level : {false, true}) {
      Liger o;
      o.loss_type = type;
      o.sequence_level = sequence_level;
      o.delta = sequence_level ? 1.05 : 1.3;
      PolicyCase c = liger_case(o, 67), uncapped = c;
      expect_liger(o, c);
      uncapped.params.delta = 0;
      const cpu::ParallelFor hook = backwards_parallel();
      EXPECT_NE(run_policy_loss(c, hook).loss, run_policy_loss(uncapped, hook).loss) << type;
    }
  }
}

// Liger's Triton backward gives every token beyond delta a gradient of 0. Where delta lies inside of the clip bounds
// and the advantage is negative, the chosen term is the clipped one, and it is not constant there.
TEST(PolicyLiger, ATokenBeyondDeltaKeepsTheGradientOfTheTermThatIsChosen) {
  const double ratio = std::exp(0.14);
  PolicyCase c;
  c.logp = Tensor(Dtype::f64, {1, 1}).set(0, -0.86);
  c.old_logp = Tensor(Dtype::f64, {1, 1}).set(0, -1);
  c.advantages = Tensor(Dtype::f64, {1, 1}).set(0, -2);
  c.params.delta = 1.1;
  ASSERT_GT(ratio, 1.1);
  ASSERT_LT(ratio, 1.2);
  EXPECT_DOUBLE_EQ(run_policy_loss(c, backwards_parallel()).loss, 2 * ratio);
  EXPECT_DOUBLE_EQ(run_policy_loss_backward(c, backwards_parallel()).grad_logp.get(0), 2 * ratio);
  c.logp.set(0, -0.5);  // beyond both: the capped term is chosen, and constant
  c.params.delta = 1.3;
  EXPECT_DOUBLE_EQ(run_policy_loss(c, backwards_parallel()).loss, 2 * 1.3);
  EXPECT_EQ(run_policy_loss_backward(c, backwards_parallel()).grad_logp.get(0), 0);
}

TEST(PolicyLiger, TheBiasCorrectionOfTheKlFollowsTheLevelOfTheRatio) {
  for (const char* type : kClippedTypes) {
    for (const bool sequence_level : {false, true}) {
      Liger o;
      o.loss_type = type;
      o.sequence_level = sequence_level;
      o.use_bias_correction_kl = true;
      o.delta = 1.1;  // does not cap the ratio of the KL
      expect_liger(o, 68);
    }
  }
  for (const char* type : {"cispo", "sapo", "vespo"}) {
    Liger o;
    o.loss_type = type;
    o.use_bias_correction_kl = true;
    expect_liger(o, 69);
  }
}

TEST(PolicyLiger, TheSamplersRatioWeighsThePolicyTermAndNotTheKl) {
  for (const char* type : {"grpo", "bnpo", "dr_grpo", "dapo", "cispo", "sapo", "luspo"}) {
    for (const size_t columns : {size_t{1}, size_t{6}}) {
      Liger o;
      o.loss_type = type;
      o.vllm_is_ratio = Matrix(4, Row(columns));
      for (size_t b = 0; b < 4; ++b) {
        for (size_t t = 0; t < columns; ++t) {
          o.vllm_is_ratio[b][t] = 0.5 + 0.3 * static_cast<double>(b) + 0.07 * static_cast<double>(t);
        }
      }
      PolicyCase c = liger_case(o, 70, o.loss_type != "luspo");
      c.weight = Tensor(Dtype::f64, {4, 6}).fill([&](int64_t i) {
        const auto b = static_cast<size_t>(i / 6), t = static_cast<size_t>(i % 6);
        return o.vllm_is_ratio[b][columns == 1 ? 0 : t];
      });
      expect_liger(o, c);
    }
  }
}

TEST(PolicyLiger, VespoTakesTheSamplersRatioIntoItsWeight) {
  Liger o;
  o.loss_type = "vespo";
  PolicyCase c = make_policy_case(Dtype::f64, 4, 6, 71);
  o.vllm_is_ratio = Matrix(4, Row(6, 1.0));
  const Tensor sampled = c.rollout_logp, old_logp = c.old_logp;
  c = liger_case(o, 71);
  c.rollout_logp = sampled;
  c.params.rollout_is_max = 1e30;  // Liger is given the ratio as it is
  for (int64_t i = 0; i < 24; ++i) {
    if (c.mask.get_int(i) == 0) continue;  // the ratio of a masked token is 1
    o.vllm_is_ratio[static_cast<size_t>(i / 6)][static_cast<size_t>(i % 6)] =
        std::exp(old_logp.get(i) - sampled.get(i));
  }
  expect_liger(o, c);
}

// With weights that are flat enough to tell the clamps apart: of a token to 20, of the sum to ln 1e-8, of lambda to
// 1e-4.
TEST(PolicyLiger, VespoClampsTheLogRatiosOfTokensTheirSumAndLambda) {
  Liger o;
  o.loss_type = "vespo";
  o.beta = 0;  // the KL of such tokens would hide the rest
  o.vespo_k_pos = 0.1;
  o.vespo_lambda_pos = 0.7;
  o.vespo_k_neg = 0.07;
  o.vespo_lambda_neg = -2;
  PolicyCase c = liger_case(o, 76);
  c.logp.set(0, c.old_logp.get(0) - 25);
  c.logp.set(1, c.old_logp.get(1) + 10);
  c.logp.set(6, c.old_logp.get(6) - 19);
  c.logp.set(7, c.old_logp.get(7) - 3);
  const TrainerBatch d = trainer_batch(c);
  EXPECT_LT(sum_of(each(d, [&](size_t b, size_t t) { return b == 1 ? d.lp[b][t] - d.old[b][t] : 0.0; }), d.mask),
            -18.5);
  expect_liger(o, c);
}

TEST(PolicyLiger, SapoWithOtherTemperatures) {
  Liger o;
  o.loss_type = "sapo";
  o.sapo_temperature_pos = 0.6;
  o.sapo_temperature_neg = 1.7;
  expect_liger(o, 77);
}

TEST(PolicyLiger, NumItemsInBatchIsSharedByTheProcessesAndAtLeastOne) {
  for (const char* type : {"dapo", "cispo", "vespo"}) {
    for (const auto& [items, world] : {std::pair<double, double>{57, 4}, {2, 4}}) {
      Liger o;
      o.loss_type = type;
      o.num_items_in_batch = items;
      o.world_size = world;
      expect_liger(o, 72);
    }
  }
}

TEST(PolicyLiger, MaxCompletionLengthDividesDrGrpo) {
  for (const double longest : {1.0, 6.0, 4096.0}) {
    Liger o;
    o.loss_type = "dr_grpo";
    o.max_completion_length = longest;
    expect_liger(o, 73);
  }
}

TEST(PolicyLiger, WithoutOldLogpTheRatioIsOneAndKeepsItsGradient) {
  for (const char* type : kMaskedTypes) {
    Liger o;
    o.loss_type = type;
    PolicyCase c = liger_case(o, 74);
    c.old_logp = {};
    expect_trainer(c, [&](const TrainerBatch& d) {
      TrainerBatch own = d;
      own.old = d.sg;  // per_token_logps.detach()
      return liger_loss(own, o);
    });
  }
}

TEST(PolicyLiger, MetricsAreTheMeanKlAndTheClipFraction) {
  for (const char* type : kMaskedTypes) {
    Liger o;
    o.loss_type = type;
    o.epsilon_low = 0.1;
    if (o.loss_type == "cispo") o.epsilon_high = 1.2;
    PolicyCase c = liger_case(o, 75);
    const TrainerBatch d = trainer_batch(c);
    const bool clips = o.loss_type != "sapo" && o.loss_type != "vespo";
    double kl = 0, clipped = 0;
    for (size_t b = 0; b < d.sequences(); ++b) {
      for (size_t t = 0; t < d.tokens(); ++t) {
        if (d.mask[b][t] == 0) continue;
        const double a = d.advantage[b][0], coef = std::exp(log_weight(d, o, b, t));
        const double upper = o.loss_type == "cispo" ? o.epsilon_high : 1 + o.epsilon_high;
        const bool low = o.loss_type != "cispo" && coef < 1 - o.epsilon_low;
        kl += kl_term(d, o, b, t);
        clipped += clips && ((low && a < 0) || (coef > upper && a > 0)) ? 1 : 0;
      }
    }
    const std::vector<double> metrics = run_policy_loss(c, backwards_parallel()).metrics;
    EXPECT_NEAR(metrics[1], kl / tokens_of(d.mask), 1e-13) << type;
    EXPECT_NEAR(metrics[5] + metrics[6], clipped / tokens_of(d.mask), 1e-15) << type;
    EXPECT_EQ(clipped > 0, clips) << type;
  }
}

}  // namespace
}  // namespace rlk::test
