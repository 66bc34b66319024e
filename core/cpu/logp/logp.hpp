// The log-probability of one chosen token per row, its log-sum-exp and entropy, in one pass over the logits.
//
// Cost model: every logit is read from memory once; the arithmetic (about 16 vector instructions per vector of logits)
// hides behind that. Rows are cut into blocks of kLogpBlock columns whose partial sums are combined in column order, so
// a row's bits are a function of the row, its options and V alone: batch_invariant and deterministic. With few rows the
// blocks of one row go to several threads; the combination is the same.
#pragma once

#include <rlk/sdk/ops/logp.hpp>

#include "core/cpu/simd/operator.hpp"

namespace rlk::cpu {

int64_t logp_workspace_bytes(int64_t n, int64_t vocab);

// The registered kernel, for other kernels that need log-probabilities; call.logp may have any floating dtype
// there. Returns the data error of the lowest bad row; kind 0 when there is none.
DataError logp(const CallOf<sdk::ops::Logp>& call, const Context& context);

}  // namespace rlk::cpu
