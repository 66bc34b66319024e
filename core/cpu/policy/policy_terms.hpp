// What the tokens of policy_loss take from their sequences and from the whole batch: passes before the losses, where
// they are asked for.
#pragma once

#include "core/cpu/policy/policy_passes.hpp"

namespace rlk::cpu {

int64_t policy_workspace_bytes(const PolicyParams& params, const Sequences& sequences);

// Sets up the batch and its terms in the workspace. counts: also the numbers of active and selected tokens of every
// sequence, where no token needs them. Returns where the sums of chunks are kept.
PolicyChunkSums* find_policy_terms(PolicyBatch& batch, bool counts, const Context& context);

}  // namespace rlk::cpu
