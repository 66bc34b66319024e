// The loss of every token of one sequence.
#include "core/cpu/policy/policy_sequence.hpp"

#include <algorithm>
#include <cmath>

#include "core/cpu/policy/clamp_gradient.hpp"

namespace rlk::cpu {
using namespace sdk::ops::policy_loss;  // NOLINT(google-build-using-namespace): its enumerations

PolicySequence::PolicySequence(const PolicyBatch& batch, int64_t b)
    : batch_(batch),
      params_(batch.call.params),
      b_(b),
      tokens_(batch.sequences.tokens(b)),
      logp_(line_of(batch.sequences, batch.call.logp, b)),
      advantages_(line_of(batch.sequences, batch.call.advantages, b)),
      old_logp_(line_of(batch.sequences, batch.call.old_logp, b)),
      mask_(line_of(batch.sequences, batch.call.mask, b)),
      ref_logp_(line_of(batch.sequences, batch.call.ref_logp, b)),
      rollout_logp_(line_of(batch.sequences, batch.call.rollout_logp, b)),
      entropy_(line_of(batch.sequences, batch.call.entropy, b)),
      weight_(line_of(batch.sequences, batch.call.weight, b)),
      sequence_advantage_(batch.call.sequence_advantages.present() ? batch.call.sequence_advantages.get(b) : 0.0),
      corrections_(params_) {
  for (int64_t t = 0; t < tokens_; ++t) {
    if (!is_unmasked(t)) continue;
    ++unmasked_;
    if (has_rollout()) corrections_.add(rollout(t));
  }
  rejected_ = has_rollout() && corrections_.rejects_sequence();
  summarise();
}

PolicyCorrections::Token PolicySequence::rollout(int64_t t) const {
  return corrections_.token(params_.rollout_ratio == RolloutRatio::current ? logp(t) : old_logp(t),
                            rollout_logp_.get(t));
}

// The log ratio within its bounds; no gradient outside them.
Slope PolicySequence::clamped(double log_ratio) const {
  const double low = -bound_or_none(params_.log_ratio_clamp_low);
  const double high = bound_or_none(params_.log_ratio_clamp_high);
  return {std::min(std::max(log_ratio, low), high), clamp_gradient(log_ratio, low, high, batch_.at_bound)};
}

void PolicySequence::summarise() {
  const double least = std::log(1e-8);  // vespo: of log w and of their sum
  double sum_x = 0, sum_off = 0, sum_l = 0, sum_advantage = 0, sum_log_w = 0, u = 0, meant = 0;
  for (int64_t t = 0; t < tokens_; ++t) {
    if (!is_active(t)) continue;
    ++active_;
    const double lp = logp(t), lo = old_logp(t), x = lp - lo;
    sum_x += x;
    if (params_.opsm != Opsm::off) {
      const double off = (params_.opsm == Opsm::rollout ? rollout_logp_.get(t) : lo) - lp;
      const bool missing = params_.opsm == Opsm::rollout && params_.rollout_missing == RolloutMissing::one &&
                           std::isnan(rollout_logp_.get(t));
      sum_off += missing ? 0.0 : off;
    }
    if (params_.kind == Kind::gmpo) {
      if (is_meant(t)) {
        sum_l += geometric_term(params_, advantage(t), clamped(x).value, batch_.at_bound).value;
        meant += 1;
      }
      sum_advantage += advantage(t);
      if (has_rollout()) sum_log_w += std::log(rollout_weight(t) + 1e-10);
    }
    if (params_.kind == Kind::vespo) {
      u += std::min(std::max(x, -20.0), 20.0);
      if (has_rollout()) u += std::min(std::max(std::log(rollout_weight(t)), least), 20.0);
    }
  }
  if (active_ == 0) return;
  const auto n = static_cast<double>(active_);
  sequence_log_ratio_ = clamped(params_.importance_ratio == ImportanceRatio::sequence_sum ? sum_x : sum_x / n);
  off_policy_ = sum_off / n;
  input_.log_weight = std::min(std::max(u, least), 20.0);
  meant_ = std::max(meant, 1.0);
  input_.geometric = -(sum_advantage / n) * std::exp(sum_l / meant_);
  geometric_weight_ = std::exp(sum_log_w / n);
}

PolicyInput PolicySequence::input_of(int64_t t) const {
  const bool of_token = params_.importance_ratio == ImportanceRatio::token;
  const double lp = logp(t), lo = old_logp(t);
  const double log_ratio = of_token ? clamped(lp - lo).value : sequence_log_ratio_.value;
  return {lp, lo, advantage(t), log_ratio, std::exp(log_ratio), batch_.at_bound};
}

bool PolicySequence::covariance_key(int64_t t, CovarianceKey* key) const {
  key->place = first_token(batch_, b_) + t;
  return cpu::covariance_key(params_, input_of(t), batch_.terms.covariance, b_, t, &key->key);
}

TokenLoss PolicySequence::token(int64_t t) const {
  const bool of_token = params_.importance_ratio == ImportanceRatio::token;
  PolicyInput input = input_of(t);
  const double lp = input.logp, lo = input.old_logp;
  const Slope own = clamped(lp - lo);
  if (batch_.terms.covariance.last.place >= 0) {
    CovarianceKey key;
    input.taken = covariance_key(t, &key) && key <= batch_.terms.covariance.last;
  }

  TokenLoss loss;
  loss.x = lp - lo;
  loss.ratio = input.ratio;
  loss.term = policy_term(params_, input, input_);
  loss.weight = rollout_weight(t);
  // Selected, not multiplied by 0: a dropped token must not turn an overflow into NaN.
  loss.selected = is_selected(t);
  const bool off_policy = params_.opsm != Opsm::off && input.advantage < 0 && off_policy_ > params_.opsm_threshold;
  double factor = weight_.present() ? weight_.get(t) : 1.0;
  if (params_.kind == Kind::gmpo) {
    factor *= geometric_weight_;
  } else if (params_.kind != Kind::vespo) {
    factor *= loss.weight;
  }
  double d_logp = 0, d_log_ratio = 0;
  const bool counts = loss.selected || (params_.kind == Kind::gmpo && params_.gmpo_mean == GmpoMean::selected);
  if (counts && !off_policy) {
    loss.value = factor * loss.term.value;
    d_logp = factor * loss.term.d_logp;
    d_log_ratio = factor * loss.term.d_log_ratio;
    loss.d_sequence = factor * loss.term.d_sequence;
  }
  if (ref_logp_.present()) {
    const bool of_own = params_.kl_bias_correction == KlBiasCorrection::token;
    const double ratio = of_own ? std::exp(own.value) : input.ratio;
    const KlTerm kl = kl_term(params_, lp, lo, ref_logp_.get(t), ratio, batch_.at_bound);
    loss.kl = kl.value;
    if (params_.beta != 0) {
      loss.value += params_.beta * kl.value;
      d_logp += params_.beta * (of_own ? kl.d_logp + kl.d_log_ratio * own.slope : kl.d_logp);
      d_log_ratio += of_own ? 0.0 : params_.beta * kl.d_log_ratio;
    }
  }
  if (entropy_.present()) {
    loss.entropy = entropy(t);
    const bool bonus = params_.entropy_coefficient != 0 && params_.entropy_aggregation == EntropyAggregation::as_loss;
    if (bonus && loss.selected) loss.value -= params_.entropy_coefficient * loss.entropy;
  }
  loss.d_own = d_logp;
  if (has_shared_ratio(params_)) {
    loss.d_sequence += d_log_ratio;
  } else {
    loss.d_own += d_log_ratio * (of_token ? own.slope : sequence_log_ratio_.slope);
  }
  return loss;
}

double PolicySequence::share(int64_t t) const {
  const auto n = static_cast<double>(active_);
  if (params_.importance_ratio == ImportanceRatio::sequence) return sequence_log_ratio_.slope / n;
  if (params_.importance_ratio == ImportanceRatio::sequence_sum) return sequence_log_ratio_.slope;
  if (params_.kind != Kind::gmpo || !is_meant(t)) return 0;
  const Slope own = clamped(logp(t) - old_logp(t));
  return geometric_term(params_, advantage(t), own.value, batch_.at_bound).slope * own.slope / meant_;
}

PolicyDivisor::PolicyDivisor(const PolicyParams& params, double tokens, double sequences) : params_(params) {
  const double natural = params.aggregation == Aggregation::token_mean  ? tokens
                         : params.aggregation == Aggregation::token_sum ? 1.0
                                                                        : sequences;
  divisor_ = params.denominator > 0 ? params.denominator : natural;
}

bool PolicyDivisor::needs_counts(const PolicyParams& params) {
  return params.denominator == 0 && params.aggregation != Aggregation::token_sum &&
         params.aggregation != Aggregation::none;
}

double PolicyDivisor::token_weight(int64_t active) const {
  if (active == 0 || params_.aggregation == Aggregation::none) return 0;
  if (params_.aggregation != Aggregation::seq_mean_token_mean) return 1 / divisor_;
  return 1 / (std::max(static_cast<double>(active), params_.seq_denominator_floor) * divisor_);
}

}  // namespace rlk::cpu
