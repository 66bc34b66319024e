// Grouped products by Hopper's wgmma and bulk copies, for tensors that tensor maps can describe.
//
// Two blocks of a cluster make two tiles of 128 rows and 256 columns that share an operand: tiles of rows that follow
// each other in a group share the columns' operand; a group's last tile of rows, where their number is odd, makes two
// tiles of columns, which share that of the rows. Of the shared one each block fetches half for both: 32 or 40 KB of a
// slab's 48. A block is a warpgroup that fetches into a ring of slabs and two that multiply 64 rows each. Clusters stay
// on the device and walk over the pairs; the ring is filled across tiles.
//
// What the copies bring of rows beyond a group belongs to the next one. As rows of the result it is not written; of a
// sum over rows, the lines of a group's last slab are cleared before they are multiplied.
// Cost: 65536 cycles of the tensor cores for a tile of 4096 products. 32 groups of 256 rows, K and M of 4096, are 8
// rounds of tiles, 524288 cycles, and take 602000 on an H200, 18000 of them for what is written. At the card's power
// limit blocks that fetch all for themselves take as long there, 440 us, but for groups of 1 to 1000 rows 1009 us and
// not 909. Sums over the same rows take 760 us, 432 without what is written; in pieces of 64 bytes they took 835.
// Left out, since it brings nothing: a later start of the second warpgroup, of sums at every tile, too.
#pragma once

#include "cluster_copies.cuh"
#include "grouped_pairs.h"
#include "grouped_tiles.cuh"
#include "warpgroup_products.cuh"

namespace rlk::cuda_kernels {

using cuda::GroupedPairArgs;
using cuda::kGroupedMmaColumns;
using cuda::kGroupedPair;
using cuda::kGroupedPairStageBytes;
using cuda::kGroupedPairStages;

// What a kernel makes, and how its operands lie (as pieces do).
template <bool kSums_, bool kInnerA_, bool kInnerB_>
struct GroupedPairForm {
  static constexpr bool kSums = kSums_, kInnerA = kInnerA_, kInnerB = kInnerB_, kWide = true;
  static constexpr int kThreads = cuda::kGroupedPairThreads;
  static constexpr uint32_t kLines = kGroupedPairStages * kGroupedPairStageBytes;
  static constexpr uint32_t kBarriers = kLines + 8 * cuda::kGroupedPairWarpBytes;
};

// A block's tile of the result.
struct PairedTile {
  int group;            // -1: there is no such pair
  int row, column;      // of its first element: the row of the tensor, or of the group's matrix of sums
  int rows;             // from there on; 0 and less: none
  int first, inner;     // of the sum: its first row of the tensors, for sums over rows; its elements
  bool shares_columns;  // with the other block, else its rows
};

// This block's tiles, asked for in rising order by all lanes of a wave together.
template <class Form>
class PairedTiles {
public:
  __device__ __forceinline__ PairedTiles(const GroupedPairArgs& args, int rank)
      : args_(args), rank_(rank), column_tiles_(static_cast<int>(args.column_tiles)) {}

  __device__ __forceinline__ PairedTile find(int item) { return Form::kSums ? find_sums(item) : find_rows(item); }

private:
  __device__ __forceinline__ PairedTile find_sums(int item) const {
    const int height_tiles = static_cast<int>(args_.height_tiles), all = pairs_of(height_tiles);
    const int group = all > 0 ? item / all : 0;
    if (all == 0 || group >= args_.of.groups) return none();
    PairedTile tile = place(item - group * all, height_tiles);
    tile.group = group;
    tile.rows = static_cast<int>(args_.of.height) - tile.row;
    tile.first = index_at(group);
    tile.inner = index_at(group + 1) - tile.first;
    return tile;
  }

  __device__ __forceinline__ PairedTile find_rows(int item) {
    const int lane = static_cast<int>(threadIdx.x) % kWave, groups = static_cast<int>(args_.of.groups);
    for (; first_group_ < groups; first_group_ += kWave) {
      const int g = first_group_ + lane;
      const int begin = g < groups ? index_at(g) : 0, rows = g < groups ? index_at(g + 1) - begin : 0;
      const int own = pairs_of(tiles_of(rows));
      int through = own;
#pragma unroll
      for (int n = 1; n < kWave; n *= 2) {
        const int lower = wave_read(through, lane < n ? lane : lane - n);
        if (lane >= n) through += lower;
      }
      const int all = wave_read(through, kWave - 1);
      if (item >= before_ + all) {
        before_ += all;
        continue;
      }
      const uint64_t beyond = wave_ballot(before_ + through > item);
      int owner = 0;
      while ((beyond >> owner & 1) == 0) ++owner;
      const int its_rows = wave_read(rows, owner);
      PairedTile tile = place(item - before_ - wave_read(through - own, owner), tiles_of(its_rows));
      tile.group = first_group_ + owner;
      tile.rows = its_rows - tile.row;
      tile.row += wave_read(begin, owner);
      tile.first = 0;
      tile.inner = static_cast<int>(args_.of.inner);
      return tile;
    }
    return none();
  }

