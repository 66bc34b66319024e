// Grouped products on tensor cores: what their kernels share. A launch has as many blocks as the device runs at once.
// Each walks over tiles of the result, 128 rows by 128 or 256 columns, finds on the device whose they are, and keeps
// the next pieces of both operands on their way into shared memory, across tiles too.
//
// A piece is 64 of the sum times the tile's rows or columns. In shared memory it is lines of 64 elements (128 bytes),
// contiguous as in the tensor: kInner, a line for each row of the result with 64 of the sum; else panels of 64 lines,
// each line one of the sum with 64 rows of the result. The 16-byte chunk c of line l lies at c ^ l % 8, so that the
// same chunks of eight lines lie in different banks.
#pragma once

#include <type_traits>

#include "../../simt/element.cuh"
#include "../../simt/skeleton/seqlens.cuh"
#include "grouped_mma.h"
#include "mma.cuh"

namespace rlk::cuda_kernels {

using namespace simt;
using cuda::grouped_stage_bytes;
using cuda::GroupedMmaArgs;
using cuda::kGroupedMmaInner;
using cuda::kGroupedMmaRows;

constexpr int kLineBytes = 2 * kGroupedMmaInner;

// A tile of the result and the sum that makes it.
struct GroupedTile {
  int64_t group;        // -1: there is no such tile
  int64_t row, column;  // of its first element: the row of the tensor, or of the group's matrix of sums
  int64_t rows, inner;  // rows from there on; elements of the sum
  int64_t first;        // of the sum: a row of the tensors, for sums over rows
};

// Tiles in the order of their groups. Eight tiles of rows share the columns' operand while it is in the cache.
__device__ __forceinline__ void place_in_band(int64_t item, int64_t row_tiles, int64_t column_tiles, int64_t& row_tile,
                                              int64_t& column_tile) {
  constexpr int64_t kBand = 8;
  const int64_t band = item / (kBand * column_tiles), left = row_tiles - kBand * band;
  const int64_t band_rows = left < kBand ? left : kBand, within = item - band * kBand * column_tiles;
  column_tile = within / band_rows;
  row_tile = kBand * band + within - column_tile * band_rows;
}

// The tiles of rows, asked for in rising order by all lanes of a wave together.
template <int kColumns>
class RowTiles {
public:
  __device__ __forceinline__ explicit RowTiles(const GroupedMmaArgs& args) : args_(args) {}

  __device__ __forceinline__ GroupedTile find(int64_t item) {
    const int64_t column_tiles = (args_.columns + kColumns - 1) / kColumns;
    const int lane = static_cast<int>(threadIdx.x) % kWave;
    const bool is_i64 = args_.cu_are_i64 != 0;
    for (; first_group_ < args_.groups; first_group_ += kWave) {
      const int64_t g = first_group_ + lane;
      int64_t begin = 0, rows = 0;
      if (g < args_.groups) {
        begin = read_index(args_.cu_seqlens, g, is_i64);
        rows = read_index(args_.cu_seqlens, g + 1, is_i64) - begin;
      }
      int64_t through = (rows + kGroupedMmaRows - 1) / kGroupedMmaRows * column_tiles;
      const int64_t own = through;
#pragma unroll
      for (int n = 1; n < kWave; n *= 2) {
        const int64_t lower = wave_read(through, lane < n ? lane : lane - n);
        if (lane >= n) through += lower;
      }
      const int64_t all = wave_read(through, kWave - 1);
      if (item >= before_ + all) {
        before_ += all;
        continue;
      }
      const uint64_t beyond = wave_ballot(before_ + through > item);
      int owner = 0;
      while ((beyond >> owner & 1) == 0) ++owner;
      GroupedTile tile;
      tile.group = first_group_ + owner;
      const int64_t of_group = item - before_ - wave_read(through - own, owner);
      begin = wave_read(begin, owner);
      rows = wave_read(rows, owner);
      int64_t row_tile, column_tile;
      place_in_band(of_group, (rows + kGroupedMmaRows - 1) / kGroupedMmaRows, column_tiles, row_tile, column_tile);
      tile.row = begin + row_tile * kGroupedMmaRows;
      tile.rows = rows - row_tile * kGroupedMmaRows;
      tile.column = column_tile * kColumns;
      tile.inner = args_.inner;
      tile.first = 0;
      return tile;
    }
    GroupedTile none{};
    none.group = -1;
    return none;
  }

private:
  const GroupedMmaArgs& args_;
  int64_t first_group_ = 0, before_ = 0;  // of the wave's groups; tiles before them
};

// The tiles of each group's sums.
template <int kColumns>
class SumTiles {
public:
  __device__ __forceinline__ explicit SumTiles(const GroupedMmaArgs& args) : args_(args) {}

