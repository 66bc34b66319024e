// linear_logp for 16-bit tensors on the warpgroup products of sm_90a: the scores stay in registers.
//
// A block is a warpgroup that fetches and two that compute 64 rows each of a tile of 128 rows and 256 entries of the
// vocabulary. Slabs of both operands arrive in a ring; of the blocks of a cluster, which have rows of their own and the
// same entries, each fetches a part of the weights' slab for all. Blocks stay on the device and walk over the tiles,
// bands of rows outside, then the vocabulary, rows inside: a band's hidden states stay in the cache while the weights
// pass once. What a tile leaves of each row are its largest score, its sums and, where it is there, the target's
// score; a second kernel merges the tiles of a row in a fixed order. A row's bits depend on that row alone.
// Cost: a tile of 4096 products long keeps the tensor cores busy for 65536 cycles, the exponential unit for 2048.
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

// Blocks of a cluster, and what a kernel has beside the plain statistics: entropy, a bias or a softcap. kHead, kTail:
// slabs at the beginning and at the end of a sum that are multiplied beside statistics, 0: none are.
template <int kCluster_, bool kEntropy_, bool kTransform_, int kHead_ = 0, int kTail_ = 0>
struct LinearForm {
  static constexpr int kCluster = kCluster_, kHead = kHead_, kTail = kTail_;
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

// The tiles of a cluster, in order.
template <int kCluster>
struct LinearTiles {
  int item, step;
  int row, column;  // of the cluster's first block
  __device__ __forceinline__ LinearTiles()
      : item(static_cast<int>(blockIdx.x) / kCluster), step(static_cast<int>(gridDim.x) / kCluster) {}
  __device__ __forceinline__ bool next(const LinearLogpWgmmaArgs& args) {
    if (item >= args.row_units * args.column_tiles) return false;
    const int band_items = args.band_units * args.column_tiles;
    const int band = item / band_items, within = item - band * band_items, first = band * args.band_units;
    const int left = args.row_units - first, units = left < args.band_units ? left : args.band_units;
    column = within / units * kLinearColumns;
    row = (first + within % units) * (kCluster * kLinearRows);
    item += step;
    return true;
  }
};

// One thread fetches the slabs of all tiles.
template <int kCluster>
__device__ __forceinline__ void fetch_slabs(const LinearLogpWgmmaArgs& args, uint32_t shared, int rank) {
  constexpr int kShare = kLinearColumns / kCluster;
  constexpr int kRowBytes = 2 * kLinearInner;
  LinearRing ring{shared, 1};
  for (LinearTiles<kCluster> tiles; tiles.next(args);) {
    const int row = tiles.row + rank * kLinearRows, column = tiles.column + rank * kShare;
#pragma unroll 1
    for (int slab = 0; slab < args.slabs; ++slab) {
      barrier_wait(ring.empty(), ring.parity);
      barrier_expect(ring.full(), cuda::kLinearStageBytes);
      copy_slab(ring.slab(), args.hidden, slab * kLinearInner, row, ring.full());
      const uint32_t to = ring.slab() + (kLinearRows + rank * kShare) * kRowBytes;
      if constexpr (kCluster == 1) {
        copy_slab(to, args.weight, slab * kLinearInner, column, ring.full());
      } else {
        copy_slab_to(to, args.weight, slab * kLinearInner, column, ring.full(), (1u << kCluster) - 1);
      }
      ring.advance();
    }
  }
}

// Of a row and some columns.
struct LinearStatistics {
  float top, sum, weighted;
};

// Two disjoint parts of a row. A NaN is in the sum, not in the top.
template <bool kEntropy>
__device__ __forceinline__ void add_statistics(LinearStatistics& to, const LinearStatistics& part, float scale) {
  const float top = fmaxf(to.top, part.top), base = top == -INFINITY ? 0.0f : top;
  const float d_to = (to.top - base) * scale, d_part = (part.top - base) * scale;
  const float f_to = simt::exp2_fast(d_to), f_part = simt::exp2_fast(d_part);
  if constexpr (kEntropy) {
    // exp(d) d with d measured from the new top: d grows by (its top - top) * scale.
    const float own = fmaf(d_to > -1024.0f ? d_to : -1024.0f, to.sum, to.weighted);
    const float others = fmaf(d_part > -1024.0f ? d_part : -1024.0f, part.sum, part.weighted);
    to.weighted = fmaf(own, f_to, others * f_part);
  }
  // What was summed under a top of -inf is 0 (or NaN, and stays so).
  to.sum = fmaf(to.sum, f_to, part.sum * f_part);
  to.top = top;
}

// Half of a thread's scores: rows 16 warp + lane / 4 and the one 8 below, columns 8 j + lane % 4 * 2 + e.
template <class T, class Form>
struct LinearScores {
  static constexpr int kN = kLinearColumns / 2 / 8;
  float (&x)[kN][4];