  static __device__ __forceinline__ PairedTile none() {
    return {-1, 0, 0, 0, 0, 0, false};
  }
  static __device__ __forceinline__ int tiles_of(int rows) {
    return (rows + kGroupedMmaRows - 1) / kGroupedMmaRows;
  }
  __device__ __forceinline__ int index_at(int position) const {
    return static_cast<int>(read_index(args_.of.cu_seqlens, position, args_.of.cu_are_i64 != 0));
  }
  __device__ __forceinline__ int pairs_of(int row_tiles) const {
    return row_tiles / 2 * column_tiles_ + row_tiles % 2 * ((column_tiles_ + 1) / 2);
  }

  // Eight tiles of rows share the columns' operand while it is in the cache.
  __device__ __forceinline__ PairedTile place(int item, int row_tiles) const {
    constexpr int kBand = 8 / kGroupedPair;
    const int units = row_tiles / 2, of_units = units * column_tiles_;
    PairedTile tile;
    tile.shares_columns = item < of_units;
    if (tile.shares_columns) {
      const int band = item / (kBand * column_tiles_), left = units - kBand * band;
      const int band_units = left < kBand ? left : kBand, within = item - band * kBand * column_tiles_;
      const int column = within / band_units, unit = kBand * band + within - column * band_units;
      tile.row = (2 * unit + rank_) * kGroupedMmaRows;
      tile.column = column * kGroupedMmaColumns;
    } else {
      tile.row = 2 * units * kGroupedMmaRows;
      tile.column = (2 * (item - of_units) + rank_) * kGroupedMmaColumns;
    }
    return tile;
  }

