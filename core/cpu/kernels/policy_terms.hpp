// What the tokens of policy_loss take from the whole batch: one walk over it before the losses, where it is asked for.
#pragma once

#include "core/cpu/kernels/policy_sequence.hpp"

namespace rlk::cpu {

// Rows that depend on the batch lose their batch invariance.
bool combines_sequences(const PolicyOptions& options);

int64_t policy_terms_workspace_bytes(int64_t sequences);

// Everything that the options ask for, and the mean of the importance weights if `wants_mean`.
PolicyTerms policy_terms(const PolicyBatch& batch, bool wants_mean, void* workspace, const ParallelFor& hook);

// Sequences of a task: tens of microseconds of work at least.
int64_t policy_grain(const PolicyBatch& batch);

}  // namespace rlk::cpu
