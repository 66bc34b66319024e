// A task of attention: some queries of one sequence that share one key head. Internal to the kernels.
#pragma once

#include <algorithm>
#include <span>

#include "core/cpu/attention/attention_rows.hpp"
#include "core/cpu/simd/sequences.hpp"

namespace rlk::cpu {

struct AttentionTask {
  bool in_f64;
  AttentionRows q;            // only read, as are keys and values
  AttentionKeys k, v;         // split at one key
  AttentionRows out, lse;     // written; lse may be absent
  AttentionKeyMask key_mask;  // 0: no query sees the key; may be absent
  int64_t head_size;          // D
  int64_t k_length;
  // Query i sees keys max(0, i + first_visible) .. min(k_length - 1, i + last_visible).
  int64_t first_visible, last_visible;
  double scale, softcap;  // softcap 0: none
  // Rows of q, out and lse: the task is [begin, end).
  int64_t begin, end;

  int64_t query_of(int64_t row) const { return row / q.group; }
  int64_t first_key(int64_t query) const { return std::max<int64_t>(0, query + first_visible); }
  int64_t last_key(int64_t query) const { return std::min(k_length - 1, query + last_visible); }
};

// Rows whose scores are computed together on this machine; a task has at most kMaxAttentionTiles times as many.
int64_t attention_tile_rows(bool in_f64);
constexpr int kMaxAttentionTiles = 12;

// False when there is no memory for the thread's scratch.
bool attention_task(const AttentionTask& task);

// Tasks of sequences whose first `shared` keys, values and masks are the same memory: those are read once for all of
// them. Bits are those of attention_task. Together the tasks have at most kMaxAttentionTiles tiles.
bool attention_shared_task(std::span<const AttentionTask> tasks, int64_t shared);

// The same with the same bits for tasks of few rows, which K and V are streamed past; 0 where there is no such kernel.
bool attention_few_task(const AttentionTask& task);
int64_t attention_few_rows();

}  // namespace rlk::cpu
