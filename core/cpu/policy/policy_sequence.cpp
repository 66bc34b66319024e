// The loss of every token of one sequence.
#include "core/cpu/policy/policy_sequence.hpp"

#include <algorithm>
#include <cmath>

namespace rlk::cpu {

PolicySequence::PolicySequence(const PolicyBatch& batch, int64_t b)
    : batch_(batch),
      options_(batch.options),
      b_(b),
      begin_(batch.begin(b)),
      end_(batch.end(b)),
      corrections_(batch.options) {
  for (int64_t place = begin_; place < end_; ++place) {
    if (!is_unmasked(place)) continue;
    ++unmasked_;
    if (has_rollout()) corrections_.add(rollout(place));
  }
  rejected_ = has_rollout() && corrections_.rejects_sequence();
  summarise();
}

double PolicySequence::rollout(int64_t place) const {
  const double trained = options_.rollout_ratio == RolloutRatio::current ? logp(place) : old_logp(place);
  return trained - batch_.rollout_logp.at(b_, place);
}

// The log ratio within its bounds; no gradient outside them.
Slope PolicySequence::clamped(double log_ratio) const {
  const double low = -bound_or_none(options_.log_ratio_clamp_low);
  const double high = bound_or_none(options_.log_ratio_clamp_high);
  const bool inside = log_ratio >= low && log_ratio <= high;
  return {std::min(std::max(log_ratio, low), high), inside ? 1.0 : 0.0};
}

void PolicySequence::summarise() {
  const double least = std::log(1e-8);  // vespo: of log w and of their sum
  double sum_x = 0, sum_off = 0, sum_l = 0, sum_advantage = 0, sum_log_w = 0, u = 0;
  for (int64_t place = begin_; place < end_; ++place) {
    if (!is_active(place)) continue;
    ++active_;
    const double lp = logp(place), lo = old_logp(place), x = lp - lo;
    sum_x += x;
    if (options_.opsm != Opsm::off) {
      sum_off += (options_.opsm == Opsm::rollout ? batch_.rollout_logp.at(b_, place) : lo) - lp;
    }
    if (options_.kind == PolicyKind::gmpo) {
      sum_l += geometric_term(options_, advantage(place), clamped(x).value).value;
      sum_advantage += advantage(place);
      if (has_rollout()) sum_log_w += std::log(rollout_weight(place) + 1e-10);
    }
    if (options_.kind == PolicyKind::vespo) {
      u += std::min(std::max(x, -20.0), 20.0);
      if (has_rollout()) u += std::min(std::max(std::log(rollout_weight(place)), least), 20.0);
    }
  }
  if (active_ == 0) return;
  const auto n = static_cast<double>(active_);
  mean_log_ratio_ = clamped(sum_x / n);
  off_policy_ = sum_off / n;
  input_.log_weight = std::min(std::max(u, least), 20.0);
  input_.geometric = -(sum_advantage / n) * std::exp(sum_l / n);
  geometric_weight_ = std::exp(sum_log_w / n);
}

TokenLoss PolicySequence::token(int64_t place) const {
  const bool of_token = options_.importance_ratio == RatioLevel::token;
  const double lp = logp(place), lo = old_logp(place);
  const Slope own = clamped(lp - lo);
  const double log_ratio = of_token ? own.value : mean_log_ratio_.value;
  const PolicyInput input = {lp, lo, advantage(place), log_ratio, std::exp(log_ratio)};

  TokenLoss loss;
  loss.x = lp - lo;
  loss.ratio = input.ratio;
  loss.term = policy_term(options_, input, input_);
  loss.weight = rollout_weight(place);
  // Selected, not multiplied by 0: a dropped token must not turn an overflow into NaN.
  loss.selected = is_selected(place);
  const bool off_policy = options_.opsm != Opsm::off && input.advantage < 0 && off_policy_ > options_.opsm_threshold;
  double factor = batch_.weight.present() ? batch_.weight.at(b_, place) : 1.0;
  if (options_.kind == PolicyKind::gmpo) {
    factor *= geometric_weight_;
  } else if (options_.kind != PolicyKind::vespo) {
    factor *= loss.weight;
  }
  double d_logp = 0, d_log_ratio = 0;
  if (loss.selected && !off_policy) {
    loss.value = factor * loss.term.value;
    d_logp = factor * loss.term.d_logp;
    d_log_ratio = factor * loss.term.d_log_ratio;
    loss.d_sequence = factor * loss.term.d_sequence;
  }
  if (batch_.ref_logp.present()) {
    const KlTerm kl = kl_term(options_, lp, batch_.ref_logp.at(b_, place), input.ratio);
    loss.kl = kl.value;
    if (options_.beta != 0) {
      loss.value += options_.beta * kl.value;
      d_logp += options_.beta * kl.d_logp;
      d_log_ratio += options_.beta * kl.d_log_ratio;
    }
  }
  if (batch_.entropy.present()) {
    loss.entropy = entropy(place);
    const bool bonus = options_.entropy_coefficient != 0 && options_.entropy_aggregation == EntropyAggregation::as_loss;
    if (bonus && loss.selected) loss.value -= options_.entropy_coefficient * loss.entropy;
  }
  loss.d_own = d_logp;
  if (options_.importance_ratio == RatioLevel::sequence) {
    loss.d_sequence += d_log_ratio;
  } else {
    loss.d_own += d_log_ratio * (of_token ? own.slope : mean_log_ratio_.slope);
  }
  return loss;
}

double PolicySequence::share(int64_t place) const {
  const auto n = static_cast<double>(active_);
  if (options_.importance_ratio == RatioLevel::sequence) return mean_log_ratio_.slope / n;
  if (options_.kind != PolicyKind::gmpo) return 0;
  const Slope own = clamped(logp(place) - old_logp(place));
  return geometric_term(options_, advantage(place), own.value).slope * own.slope / n;
}

PolicyDivisor::PolicyDivisor(const PolicyOptions& options, double tokens, double sequences) : options_(options) {
  const double natural = options.aggregation == PolicyAggregation::token_mean  ? tokens
                         : options.aggregation == PolicyAggregation::token_sum ? 1.0
                                                                               : sequences;
  divisor_ = options.denominator > 0 ? options.denominator : natural;
}

bool PolicyDivisor::needs_counts(const PolicyOptions& options) {
  return options.denominator == 0 && options.aggregation != PolicyAggregation::token_sum &&
         options.aggregation != PolicyAggregation::none;
}

double PolicyDivisor::token_weight(int64_t active) const {
  if (active == 0 || options_.aggregation == PolicyAggregation::none) return 0;
  if (options_.aggregation != PolicyAggregation::seq_mean_token_mean) return 1 / divisor_;
  return 1 / (std::max(static_cast<double>(active), options_.seq_denominator_floor) * divisor_);
}

}  // namespace rlk::cpu