  // The compiler moves no access to these across this point.
  __device__ __forceinline__ void pin() {
#pragma unroll
    for (int j = 0; j < kN; ++j) {
#pragma unroll
      for (int e = 0; e < 4; ++e) pin_register(x[j][e]);
    }
  }

  // y = cap(x + bias); first: the lane's first column.
  __device__ __forceinline__ void transform(const simt::LogitTransform& of, int64_t first, int64_t vocab) {
    const float softcap = static_cast<float>(of.softcap);
    const float inverse = softcap > 0.0f ? static_cast<float>(1.0 / of.softcap) : 0.0f;
    const T* const bias = static_cast<const T*>(of.bias);
#pragma unroll
    for (int j = 0; j < kN; ++j) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int64_t column = first + 8 * j + e;
        const float add = bias != nullptr && column < vocab ? simt::widen(bias[column]) : 0.0f;
#pragma unroll
        for (int h = 0; h < 2; ++h) x[j][2 * h + e] = simt::cap_logit(x[j][2 * h + e], add, softcap, inverse);
      }
    }
  }

  // There are so many columns, counted from the lane's first.
  __device__ __forceinline__ void hide_from(int columns) {
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

// The rows of a warpgroup that this thread has of a tile, and what is known of them.
struct LinearPlace {
  int row, column;  // of the tile
  int target[2];    // of both rows, counted from the tile's first column; far outside where it is not here
  LinearStatistics left[2];
};

// The work of warpgroup 0 or 1 of those that compute. Scores are two halves, each with the sums of 128 columns: the
// last kTail slabs are multiplied for the left half, then for the right one, the first kHead slabs of the next tile the
// same. So one half's statistics are made beside the products of the other.
template <class T, class Form>
class LinearWarpgroup {
public:
  __device__ __forceinline__ LinearWarpgroup(const LinearLogpWgmmaArgs& args, uint32_t shared, int rank, int warpgroup)
      : args_(args),
        full_{shared, 0},
        held_{shared, 0},
        layout_(operand_layout(0)),
        lane_(static_cast<int>(threadIdx.x) % 32),
        own_row_(rank * kLinearRows + warpgroup * 64 + static_cast<int>(threadIdx.x) % 128 / 32 * 16 + lane_ / 4),
        own_column_(lane_ % 4 * 2),
        own_lines_(warpgroup * 64 * kRowBytes) {}

  // Of any sums: products, then the statistics of both halves.
  __device__ __forceinline__ void run_apart() {
    float x[kLinearColumns / 8][4];
    auto& left = *reinterpret_cast<float(*)[kLinearColumns / 16][4]>(x);
    auto& right = *reinterpret_cast<float(*)[kLinearColumns / 16][4]>(x + kLinearColumns / 16);
    for (LinearTiles<Form::kCluster> tiles; tiles.next(args_);) {
      LinearPlace at = place(tiles);
#pragma unroll 1
      for (int slab = 0; slab < args_.slabs; ++slab) {
        multiply_slab(x, slab > 0 ? 1 : 0);
        wait_products<1>();
        release(held_count_);
        held_count_ = 1;
      }
      wait_products<0>();
      release(1);
      settle(left, at, 0);
#pragma unroll
      for (int h = 0; h < 2; ++h) begin(left, at, h);
      finish(right, at);
    }
  }

  // Of sums of more than kHead + kTail slabs.
  __device__ __forceinline__ void run() {
    float x[kLinearColumns / 8][4];
    auto& left = *reinterpret_cast<float(*)[kLinearColumns / 16][4]>(x);
    auto& right = *reinterpret_cast<float(*)[kLinearColumns / 16][4]>(x + kLinearColumns / 16);
    LinearTiles<Form::kCluster> tiles;
    if (!tiles.next(args_)) return;
    LinearRing first = full_;
    begin_products();
    multiply_slabs<Form::kHead>(left, false, true);
    commit_products();
    for (;;) {
      LinearPlace at = place(tiles);
      begin_products();
#pragma unroll
      for (int slab = 0; slab < Form::kHead; ++slab) {
        multiply_half(right, first, 1, slab > 0 ? 1 : 0);
        first.advance();
      }
      commit_products();
#pragma unroll 1
      for (int slab = Form::kHead; slab < args_.slabs - Form::kTail; ++slab) {
        multiply_slab(x, 1);
        wait_products<1>();
        release(held_count_);
        held_count_ = 1;
      }
      first = full_;
      begin_products();
      multiply_slabs<Form::kTail>(left, true, true);
      commit_products();
      wait_products<1>();
      release(1);
      begin_products();
#pragma unroll
      for (int slab = 0; slab < Form::kTail; ++slab) {
        multiply_half(right, first, 1, 1);
        commit_products();
        first.advance();
      }
      wait_products<Form::kTail>();
      settle(left, at, 0);
      begin(left, at, 0);
      wait_products<Form::kTail - 1>();
      release(1);
      begin(left, at, 1);
      wait_products<0>();
      release(Form::kTail - 1);
      // Behind the last tile products of what happens to lie there: without a branch the compiler keeps them apart from
      // the other half.
      const bool has_next = tiles.next(args_);
      first = full_;
      begin_products();
      multiply_slabs<Form::kHead>(left, false, has_next);
      commit_products();
      finish(right, at);
      if (!has_next) break;
    }
    wait_products<0>();
  }

private:
  static constexpr int kRowBytes = 2 * kLinearInner, kWeights = kLinearRows * kRowBytes;
  static constexpr int kHalfBytes = kLinearColumns / 2 * kRowBytes;

  // The next slab; a group. add 0: what was in x is dropped.
  __device__ __forceinline__ void multiply_slab(float (&x)[kLinearColumns / 8][4], int add) {
    barrier_wait(full_.full(), full_.parity);
    begin_products();
#pragma unroll
    for (int k = 0; k < kLinearInner / 16; ++k) {
      multiply_group<T, true, true>(x, operand_at(layout_, full_.slab() + own_lines_ + 32 * k),
                                    operand_at(layout_, full_.slab() + kWeights + 32 * k), k > 0 ? 1 : add);
    }
    commit_products();
    full_.advance();
  }
  __device__ __forceinline__ void multiply_half(float (&x)[kLinearColumns / 16][4], const LinearRing& ring, int half,
                                                int add) {
#pragma unroll
    for (int k = 0; k < kLinearInner / 16; ++k) {
      multiply_group<T, true, true>(x, operand_at(layout_, ring.slab() + own_lines_ + 32 * k),
                                    operand_at(layout_, ring.slab() + kWeights + half * kHalfBytes + 32 * k), k > 0 ? 1 : add);
    }
  }
  // The next slabs, which stay held.
  template <int kSlabs>
  __device__ __forceinline__ void multiply_slabs(float (&x)[kLinearColumns / 16][4], bool add, bool are_there) {
#pragma unroll
    for (int slab = 0; slab < kSlabs; ++slab) {
      if (are_there) barrier_wait(full_.full(), full_.parity);
      multiply_half(x, full_, 0, add || slab > 0 ? 1 : 0);
      full_.advance();
    }
    held_count_ += kSlabs;
  }
  // The oldest slabs, in all blocks of the cluster.
  __device__ __forceinline__ void release(int slabs) {
    held_count_ -= slabs;
#pragma unroll 1
    for (int i = 0; i < slabs; ++i) {
      if (lane_ < Form::kCluster) barrier_arrive_at(held_.empty(), lane_);
      held_.advance();
    }
  }

  __device__ __forceinline__ LinearPlace place(const LinearTiles<Form::kCluster>& tiles) const {
    LinearPlace at;
    at.row = tiles.row;
    at.column = tiles.column;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int row = tiles.row + own_row_ + 8 * h;
      const int64_t target = row < args_.tokens.rows ? simt::resolve_token(args_.tokens, row).target : -1;
      const int64_t from_tile = target < 0 ? -1 : target - tiles.column;
      at.target[h] = from_tile >= 0 && from_tile < kLinearColumns ? static_cast<int>(from_tile) : -kLinearColumns;
    }
    return at;
  }

  // half's columns as y, the target's to memory.
  __device__ __forceinline__ void settle(float (&x)[kLinearColumns / 16][4], const LinearPlace& at, int half) {
    LinearScores<T, Form> scores{x};
    scores.pin();
    const int column = at.column + own_column_ + half * (kLinearColumns / 2);
    const int64_t columns = args_.tokens.vocab - column;
    if constexpr (Form::kTransform) scores.transform(args_.transform, column, args_.tokens.vocab);
    if (columns < kLinearColumns / 2) scores.hide_from(static_cast<int>(columns));
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int target = at.target[h] - half * (kLinearColumns / 2);
      if (target >= 0 && target < kLinearColumns / 2) {
        scores.store_target(h, target - own_column_, args_.target + at.row + own_row_ + 8 * h);
      }
    }
  }
  // Of row h.
  __device__ __forceinline__ void begin(float (&x)[kLinearColumns / 16][4], LinearPlace& at, int h) {
    at.left[h] = LinearScores<T, Form>{x}.statistics(h, args_.transform.exp2_scale);
    // Never true. Without a branch here the compiler waits first and makes the sums beside idle tensor cores.
    trap_if(at.left[h].sum < 0.0f);
  }
  __device__ __forceinline__ void finish(float (&x)[kLinearColumns / 16][4], LinearPlace& at) {
    settle(x, at, 1);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      LinearStatistics& all = at.left[h];
      const LinearStatistics right = LinearScores<T, Form>{x}.statistics(h, args_.transform.exp2_scale);
      add_statistics<Form::kEntropy>(all, right, args_.transform.exp2_scale);
      const int64_t row = at.row + own_row_ + 8 * h;
      if (own_column_ == 0 && row < args_.tokens.rows) {
        const int64_t to = static_cast<int64_t>(at.column / kLinearColumns) * args_.tokens.rows + row;
        args_.top[to] = all.top;
        args_.sum[to] = all.sum;
        if constexpr (Form::kEntropy) args_.weighted[to] = all.weighted;
      }
    }
  }

  const LinearLogpWgmmaArgs& args_;
  LinearRing full_, held_;  // the next slab; the oldest that is not released
  int held_count_ = 0;
  const uint64_t layout_;
  const int lane_, own_row_, own_column_, own_lines_;
};

