// Tasks of the backward of attention: what depends on a query alone, and a tile of queries or of keys. Internal to the
// kernels.
#pragma once

#include "core/cpu/attention/attention_rows.hpp"
#include "core/cpu/simd/sequences.hpp"

namespace rlk::cpu {

// The numbers of a query row that its pairs with keys share, as compute type (fp64 when in_f64, else fp32).
struct AttentionQueryTerms {
  void* lse;     // +inf for a row that sees no key
  void* offset;  // grad_lse - delta
};

// Rows [begin, end) of `out`, grad_out, lse and grad_lse (may be absent).
struct AttentionTermsTask {
  bool in_f64;
  AttentionRows out, grad_out, lse, grad_lse;
  AttentionQueryTerms terms;  // of row 0
  int64_t head_size;
  int64_t begin, end;
};
bool attention_terms_task(const AttentionTermsTask& task);

// A tile: query rows [begin, end) and their grad_q, or keys [begin, end) and their grad_k and grad_v.
struct AttentionBackwardTask {
  bool in_f64;
  bool of_keys;
  AttentionRows q, grad_out;             // only read, as are keys and values
  AttentionKeys k, v;                    // of_keys: in one place
  AttentionRows grad_q, grad_k, grad_v;  // of_keys: the last two are written, else the first
  AttentionQueryTerms terms;             // of the group's first row; terms_stride apart from token to token
  int64_t terms_stride;
  AttentionKeyMask key_mask;  // 0: no query sees the key; may be absent
  int64_t head_size, q_length, k_length;
  // Query i sees keys max(0, i + first_visible) .. min(k_length - 1, i + last_visible).
  int64_t first_visible, last_visible;
  double scale, softcap;  // softcap 0: none
  int64_t begin, end;
  // of_keys: of several samples, each of whose queries see the keys alike; how far apart their rows and terms are.
  int64_t samples = 1, q_sample = 0, grad_out_sample = 0, terms_sample = 0;
};

// The most rows of a task on this machine.
int64_t attention_backward_tile_rows(bool in_f64);

// False when there is no memory for the thread's scratch.
bool attention_backward_task(const AttentionBackwardTask& task);

}  // namespace rlk::cpu
