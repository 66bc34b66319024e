// linear_logp for 16-bit tensors on the warpgroup products of sm_90a: the scores stay in registers.
//
// What a tile (linear_tiles_wgmma.cuh) leaves of each row are its largest score, its sums and, where it is there, the
// target's score; a second kernel merges the tiles of a row in a fixed order. A row's bits depend on that row alone.
// Cost: a tile of 4096 products long keeps the tensor cores busy for 49152 cycles, the exponential unit for 1536.
#pragma once

#include "../../simt/tokens.cuh"
#include "linear_tiles_wgmma.cuh"

namespace rlk::cuda_kernels {

using cuda::LinearLogpWgmmaArgs;

// Of a row and a tile's columns. A NaN is in the sum, not in the top.
struct LinearStatistics {
  float top, sum, weighted;
};

// What a tile's scores leave of their rows.
template <class T, class Form>
struct LinearLogpScores : LinearScores<T> {
  using LinearScores<T>::kN;
  using LinearScores<T>::x;

  // y = cap(x + bias); first: the lane's first column.
  __device__ __forceinline__ void transform(const simt::LogitTransform& of, int64_t first, int64_t vocab) {
    const T* const bias = static_cast<const T*>(of.bias);
    if (bias != nullptr) {
#pragma unroll
      for (int j = 0; j < kN; ++j) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const int64_t column = first + 8 * j + e;
          const float add = column < vocab ? simt::widen(bias[column]) : 0.0f;
          x[j][e] += add;
          x[j][2 + e] += add;
        }
      }
    }
    if (of.softcap > 0) {
      const float softcap = static_cast<float>(of.softcap), inverse = static_cast<float>(1.0 / of.softcap);
#pragma unroll
      for (int j = 0; j < kN; ++j) {
#pragma unroll
        for (int i = 0; i < 4; ++i) x[j][i] = simt::cap_logit(x[j][i], 0.0f, softcap, inverse);
      }
    }
  }

  // There are so many columns, counted from the lane's first.
  __device__ __forceinline__ void hide_from(int64_t columns) {
#pragma unroll
    for (int j = 0; j < kN; ++j) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        if (8 * j + e >= columns) x[j][e] = x[j][2 + e] = -INFINITY;
      }
    }
  }

  // Of row h, in the column counted from the lane's first; nothing in other lanes.
  __device__ __forceinline__ void store_target(int h, int column, float* to) const {
#pragma unroll
    for (int j = 0; j < kN; ++j) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        if (8 * j + e == column) *to = x[j][2 * h + e];
      }
    }
  }

  // Of row h; all lanes of a quad have it.
  __device__ __forceinline__ LinearStatistics statistics(int h, float scale) const {
    float tops[2] = {-INFINITY, -INFINITY};
#pragma unroll
    for (int j = 0; j < kN; ++j) tops[j % 2] = fmaxf(tops[j % 2], fmaxf(x[j][2 * h], x[j][2 * h + 1]));
    float top = fmaxf(tops[0], tops[1]);
    top = fmaxf(top, simt::wave_xor(top, 1));
    top = fmaxf(top, simt::wave_xor(top, 2));
    const float base = top == -INFINITY ? 0.0f : top;
    float sums[2] = {0.0f, 0.0f}, products[2] = {0.0f, 0.0f};
#pragma unroll
    for (int j = 0; j < kN; ++j) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        // The difference first: it is exact or nearly so, and cannot overflow upwards.
        const float d = (x[j][2 * h + e] - base) * scale;
        const float p = simt::exp2_fast(d);
        sums[e] += p;
        if constexpr (Form::kEntropy) products[e] = fmaf(p, d > -1024.0f ? d : -1024.0f, products[e]);
      }
    }
    float sum = sums[0] + sums[1], weighted = products[0] + products[1];
    sum += simt::wave_xor(sum, 1);
    sum += simt::wave_xor(sum, 2);
    if constexpr (Form::kEntropy) {
      weighted += simt::wave_xor(weighted, 1);
      weighted += simt::wave_xor(weighted, 2);
    }
    return {top, sum, weighted};
  }
};

// The column of the row's target, or below 0: the row is not there, is ignored or in error, or its target is elsewhere.
__device__ __forceinline__ int64_t target_here(const simt::TokenRows& tokens, int64_t row, int64_t id) {
  if (row >= tokens.rows || id < 0 || id >= tokens.id_limit || simt::is_ignored(tokens, row, id)) return -1;
  const int64_t column = id - tokens.vocab_start;
  return column < tokens.vocab ? column : -1;
}

