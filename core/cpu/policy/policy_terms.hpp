// What the tokens of policy_loss take from the whole batch: one walk over it before the losses, where it is asked for.
#pragma once

#include "core/cpu/policy/policy_sequence.hpp"

namespace rlk::cpu {

// Rows that depend on the batch lose their batch invariance.
bool combines_sequences(const PolicyParams& params);

// `tokens` of all sequences.
int64_t policy_terms_workspace_bytes(const PolicyParams& params, int64_t sequences, int64_t tokens);

struct PolicyTermsWanted {
  bool mean_weight = false, selected = false;  // also where no token needs them
};
PolicyTerms policy_terms(const PolicyBatch& given, PolicyTermsWanted wanted, void* workspace, const ParallelFor& hook);

// What divides the bonus of entropy_aggregation token_mean.
double entropy_divisor(const PolicyParams& params, double selected);

// Calls function(b) for every sequence; a task is tens of microseconds of work at least.
template <typename Function>
void for_each_policy_sequence(const PolicyBatch& batch, const ParallelFor& hook, Function&& function) {
  for_each_sequence(batch.sequences, hook, function, 256);
}

}  // namespace rlk::cpu
