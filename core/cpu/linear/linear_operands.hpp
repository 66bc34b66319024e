// hidden [N, D] and weight [V, D] whose products are the scores of linear_logp, and how their rows are cut into tiles.
// Internal to the kernels.
#pragma once

#include <rlk/abi/op.h>

#include "core/cpu/logp/logp_block.hpp"
#include "core/cpu/simd/amx.hpp"

namespace rlk::cpu {

// Rows that are worked on together. More of them read the weights less often, and need more workspace.
constexpr int64_t kLinearBatch = 960;     // a multiple of every tile
constexpr int64_t kLinearBlock = 64;      // vocabulary entries whose scores a task holds at a time
constexpr int64_t kLinearDepth = 128;     // of D, per packed block of weights: 32 KiB of fp32
constexpr int64_t kLinearSegment = 2048;  // vocabulary entries of a task without dx: bits depend on it
constexpr int kLinearTilesPerTask = 6;    // that share a packed block of weights

// Of products by tiles (linear_amx.hpp); calls of a D below kAmxDepth take none.
constexpr int64_t kAmxChain = 512;  // whose products are summed in fp32; a multiple of kAmxDepth
constexpr int64_t kAmxPanelChains = 2;
constexpr int64_t kAmxPanelDepth = kAmxPanelChains * kAmxChain;  // of weights that are packed at a time

// A second batch of rows, a second packed piece of a hidden state or panel of it, and more than `columns` of the
// vocabulary.
template <int64_t columns>
constexpr rlk_switch kLinearSwitches[] = {{sizeof(rlk_switch), 0, "V", columns + 1},
                                          {sizeof(rlk_switch), 0, "N", kLinearBatch + 1},
                                          {sizeof(rlk_switch), 0, "D", kLinearDepth + 1},
                                          {sizeof(rlk_switch), 0, "D", kAmxDepth},
                                          {sizeof(rlk_switch), 0, "D", kAmxPanelDepth + 1}};

struct LinearOperands {
  Array hidden, weight;          // [N, D] and [V, D], of one dtype
  int64_t vocab = 0, depth = 0;  // V, D
  Scores scores;                 // bias, softcap and temperature; col_stride and keep mean nothing here
  Array keep_mask;               // optional, [N, V]

  Dtype dtype() const { return hidden.dtype; }
};
// What keep_mask drops of a block of scores [column][row], `width` rows apart, becomes -inf: of the rows
// [first, first + rows), whose numbers in hidden are n.
template <typename T>
void drop_scores(const Array& keep_mask, const int64_t* n, int64_t rows, int64_t column, int64_t columns, int64_t width,
                 T* scores) {
  for (int64_t t = 0; t < rows; ++t) {
    for (int64_t j = 0; j < columns; ++j) {
      if (!keep_mask.keeps(n[t], column + j)) scores[j * width + t] = -std::numeric_limits<T>::infinity();
    }
  }
}
// Of calls that have hidden, weight and bias; an option that a call has not is off.
template <class Call>
LinearOperands operands_of(const Call& call) {
  double temperature = 1, softcap = 0;
  if constexpr (requires { call.params.temperature; }) temperature = call.params.temperature;
  if constexpr (requires { call.params.softcap; }) softcap = call.params.softcap;
  LinearOperands operands{
      call.hidden, call.weight, call.V, call.D, make_scores(call.hidden.dtype, temperature, softcap, 1, call.bias), {}};
  if constexpr (requires { call.keep_mask; }) operands.keep_mask = call.keep_mask;
  return operands;
}

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
// Writes one of `parts` parts of the batch: some of its tiles, or some of the depth where memory is read better so.
void linear_pack_part(const LinearOperands& operands, const LinearBatch& batch, int64_t part, int64_t parts);

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
