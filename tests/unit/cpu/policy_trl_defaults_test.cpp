// policy_loss against every loss type of TRL's GRPOTrainer with the defaults of GRPOConfig, with and without the
// correction for a sampler, which is on by default. policy_trl_test.cpp has each option by itself.
#include <rlk/sdk/ops/policy_loss.hpp>

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>

#include "unit/cpu/policy_case.hpp"

namespace rlk::test {
namespace {

using namespace ops::policy_loss;  // NOLINT(google-build-using-namespace): its enumerations

struct Trl {
  std::string_view loss_type = "dapo";
  bool sequence_level = false;
  bool use_vllm = false;
  double epsilon = 0.2, epsilon_high = 0.2;  // epsilon_high: epsilon where there is none
  double clip_max = 3.0;                     // vllm_importance_sampling_clip_max; clip_min is none
  double max_completion_length = 256;
  double num_items_in_batch = 37, num_processes = 2;
};

double sum_in(const TrainerBatch& d, size_t b, const Matrix& x, const Matrix& y) {
  double sum = 0;
  for (size_t t = 0; t < d.tokens(); ++t) sum += d.mask[b][t] != 0 ? x[b][t] - y[b][t] : 0.0;
  return sum;
}

// vllm_importance_sampling_mode: sequence_mask, the default; vespo demands a token's mode.
double sampler_ratio(const TrainerBatch& d, const Trl& o, size_t b, size_t t) {
  if (o.loss_type == "vespo") return std::min(std::exp(d.old[b][t] - d.sampled[b][t]), o.clip_max);
  const double ratio = std::exp(sum_in(d, b, d.old, d.sampled));
  return ratio > o.clip_max ? 0.0 : ratio;
}

double gamma_weight(const TrainerBatch& d, const Trl& o, size_t b) {
  double log_w = 0;
  for (size_t t = 0; t < d.tokens(); ++t) {
    if (d.mask[b][t] == 0) continue;
    log_w += clip(d.sg[b][t] - d.old[b][t], -20, 20);
    if (o.use_vllm) log_w += clip(std::log(sampler_ratio(d, o, b, t)), std::log(1e-8), 20);
  }
  log_w = clip(log_w, std::log(1e-8), 20);
  const bool positive = d.advantage[b][0] >= 0;
  const double k = positive ? 2 : 3, lambda = positive ? 3 : 2;
  return std::exp(lambda + k * log_w - lambda * std::exp(log_w));
}

double token_loss(const TrainerBatch& d, const Trl& o, size_t b, size_t t) {
  const double a = d.advantage[b][0], lp = d.lp[b][t];
  if (o.loss_type == "vespo") return -gamma_weight(d, o, b) * a * lp;
  const double weight = o.use_vllm ? sampler_ratio(d, o, b, t) : 1.0;
  if (o.loss_type == "cispo") return -std::min(std::exp(d.sg[b][t] - d.old[b][t]), o.epsilon_high) * a * lp * weight;
  const double n = std::max(tokens_of(d.mask[b]), 1.0);
  const double coef = std::exp(o.sequence_level ? sum_in(d, b, d.lp, d.old) / n : lp - d.old[b][t]);
  if (o.loss_type == "sapo") {
    const double temperature = a > 0 ? 1.0 : 1.05;
    return -sigmoid(temperature * (coef - 1)) * 4 / temperature * a * weight;
  }
  return -std::min(coef * a, clip(coef, 1 - o.epsilon, 1 + o.epsilon_high) * a) * weight;
}

double trl_loss(const TrainerBatch& d, const Trl& o) {
  const Matrix loss = each(d, [&](size_t b, size_t t) { return token_loss(d, o, b, t); });
  const auto batch = static_cast<double>(d.sequences());
  double by_length = 0;
  for (size_t b = 0; b < d.sequences(); ++b) {
    const double n = tokens_of(d.mask[b]);
    by_length += n > 0 ? loss[b][0] * n : 0.0;  // [B, 1]
  }
  if (o.loss_type == "grpo" || o.loss_type == "sapo") return sum_of_means(loss, d.mask) / batch;
  if (o.loss_type == "bnpo") return sum_of(loss, d.mask) / std::max(tokens_of(d.mask), 1.0);
  if (o.loss_type == "dr_grpo") return sum_of(loss, d.mask) / (batch * o.max_completion_length);
  if (o.loss_type == "luspo") return by_length / batch;
  return sum_of(loss, d.mask) / (std::max(o.num_items_in_batch, 1.0) / o.num_processes);
}

PolicyCase trl_case(const Trl& o, uint32_t seed) {
  PolicyCase c = make_policy_case(Dtype::f64, 4, 6, seed);
  const double advantages[] = {0.9, -1.3, 0.4, -0.2};
  for (int64_t i = 0; i < c.advantages.size(); ++i) c.advantages.set(i, advantages[i / 6]);
  mask_some(c);
  if (!o.use_vllm) c.rollout_logp = {};
  Params& p = c.params;
  if (o.use_vllm && o.loss_type != "vespo") p.rollout_is = RolloutIs::sequence_mask;
  p.importance_ratio = o.sequence_level ? ImportanceRatio::sequence : ImportanceRatio::token;
  if (o.loss_type == "grpo" || o.loss_type == "sapo") {
    p.aggregation = Aggregation::seq_mean_token_mean;
  } else if (o.loss_type == "dr_grpo") {
    p.aggregation = Aggregation::seq_mean_token_sum;
    p.denominator = 4 * o.max_completion_length;
  } else if (o.loss_type == "luspo") {
    p.aggregation = Aggregation::seq_mean_token_sum;
  } else if (o.loss_type != "bnpo") {
    p.denominator = o.num_items_in_batch / o.num_processes;
  }
  if (o.loss_type == "sapo") p.kind = Kind::sapo;
  if (o.loss_type == "vespo") p.kind = Kind::vespo;
  if (o.loss_type == "cispo") {
    p.kind = Kind::cispo;
    p.clip_form = ClipForm::raw;
    p.clip_low = 0;
  }
  return c;
}

TEST(PolicyTrlDefaults, EveryLossTypeWithAndWithoutASampler) {
  for (const bool use_vllm : {false, true}) {
    for (const char* type : {"dapo", "grpo", "bnpo", "dr_grpo", "cispo", "sapo", "vespo", "luspo"}) {
      SCOPED_TRACE(std::string(type) + (use_vllm ? ", sampler" : ""));
      Trl o;
      o.loss_type = type;
      o.use_vllm = use_vllm;
      o.sequence_level = o.loss_type == "luspo";  // as TRL recommends; token is its default
      PolicyCase c = trl_case(o, 141);
      if (use_vllm) c.rollout_logp.set(7, c.rollout_logp.get(7) - 2.5);  // beyond 3: a token, and its sequence
      expect_trainer(c, [&](const TrainerBatch& d) { return trl_loss(d, o); });
    }
  }
}

TEST(PolicyTrlDefaults, EveryClippedLossTypeOfSequences) {
  for (const char* type : {"dapo", "grpo", "bnpo", "dr_grpo"}) {
    Trl o;
    o.loss_type = type;
    o.sequence_level = true;
    o.use_vllm = true;
    PolicyCase c = trl_case(o, 142);
    expect_trainer(c, [&](const TrainerBatch& d) { return trl_loss(d, o); });
  }
}

// The test H >= torch.quantile(H of active tokens, 1 - q).
Matrix high_entropy_mask(const TrainerBatch& d, double q) {
  std::vector<double> entropies;
  for (size_t b = 0; b < d.sequences(); ++b) {
    for (size_t t = 0; t < d.tokens(); ++t) {
      if (d.mask[b][t] != 0) entropies.push_back(d.entropy[b][t]);
    }
  }
  std::sort(entropies.begin(), entropies.end());
  const double place = (1 - q) * static_cast<double>(entropies.size() - 1), below = std::floor(place);
  const double low = entropies[static_cast<size_t>(below)], high = entropies[static_cast<size_t>(std::ceil(place))];
  const double threshold = low + (place - below) * (high - low);
  return each(d, [&](size_t b, size_t t) { return d.entropy[b][t] >= threshold ? 1.0 : 0.0; });
}

// experimental.gmpo.GMPOTrainer. Its loss of -advantage for a completion without tokens has no gradient and is left
// out.
double gmpo_loss(const TrainerBatch& d, double q, double beta) {
  const double epsilon_low = 0.4, epsilon_high = 0.4;
  const Matrix kept = q < 1 ? high_entropy_mask(d, q) : d.mask;
  double sum = 0;
  for (size_t b = 0; b < d.sequences(); ++b) {
    const double a = d.advantage[b][0], n = tokens_of(d.mask[b]);
    if (n == 0) continue;
    double log_ratios = 0, kl = 0;
    for (size_t t = 0; t < d.tokens(); ++t) {
      if (d.mask[b][t] == 0) continue;
      const double x = d.lp[b][t] - d.old[b][t], clamped = clip(x, -epsilon_low, epsilon_high);
      if (kept[b][t] != 0) log_ratios += a > 0 ? std::min(x, clamped) : std::max(x, clamped);
      kl += std::exp(d.ref[b][t] - d.lp[b][t]) - (d.ref[b][t] - d.lp[b][t]) - 1;
    }
    sum += -std::exp(log_ratios / std::max(tokens_of(kept[b]), 1.0)) * a + beta * kl / n;
  }
  return sum / static_cast<double>(d.sequences());
}

TEST(PolicyTrlDefaults, GmpoWithAndWithoutTheQuantileOfItsEntropiesInTheMean) {
  for (const double q : {1.0, 0.5, 0.2}) {  // 0.2 leaves a sequence without a token
    for (const double beta : {0.0, 0.04}) {
      SCOPED_TRACE(q);
      PolicyCase c = trl_case({}, 143);
      c.params = {};
      c.params.kind = Kind::gmpo;
      c.params.gmpo_mean = GmpoMean::selected;
      c.params.clip_low = c.params.clip_high = 0.4;
      c.params.top_entropy_quantile = q;
      c.params.beta = beta;
      c.params.aggregation = Aggregation::seq_mean_token_mean;
      if (q == 0.2) {
        for (int64_t t = 0; t < 6; ++t) c.entropy.set(t, t % 3 == 2 ? c.entropy.get(t) : 0.0);
      }
      expect_trainer(c, [&](const TrainerBatch& d) { return gmpo_loss(d, q, beta); });
    }
  }
}

// The defaults of the declaration are those that TRL, Liger-Kernel and verl share, or TRL's.
TEST(PolicyTrlDefaults, AreTheDefaultsOfTheDeclaration) {
  const rlk_policy_loss_params p = RLK_POLICY_LOSS_PARAMS_INIT;
  EXPECT_EQ(p.clip_low, 0.2);
  EXPECT_EQ(p.clip_high, 0.2);
  EXPECT_EQ(p.beta, 0);
  EXPECT_EQ(p.kl_kind, RLK_POLICY_LOSS_KL_KIND_K3);
  EXPECT_EQ(p.sapo_tau_positive, 1.0);
  EXPECT_EQ(p.sapo_tau_negative, 1.05);
  EXPECT_EQ(p.vespo_k_positive, 2.0);
  EXPECT_EQ(p.vespo_lambda_positive, 3.0);
  EXPECT_EQ(p.vespo_k_negative, 3.0);
  EXPECT_EQ(p.vespo_lambda_negative, 2.0);
  EXPECT_EQ(p.rollout_is_max, 3.0);
  EXPECT_EQ(p.rollout_is_min, 0.0);
}

}  // namespace
}  // namespace rlk::test
