// Options and chunks of policy_loss.
#include "core/cpu/policy/policy_batch.hpp"

#include <algorithm>

namespace rlk::cpu {

PolicyBatch::PolicyBatch(const PolicyCall& given, double gradient_at_bounds)
    : call(given),
      params(given.params),
      sequences(sequences_of(given.logp, given.cu_seqlens)),
      rules(formula::policy_rules_with(given.params, gradient_at_bounds, given.rollout_logp.present(),
                                       given.ref_logp.present(), given.weight.present())),
      exp_low(std::max(rules.x_low, -800.0)),
      exp_high(std::min(rules.x_high, 800.0)) {}

void PolicyBatch::number_chunks(int64_t* first_chunks) {
  chunks = first_chunks;
  chunks[0] = 0;
  for (int64_t b = 0; b < sequences.count; ++b) {
    chunks[b + 1] = chunks[b] + (sequences.tokens(b) + kPolicyChunk - 1) / kPolicyChunk;
  }
}

}  // namespace rlk::cpu