  __device__ __forceinline__ GroupedTile find(int64_t item) const {
    const int64_t column_tiles = (args_.columns + kColumns - 1) / kColumns;
    const int64_t row_tiles = (args_.height + kGroupedMmaRows - 1) / kGroupedMmaRows;
    GroupedTile tile{};
    tile.group = item / (row_tiles * column_tiles);
    if (tile.group >= args_.groups) {
      tile.group = -1;
      return tile;
    }
    int64_t row_tile, column_tile;
    place_in_band(item - tile.group * row_tiles * column_tiles, row_tiles, column_tiles, row_tile, column_tile);
    tile.row = row_tile * kGroupedMmaRows;
    tile.rows = args_.height - tile.row;
    tile.column = column_tile * kColumns;
    tile.first = read_index(args_.cu_seqlens, tile.group, args_.cu_are_i64 != 0);
    tile.inner = read_index(args_.cu_seqlens, tile.group + 1, args_.cu_are_i64 != 0) - tile.first;
    return tile;
  }

private:
  const GroupedMmaArgs& args_;
};

// One operand's pieces on their way to shared memory: kExtent rows (or columns) of the result. What lies beyond the
// tile or its sum becomes 0. kWide: lines are contiguous and begin on 16 bytes; else elements are fetched one by one.
template <class T, int kThreads, int kExtent, bool kInner, bool kWide>
struct OperandLoader {
  static constexpr int kLinesAtOnce = kThreads / 8, kSteps = kExtent / kLinesAtOnce;
  static constexpr int kPanelSteps = kGroupedMmaInner / kLinesAtOnce;
  const T* from;          // this thread's first chunk of the next piece
  int64_t line, element;  // strides
  int outer;              // rows of the result that are left from this thread's first on
  int64_t inner;          // of the sum, the same

  // tile: the address of its first element of the sum's first.
  __device__ __forceinline__ void begin(const T* tile, int64_t outer_stride, int64_t inner_stride, int64_t extent,
                                        int64_t count) {
    const int first_line = static_cast<int>(threadIdx.x) / 8, chunk = static_cast<int>(threadIdx.x) % 8 * 8;
    line = kInner ? outer_stride : inner_stride;
    element = kWide ? 1 : kInner ? inner_stride : outer_stride;
    from = tile + first_line * line + chunk * element;
    outer = static_cast<int>(extent < kExtent ? extent : kExtent) - (kInner ? first_line : chunk);
    inner = count - (kInner ? chunk : first_line);
  }

  // any: an address of the tensor's memory, for where nothing is copied.
  __device__ __forceinline__ void load(uint32_t to, const T* any) {
    const T* at = from;
#pragma unroll
    for (int i = 0; i < kSteps; ++i) {
      const int of_outer = kInner ? kLinesAtOnce * i : kGroupedMmaInner * (i / kPanelSteps);
      const int of_inner = kInner ? 0 : kLinesAtOnce * (i % kPanelSteps);
      if constexpr (kWide) {
        const bool there = of_outer < outer && of_inner < inner;
        copy_async_16(to + i * kLinesAtOnce * kLineBytes, there ? at : any, there);
      } else {
        fetch(to + i * kLinesAtOnce * kLineBytes, at, outer - of_outer, inner - of_inner);
      }
      if constexpr (kInner) {
        at += kLinesAtOnce * line;
      } else {
        at = from + (i + 1) / kPanelSteps * kGroupedMmaInner * element + (i + 1) % kPanelSteps * kLinesAtOnce * line;
      }
    }
    from += kGroupedMmaInner * (kInner ? element : line);
    inner -= kGroupedMmaInner;
  }

private:
  __device__ __forceinline__ void fetch(uint32_t to, const T* at, int64_t outer_left, int64_t inner_left) const {
    uint32_t word[4] = {};
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      if ((kInner ? 0 : e) >= outer_left || (kInner ? e : 0) >= inner_left) continue;
      uint16_t bits;
      __builtin_memcpy(&bits, at + e * element, 2);
      word[e / 2] |= static_cast<uint32_t>(bits) << e % 2 * 16;
    }
    store_16(to, word);
  }
};

