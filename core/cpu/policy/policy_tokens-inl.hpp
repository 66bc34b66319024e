// The loss of tokens and its derivatives, over vectors of fp64: corrections, kinds, KL and entropy put together.
#if defined(RLK_CPU_POLICY_TOKENS_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef RLK_CPU_POLICY_TOKENS_INL
#undef RLK_CPU_POLICY_TOKENS_INL
#else
#define RLK_CPU_POLICY_TOKENS_INL
#endif

#include "core/cpu/policy/policy_kinds-inl.hpp"
#include "core/cpu/simd/lines-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace rlk::cpu::HWY_NAMESPACE {
using namespace sdk::ops::policy_loss;  // NOLINT(google-build-using-namespace): its enumerations

using PolicyDoubles = hn::ScalableTag<double>;
using PolicyVector = hn::VFromD<PolicyDoubles>;
using PolicyMask = hn::Mask<PolicyDoubles>;

// Of some tokens, in the order of policy_lines.
struct PolicyTokens {
  PolicyVector logp, old_logp, advantage, mask, ref_logp, rollout_logp, entropy, weight, grad_per_token;
};
constexpr size_t kPolicyLines = 9;
constexpr size_t kLogpLine = 0, kOldLogpLine = 1, kAdvantageLine = 2;

// What a pass reads of the tokens of sequence b from `begin` on. With only_active a pass reads only
// what decides which tokens are active.
inline std::array<Line, kPolicyLines> policy_lines(const PolicyBatch& batch, int64_t b, int64_t begin,
                                                   bool only_active = false) {
  const PolicyCall& call = batch.call;
  const auto line = [&](const Array& array) { return line_of(batch.sequences, array, b).from(begin); };
  const bool needs_logp = !only_active || batch.rules.has_rollout;
  const Line logp = needs_logp ? line(call.logp) : Line();
  return from(or_zero(logp), needs_logp && call.old_logp.present() ? line(call.old_logp) : or_zero(logp),
              or_zero(only_active ? Line() : line(call.advantages)), or_one(line(call.mask)),
              or_zero(only_active ? Line() : line(call.ref_logp)), or_zero(line(call.rollout_logp)),
              or_zero(line(call.entropy)), or_one(only_active ? Line() : line(call.weight)),
              or_zero(only_active ? Line() : line(batch.grad_per_token)));
}

using PolicyBlock = MixedLineBlock<kPolicyLines>;
using SinglePolicyBlock = LineBlock<float, kPolicyLines>;

// Whether Inputs have the lines of all passes as fp32.
inline bool fits_float(const PolicyBatch& batch) {
  if (batch.sequences.count == 0) return false;
  const auto lines = policy_lines(batch, 0, 0);
  return std::all_of(lines.begin(), lines.end(), [](const Line& line) { return fits_float(line.dtype); });
}

// Tokens i and on of a block.
template <class B>
HWY_INLINE PolicyTokens tokens_at(const B& block, int64_t i, PolicyVector sequence_advantage) {
  const PolicyDoubles d;
  const auto number = [&](size_t k) HWY_ATTR { return block.number(d, k, i); };
  return {number(0), number(1), hn::Add(number(2), sequence_advantage), number(3), number(4), number(5), number(6),
          number(7), number(8)};
}

// Calls function(place of the first token, how many, block) for the blocks of a chunk. kSingle: fits_float(batch),
// which makes it a SinglePolicyBlock.
template <bool kSingle = false, class Function>
HWY_INLINE void for_each_policy_block(const std::array<Line, kPolicyLines>& lines, int64_t begin, int64_t count,
                                      const Function& function) {
  Inputs<double, kPolicyLines> inputs(lines, count);
  for (int64_t at = 0; at < count; at += kLineBlock) {
    const int64_t n = std::min(kLineBlock, count - at);
    if constexpr (kSingle) {
      function(begin + at, n, inputs.template block<float>(at, n));
    } else {
      function(begin + at, n, inputs.mixed_block(at, n));
    }
  }
}

