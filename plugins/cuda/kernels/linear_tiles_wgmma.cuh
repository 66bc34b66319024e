// Tiles of scores of 16-bit tensors on the warpgroup products of sm_90a, hidden states times the vocabulary's weights:
// what linear_logp (linear_logp_wgmma.cuh) and its gradients (linear_slopes_wgmma.cuh) do with them is theirs.
//
// A block is a warpgroup that fetches and two that compute 64 rows each of a tile of 128 rows and 192 entries of the
// vocabulary. Slabs of both operands arrive in a ring. Blocks stay on the device and walk over the tiles, bands of rows
// outside, then the vocabulary, rows inside: a band's hidden states stay in the cache while the weights pass once.
// Matrix units cut a sum at every step: chains of a few slabs are added in fp32, and a thread has registers for both.
//
// Args, of a kernel's arguments, has the tensor maps and counts of LinearLogpWgmmaArgs under the same names.
#pragma once

#include "bulk_copies.cuh"
#include "linear_logp_wgmma.h"
#include "warpgroup_products.cuh"

namespace rlk::cuda_kernels {

using cuda::kLinearColumns;
using cuda::kLinearInner;
using cuda::kLinearRows;
using cuda::kLinearStages;

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
  template <class Args>
  __device__ __forceinline__ bool next(const Args& args) {
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
template <class Args>
__device__ __forceinline__ void fetch_slabs(const Args& args, uint32_t shared) {
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

// A thread's scores: rows 16 warp + lane / 4 and the one 8 below, columns 8 j + lane % 4 * 2 + e.
template <class T>
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
};

// The scores of one tile: all its slabs as they arrive in the ring.
template <class T>
__device__ __forceinline__ void sum_slabs(LinearScores<T>& scores, LinearRing& ring, int slabs, int warpgroup) {
  constexpr int kRowBytes = 2 * kLinearInner;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const uint64_t layout = operand_layout(0);
  const auto release = [lane](uint32_t barrier) {
    if (lane == 0) barrier_arrive(barrier);
  };
#pragma unroll 1
  for (int first = 0; first < slabs; first += cuda::kLinearChain) {
    const int after = first + cuda::kLinearChain, last = (after < slabs ? after : slabs) - 1;
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
}

// What a block does: one warpgroup fetches, two compute; compute(warpgroup) is their part.
template <class Args, class Compute>
__device__ __forceinline__ void walk_linear_tiles(const Args& args, uint32_t shared, Compute compute) {
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
    compute(warpgroup - 1);
  }
}

}  // namespace rlk::cuda_kernels