// What a kernel makes, how its operands lie (as pieces do; kWide: 16-byte accesses can address all tensors), and its
// blocks. kSums: of rows, of each group; else rows times their group's matrix.
template <bool kSums_, bool kInnerA_, bool kInnerB_, bool kWide_, int kColumns_, int kThreads_, int kStages_>
struct GroupedForm {
  static constexpr bool kSums = kSums_, kInnerA = kInnerA_, kInnerB = kInnerB_, kWide = kWide_;
  static constexpr int kColumns = kColumns_, kThreads = kThreads_, kStages = kStages_;
  static constexpr int kStageBytes = grouped_stage_bytes(kColumns);
  using Tiles = std::conditional_t<kSums, SumTiles<kColumns>, RowTiles<kColumns>>;
};

// The pieces of all of this block's tiles, one stage after the other.
template <class T, class Form>
class GroupedLoader {
public:
  __device__ __forceinline__ GroupedLoader(const GroupedMmaArgs& args, uint32_t shared)
      : args_(args), tiles_(args), item_(blockIdx.x) {
    const uint32_t line = threadIdx.x / 8, chunk = threadIdx.x % 8;
    own_ = shared + line * kLineBytes + (chunk ^ line % 8) * 16;
  }

  // The next piece, if there is one; a group of copies in any case.
  __device__ __forceinline__ void load() {
    while (pieces_ == 0 && item_ >= 0) next_tile();
    if (pieces_ != 0) {
      const uint32_t to = own_ + stage_ * Form::kStageBytes;
      a_.load(to, static_cast<const T*>(args_.a));
      b_.load(to + kGroupedMmaRows * kLineBytes, static_cast<const T*>(args_.b));
      --pieces_;
      stage_ = stage_ + 1 == Form::kStages ? 0 : stage_ + 1;
    }
    commit_copies();
  }

private:
  __device__ __forceinline__ void next_tile() {
    const GroupedTile tile = tiles_.find(item_);
    if (tile.group < 0) {
      item_ = -1;
      return;
    }
    item_ += gridDim.x;
    pieces_ = (tile.inner + kGroupedMmaInner - 1) / kGroupedMmaInner;
    const T* const a = static_cast<const T*>(args_.a) + tile.row * args_.a_stride[0] + tile.first * args_.a_stride[1];
    const T* const b = static_cast<const T*>(args_.b) + tile.group * args_.b_stride[0] +
                       tile.column * args_.b_stride[1] + tile.first * args_.b_stride[2];
    a_.begin(a, args_.a_stride[0], args_.a_stride[1], tile.rows, tile.inner);
    b_.begin(b, args_.b_stride[1], args_.b_stride[2], args_.columns - tile.column, tile.inner);
  }

  const GroupedMmaArgs& args_;
  typename Form::Tiles tiles_;
  OperandLoader<T, Form::kThreads, kGroupedMmaRows, Form::kInnerA, Form::kWide> a_;
  OperandLoader<T, Form::kThreads, Form::kColumns, Form::kInnerB, Form::kWide> b_;
  int64_t item_, pieces_ = 0;  // of the next tile, -1: none; of this one, still to load
  uint32_t stage_ = 0, own_;   // own_: this thread's place in stage 0
};

// A row of 8 N sums, elements 2 h and 2 h + 1 of each four, as T: of four tiles of 8 columns, lane q of a quad gets all
// of tile q, 16 bytes. columns: a multiple of 8, 0 where this lane's row does not exist.
template <class T, int kN>
__device__ __forceinline__ void write_quads(T* y, int64_t columns, int h, const float (&sum)[kN][4]) {
  const int quad = static_cast<int>(threadIdx.x) % 4;
#pragma unroll
  for (int n = 0; n < kN; n += 4) {
    uint32_t mine[4], all[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) mine[i] = pack_pair<T>(sum[n + i][2 * h], sum[n + i][2 * h + 1]);
      // In round i lane q gives its pair of tile q ^ i to lane q ^ i, and gets that lane's of tile q.
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int of = quad ^ i;
      const uint32_t given = of == 0 ? mine[0] : of == 1 ? mine[1] : of == 2 ? mine[2] : mine[3];
      const uint32_t got = wave_xor(given, i);
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        if (j == of) all[j] = got;
      }
    }
    if (8 * (n + quad) < columns) {
      *reinterpret_cast<uint4*>(y + 8 * (n + quad)) = uint4{all[0], all[1], all[2], all[3]};
    }
  }
}

