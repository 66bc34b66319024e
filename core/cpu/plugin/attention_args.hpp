// What the plugin sides of attention and of its backward share: from tensors to the arguments of the kernels.
#pragma once

#include <rlk/ops/attention.h>

#include "core/cpu/attention/attention.hpp"
#include "core/cpu/plugin/arguments.hpp"

namespace rlk::cpu {

// [B, S, H, (D)] when dense, [T, H, (D)] when packed.
inline AttentionTensor attention_tensor(const rlk_tensor* tensor, bool packed, bool has_d) {
  if (tensor == nullptr) return {};
  const int token = packed ? 0 : 1;
  return {sdk::data_of(tensor), packed ? 0 : tensor->strides[0], tensor->strides[token], tensor->strides[token + 1],
          has_d ? tensor->strides[token + 2] : 1};
}

// Everything but outputs and workspace. Both operators number layouts and masks alike.
template <class Params>
AttentionArgs attention_args(const Params& params, const rlk_tensor& q, const rlk_tensor& k, const rlk_tensor& v,
                             const rlk_tensor* cu_q, const rlk_tensor* cu_k, const rlk_tensor* key_mask) {
  const bool packed = params.layout == RLK_ATTENTION_LAYOUT_PACKED;
  const int token = packed ? 0 : 1;
  AttentionArgs args;
  args.dtype = kernel_dtype(q);
  args.q = attention_tensor(&q, packed, true);
  args.k = attention_tensor(&k, packed, true);
  args.v = attention_tensor(&v, packed, true);
  args.packed = packed;
  args.batch = packed ? cu_q->shape[0] - 1 : q.shape[0];
  args.q_tokens = q.shape[token];
  args.k_tokens = k.shape[token];
  args.q_heads = q.shape[token + 1];
  args.kv_heads = k.shape[token + 1];
  args.head_size = q.shape[token + 2];
  if (packed) {
    args.cu_seqlens_q = sdk::data_of(cu_q);
    args.cu_seqlens_k = sdk::data_of(cu_k);
    args.cu_seqlens_are_i64 = is_i64(*cu_q);
    args.cu_seqlens_q_stride = cu_q->strides[0];
    args.cu_seqlens_k_stride = cu_k->strides[0];
  }
  args.causal = params.causal == RLK_ATTENTION_CAUSAL_ON;
  args.top_left = params.causal_alignment == RLK_ATTENTION_CAUSAL_ALIGNMENT_TOP_LEFT;
  args.window_left = params.window_left;
  args.window_right = params.window_right;
  args.scale = params.scale;
  args.softcap = params.softcap;
  args.key_mask = sdk::data_of<const uint8_t>(key_mask);
  args.key_mask_batch_stride = stride_of(key_mask, 0);
  args.key_mask_token_stride = stride_of(key_mask, 1);
  return args;
}

// Roughly, of one query.
template <class Params>
double attention_keys_seen(const Params& params, const rlk_tensor& k, int64_t batch) {
  const bool packed = params.layout == RLK_ATTENTION_LAYOUT_PACKED;
  const double keys =
      static_cast<double>(k.shape[packed ? 0 : 1]) / static_cast<double>(packed ? std::max<int64_t>(batch, 1) : 1);
  return params.causal == RLK_ATTENTION_CAUSAL_ON ? keys / 2 : keys;
}

}  // namespace rlk::cpu