// Between trainer and sampler: the log ratio of the old or the current policy to the sampler, and of rollout_gate the
// divergence between the probabilities, 0 where the ratio itself is the gate. Nothing here has a gradient.
struct RolloutTokens {
  PolicyVector r, divergence;
};
HWY_INLINE RolloutTokens rollout_of(const PolicyBatch& batch, const PolicyTokens& token) {
  const PolicyDoubles d;
  const PolicyParams& params = batch.params;
  const PolicyVector trained = params.rollout_ratio == RolloutRatio::current ? token.logp : token.old_logp;
  const PolicyVector one = hn::Set(d, 1.0);
  RolloutTokens tokens{hn::Sub(trained, token.rollout_logp), hn::Zero(d)};
  if (params.rollout_gate != RolloutGate::ratio) {
    const PolicyVector p = clamped(d, exp(d, token.rollout_logp), 1e-6, 1 - 1e-6);
    const PolicyVector q = clamped(d, exp(d, trained), 1e-6, 1 - 1e-6);
    if (params.rollout_gate == RolloutGate::tv) {
      tokens.divergence = hn::Abs(hn::Sub(p, q));
    } else {
      const PolicyVector rest_p = hn::Sub(one, p), rest_q = hn::Sub(one, q);
      tokens.divergence = hn::MulAdd(p, log_of(d, hn::Div(p, q)), hn::Mul(rest_p, log_of(d, hn::Div(rest_p, rest_q))));
    }
  }
  if (params.rollout_missing == RolloutMissing::one) {
    const auto is_missing = hn::IsNaN(token.rollout_logp);
    tokens.r = hn::IfThenZeroElse(is_missing, tokens.r);
    tokens.divergence = hn::IfThenZeroElse(is_missing, tokens.divergence);
  }
  return tokens;
}

struct RolloutEstimates {
  PolicyVector k1, k2, k3;
};
HWY_INLINE RolloutEstimates estimates_of(const PolicyBatch& batch, PolicyVector r) {
  const PolicyDoubles d;
  const PolicyVector c = clamped(d, r, -batch.rules.r_bound, batch.rules.r_bound);
  return {hn::Neg(c), hn::Mul(hn::Set(d, 0.5), hn::Mul(c, c)), hn::Sub(exp_minus_one(d, c), c)};
}

// A NaN passes no test.
HWY_INLINE PolicyMask is_kept(const RejectionBounds& bounds, const RolloutEstimates& k) {
  const PolicyDoubles d;
  auto kept = hn::Eq(hn::Zero(d), hn::Zero(d));
  if (bounds.has_k1_low) kept = hn::And(kept, hn::Ge(k.k1, hn::Set(d, bounds.k1_low)));
  if (bounds.has_k1_high) kept = hn::And(kept, hn::Le(k.k1, hn::Set(d, bounds.k1_high)));
  if (bounds.has_k2_high) kept = hn::And(kept, hn::Le(k.k2, hn::Set(d, bounds.k2_high)));
  if (bounds.has_k3_high) kept = hn::And(kept, hn::Le(k.k3, hn::Set(d, bounds.k3_high)));
  return kept;
}

// The importance weight before its division.
HWY_INLINE PolicyVector rollout_weight(const PolicyBatch& batch, const PolicySequence& own,
                                       const RolloutTokens& rollout) {
  const PolicyDoubles d;
  const PolicyParams& params = batch.params;
  const double low = params.rollout_is_min, high = params.rollout_is_max;
  if (!batch.rules.has_rollout || params.rollout_is == RolloutIs::none) return hn::Set(d, 1.0);
  if (batch.rules.has_sequence_weights()) return hn::Set(d, own.weight);
  const PolicyVector w = exp(d, clamped(d, rollout.r, -batch.rules.r_bound, batch.rules.r_bound));
  if (params.rollout_is == RolloutIs::geometric_mask) {
    if (!own.keeps_weights) return hn::Zero(d);
    return params.rollout_gated == RolloutGated::truncated ? clamped(d, w, low, high) : w;
  }
  if (params.rollout_is == RolloutIs::token_truncate) return clamped(d, w, low, high);
  const PolicyVector gate = params.rollout_gate == RolloutGate::ratio ? w : rollout.divergence;
  return hn::IfThenElseZero(hn::And(hn::Ge(gate, hn::Set(d, low)), hn::Le(gate, hn::Set(d, high))), w);
}

// What every pass asks first of tokens, `given` of which are there.
struct PolicyCounts {
  RolloutTokens rollout;
  PolicyVector raw_weight, weight;  // importance weights, before and after their division
  PolicyMask unmasked, active, selected;
};
HWY_INLINE PolicyCounts count_tokens(const PolicyBatch& batch, const PolicySequence& own, const PolicyTokens& token,
                                     PolicyMask given) {
  const PolicyDoubles d;
  const PolicyVector zero = hn::Zero(d), one = hn::Set(d, 1.0);
  PolicyCounts counts{{zero, zero}, one, one, hn::And(given, hn::Ne(token.mask, zero)), given, given};
  counts.active = own.rejected ? hn::Lt(zero, zero) : counts.unmasked;
  if (batch.rules.has_rollout) {
    counts.rollout = rollout_of(batch, token);
    counts.weight = counts.raw_weight = rollout_weight(batch, own, counts.rollout);
    if (batch.terms.weight_divisor != 1) counts.weight = hn::Div(counts.weight, hn::Set(d, batch.terms.weight_divisor));
    if (batch.rules.rejects_tokens) {
      counts.active = hn::And(counts.active, is_kept(batch.rules.token, estimates_of(batch, counts.rollout.r)));
    }
  }
  counts.selected = counts.active;
  if (batch.terms.selects) {
    counts.selected = hn::And(counts.active, hn::Ge(token.entropy, hn::Set(d, batch.terms.least_entropy)));
  }
  return counts;
}

