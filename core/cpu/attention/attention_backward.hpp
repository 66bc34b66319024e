// The gradients of attention with respect to q, k and v.
//
// Cost model: 14 * D floating-point operations for every visible (query, key) pair: scores and dp are computed twice,
// once for tiles of queries (grad_q) and once for tiles of keys (grad_k, grad_v). That is two of seven products more
// than with one pass, whose tasks would have to add to each other's gradients; here each gradient has one writer and
// one order of summation, so a sequence's bits depend on that sequence and the options alone. Scratch: up to 1 MiB per
// thread.
#pragma once

#include "core/cpu/attention/attention.hpp"

namespace rlk::cpu {

struct AttentionBackwardArgs {
  AttentionArgs forward;  // out and lse are only read; its workspace is attention_backward_workspace_bytes
  AttentionTensor grad_out;
  AttentionTensor grad_lse;                // as lse; data may be null
  AttentionTensor grad_q, grad_k, grad_v;  // written
};

// q_rows: queries times query heads, of all sequences together.
int64_t attention_backward_workspace_bytes(int64_t batch, int64_t q_rows, bool packed);

// As attention().
AttentionStatus attention_backward(const AttentionBackwardArgs& args, const ParallelFor& hook, DataError* error);

}  // namespace rlk::cpu