  const GroupedPairArgs& args_;
  const int rank_, column_tiles_;
  int first_group_ = 0, before_ = 0;  // of the wave's groups; pairs before them
};

// A stage's place in the ring: a full and an empty barrier for each. The side that fills begins with parity 1, as if
// all stages had just been emptied.
template <class Form>
struct PairRing {
  uint32_t shared, parity;
  int stage = 0;
  __device__ __forceinline__ uint32_t slab() const { return shared + stage * kGroupedPairStageBytes; }
  __device__ __forceinline__ uint32_t full() const { return shared + Form::kBarriers + 8 * stage; }
  __device__ __forceinline__ uint32_t empty() const { return full() + 8 * kGroupedPairStages; }
  __device__ __forceinline__ void advance() {
    if (++stage == kGroupedPairStages) {
      stage = 0;
      parity ^= 1;
    }
  }
};

// Half an operand of a slab, 64 rows or 128 columns of the result from `outer` on, to this block or to both.
template <int kExtent, bool kInner>
__device__ __forceinline__ void fetch_half(uint32_t to, const cuda::TensorMap& from, int outer, int inner, int group,
                                           uint32_t barrier, bool for_both) {
  constexpr int kBoxes = kInner ? 1 : kExtent / 64;
  constexpr uint32_t kBoth = (1u << kGroupedPair) - 1;
#pragma unroll
  for (int i = 0; i < kBoxes; ++i) {
    const uint32_t at = to + i * (kGroupedMmaInner * kLineBytes);
    const int column = kInner ? inner : outer + 64 * i, row = kInner ? outer : inner;
    if (for_both) {
      copy_box_to(at, from, column, row, group, barrier, kBoth);
    } else {
      copy_box(at, from, column, row, group, barrier);
    }
  }
}

// The work of the warp that fetches.
template <class Form>
__device__ __forceinline__ void fetch_pairs(const GroupedPairArgs& args, uint32_t shared, int rank) {
  constexpr int kHalfRows = kGroupedMmaRows / 2, kHalfColumns = kGroupedMmaColumns / 2;
  PairRing<Form> ring{shared, 1};
  PairedTiles<Form> tiles(args, rank);
  const bool leads = threadIdx.x % kWave == 0;
#pragma unroll 1
  for (int item = static_cast<int>(blockIdx.x) / kGroupedPair;; item += static_cast<int>(gridDim.x) / kGroupedPair) {
    const PairedTile tile = tiles.find(item);
    if (tile.group < 0) break;
    if (!leads) continue;
    const auto fetch_rows = [&](int half, int inner, bool for_both) {
      fetch_half<kHalfRows, Form::kInnerA>(ring.slab() + half * kHalfRows * kLineBytes, args.a,
                                           tile.row + half * kHalfRows, inner, 0, ring.full(), for_both);
    };
    const auto fetch_columns = [&](int half, int inner, bool for_both) {
      fetch_half<kHalfColumns, Form::kInnerB>(ring.slab() + (kGroupedMmaRows + half * kHalfColumns) * kLineBytes,
                                              args.b, tile.column + half * kHalfColumns, inner,
                                              Form::kSums ? 0 : tile.group, ring.full(), for_both);
    };
#pragma unroll 1
    for (int done = 0; done < tile.inner; done += kGroupedMmaInner) {
      const int inner = tile.first + done;
      barrier_wait(ring.empty(), ring.parity);
      barrier_expect(ring.full(), kGroupedPairStageBytes);
      if (tile.shares_columns) {
        fetch_columns(rank, inner, true);
        fetch_rows(0, inner, false);
        fetch_rows(1, inner, false);
      } else {
        fetch_rows(rank, inner, true);
        fetch_columns(0, inner, false);
        fetch_columns(1, inner, false);
      }
      ring.advance();
    }
  }
}

// Of operands whose lines are of the sum: those from `lines` on of a warpgroup's rows and of all columns become 0.
__device__ __forceinline__ void clear_lines(uint32_t rows, uint32_t columns, int lines, int barrier) {
  constexpr int kPanelBytes = kGroupedMmaInner * kLineBytes;
  const int thread = static_cast<int>(threadIdx.x) % 128;
#pragma unroll 1
  for (int at = lines * kLineBytes + thread * 16; at < kPanelBytes; at += 128 * 16) {
    zero_16(rows + at);
#pragma unroll
    for (int p = 0; p < kGroupedMmaColumns / 64; ++p) zero_16(columns + p * kPanelBytes + at);
  }
  show_to_products();
  warpgroup_sync(barrier);
}

// A warp's 16 rows as Y, through its lines in shared memory: pieces of 256 bytes are written, where fragments have 16
// of a row. The 16-byte chunks of a line lie where neither side's accesses meet in a bank.
template <class Y>
__device__ __forceinline__ void write_lines(const GroupedMmaArgs& args, const PairedTile& tile, int first_row,
                                            unsigned char* lines, const float (&sum)[kGroupedMmaColumns / 8][4]) {
  constexpr int kBytes = 256, kChunks = kBytes / 16, kOfChunk = 16 / sizeof(Y), kColumns = kBytes / sizeof(Y);
  const int lane = static_cast<int>(threadIdx.x) % kWave, own = lane / 4, chunk = lane % kChunks;
  const int columns = static_cast<int>(args.columns) - tile.column;
  const auto place = [lines](int line, int of) {
    return lines + line * kBytes + (of ^ (sizeof(Y) == 2 ? line % 8 : line % 4 * 2)) * 16;
  };
  Y* const y = static_cast<Y*>(args.y) + tile.group * args.y_stride[0] + tile.row * args.y_stride[1] + tile.column;
#pragma unroll
  for (int first = 0; first < kGroupedMmaColumns; first += kColumns) {
    wave_sync();  // what stood there has been read
#pragma unroll
    for (int n = 0; n < kColumns / 8; ++n) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int column = 8 * n + lane % 4 * 2;
        unsigned char* const to = place(own + 8 * h, column / kOfChunk) + column % kOfChunk * sizeof(Y);
        const float low = sum[first / 8 + n][2 * h], high = sum[first / 8 + n][2 * h + 1];
        if constexpr (sizeof(Y) == 2) {
          *reinterpret_cast<uint32_t*>(to) = pack_pair<Y>(low, high);
        } else {
          *reinterpret_cast<float2*>(to) = make_float2(low, high);
        }
      }
    }
    wave_sync();
    const int column = first + chunk * kOfChunk;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int line = 2 * i + lane / kChunks, row = first_row + line;
      const uint4 all = *reinterpret_cast<const uint4*>(place(line, chunk));
      if (row < tile.rows && column < columns) *reinterpret_cast<uint4*>(y + row * args.y_stride[1] + column) = all;
    }
  }
}

