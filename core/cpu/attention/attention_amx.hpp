// Attention's products of bf16 by the tile unit (simd/amx.hpp), a block of keys at a time. Internal to the kernels.
//
// Weights are fp32: they are multiplied as three numbers of bf16 whose sum they are, so that nothing of them is lost.
// Sums run in fp32, in an order that depends on D alone. Subnormal numbers count as 0.
#pragma once

#include "core/cpu/attention/attention_task.hpp"
#include "core/cpu/simd/amx.hpp"

namespace rlk::cpu {

constexpr int64_t kAmxKeys = 64;                                  // of a block
constexpr int64_t kAmxTileRows = 4 * kAmxRows;                    // whose scores are computed together
constexpr int64_t kAmxParts = 3;                                  // of a weight
constexpr int64_t kAmxWeights = kAmxParts * kAmxKeys * kAmxRows;  // numbers of a group of kAmxRows rows
constexpr int64_t kAmxFewRows = 4;                                // of a task whose values need no tiles, at most
constexpr uint16_t kAmxSpecial = 0x7f80;                          // the exponent of infinities and NaN

// Numbers of D with those of zeros behind them.
constexpr int64_t amx_depth(int64_t size) {
  return (size + kAmxDepth - 1) / kAmxDepth * kAmxDepth;
}

// Tasks that are computed so, whatever their sizes.
inline bool takes_amx(const AttentionTask& task) {
  return task.q.dtype == Dtype::bf16 && task.k.rows.dtype == Dtype::bf16 && task.v.rows.dtype == Dtype::bf16 &&
         !task.in_f64 && has_amx();
}

// The rows of kAmxKeys keys, of bf16, `stride` numbers apart.
struct AmxRows {
  const uint16_t* data = nullptr;
  int64_t stride = 0;
};

// columns[d][key] = rows[key][d].
void amx_transpose(AmxRows rows, int64_t depth, uint16_t* columns);

// scores[key][row] = sum over d of keys[key][d] queries[row][d], for `width` rows: a multiple of kAmxRows, of which
// each group lies as [d / 2][row][2].
void amx_scores(AmxRows keys, int64_t depth, const uint16_t* queries, int64_t width, float* scores);

// out[d][row] = out[d][row] factor[row] + sum over keys of columns[d][key] weights[row][key] for d < size; a group's
// weights lie as [part][key / 2][row][2].
void amx_values(const uint16_t* columns, int64_t size, const uint16_t* weights, int64_t width, const float* factor,
                float* out);

}  // namespace rlk::cpu