template <class T, class Form>
__device__ __forceinline__ void linear_logp_wgmma(const LinearLogpWgmmaArgs& args) {
  const uint32_t shared = (shared_address(simt::dynamic_shared()) + 1023) & ~1023u;
  const int rank = Form::kCluster == 1 ? 0 : block_of_cluster();
  if (threadIdx.x == 0) {
    LinearRing ring{shared, 0};
    for (int i = 0; i < kLinearStages; ++i) {
      barrier_init(ring.full(), 1);
      barrier_init(ring.empty(), 8 * Form::kCluster);  // the computing warps of all blocks
      ring.advance();
    }
    barriers_ready();
  }
  cluster_sync();
  // 40 + 2 x 232 registers are the 3 x 168 of the launch.
  const int warpgroup = static_cast<int>(threadIdx.x) / 128;
  if (warpgroup == 0) {
    give_registers<40>();
    if (threadIdx.x == 0) fetch_slabs<Form::kCluster>(args, shared, rank);
  } else {
    take_registers<232>();
    LinearWarpgroup<T, Form> computing(args, shared, rank, warpgroup - 1);
    if constexpr (Form::kHead > 0) {
      computing.run();
    } else {
      computing.run_apart();
    }
  }
  cluster_sync();  // no block leaves while another may still fetch for it or arrive at its barriers
}

// A row's tiles by turns to groups of threads, then those of all groups in order, in fp64; everything that needs a row's
// own values.
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
