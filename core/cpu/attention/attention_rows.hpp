// The rows of one sequence that share a key head, as the tasks of attention and of its backward read and write them.
#pragma once

#include "core/cpu/simd/element.hpp"

namespace rlk::cpu {

// Rows of D elements, or of one number (lse): row r is token r / group, head r % group. group is 1 for keys.
struct AttentionRows {
  Dtype dtype;
  void* data;  // of row 0; null when absent
  int64_t token_stride, head_stride, d_stride, group;

  bool present() const { return data != nullptr; }
  void* row(int64_t r) const { return row(r / group, r % group); }
  void* row(int64_t token, int64_t head) const {
    return element(data, token * token_stride + head * head_stride, dtype);
  }
};

}  // namespace rlk::cpu
