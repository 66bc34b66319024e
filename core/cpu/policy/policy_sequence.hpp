// The loss of every token of one sequence, and its derivatives: kinds, corrections, KL and entropy put together.
#pragma once

#include "core/cpu/policy/policy_corrections.hpp"
#include "core/cpu/policy/policy_kinds.hpp"
#include "core/cpu/simd/sequences.hpp"

namespace rlk::cpu {

// [B, T], or [S] with sequence_stride 0: a token is named by its sequence and its place in the row.
struct TokenTensor {
  const void* data = nullptr;
  Dtype dtype = Dtype::f32;
  int64_t sequence_stride = 0, token_stride = 1;

  bool present() const { return data != nullptr; }
  double at(int64_t sequence, int64_t place) const {
    return load_element(data, dtype, sequence * sequence_stride + place * token_stride);
  }
};

// A tensor of outputs, likewise.
struct TokenOutput {
  void* data = nullptr;
  Dtype dtype = Dtype::f32;
  int64_t sequence_stride = 0, token_stride = 1;

  bool present() const { return data != nullptr; }
  void put(int64_t sequence, int64_t place, double value) const {
    if (present()) store_element(data, dtype, sequence * sequence_stride + place * token_stride, value);
  }
};

// What tokens take from the whole batch; see policy_terms.hpp.
struct PolicyTerms {
  double mean_weight = 0;  // of the importance weights before their division
  double weight_divisor = 1;
  bool selects = false;  // tokens by their entropy: those of at least this
  double least_entropy = 0;
  double selected = 0;  // active tokens, if they were asked for
};

// The inputs that policy_loss and its backward share.
struct PolicyBatch {
  PolicyOptions options;
  PolicyTerms terms;
  int64_t sequences = 0;
  int64_t tokens = 0;   // of each padded sequence, or of all packed ones
  IntArray cu_seqlens;  // packed: [sequences + 1]
  TokenTensor logp, advantages, old_logp, ref_logp, rollout_logp, entropy, weight;  // all but two are optional
  TokenTensor sequence_advantages;                                                  // at(b, 0); optional
  const uint8_t* mask = nullptr;                                                    // optional
  int64_t mask_sequence_stride = 0, mask_token_stride = 1;

  bool packed() const { return cu_seqlens.data != nullptr; }
  // Sequence b is places [begin(b), end(b)).
  int64_t begin(int64_t b) const { return packed() ? cu_seqlens.get(b) : 0; }
  int64_t end(int64_t b) const { return packed() ? cu_seqlens.get(b + 1) : tokens; }
  // Of its first token among those of all sequences.
  int64_t offset(int64_t b) const { return packed() ? cu_seqlens.get(b) : b * tokens; }
  DataError error() const { return packed() ? check_seqlens(cu_seqlens, sequences, tokens) : DataError{}; }
};

struct TokenLoss {
  double value = 0;
  double d_own = 0;       // by the token's own logp, where no sequence is between
  double d_sequence = 0;  // by the sequence's quantity: see PolicySequence::share
  double x = 0, kl = 0, ratio = 0, entropy = 0, weight = 0;
  bool selected = true;
  PolicyTerm term;
};

class PolicySequence {
public:
  PolicySequence(const PolicyBatch& batch, int64_t b);

  int64_t unmasked() const { return unmasked_; }
  int64_t active() const { return active_; }
  bool is_unmasked(int64_t place) const {
    return batch_.mask == nullptr ||
           batch_.mask[b_ * batch_.mask_sequence_stride + place * batch_.mask_token_stride] != 0;
  }
  // The importance weight of an unmasked token.
  double rollout_weight(int64_t place) const {
    return has_rollout() ? corrections_.weight(rollout(place)) / batch_.terms.weight_divisor : 1.0;
  }
  bool is_active(int64_t place) const {
    return !rejected_ && is_unmasked(place) && !(has_rollout() && corrections_.rejects_token(rollout(place)));
  }
  // The remaining functions are about active tokens.
  bool is_selected(int64_t place) const {
    return !batch_.terms.selects || entropy(place) >= batch_.terms.least_entropy;
  }
  double entropy(int64_t place) const { return batch_.entropy.at(b_, place); }
  TokenLoss token(int64_t place) const;
  // The derivative of the sequence's quantity by the token's logp.
  double share(int64_t place) const;

private:
  bool has_rollout() const { return batch_.rollout_logp.present(); }
  double logp(int64_t place) const { return batch_.logp.at(b_, place); }
  double old_logp(int64_t place) const {
    return batch_.old_logp.present() ? batch_.old_logp.at(b_, place) : logp(place);
  }
  double advantage(int64_t place) const {
    return batch_.advantages.at(b_, place) +
           (batch_.sequence_advantages.present() ? batch_.sequence_advantages.at(b_, 0) : 0.0);
  }
  double rollout(int64_t place) const;  // the log ratio to the sampler
  Slope clamped(double log_ratio) const;
  void summarise();

  const PolicyBatch& batch_;
  const PolicyOptions& options_;
  const int64_t b_, begin_, end_;
  PolicyCorrections corrections_;
  bool rejected_ = false;
  int64_t unmasked_ = 0, active_ = 0;
  Slope mean_log_ratio_{0, 0};  // sum x / n, clamped
  double off_policy_ = 0;       // opsm: mean(l - logp)
  double geometric_weight_ = 1;
  PolicySequenceInput input_;
};

// 1 / divisor of the tokens of a sequence, from the numbers of active tokens and of sequences that count.
class PolicyDivisor {
public:
  PolicyDivisor(const PolicyOptions& options, double tokens, double sequences);
  double token_weight(int64_t active) const;
  // Whether the divisor depends on the whole batch.
  static bool needs_counts(const PolicyOptions& options);

private:
  const PolicyOptions& options_;
  double divisor_;
};

}  // namespace rlk::cpu