// The importance ratios of a block of tokens, their own or that of their sequence. By themselves, because an
// exponential is a long chain of steps: of several vectors side by side.
class PolicyRatios {
public:
  template <class B>
  HWY_INLINE void read(const PolicyBatch& batch, const PolicySequence& own, const B& block, int64_t n) {
    const auto lanes = static_cast<int64_t>(hn::Lanes(PolicyDoubles()));
    int64_t i = 0;
    for (; i + 4 * lanes <= n; i += 4 * lanes) read_vectors<4>(batch, own, block, i);
    for (; i < n; i += lanes) read_vectors<1>(batch, own, block, i);
  }
  HWY_INLINE PolicyVector at(int64_t i) const { return hn::Load(PolicyDoubles(), ratios_ + i); }

private:
  template <size_t kVectors, class B>
  HWY_INLINE void read_vectors(const PolicyBatch& batch, const PolicySequence& own, const B& block, int64_t at) {
    const PolicyDoubles d;
    const size_t lanes = hn::Lanes(d);
    const bool of_token = batch.rules.importance_ratio == PolicyRules::Ratio::token;
    PolicyVector x[kVectors];
    for (const size_t k : {kLogpLine, kOldLogpLine}) block.fetch(k, at, static_cast<int64_t>(kVectors * lanes));
    for (size_t i = 0; i < kVectors; ++i) {
      const PolicyTokens token = tokens_at(block, at + static_cast<int64_t>(i * lanes), hn::Zero(d));
      x[i] = of_token ? hn::Sub(token.logp, token.old_logp) : hn::Set(d, own.log_ratio);
      x[i] = clamped(d, x[i], batch.exp_low, batch.exp_high);
    }
    exp_of_bounded(x);
    for (size_t i = 0; i < kVectors; ++i) hn::Store(x[i], d, ratios_ + at + i * lanes);
  }

  HWY_ALIGN double ratios_[kLineBlock];
};

// What a kind looks at; taken is by covariance.
HWY_INLINE PolicyInput<PolicyVector> input_of(const PolicyBatch& batch, const PolicySequence& own,
                                              const PolicyTokens& token, PolicyVector ratio, PolicyMask taken) {
  const PolicyDoubles d;
  const PolicyVector x = hn::Sub(token.logp, token.old_logp);
  const PolicyVector log_ratio = batch.rules.importance_ratio == PolicyRules::Ratio::token
                                     ? clamped(d, x, batch.rules.x_low, batch.rules.x_high)
                                     : hn::Set(d, own.log_ratio);
  return {token.logp, token.old_logp, token.advantage, log_ratio, ratio, taken};
}

// What a clamp of the token's own log ratio passes.
HWY_INLINE PolicyVector own_slope(const PolicyBatch& batch, const PolicyTokens& token) {
  const PolicyDoubles d;
  if (!batch.rules.clamps_log_ratio) return hn::Set(d, 1.0);
  return clamp_gradient(d, hn::Sub(token.logp, token.old_logp), hn::Set(d, batch.rules.x_low),
                        hn::Set(d, batch.rules.x_high), batch.rules.at_bound);
}

struct PolicyLosses {
  PolicyVector value;
  PolicyVector d_own;       // by the token's own logp, where no sequence is between
  PolicyVector d_sequence;  // by the sequence's quantity: see share_of
  PolicyVector kl, ratio;
  PolicyTerm<PolicyVector> term;
};

