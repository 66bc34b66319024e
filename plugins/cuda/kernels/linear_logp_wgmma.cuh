// linear_logp for 16-bit tensors on the warpgroup products of sm_90a: the scores stay in registers.
//
// A block is a warpgroup that fetches and two that compute 64 rows each of a tile of 128 rows and 192 entries of the
// vocabulary. Slabs of both operands arrive in a ring. Blocks stay on the device and walk over the tiles, bands of rows
// outside, then the vocabulary, rows inside: a band's hidden states stay in the cache while the weights pass once. What
// a tile leaves of each row are its largest score, its sums and, where it is there, the target's score; a second kernel
// merges the tiles of a row in a fixed order. A row's bits depend on that row alone.
// Matrix units cut a sum at every step: chains of a few slabs are added in fp32, and a thread has registers for both.
// Cost: a tile of 4096 products long keeps the tensor cores busy for 49152 cycles, the exponential unit for 1536.
// Measured on an H200 at its power limit, with tiles of 256 columns, and left out, since neither brought 2 %: clusters
// of two blocks that share the weights' slabs, and statistics of half a tile beside the products of the other half.
#pragma once

#include "../../simt/tokens.cuh"
#include "bulk_copies.cuh"
#include "linear_logp_wgmma.h"
#include "warpgroup_products.cuh"

namespace rlk::cuda_kernels {

using cuda::kLinearColumns;
using cuda::kLinearInner;
using cuda::kLinearRows;
using cuda::kLinearStages;
using cuda::LinearLogpWgmmaArgs;

// What a kernel has beside the plain statistics: entropy, a bias or a softcap.
template <bool kEntropy_, bool kTransform_>
struct LinearForm {
  static constexpr bool kEntropy = kEntropy_, kTransform = kTransform_;
};

// A stage's place in the ring: a full and an empty barrier for each. The side that fills begins with parity 1, as if
// all stages had just been emptied.
struct LinearRing {
  uint32_t shared, parity;
  int stage = 0;
  __device__ __forceinline__ uint32_t slab() const { return shared + stage * cuda::kLinearStageBytes; }
  __device__ __forceinline__ uint32_t full() const {
    return shared + kLinearStages * cuda::kLinearStageBytes + 8 * stage;
  }
  __device__ __forceinline__ uint32_t empty() const { return full() + 8 * kLinearStages; }
  __device__ __forceinline__ void advance() {
    if (++stage == kLinearStages) {
      stage = 0;
      parity ^= 1;
    }
  }
};

// The tiles of a block, in order.
struct LinearTiles {
  int item = static_cast<int>(blockIdx.x);
  int row = 0, column = 0;
  __device__ __forceinline__ bool next(const LinearLogpWgmmaArgs& args) {
    if (item >= args.row_tiles * args.column_tiles) return false;
    const int band_items = args.band_tiles * args.column_tiles;
    const int band = item / band_items, within = item - band * band_items, first = band * args.band_tiles;
    const int left = args.row_tiles - first, tiles = left < args.band_tiles ? left : args.band_tiles;
    column = within / tiles * kLinearColumns;
    row = (first + within % tiles) * kLinearRows;
    item += static_cast<int>(gridDim.x);
    return true;
  }
};

// One thread fetches the slabs of all tiles.
__device__ __forceinline__ void fetch_slabs(const LinearLogpWgmmaArgs& args, uint32_t shared) {
  LinearRing ring{shared, 1};
  for (LinearTiles tiles; tiles.next(args);) {
#pragma unroll 1
    for (int slab = 0; slab < args.slabs; ++slab) {
      barrier_wait(ring.empty(), ring.parity);
      barrier_expect(ring.full(), cuda::kLinearStageBytes);
      copy_slab(ring.slab(), args.hidden, slab * kLinearInner, tiles.row, ring.full());
      copy_slab(ring.slab() + kLinearRows * 2 * kLinearInner, args.weight, slab * kLinearInner, tiles.column,
                ring.full());
      ring.advance();
    }
  }
}

// Of a row and a tile's columns. A NaN is in the sum, not in the top.
struct LinearStatistics {
  float top, sum, weighted;
};

// A thread's scores: rows 16 warp + lane / 4 and the one 8 below, columns 8 j + lane % 4 * 2 + e.
template <class T, class Form>
struct LinearScores {
  static constexpr int kN = kLinearColumns / 8;
  float x[kN][4], chain[kN][4];

