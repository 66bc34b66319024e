// The loss of every token of one sequence, and its derivatives: kinds, corrections, KL and entropy put together.
#pragma once

#include "core/cpu/policy/policy_corrections.hpp"
#include "core/cpu/policy/policy_covariance.hpp"
#include "core/cpu/policy/policy_kinds.hpp"
#include "core/cpu/simd/operator.hpp"
#include "core/cpu/simd/sequences.hpp"

namespace rlk::cpu {

// What tokens take from the whole batch; see policy_terms.hpp.
struct PolicyTerms {
  double mean_weight = 0;  // of the importance weights before their division
  double effective = 0;    // the effective share of the sample by these weights
  double weight_divisor = 1;
  bool selects = false;  // tokens by their entropy: those of at least this
  double least_entropy = 0;
  double selected = 0;  // active tokens, if they were asked for
  CovarianceTerms covariance;
};

// A call of policy_loss, or what its backward has of one.
using PolicyCall = CallOf<sdk::ops::PolicyLoss>;

struct PolicyBatch {
  explicit PolicyBatch(const PolicyCall& given) : call(given), sequences(sequences_of(given.logp, given.cu_seqlens)) {}

  const PolicyCall& call;
  Sequences sequences;
  PolicyTerms terms;
  double at_bound = 0;  // what clamps pass of the gradient at their bounds; the forward has none
};

// The place of a sequence's first token among those of all sequences.
inline int64_t first_token(const PolicyBatch& batch, int64_t b) {
  return batch.sequences.packed ? batch.sequences.cu_seqlens.get(b) : b * batch.sequences.length;
}

struct TokenLoss {
  double value = 0;
  double d_own = 0;       // by the token's own logp, where no sequence is between
  double d_sequence = 0;  // by the sequence's quantity: see PolicySequence::share
  double x = 0, kl = 0, ratio = 0, entropy = 0, weight = 0;
  bool selected = true;
  PolicyTerm term;
};

// Whether the ratio is that of the sequence and passes its gradient to all of its tokens.
inline bool has_shared_ratio(const PolicyParams& params) {
  using sdk::ops::policy_loss::ImportanceRatio;
  return params.importance_ratio == ImportanceRatio::sequence ||
         params.importance_ratio == ImportanceRatio::sequence_sum;
}

class PolicySequence {
public:
  PolicySequence(const PolicyBatch& batch, int64_t b);

  int64_t unmasked() const { return unmasked_; }
  int64_t active() const { return active_; }
  // Tokens are named by their places in the sequence.
  int64_t tokens() const { return tokens_; }
  bool is_unmasked(int64_t t) const { return mask_.keeps(t); }
  // The importance weight of an unmasked token.
  double rollout_weight(int64_t t) const {
    return has_rollout() ? corrections_.weight(rollout(t)) / batch_.terms.weight_divisor : 1.0;
  }
  bool is_active(int64_t t) const {
    return !rejected_ && is_unmasked(t) && !(has_rollout() && corrections_.rejects_token(rollout(t).r));
  }
  // The remaining functions are about active tokens.
  bool is_selected(int64_t t) const { return !batch_.terms.selects || entropy(t) >= batch_.terms.least_entropy; }
  double entropy(int64_t t) const { return entropy_.get(t); }
  double logp(int64_t t) const { return logp_.get(t); }
  double advantage(int64_t t) const { return advantages_.get(t) + sequence_advantage_; }
  // Where it stands among those that are taken by covariance; false where it is not to be.
  bool covariance_key(int64_t t, CovarianceKey* key) const;
  TokenLoss token(int64_t t) const;
  // The derivative of the sequence's quantity by the token's logp.
  double share(int64_t t) const;

private:
  bool has_rollout() const { return rollout_logp_.present(); }
  double old_logp(int64_t t) const { return old_logp_.present() ? old_logp_.get(t) : logp(t); }
  PolicyCorrections::Token rollout(int64_t t) const;
  Slope clamped(double log_ratio) const;
  PolicyInput input_of(int64_t t) const;
  // Whether it is a token of gmpo's mean of log ratios.
  bool is_meant(int64_t t) const {
    return params_.gmpo_mean == sdk::ops::policy_loss::GmpoMean::active || is_selected(t);
  }
  void summarise();

  const PolicyBatch& batch_;
  const PolicyParams& params_;
  const int64_t b_, tokens_;
  const Line logp_, advantages_, old_logp_, mask_, ref_logp_, rollout_logp_, entropy_, weight_;
  const double sequence_advantage_;
  PolicyCorrections corrections_;
  bool rejected_ = false;
  int64_t unmasked_ = 0, active_ = 0;
  Slope sequence_log_ratio_{0, 0};  // sum x / n, or sum x, clamped
  double off_policy_ = 0;           // opsm: mean(l - logp)
  double geometric_weight_ = 1;
  double meant_ = 1;  // gmpo: tokens of the mean of log ratios, at least 1
  PolicySequenceInput input_;
};

// 1 / divisor of the tokens of a sequence, from the numbers of active tokens and of sequences that count.
class PolicyDivisor {
public:
  PolicyDivisor(const PolicyParams& params, double tokens, double sequences);
  double token_weight(int64_t active) const;
  // Whether the divisor depends on the whole batch.
  static bool needs_counts(const PolicyParams& params);

private:
  const PolicyParams& params_;
  double divisor_;
};

}  // namespace rlk::cpu