// The work of warpgroup 0 or 1 of those that multiply.
template <class T, class Form>
__device__ __forceinline__ void multiply_pairs(const GroupedPairArgs& args, uint32_t shared, int rank, int warpgroup) {
  constexpr uint32_t kPanelBytes = kGroupedMmaInner * kLineBytes;  // also of a warpgroup's rows
  // From 16 of the sum to the next 16, in descriptors.
  constexpr uint64_t kNextA = (Form::kInnerA ? 32 : 16 * kLineBytes) / 16;
  constexpr uint64_t kNextB = (Form::kInnerB ? 32 : 16 * kLineBytes) / 16;
  const int lane = static_cast<int>(threadIdx.x) % kWave, warp = static_cast<int>(threadIdx.x) / kWave % 4;
  const int first_row = warpgroup * 64 + warp * 16, step = static_cast<int>(gridDim.x) / kGroupedPair;
  const uint64_t layout = operand_layout(kPanelBytes);
  unsigned char* const memory = dynamic_shared();
  unsigned char* const lines =
      memory + (shared - shared_address(memory)) + Form::kLines + (warpgroup * 4 + warp) * cuda::kGroupedPairWarpBytes;
  const auto release = [lane](uint32_t barrier) {
    if (lane < kGroupedPair) barrier_arrive_at(barrier, lane);
  };
  PairRing<Form> ring{shared, 0};
  PairedTiles<Form> tiles(args, rank);
  int item = static_cast<int>(blockIdx.x) / kGroupedPair;
  PairedTile tile = tiles.find(item);
#pragma unroll 1
  while (tile.group >= 0) {
    item += step;
    PairedTile next;
    const bool has_any = warpgroup * 64 < tile.rows && tile.column < args.of.columns;
    float sum[kGroupedMmaColumns / 8][4];
#pragma unroll
    for (int n = 0; n < kGroupedMmaColumns / 8; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) sum[n][e] = 0.0f;
    }
    uint32_t before = 0;  // the barrier of the slab that may still be read
#pragma unroll 1
    for (int done = 0; done < tile.inner; done += kGroupedMmaInner) {
      barrier_wait(ring.full(), ring.parity);
      if (has_any) {
        const uint32_t a = ring.slab() + warpgroup * kPanelBytes, b = ring.slab() + kGroupedMmaRows * kLineBytes;
        if (Form::kSums && tile.inner - done < kGroupedMmaInner) clear_lines(a, b, tile.inner - done, 1 + warpgroup);
        begin_products();
#pragma unroll
        for (int k = 0; k < kGroupedMmaInner / 16; ++k) {
          multiply_group<T, Form::kInnerA, Form::kInnerB>(sum, operand_at(layout, a) + k * kNextA,
                                                          operand_at(layout, b) + k * kNextB);
        }
        commit_products();
      }
      if (done == 0) next = tiles.find(item);  // while the tensor cores work
      wait_products<1>();
      if (done > 0) release(before);
      before = ring.empty();
      ring.advance();
    }
    wait_products<0>();
    if (tile.inner > 0) {
      release(before);
    } else {
      next = tiles.find(item);
    }
    if (has_any) write_lines<std::conditional_t<Form::kSums, float, T>>(args.of, tile, first_row, lines, sum);
    tile = next;
  }
}

template <class T, class Form>
__device__ __forceinline__ void grouped_pairs(const GroupedPairArgs& args) {
  if (has_bad_groups<T, Form>(args.of)) return;
  const uint32_t shared = (shared_address(dynamic_shared()) + 1023) & ~1023u;
  const int rank = block_of_cluster();
  if (threadIdx.x == 0) {
    PairRing<Form> ring{shared, 0};
    for (int i = 0; i < kGroupedPairStages; ++i) {
      barrier_init(ring.full(), 1);
      barrier_init(ring.empty(), 8 * kGroupedPair);  // the multiplying warps
      ring.advance();
    }
    barriers_ready();
  }
  cluster_sync();
  // 40 + 2 x 232 registers are the 3 x 168 of the launch.
  const int warpgroup = static_cast<int>(threadIdx.x) / 128;
  if (warpgroup == 0) {
    give_registers<40>();
    if (threadIdx.x < kWave) fetch_pairs<Form>(args, shared, rank);
  } else {
    take_registers<232>();
    multiply_pairs<T, Form>(args, shared, rank, warpgroup - 1);
  }
  cluster_sync();  // the other block still writes to this one's memory
}

}  // namespace rlk::cuda_kernels