// Of active tokens; what the others get is anything.
HWY_INLINE PolicyLosses losses_of(const PolicyBatch& batch, const PolicySequence& own, const PolicyTokens& token,
                                  const PolicyCounts& counts, PolicyVector own_ratio, PolicyMask taken) {
  const PolicyDoubles d;
  const PolicyParams& params = batch.params;
  const PolicyVector zero = hn::Zero(d);
  const bool of_token = batch.rules.importance_ratio == PolicyRules::Ratio::token;
  const PolicyInput<PolicyVector> input = input_of(batch, own, token, own_ratio, taken);
  PolicyLosses loss{zero, zero, zero, zero, input.ratio, policy_term(d, batch.rules, own, input)};

  // Selected, not multiplied by 0: a dropped token must not turn an overflow into NaN.
  const bool takes_all = params.kind == Kind::gmpo && params.gmpo_mean == GmpoMean::selected;
  auto keeps = counts.selected;  // the values: of a choice between two places g++ would keep both in memory
  if (takes_all) keeps = counts.active;
  if (batch.rules.opsm != PolicyRules::Opsm::off && own.off_policy > params.opsm_threshold) {
    keeps = hn::AndNot(hn::Lt(token.advantage, zero), keeps);
  }
  PolicyVector factor = token.weight;
  if (params.kind == Kind::gmpo) {
    factor = hn::Mul(factor, hn::Set(d, own.geometric_weight));
  } else if (params.kind != Kind::vespo) {
    factor = hn::Mul(factor, counts.weight);
  }
  if (batch.rules.has_weight) keeps = hn::AndNot(hn::Eq(token.weight, zero), keeps);
  const auto weighed = [&](PolicyVector x) HWY_ATTR {  // a correction of 0 leaves nothing of a ratio that overflows
    return hn::IfThenElseZero(keeps, batch.rules.has_rollout ? times(d, factor, x) : hn::Mul(factor, x));
  };
  loss.value = weighed(loss.term.value);
  loss.d_sequence = weighed(loss.term.d_sequence);
  PolicyVector d_logp = weighed(loss.term.d_logp), d_log_ratio = weighed(loss.term.d_log_ratio);
  if (batch.rules.has_reference) {
    const bool of_own = params.kl_bias_correction == KlBiasCorrection::token;
    PolicyVector ratio = input.ratio;
    if (of_own && !of_token) {
      ratio = exp(d, clamped(d, hn::Sub(token.logp, token.old_logp), batch.rules.x_low, batch.rules.x_high));
    }
    const auto kl = kl_term(d, batch.rules, token.logp, token.old_logp, token.ref_logp, ratio);
    loss.kl = kl.first;
    if (params.beta != 0) {
      const PolicyVector beta = hn::Set(d, params.beta);
      loss.value = hn::MulAdd(beta, kl.first, loss.value);
      d_logp = hn::MulAdd(beta, kl.second, d_logp);
      if (of_own) {
        d_logp = hn::MulAdd(beta, hn::Mul(kl.third, own_slope(batch, token)), d_logp);
      } else {
        d_log_ratio = hn::MulAdd(beta, kl.third, d_log_ratio);
      }
    }
  }
  if (batch.rules.entropy_coefficient != 0 && !batch.rules.has_own_bonus) {
    const PolicyVector bonus = hn::Mul(hn::Set(d, params.entropy_coefficient), token.entropy);
    loss.value = hn::Sub(loss.value, hn::IfThenElseZero(counts.selected, bonus));
  }
  loss.d_own = d_logp;
  if (batch.rules.shares && batch.rules.kind != PolicyRules::Kind::gmpo) {
    loss.d_sequence = hn::Add(loss.d_sequence, d_log_ratio);
  } else {
    const PolicyVector slope = of_token ? own_slope(batch, token) : hn::Set(d, own.log_ratio_slope);
    loss.d_own = hn::Add(loss.d_own, hn::Mul(d_log_ratio, slope));
  }
  return loss;
}

// The derivative of the sequence's quantity by the token's logp.
HWY_INLINE PolicyVector share_of(const PolicyBatch& batch, const PolicySequence& own, const PolicyTokens& token,
                                 const PolicyCounts& counts) {
  const PolicyDoubles d;
  const PolicyParams& params = batch.params;
  if (params.importance_ratio == ImportanceRatio::sequence) return hn::Set(d, own.log_ratio_slope / own.active);
  if (params.importance_ratio == ImportanceRatio::sequence_sum) return hn::Set(d, own.log_ratio_slope);
  const PolicyVector x = hn::Sub(token.logp, token.old_logp);  // no slope where it is clamped
  const PolicyVector slope = hn::Mul(geometric_term(d, batch.rules, token.advantage, x).slope, own_slope(batch, token));
  const auto is_meant = params.gmpo_mean == GmpoMean::active ? counts.active : counts.selected;
  return hn::IfThenElseZero(is_meant, hn::Div(slope, hn::Set(d, own.meant)));
}

}  // namespace rlk::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // per target
