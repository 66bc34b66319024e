// A call of policy_loss, or what its backward has of one, as its passes over the tokens take it: options, chunks of
// sequences, and what tokens take from their sequence and from the whole batch.
#pragma once

#include <algorithm>
#include <array>

#include "core/cpu/policy/clamp_gradient.hpp"
#include "core/cpu/policy/loss_weights.hpp"
#include "core/cpu/policy/policy_covariance.hpp"
#include "core/cpu/simd/operator.hpp"
#include "core/cpu/simd/sequences.hpp"

namespace rlk::cpu {

using PolicyCall = CallOf<sdk::ops::PolicyLoss>;

// What a token or a sequence must pass to stay in the mask, of the estimates k1, k2 and k3 between trainer and sampler.
struct RejectionBounds {
  double k1_low, k1_high, k2_high, k3_high;  // 0: off; those of k1 bound exp(k1)

  bool any() const { return k1_low > 0 || k1_high > 0 || k2_high > 0 || k3_high > 0; }
};

// Options as the formulas use them.
struct PolicyRules {
  PolicyRules(const PolicyParams& params, double gradient_at_bounds);

  double ratio_low, ratio_high;  // the clip
  double x_low, x_high;          // of the log ratio
  double exp_low, exp_high;      // the same, or where the ratio is 0 and infinite
  double delta, d_bound, kl_bound, r_bound;
  bool clamps_log_ratio, has_dual_clip;
  double at_bound;  // what clamps pass of the gradient at their bounds; the forward has none
  RejectionBounds token, sequence_sum, sequence_mean, sequence_max;  // the maximum has no k1
  bool rejects_tokens, rejects_sequences;
};

// What tokens take from the whole batch; see policy_terms.cpp.
struct PolicyTerms {
  double weight_divisor = 1;
  bool selects = false;  // tokens by their entropy: those of at least this
  double least_entropy = 0;
  CovarianceTerms covariance;
};

// What tokens take from their sequence.
struct PolicySequence {
  // Of the corrections, from the unmasked tokens.
  bool rejected = false;
  bool keeps_weights = true;  // geometric_mask
  double weight = 1;          // of every token, where rollout_is is of sequences
  // From the active tokens.
  double active = 0, selected = 0;
  double log_ratio = 0, log_ratio_slope = 0;  // sum x / n, or sum x, clamped
  double off_policy = 0;                      // opsm: mean(l - logp)
  double phi_positive = 0, phi_negative = 0;  // vespo: by the sign of the advantage
  double geometric = 0;                       // gmpo: -(sum A / n) exp(sum L / n)
  double geometric_weight = 1;
  double meant = 1;  // gmpo: tokens of the mean of log ratios, at least 1
};

// Stretches of sequences, numbered through. What a pass sums is kept by chunk and added in their order: the bits of a
// sequence depend on its own tokens alone, and nothing on threads.
constexpr int64_t kPolicyChunk = 2048;

struct PolicyBatch {
  PolicyBatch(const PolicyCall& given, double gradient_at_bounds);

  const PolicyCall& call;
  const PolicyParams& params;
  const Sequences sequences;
  const PolicyRules rules;
  const bool has_rollout;
  Array grad_per_token;  // of the backward
  PolicyTerms terms;
  PolicySequence* own = nullptr;  // [sequences], where tokens take something from theirs
  int64_t* chunks = nullptr;      // [sequences + 1]: the number of each sequence's first

  const PolicySequence& own_of(int64_t b) const {
    static constexpr PolicySequence kNone{};
    return own != nullptr ? own[b] : kNone;
  }
  // The place of a sequence's first token among those of all sequences.
  int64_t first_token(int64_t b) const { return sequences.packed ? sequences.cu_seqlens.get(b) : b * sequences.length; }
  double sequence_advantage(int64_t b) const {
    return call.sequence_advantages.present() ? call.sequence_advantages.get(b) : 0.0;
  }
  // Whether weights are of sequences; each counts once in their mean then.
  bool has_sequence_weights() const {
    using sdk::ops::policy_loss::RolloutIs;
    return params.rollout_is == RolloutIs::sequence_truncate || params.rollout_is == RolloutIs::sequence_mask;
  }
  // PPO's loss of tokens by themselves, as it is without options: what passes leave out then is most of what they do.
  bool is_plain() const {
    using namespace sdk::ops::policy_loss;  // NOLINT(google-build-using-namespace): its enumerations
    return params.kind == Kind::ppo && params.importance_ratio == ImportanceRatio::token && params.opsm == Opsm::off &&
           params.entropy_coefficient == 0 && !has_rollout && !terms.selects && !call.weight.present();
  }
  // Whether corrections, or losses, need something of the whole sequence first.
  bool has_sequence_corrections() const;
  bool has_sequence_terms() const;

  static int64_t most_chunks(const Sequences& sequences) {
    return sequences.elements() / kPolicyChunk + sequences.count;
  }
  void number_chunks(int64_t* first_chunks);
  int64_t chunk_count() const { return chunks[sequences.count]; }

  // Calls function(chunk, b, begin, count) for every chunk: tokens [begin, begin + count) of sequence b.
  template <class Function>
  void for_each_chunk(const ParallelFor& hook, Function&& function) const {
    const int64_t tokens = sequences.elements() / std::max<int64_t>(1, chunk_count());
    const int64_t grain = std::max<int64_t>(1, 4 * kPolicyChunk / std::max<int64_t>(1, tokens));
    parallel_for(hook, chunk_count(), grain, [&](int64_t first, int64_t last) {
      int64_t b = std::upper_bound(chunks, chunks + sequences.count + 1, first) - chunks - 1;
      for (int64_t chunk = first; chunk < last; ++chunk) {
        while (chunks[b + 1] <= chunk) ++b;
        const int64_t begin = (chunk - chunks[b]) * kPolicyChunk;
        function(chunk, b, begin, std::min(kPolicyChunk, sequences.tokens(b) - begin));
      }
    });
  }
};

// Whether the ratio is that of the sequence and passes its gradient to all of its tokens.
inline bool has_shared_ratio(const PolicyParams& params) {
  using sdk::ops::policy_loss::ImportanceRatio;
  return params.importance_ratio == ImportanceRatio::sequence ||
         params.importance_ratio == ImportanceRatio::sequence_sum;
}

}  // namespace rlk::cpu
