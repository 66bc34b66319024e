// hidden [N, D] and weight [V, D] whose products are the scores of linear_logp, and how their rows are cut into tiles.
// Internal to the kernels.
#pragma once

#include "core/cpu/logp/logp_block.hpp"

namespace rlk::cpu {

// Rows that are worked on together. More of them read the weights less often, and need more workspace.
constexpr int64_t kLinearBatch = 960;   // a multiple of every tile
constexpr int64_t kLinearBlock = 64;    // vocabulary entries whose scores a task holds at a time
constexpr int64_t kLinearDepth = 128;   // of D, per packed block of weights: 32 KiB of fp32
constexpr int kLinearTilesPerTask = 4;  // that share a packed block of weights

struct LinearMatrix {
  const void* data = nullptr;
  int64_t row_stride = 0, col_stride = 1;
};

struct LinearOperands {
  Dtype dtype = Dtype::f32;  // of hidden, weight and bias
  LinearMatrix hidden, weight;
  int64_t vocab = 0, depth = 0;  // V, D
  Scores scores;                 // bias, softcap and temperature; col_stride means nothing here
};

// Some rows of hidden, and their numbers transposed: tile i is rows [i * tile_rows, (i + 1) * tile_rows) of the batch
// as [d][row], its last dimension rounded up to whole vectors, or of a batch of few rows (linear_product-inl.hpp) to
// fewer, and padded with zeros.
struct LinearBatch {
  const int64_t* rows = nullptr;  // [count] of hidden
  int64_t count = 0;
  void* packed = nullptr;  // linear_packed_elements of the compute type
};

// Rows of a tile on this machine.
int64_t linear_tile_rows(bool in_f64);
// Elements of the packed numbers of a batch.
int64_t linear_packed_elements(int64_t count, int64_t depth, bool in_f64);
// Writes tile `index` of the batch.
void linear_pack_tile(const LinearOperands& operands, const LinearBatch& batch, int64_t index);

inline int64_t linear_compute_bytes(bool in_f64) {
  return in_f64 ? 8 : 4;
}
inline int64_t round_up(int64_t n, int64_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

// Hands out pieces of the workspace, aligned to 64 bytes; without one it only counts.
class Carve {
public:
  explicit Carve(void* workspace) : next_(reinterpret_cast<uintptr_t>(workspace)), first_(next_) {
    next_ = (next_ + 63) / 64 * 64;
  }
  template <typename T>
  T* take(int64_t count) {
    auto* const taken = reinterpret_cast<T*>(next_);
    next_ += static_cast<uintptr_t>(round_up(count * static_cast<int64_t>(sizeof(T)), 64));
    return taken;
  }
  void* take_bytes(int64_t bytes) { return take<char>(bytes); }
  // What a workspace must have that may start anywhere.
  int64_t bytes() const { return static_cast<int64_t>(next_ - first_) + 64; }

private:
  uintptr_t next_, first_;
};

}  // namespace rlk::cpu
