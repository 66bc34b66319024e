// A call of policy_loss, or what its backward has of one, as its passes over the tokens take it: options, chunks of
// sequences, and what tokens take from their sequence and from the whole batch.
#pragma once

#include <rlk/formula/policy_sequences.hpp>

#include <algorithm>
#include <array>

#include "core/cpu/policy/clamp_gradient.hpp"
#include "core/cpu/policy/policy_covariance.hpp"
#include "core/cpu/simd/operator.hpp"
#include "core/cpu/simd/sequences.hpp"

namespace rlk::cpu {

using PolicyCall = CallOf<sdk::ops::PolicyLoss>;

using formula::LossWeights;
using formula::PolicyRules;
using formula::PolicySequence;
using formula::RejectionBounds;

// What tokens take from the whole batch; see policy_terms.cpp.
struct PolicyTerms {
  double weight_divisor = 1;
  CovarianceTerms covariance;
};

// Stretches of sequences, numbered through. What a pass sums is kept by chunk and added in their order: the bits of a
// sequence depend on its own tokens alone, and nothing on threads.
constexpr int64_t kPolicyChunk = 2048;

struct PolicyBatch {
  PolicyBatch(const PolicyCall& given, double gradient_at_bounds);

  const PolicyCall& call;
  const PolicyParams& params;
  const Sequences sequences;
  PolicyRules rules;               // those of the entropy may be found in the batch
  const double exp_low, exp_high;  // the log ratio's clamp, or where the ratio is 0 and infinite
  Array grad_per_token;            // of the backward
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
  // PPO's loss of tokens by themselves, as it is without options: what passes leave out then is most of what they do.
  bool is_plain() const {
    return rules.kind == PolicyRules::Kind::ppo && rules.importance_ratio == PolicyRules::Ratio::token &&
           rules.opsm == PolicyRules::Opsm::off && rules.entropy_coefficient == 0 && !rules.has_rollout &&
           !rules.selects && !rules.has_weight;
  }

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

}  // namespace rlk::cpu
