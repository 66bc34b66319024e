// One call of attention, forward or backward, for the kernel and for golden alike.
#pragma once

#include "core/cpu/attention/attention_backward.hpp"
#include "unit/cpu/support.hpp"

namespace rlk::test {

struct AttentionCase {
  Tensor q, k, v, cu_seqlens_q, cu_seqlens_k, key_mask;
  bool causal = false, top_left = false;
  int64_t window_left = -1, window_right = -1;
  double scale = 0.0, softcap = 0.0;
  Strides output_strides = Strides::contiguous;
  // Of the backward.
  Tensor out, lse, grad_out, grad_lse;

  bool packed() const { return cu_seqlens_q.present(); }
};

struct Heads {
  int64_t q, kv, size;
};

AttentionCase dense_attention(Dtype dtype, int64_t batch, int64_t queries, int64_t keys, Heads heads,
                              Strides strides = Strides::contiguous);
AttentionCase packed_attention(Dtype dtype, const std::vector<int64_t>& q_lengths,
                               const std::vector<int64_t>& k_lengths, Heads heads, Dtype index = Dtype::i32);

struct AttentionOutputs {
  Tensor out, lse;
  cpu::DataError error;
};
AttentionOutputs run_attention(AttentionCase& c, const cpu::ParallelFor& hook);
golden::AttentionCall golden_call(const AttentionCase& c);

// The kernel against golden, and the same bits from every hook.
void expect_golden(AttentionCase& c);

// out and lse of golden's forward, rounded to their dtypes, and random gradients.
void add_gradients(AttentionCase& c, bool grad_lse, uint32_t seed);

struct AttentionGradients {
  Tensor q, k, v;
  cpu::DataError error;
};
AttentionGradients run_attention_backward(AttentionCase& c, const cpu::ParallelFor& hook);
golden::AttentionBackwardCall golden_backward_call(const AttentionCase& c);
void expect_golden_gradients(AttentionCase& c);

}  // namespace rlk::test