// The same as float: of two tiles, the even lane of a pair gets four columns of the first, the odd one of the second.
template <int kN>
__device__ __forceinline__ void write_pairs(float* y, int64_t columns, int h, const float (&sum)[kN][4]) {
  const int quad = static_cast<int>(threadIdx.x) % 4, odd = quad % 2;
#pragma unroll
  for (int n = 0; n < kN; n += 2) {
    uint32_t four[4];
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const float first = sum[n][2 * h + e], second = sum[n + 1][2 * h + e];
      const float got = wave_xor(odd != 0 ? first : second, 1);
      four[e] = static_cast<uint32_t>(__float_as_int(odd != 0 ? got : first));
      four[2 + e] = static_cast<uint32_t>(__float_as_int(odd != 0 ? second : got));
    }
    if (8 * (n + odd) < columns) {
      *reinterpret_cast<uint4*>(y + 8 * (n + odd) + 2 * (quad - odd)) = uint4{four[0], four[1], four[2], four[3]};
    }
  }
}

// Writes the sums of a warp's 16 rows and 8 N columns (fragments as in mma.cuh), from row and column of the tile on, as
// T or, of kSums, float. All lanes take part.
template <class T, class Form, int kN>
__device__ __forceinline__ void write_sums(const GroupedMmaArgs& args, const GroupedTile& tile, int row, int column,
                                           const float (&sum)[kN][4]) {
  const int quad = static_cast<int>(threadIdx.x) % 4;
  const int64_t columns = args.columns - tile.column - column;  // from the warp's first on
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int64_t r = row + static_cast<int>(threadIdx.x) % 32 / 4 + 8 * h;
    const bool there = r < tile.rows;
    const int64_t at =
        tile.group * args.y_stride[0] + (tile.row + r) * args.y_stride[1] + (tile.column + column) * args.y_stride[2];
    if constexpr (!Form::kWide) {
      using Y = std::conditional_t<Form::kSums, float, T>;
      Y* const y = static_cast<Y*>(args.y) + at;
#pragma unroll
      for (int n = 0; n < kN; ++n) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const int c = 8 * n + 2 * quad + e;
          if (there && c < columns) y[c * args.y_stride[2]] = Narrow<Y>::of(sum[n][2 * h + e]);
        }
      }
    } else if constexpr (Form::kSums) {
      write_pairs(static_cast<float*>(args.y) + at, there ? columns : 0, h, sum);
    } else {
      write_quads<T>(static_cast<T*>(args.y) + at, there ? columns : 0, h, sum);
    }
  }
}

// True where cu_seqlens are bad: every output is NaN then.
template <class T, class Form>
__device__ __forceinline__ bool has_bad_groups(const GroupedMmaArgs& args) {
  const Seqlens seqlens{args.cu_seqlens, 1, args.groups, args.rows, args.cu_are_i64, 0, args.errors};
  if (check_seqlens<Form::kThreads>(seqlens, blockIdx.x == 0) < 0) return false;
  using Y = std::conditional_t<Form::kSums, float, T>;
  const int64_t rows = Form::kSums ? args.height : args.rows;
  const int64_t all = (Form::kSums ? args.groups : 1) * rows * args.columns;
  for (int64_t i = blockIdx.x * int64_t{Form::kThreads} + threadIdx.x; i < all;
       i += gridDim.x * int64_t{Form::kThreads}) {
    const int64_t row = i / args.columns, group = row / rows;
    static_cast<Y*>(args.y)[group * args.y_stride[0] + (row - group * rows) * args.y_stride[1] +
                            (i - row * args.columns) * args.y_stride[2]] = Narrow<Y>::of(NAN);
  }
  return true;
}

}  // namespace rlk::cuda_kernels