  // a, b: descriptors of a slab's operands. add 0: a new chain.
  __device__ __forceinline__ void multiply(uint64_t a, uint64_t b, int add) {
    begin_products();
#pragma unroll
    for (int k = 0; k < kLinearInner / 16; ++k) {
      multiply_group<T, true, true>(chain, a + 2 * k, b + 2 * k, k > 0 ? 1 : add);  // 32 bytes on
    }
    commit_products();
  }

  __device__ __forceinline__ void add_chain(bool is_first) {
#pragma unroll
    for (int j = 0; j < kN; ++j) {
#pragma unroll
      for (int i = 0; i < 4; ++i) x[j][i] = is_first ? chain[j][i] : x[j][i] + chain[j][i];
    }
  }

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

// The work of warpgroup 0 or 1 of those that compute.
template <class T, class Form>
__device__ __forceinline__ void compute_scores(const LinearLogpWgmmaArgs& args, uint32_t shared, int warpgroup) {
  constexpr int kRowBytes = 2 * kLinearInner;
  const int thread = static_cast<int>(threadIdx.x) % 128, lane = thread % 32;
  const int own_row = warpgroup * 64 + thread / 32 * 16 + lane / 4, own_column = lane % 4 * 2;
  const int rows = static_cast<int>(args.tokens.rows);
  const uint64_t layout = operand_layout(0);
  const auto release = [lane](uint32_t barrier) {
    if (lane == 0) barrier_arrive(barrier);
  };
  LinearRing ring{shared, 0};
  LinearScores<T, Form> scores;
  for (LinearTiles tiles; tiles.next(args);) {
    int target[2];  // of both rows, counted from the lane's first column
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int row = tiles.row + own_row + 8 * h;
      const int64_t column = row < rows ? simt::resolve_token(args.tokens, row).target - tiles.column : -1;
      target[h] = column >= 0 && column < kLinearColumns ? static_cast<int>(column) - own_column : -1;
    }
#pragma unroll 1
    for (int first = 0; first < args.slabs; first += cuda::kLinearChain) {
      const int after = first + cuda::kLinearChain, last = (after < args.slabs ? after : args.slabs) - 1;
      uint32_t before = 0;  // the barrier of the slab that may still be read
#pragma unroll 1
      for (int slab = first; slab <= last; ++slab) {
        barrier_wait(ring.full(), ring.parity);
        scores.multiply(operand_at(layout, ring.slab() + warpgroup * 64 * kRowBytes),
                        operand_at(layout, ring.slab() + kLinearRows * kRowBytes), slab > first ? 1 : 0);
        wait_products<1>();
        if (slab > first) release(before);
        before = ring.empty();
        ring.advance();
      }
      wait_products<0>();
      release(before);
      scores.add_chain(first == 0);
    }

    const int64_t columns = args.tokens.vocab - tiles.column - own_column;
    if constexpr (Form::kTransform) scores.transform(args.transform, tiles.column + own_column, args.tokens.vocab);
    if (columns < kLinearColumns) scores.hide_from(columns);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int row = tiles.row + own_row + 8 * h;
      if (target[h] >= 0) scores.store_target(h, target[h], args.target + row);
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
  if (threadIdx.x == 0) {
    LinearRing ring{shared, 0};
    for (int i = 0; i < kLinearStages; ++i) {
      barrier_init(ring.full(), 1);
      barrier_init(ring.empty(), 8);  // the computing warps
      ring.advance();
    }
    barriers_ready();
  }
  __syncthreads();
  // 40 + 2 x 232 registers are the 3 x 168 of the launch.
  const int warpgroup = static_cast<int>(threadIdx.x) / 128;
  if (warpgroup == 0) {
    give_registers<40>();
    if (threadIdx.x == 0) fetch_slabs(args, shared);
  } else {
    take_registers<232>();
    compute_scores<T, Form>(args, shared, warpgroup - 1);
  }
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
