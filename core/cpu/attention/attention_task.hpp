// A task of attention: some queries of one sequence that share one key head. Internal to the kernels.
#pragma once

#include <algorithm>

#include "core/cpu/simd/kernel.hpp"

namespace rlk::cpu {

// Pointers are at the sequence's first token and, for q, out and lse, at the group's first head.
struct AttentionTask {
  Dtype dtype;
  bool in_f64;
  const void *q, *k, *v;
  void *out, *lse;  // lse may be null
  int64_t q_token_stride, q_head_stride, q_d_stride;
  int64_t k_token_stride, k_d_stride;
  int64_t v_token_stride, v_d_stride;
  int64_t out_token_stride, out_head_stride, out_d_stride;
  int64_t lse_token_stride, lse_head_stride;
  int64_t group;      // query heads per key head
  int64_t head_size;  // D
  int64_t k_length;
  // Query i sees keys max(0, i + first_visible) .. min(k_length - 1, i + last_visible).
  int64_t first_visible, last_visible;
  double scale;
  double softcap;           // 0: none
  const uint8_t* key_mask;  // [key], 0: nobody sees it; may be null
  int64_t key_mask_stride;
  // Row t of the group is query t / group, head t % group; the task is rows [begin, end).
  int64_t begin, end;

  int64_t query_of(int64_t row) const { return row / group; }
  int64_t first_key(int64_t query) const { return std::max<int64_t>(0, query + first_visible); }
  int64_t last_key(int64_t query) const { return std::min(k_length - 1, query + last_visible); }
};

// Rows whose scores are computed together on this machine; a task has at most kMaxAttentionTiles times as many.
int64_t attention_tile_rows(bool in_f64);
constexpr int kMaxAttentionTiles = 12;

// False when there is no memory for the thread's scratch.
bool attention_task(const AttentionTask& task);

// The same with the same bits for tasks of few rows, which K and V are streamed past; 0 where there is no such kernel.
bool attention_few_task(const AttentionTask& task);
int64_t attention_few_rows();

}  // namespace rlk::cpu
