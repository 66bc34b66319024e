// Tiles of scores of 16-bit tensors on the warpgroup products of sm_90a, hidden states times the vocabulary's weights:
// what linear_logp (linear_logp_wgmma.cuh) and its gradients (linear_slopes_wgmma.cuh) do with them is theirs.
//
// A block is a warpgroup that fetches and two that compute 64 rows each of a tile of 128 rows and 192 entries of the
// vocabulary. Slabs of both operands arrive in a ring. Blocks stay on the device and take tiles as they come, bands of
// rows outside, then the vocabulary, rows inside: a band's hidden states stay in the cache while the weights pass once.
// Matrix units cut a sum at every step: chains of a few slabs are added in fp32, and a thread has registers for both.
// On an H200, 8192 x 4096 x 131072: where tiles are dealt out beforehand, blocks drift apart by whole tiles, the cache
// loses the weights before all have read them, and 43 GB come from memory; so it is 5. Without the chains a tile of
// linear_logp took 52300 cycles, where its products need 49152; with them 55000 to 57000, before the first chain was
// summed in place. Left out, since they brought nothing more: clusters of two blocks that share the weights' slabs, a
// second warpgroup that lags behind the first, and a tile's statistics beside the next one's products.
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

// What a kernel has beside plain scores: entropy, a bias or a softcap.
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

// The tiles of a block, in the order in which it takes them.
struct LinearTiles {
  int row, column;

  template <class Args>
  __device__ __forceinline__ void place(const Args& args, int number) {
    const int band_tiles = args.band_tiles * args.column_tiles;
    const int band = number / band_tiles, within = number - band * band_tiles, first = band * args.band_tiles;
    const int left = args.row_tiles - first, tiles = left < args.band_tiles ? left : args.band_tiles;
    column = within / tiles * kLinearColumns;
    row = (first + within % tiles) * kLinearRows;
  }
  // For the computing warpgroups: whether the block has another tile, whose first slab then is in the ring.
  template <class Args>
  __device__ __forceinline__ bool next(const Args& args, const LinearRing& ring, const int* numbers) {
    barrier_wait(ring.full(), ring.parity);
    const int number = numbers[ring.stage];
    if (number < 0) return false;
    place(args, number);
    return true;
  }
};

// One thread takes tiles and fetches their slabs. numbers: of the tile whose first slab is in this stage; below 0:
// there is none left.
template <class Args>
__device__ __forceinline__ void fetch_slabs(const Args& args, uint32_t shared, int* numbers) {
  const int count = args.row_tiles * args.column_tiles;
  LinearRing ring{shared, 1};
  LinearTiles tile;
  for (int next = atomicAdd(args.taken, 1);;) {
    barrier_wait(ring.empty(), ring.parity);
    if (next >= count) break;
    numbers[ring.stage] = next;
    tile.place(args, next);
    next = atomicAdd(args.taken, 1);  // the answer comes while slabs do
#pragma unroll 1
    for (int slab = 0; slab < args.slabs; ++slab) {
      if (slab > 0) barrier_wait(ring.empty(), ring.parity);
      barrier_expect(ring.full(), cuda::kLinearStageBytes);
      copy_slab(ring.slab(), args.hidden, slab * kLinearInner, tile.row, ring.full());
      copy_slab(ring.slab() + kLinearRows * 2 * kLinearInner, args.weight, slab * kLinearInner, tile.column,
                ring.full());
      ring.advance();
    }
  }
  numbers[ring.stage] = -1;
  barrier_arrive(ring.full());
}

// A thread's scores: rows 16 warp + lane / 4 and the one 8 below, columns 8 j + lane % 4 * 2 + e.
template <class T>
struct LinearScores {
  static constexpr int kN = kLinearColumns / 8;
  float x[kN][4];
};

__device__ __forceinline__ void release_slab(uint32_t barrier) {
  if (barrier != 0 && threadIdx.x % 32 == 0) barrier_arrive(barrier);
}
// before: the barrier of the slab that may still be read, or 0.
template <class T>
__device__ __forceinline__ void multiply_slab(float (&sums)[LinearScores<T>::kN][4], LinearRing& ring, int warpgroup,
                                              bool begins, uint32_t& before) {
  constexpr int kRowBytes = 2 * kLinearInner;
  barrier_wait(ring.full(), ring.parity);
  const uint64_t layout = operand_layout(0), a = operand_at(layout, ring.slab() + warpgroup * 64 * kRowBytes),
                 b = operand_at(layout, ring.slab() + kLinearRows * kRowBytes);
  begin_products();
#pragma unroll
  for (int k = 0; k < kLinearInner / 16; ++k) {
    multiply_group<T, true, true>(sums, a + 2 * k, b + 2 * k, k > 0 || !begins ? 1 : 0);  // 32 bytes on
  }
  commit_products();
  wait_products<1>();
  release_slab(before);
  before = ring.empty();
  ring.advance();
}

// The scores of one tile: all its slabs as they arrive in the ring. The first chain is summed where the others are
// added.
template <class T>
__device__ __forceinline__ void sum_slabs(LinearScores<T>& scores, LinearRing& ring, int slabs, int warpgroup) {
  constexpr int kChain = cuda::kLinearChain;
  float chain[LinearScores<T>::kN][4];
  uint32_t before = 0;
  const int head = slabs < kChain ? slabs : kChain;
#pragma unroll 1
  for (int slab = 0; slab < head; ++slab) multiply_slab<T>(scores.x, ring, warpgroup, slab == 0, before);
#pragma unroll 1
  for (int first = kChain; first < slabs; first += kChain) {
    const int after = first + kChain, last = after < slabs ? after : slabs;
#pragma unroll 1
    for (int slab = first; slab < last; ++slab) multiply_slab<T>(chain, ring, warpgroup, slab == first, before);
    wait_products<0>();
    release_slab(before);
    before = 0;
#pragma unroll
    for (int j = 0; j < LinearScores<T>::kN; ++j) {
#pragma unroll
      for (int i = 0; i < 4; ++i) scores.x[j][i] += chain[j][i];
    }
  }
  wait_products<0>();
  release_slab(before);
}

// What a block does: one warpgroup fetches, two compute; compute(warpgroup, numbers) is their part.
template <class Args, class Compute>
__device__ __forceinline__ void walk_linear_tiles(const Args& args, uint32_t shared, Compute compute) {
  __shared__ int numbers[kLinearStages];
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
    if (threadIdx.x == 0) fetch_slabs(args, shared, numbers);
  } else {
    take_registers<232>();
    compute(warpgroup - 1, numbers);
  }
}

}  // namespace rlk::cuda_kernels
