// The token losses of policy_loss, formula by formula, with numbers that carry their derivative: what autograd would
// do.
#include "core/golden/policy.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/golden/factors.hpp"

namespace rlk::golden {
using namespace sdk::ops::policy_loss;  // NOLINT(google-build-using-namespace): its enumerations

namespace {

// Bounds of which 0 means none.
double upper(double bound) {
  return bound > 0 ? bound : kInfinity;
}

Tracked count(size_t n) {
  return {static_cast<double>(n), 0};
}

// Between the probabilities of a token that a sampler and a trainer have.
double gated_divergence(RolloutGate gate, double sampled, double trained) {
  const double p = std::clamp(std::exp(sampled), 1e-6, 1 - 1e-6), q = std::clamp(std::exp(trained), 1e-6, 1 - 1e-6);
  return gate == RolloutGate::tv ? std::fabs(p - q) : p * std::log(p / q) + (1 - p) * std::log((1 - p) / (1 - q));
}

}  // namespace

struct PolicyBatch::Sequence {
  Dual mean_x;       // sum x / n, or sum x
  Dual geometric;    // gmpo: -(sum A / n) exp(sum L / n)
  size_t meant = 1;  // tokens in the second mean
  Tracked geometric_weight{1, 0};
  Tracked log_weight;     // vespo: u
  double off_policy = 0;  // opsm: mean(l - logp)
};

PolicyBatch::PolicyBatch(const PolicyCall& call, Rule rule)
    : call_(call), p_(call.params), rule_(rule), rows_(call.logp, call.cu_seqlens), error_(rows_.error()) {
  if (error_.kind != kNoDataError) return;
  average_weights();
  find_least_entropy();
  take_by_covariance();
}

bool PolicyBatch::may_be_taken(const Token& token) const {
  PolicyToken out;
  policy(token, {}, clamped(token.x), out);
  return !out.clipped && !std::isnan(token.x.value.value);
}
bool PolicyBatch::is_selected(const Token& token) const {
  return !selects_ || token.entropy >= least_entropy_;
}
bool PolicyBatch::means_selected() const {
  return p_.kind == Kind::gmpo && p_.gmpo_mean == GmpoMean::selected;
}

int64_t PolicyBatch::flat(int64_t b, int64_t t) const {
  return rows_.packed() ? call_.cu_seqlens.load_int(b) + t : b * rows_.columns + t;
}

std::vector<PolicyBatch::Token> PolicyBatch::gather(int64_t b, PolicySeed seed) const {
  std::vector<Token> tokens;
  tokens.reserve(static_cast<size_t>(length(b)));
  for (int64_t t = 0; t < length(b); ++t) {
    if (!unmasked(b, t)) continue;
    Token& token = tokens.emplace_back();
    token.t = t;
    token.logp = {{load(call_.logp, b, t), 0}, {seed == PolicySeed::own_logp ? 1.0 : 0.0, 0}};
    token.old_logp = call_.old_logp.present() ? Dual(load(call_.old_logp, b, t)) : detach(token.logp);
    token.x = token.logp - token.old_logp;
    token.advantage = {load(call_.advantages, b, t), 0};
    if (call_.sequence_advantages.present()) {
      token.advantage = token.advantage + Tracked{call_.sequence_advantages.load(b), 0};
    }
    token.weight = {1, 0};
    token.ref_logp = call_.ref_logp.present() ? load(call_.ref_logp, b, t) : 0.0;
    token.own_weight = call_.weight.present() ? load(call_.weight, b, t) : 1.0;
    token.entropy = call_.entropy.present() ? load(call_.entropy, b, t) : 0.0;
    token.sampler = token.old_logp.value.value;
    if (call_.rollout_logp.present()) {
      const double sampled = load(call_.rollout_logp, b, t);
      const bool current = p_.rollout_ratio == RolloutRatio::current;
      const Tracked trained = (current ? token.logp : token.old_logp).value;
      const bool missing = p_.rollout_missing == RolloutMissing::one && std::isnan(sampled);
      token.rollout = missing ? Tracked{} : trained - Tracked{sampled, 0};
      token.divergence = missing ? 0 : gated_divergence(p_.rollout_gate, sampled, trained.value);
      if (p_.opsm == Opsm::rollout) token.sampler = missing ? token.logp.value.value : sampled;
    }
  }
  return tokens;
}

namespace {

// k1, k2 and k3 (1, 2, 3) of a log ratio.
double divergence(int kind, double r) {
  return kind == 1 ? -r : kind == 2 ? r * r / 2 : std::exp(r) - 1 - r;
}
// Bounds of which 0 means none.
bool passes_k1(double k, double low, double high) {
  return (low == 0 || k >= std::log(low)) && (high == 0 || k <= std::log(high));
}
bool passes(double k, double high) {
  return high == 0 || k <= high;
}

bool has_sequence_bounds(const sdk::ops::policy_loss::Params& p) {
  return p.reject_sequence_sum_k1_low != 0 || p.reject_sequence_sum_k1_high != 0 ||
         p.reject_sequence_sum_k2_high != 0 || p.reject_sequence_sum_k3_high != 0 ||
         p.reject_sequence_mean_k1_low != 0 || p.reject_sequence_mean_k1_high != 0 ||
         p.reject_sequence_mean_k2_high != 0 || p.reject_sequence_mean_k3_high != 0 ||
         p.reject_sequence_max_k2_high != 0 || p.reject_sequence_max_k3_high != 0;
}

}  // namespace

bool PolicyBatch::is_rejected(const Token& token) const {
  const double bound = upper(p_.rollout_log_clamp);
  const double r = std::clamp(token.rollout.value, -bound, bound);
  return !(passes_k1(divergence(1, r), p_.reject_token_k1_low, p_.reject_token_k1_high) &&
           passes(divergence(2, r), p_.reject_token_k2_high) &&
           (p_.reject_token_k3_high == 0 || passes(divergence(3, r), p_.reject_token_k3_high)));
}

bool PolicyBatch::is_rejected(const std::vector<Token>& tokens) const {
  if (tokens.empty() || !has_sequence_bounds(p_)) return false;
  const double bound = upper(p_.rollout_log_clamp);
  double sum[4] = {}, max[4] = {}, mean[4] = {};
  for (const Token& token : tokens) {
    const double r = std::clamp(token.rollout.value, -bound, bound);
    for (int kind = 1; kind <= 3; ++kind) {
      sum[kind] += divergence(kind, r);
      const double k = divergence(kind, r);
      if (std::isnan(k) || k > max[kind]) max[kind] = k;  // no number is larger than a NaN
    }
  }
  for (int kind = 1; kind <= 3; ++kind) mean[kind] = sum[kind] / static_cast<double>(tokens.size());
  return !(passes_k1(sum[1], p_.reject_sequence_sum_k1_low, p_.reject_sequence_sum_k1_high) &&
           passes(sum[2], p_.reject_sequence_sum_k2_high) && passes(sum[3], p_.reject_sequence_sum_k3_high) &&
           passes_k1(mean[1], p_.reject_sequence_mean_k1_low, p_.reject_sequence_mean_k1_high) &&
           passes(mean[2], p_.reject_sequence_mean_k2_high) && passes(mean[3], p_.reject_sequence_mean_k3_high) &&
           passes(max[2], p_.reject_sequence_max_k2_high) && passes(max[3], p_.reject_sequence_max_k3_high));
}

// w of every unmasked token.
void PolicyBatch::weigh(std::vector<Token>& tokens) const {
  if (!call_.rollout_logp.present() || p_.rollout_is == RolloutIs::none) return;
  const double bound = upper(p_.rollout_log_clamp);
  const auto ratio = [bound](Tracked r) { return exp(clamp(Dual(r), -bound, bound)).value; };
  const auto truncated = [this](Tracked w) { return clamp(Dual(w), p_.rollout_is_min, p_.rollout_is_max).value; };
  const auto kept = [this](Tracked w) { return w.value >= p_.rollout_is_min && w.value <= p_.rollout_is_max; };
  Tracked sum;
  double sum_of_divergences = 0;
  for (const Token& token : tokens) {
    sum = sum + token.rollout;
    sum_of_divergences += token.divergence;
  }
  const bool by_ratio = p_.rollout_gate == RolloutGate::ratio;
  const double mean_divergence = sum_of_divergences / static_cast<double>(tokens.size());
  const Tracked mean = sum / count(tokens.size());
  for (Token& token : tokens) {
    const Tracked of_token = ratio(token.rollout);
    const Tracked of_sequence = ratio(p_.rollout_sequence == RolloutSequence::mean ? mean : sum);
    switch (p_.rollout_is) {
      case RolloutIs::token_truncate:
        token.weight = truncated(of_token);
        break;
      case RolloutIs::token_mask:
        token.weight = kept(by_ratio ? of_token : Tracked{token.divergence}) ? of_token : Tracked{};
        break;
      case RolloutIs::sequence_truncate:
        token.weight = truncated(of_sequence);
        break;
      case RolloutIs::sequence_mask:
        token.weight = kept(of_sequence) ? of_sequence : Tracked{};
        break;
      default:
        token.weight = p_.rollout_gated == RolloutGated::truncated ? truncated(of_token) : of_token;
        if (!kept(by_ratio ? ratio(mean) : Tracked{mean_divergence})) token.weight = {};
    }
    if (weight_divisor_.value != 1) token.weight = token.weight / weight_divisor_;
  }
}

Dual PolicyBatch::clamped(const Dual& log_ratio) const {
  return clamp(log_ratio, -upper(p_.log_ratio_clamp_low), upper(p_.log_ratio_clamp_high), rule_);
}

// gmpo: L of a token.
Dual PolicyBatch::clipped_log_ratio(const Token& token) const {
  const Dual x = clamped(token.x);
  const double a = token.advantage.value;
  const Dual sign(a > 0 ? 1.0 : a < 0 ? -1.0 : 0.0);
  return sign * min(sign * x, sign * clamp(x, -p_.clip_low, p_.clip_high, rule_));
}

PolicyBatch::Sequence PolicyBatch::summarise(const std::vector<Token>& active, PolicySeed seed) const {
  Sequence sequence;
  if (active.empty()) return sequence;
  const Dual n(static_cast<double>(active.size()));
  Dual sum_x, sum_l, sum_advantage;
  Tracked sum_log_w, u, sum_off;
  size_t meant = 0;
  for (const Token& token : active) {
    sum_x = sum_x + token.x;
    if (!means_selected() || is_selected(token)) {
      sum_l = sum_l + clipped_log_ratio(token);
      ++meant;
    }
    sum_advantage = sum_advantage + Dual(token.advantage);
    if (call_.rollout_logp.present()) sum_log_w = sum_log_w + log(token.weight + Tracked{1e-10, 0});
    u = u + clamp(token.x, -20, 20).value;
    // Without a weight at all (w = 1) the second sum is 0; log 0 is clamped as well.
    const bool none = token.weight.value <= 0;
    const Tracked log_w = none ? Tracked{-kInfinity, 0} : log(token.weight);
    u = u + clamp(Dual(log_w), std::log(1e-8), 20).value;
    sum_off = sum_off + (Tracked{token.sampler, 0} - token.logp.value);
  }
  const Tracked slope{seed == PolicySeed::sequence_mean ? 1.0 : 0.0, 0};
  const bool by_sum = p_.importance_ratio == ImportanceRatio::sequence_sum;
  sequence.mean_x = {(by_sum ? sum_x : sum_x / n).value, slope};
  sequence.meant = std::max<size_t>(meant, 1);
  sequence.geometric = times(-(sum_advantage / n), exp(Dual(sum_l.value / count(sequence.meant), slope)));
  sequence.geometric_weight = exp(sum_log_w / n.value);
  sequence.log_weight = clamp(Dual(u), std::log(1e-8), 20).value;
  sequence.off_policy = (sum_off / n.value).value;
  return sequence;
}

Dual PolicyBatch::policy(const Token& token, const Sequence& sequence, const Dual& s, PolicyToken& out) const {
  const Dual advantage(token.advantage);
  const double a = token.advantage.value;
  const Dual ratio = exp(s);
  const Dual capped = clamp(ratio, -kInfinity, upper(p_.delta), rule_);
  const bool raw = p_.clip_form == ClipForm::raw;
  const double low = raw ? p_.clip_low : 1 - p_.clip_low;
  const double high = raw ? p_.clip_high : 1 + p_.clip_high;
  const Dual clipped = clamp(ratio, low, high, rule_);
  out.below = ratio.value.value < low && a < 0;
  out.above = ratio.value.value > high && a > 0;
  const double p = std::exp(token.logp.value.value), q = std::exp(token.old_logp.value.value);
  const auto weighted_logp = [&](const Tracked& weight) {
    return times(Dual(-times(weight, token.advantage)), token.logp);
  };
  switch (p_.kind) {
    case Kind::ppo:
    case Kind::clip_cov: {
      const Dual first = -times(capped, advantage), second = -times(clipped, advantage);
      out.clipped = second.value.value > first.value.value;
      const Dual loss = max(first, second);
      if (p_.dual_clip <= 0 || a >= 0) return loss;
      const Dual third = -Dual(parameter(p_.dual_clip)) * advantage;
      out.clipped_lower = loss.value.value > third.value.value;
      return min(third, loss);
    }
    case Kind::cispo:
      out.clipped = clipped.value.value != ratio.value.value;
      return weighted_logp(clipped.value);
    case Kind::sapo: {
      out.below = out.above = false;
      const Dual tau(parameter(a > 0 ? p_.sapo_tau_positive : p_.sapo_tau_negative));
      Dual gate = Dual(1.0) / (Dual(1.0) + exp(-(tau * (ratio - Dual(1.0)))));
      if (std::isinf(ratio.value.value)) gate.slope = {};  // the limit, which 0 * inf is not
      return -(Dual(4.0) / tau * gate * advantage);
    }
    case Kind::vespo: {
      out.below = out.above = false;
      const Tracked k = parameter(a >= 0 ? p_.vespo_k_positive : p_.vespo_k_negative);
      const double given = a >= 0 ? p_.vespo_lambda_positive : p_.vespo_lambda_negative;
      const Tracked lambda = parameter(std::max(given, 1e-4));
      const Tracked u = sequence.log_weight;
      out.phi = exp(lambda + k * u - lambda * exp(u));
      if (!std::isfinite(out.phi.value)) out.phi = {};
      return weighted_logp(out.phi);
    }
    case Kind::gmpo: {
      const double x = s.value.value;
      out.below = x < -p_.clip_low && a < 0;
      out.above = x > p_.clip_high && a > 0;
      const bool differs = x < -p_.clip_low || x > p_.clip_high;
      out.clipped = differs && a > 0;
      out.clipped_lower = differs && a < 0;
      return sequence.geometric;
    }
    case Kind::gpg:
      out.below = out.above = false;
      return weighted_logp(Tracked(1.0));
    case Kind::dro: {
      out.below = out.above = false;
      const Dual half_beta(parameter(p_.dro_beta / 2));
      return -(times(token.logp, advantage) - half_beta * (token.x * token.x));
    }
    case Kind::kl_cov: {
      out.below = out.above = false;
      out.clipped = token.taken;
      const Dual loss = -times(ratio, advantage);
      return token.taken ? loss + Dual(parameter(p_.cov_coefficient)) * max(token.x, -token.x) : loss;
    }
    case Kind::dppo_tv:
      out.clipped = !(a > 0 ? p - q <= p_.clip_high : p - q >= -p_.clip_low);
      break;
    default: {
      const double lp = token.logp.value.value, lo = token.old_logp.value.value;
      const double k = q * (lo - lp) + (1 - q) * std::log((1 - q + 1e-8) / (1 - p + 1e-8));
      out.clipped = !(a > 0 ? k <= p_.clip_high || p <= q : k <= p_.clip_low || p >= q);
    }
  }
  out.below = out.above = false;
  if (std::isnan(a) || std::isnan(p) || std::isnan(q)) out.clipped = false;  // which the loss is to show
  if (out.clipped) return {};
  out.clipped_lower = ratio.value.value > upper(p_.delta);
  return weighted_logp(capped.value);
}

Dual PolicyBatch::kl(const Token& token, const Dual& ratio) const {
  const double diff_bound = upper(p_.kl_diff_clamp), bound = upper(p_.kl_value_clamp);
  const Dual difference = Dual(token.ref_logp) - token.logp;
  const Dual d = clamp(difference, -diff_bound, diff_bound, rule_);
  Dual f;
  switch (p_.kl_kind) {
    case KlKind::k1:
      f = -d;
      break;
    case KlKind::abs:
      f = max(d, -d);
      break;
    case KlKind::k2:
      f = Dual(0.5) * d * d;
      break;
    default:
      f = k3(d);
  }
  if (p_.kl_bias_correction != KlBiasCorrection::off) f = times(f, ratio);
  f = clamp(f, -bound, bound, rule_);
  if (p_.kl_gradient != KlGradient::value) f.slope = (difference * difference * Dual(0.5)).slope;
  if (p_.kl_gradient == KlGradient::k2_weighted) {
    const Dual weight = clamp(exp(detach(token.x)), 0, p_.kl_gradient_weight_max);
    f.slope = times(weight.value, f.slope);
  }
  return f;
}

std::vector<PolicyBatch::Token> PolicyBatch::active_tokens(int64_t b, PolicySeed seed) const {
  std::vector<Token> tokens = gather(b, seed);
  weigh(tokens);
  if (is_rejected(tokens)) tokens.clear();
  std::erase_if(tokens, [this](const Token& token) { return is_rejected(token); });
  return tokens;
}

PolicyBatch::Active PolicyBatch::active(int64_t b) const {
  const std::vector<Token> tokens = active_tokens(b, PolicySeed::none);
  const auto selected = std::count_if(tokens.begin(), tokens.end(), [this](const Token& t) { return is_selected(t); });
  return {static_cast<int64_t>(tokens.size()), selected};
}

std::vector<PolicyToken> PolicyBatch::losses(int64_t b, PolicySeed seed) const {
  std::vector<Token> active = active_tokens(b, seed);
  const Sequence sequence = summarise(active, seed);

  std::vector<PolicyToken> result;
  result.reserve(active.size());
  for (Token& token : active) {
    token.taken = taken_.count({b, token.t}) > 0;
    Dual s = token.x;
    const bool by_sum = p_.importance_ratio == ImportanceRatio::sequence_sum;
    if (p_.importance_ratio == ImportanceRatio::sequence || by_sum) s = sequence.mean_x;
    if (p_.importance_ratio == ImportanceRatio::sequence_token) {
      s = token.logp - detach(token.logp) + detach(sequence.mean_x);
    }
    s = clamped(s);
    const Dual ratio = exp(s);

    PolicyToken out;
    out.t = token.t;
    if (p_.kind == Kind::gmpo) {
      if (!means_selected() || is_selected(token)) out.share = clipped_log_ratio(token).slope / count(sequence.meant);
    } else {
      out.share = by_sum ? token.x.slope : token.x.slope / count(active.size());
    }
    out.x = token.x.value;
    out.ratio = ratio.value;
    out.weight = token.weight;
    out.entropy = {token.entropy, 0};
    Dual loss = policy(token, sequence, s, out);
    if (p_.kind == Kind::clip_cov) {
      out.clipped = token.taken;
      if (token.taken) loss = {};
    }
    const bool drops = token.advantage.value < 0 && sequence.off_policy > p_.opsm_threshold;
    if (p_.opsm != Opsm::off && drops) loss = {};
    out.selected = is_selected(token);
    if (!out.selected && !means_selected()) loss = {};
    loss = weighted(Tracked{token.own_weight, 0}, loss);
    if (p_.kind == Kind::gmpo) {
      loss = times(Dual(sequence.geometric_weight), loss);
    } else if (p_.kind != Kind::vespo) {
      loss = times(Dual(token.weight), loss);
    }
    if (call_.ref_logp.present()) {
      const Dual own = exp(clamped(token.x));
      const Dual divergence = kl(token, p_.kl_bias_correction == KlBiasCorrection::token ? own : ratio);
      out.kl = divergence.value;
      if (p_.beta != 0) loss = loss + parameter(p_.beta) * divergence;
    }
    if (p_.entropy_coefficient != 0 && !has_own_bonus() && out.selected) {
      loss = loss - Dual(parameter(p_.entropy_coefficient)) * Dual(token.entropy);
    }
    out.loss = loss;
    result.push_back(out);
  }
  return result;
}

}  // namespace rlk::golden