// The work of warpgroup 0 or 1 of those that compute.
template <class T, class Form>
__device__ __forceinline__ void compute_scores(const LinearLogpWgmmaArgs& args, uint32_t shared, const int* numbers,
                                               int warpgroup) {
  const int thread = static_cast<int>(threadIdx.x) % 128, lane = thread % 32;
  const int own_row = warpgroup * 64 + thread / 32 * 16 + lane / 4, own_column = lane % 4 * 2;
  const int rows = static_cast<int>(args.tokens.rows);
  LinearRing ring{shared, 0};
  LinearLogpScores<T, Form> scores;
  for (LinearTiles tiles; tiles.next(args, ring, numbers);) {
    int64_t id[2];  // of both rows; on its way while the products are made
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int row = tiles.row + own_row + 8 * h;
      id[h] = simt::read_index(args.tokens.ids, row < rows ? row : 0, args.tokens.ids_are_i64 != 0);
    }
    sum_slabs(scores, ring, args.slabs, warpgroup);

    const int64_t columns = args.tokens.vocab - tiles.column - own_column;
    if constexpr (Form::kTransform) scores.transform(args.transform, tiles.column + own_column, args.tokens.vocab);
    if (columns < kLinearColumns) scores.hide_from(columns);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int row = tiles.row + own_row + 8 * h;
      const int64_t target = target_here(args.tokens, row, id[h]) - tiles.column;
      if (target >= 0 && target < kLinearColumns) {
        scores.store_target(h, static_cast<int>(target) - own_column, args.target + row);
      }
      const LinearStatistics its = scores.statistics(h, args.transform.exp2_scale);
      if (own_column != 0 || row >= rows) continue;
      const int64_t at = static_cast<int64_t>(tiles.column / kLinearColumns) * rows + row;
      args.top[at] = its.top;
      args.sum[at] = its.sum;
      if (Form::kEntropy && args.weighted != nullptr) args.weighted[at] = its.weighted;
    }
  }
}

template <class T, class Form>
__device__ __forceinline__ void linear_logp_wgmma(const LinearLogpWgmmaArgs& args) {
  const uint32_t shared = (shared_address(simt::dynamic_shared()) + 1023) & ~1023u;
  walk_linear_tiles(args, shared, [&](int warpgroup, const int* numbers) {
    compute_scores<T, Form>(args, shared, numbers, warpgroup);
  });
}

// A row's tiles by turns to groups of threads, then those of all groups in order, in fp64; everything that needs a
// row's own values.
template <class T>
__device__ __forceinline__ void linear_logp_merge(const LinearLogpWgmmaArgs& args) {
  constexpr int kRows = cuda::kLinearMergeRows, kGroups = cuda::kLinearMergeThreads / kRows;
  __shared__ double part[3][kGroups][kRows];
  const int own = static_cast<int>(threadIdx.x) % kRows, group = static_cast<int>(threadIdx.x) / kRows;
  const int64_t rows = args.tokens.rows, n = static_cast<int64_t>(blockIdx.x) * kRows + own;
  const double scale = 1.4426950408889634074 / args.transform.temperature;
  float top = -INFINITY;
  double sum = 0, weighted = 0;
  if (n < rows) {
#pragma unroll 8
    for (int64_t t = group; t < args.column_tiles; t += kGroups) top = fmaxf(top, args.top[t * rows + n]);
#pragma unroll 2
    for (int64_t t = group; t < args.column_tiles; t += kGroups) {
      const float its = args.top[t * rows + n];
      const double its_sum = args.sum[t * rows + n];
      const bool has_any = its != -INFINITY;  // else its sum is 0, or NaN
      const double shift = has_any ? (static_cast<double>(its) - top) * scale : 0, factor = exp2(shift);
      sum += its_sum * factor;
      if (args.weighted != nullptr) weighted += (args.weighted[t * rows + n] + shift * its_sum) * factor;
    }
  }
  part[0][group][own] = top;
  part[1][group][own] = sum;
  part[2][group][own] = weighted;
  __syncthreads();
  if (group != 0 || n >= rows) return;
  double all_top = -INFINITY;
  for (int g = 0; g < kGroups; ++g) all_top = part[0][g][own] > all_top ? part[0][g][own] : all_top;
  double all_sum = 0, all_weighted = 0;
#pragma unroll 2
  for (int g = 0; g < kGroups; ++g) {
    const bool has_any = part[0][g][own] != -INFINITY;
    const double shift = has_any ? (part[0][g][own] - all_top) * scale : 0, factor = exp2(shift);
    all_sum += part[1][g][own] * factor;
    all_weighted += (part[2][g][own] + shift * part[1][g][own]) * factor;
  }

  const simt::Token token = simt::resolve_token(args.tokens, n);
  double logp = 0, lse = 0, entropy = 0;
  if (token.state == simt::kRowNan) {
    simt::report_data_error(args.errors, token.kind, args.first_row + n, token.value);
    logp = lse = entropy = NAN;
  } else if (token.state == simt::kRowActive) {
    if (all_sum == 0) {  // every score here is -inf
      logp = lse = -INFINITY;
      if (args.tokens.sharded == 0) {
        simt::report_data_error(args.errors, simt::kDataNoFiniteLogit, args.first_row + n, 0);
        logp = lse = entropy = NAN;
      }
    } else {
      const double log_sum = log(all_sum);
      lse = all_top / args.transform.temperature + log_sum;
      entropy = log_sum - all_weighted / all_sum * 0.69314718055994530942;
      logp = token.target >= 0 ? (args.target[n] - all_top) / args.transform.temperature - log_sum : -INFINITY;
    }
  }
  if (args.logp_is_accumulator != 0) {
    static_cast<float*>(args.logp)[n] = simt::Narrow<float>::of(logp);
  } else {
    static_cast<T*>(args.logp)[n] = simt::Narrow<T>::of(logp);
  }
  if (args.lse != nullptr) args.lse[n] = simt::Narrow<float>::of(lse);
  if (args.entropy != nullptr) args.entropy[n] = simt::Narrow<float>::of(entropy);
}

}  // namespace rlk::cuda_kernels
