// Rows in order by the digits of their numbers, eight bits at a time and the lowest first. A digit takes three
// launches:
//
//   count    how many numbers of a tile of a row have each digit
//   offset   where those of every tile begin in the row
//   scatter  a block puts its tile in the digit's order in shared memory, then where it belongs; the last digit's
//            launch writes the answer
//
// Every launch keeps the order of equal digits, so the places of numbers need no digits of their own. args.argument is
// the digit's lowest bit: size[kOrderShift] in the first launch, whose input is the row itself. The places after one
// digit are read by the next: work[0] and work[1] in turn. work[2] has the counts, 256 of every tile.
#pragma once

#include "order.cuh"

#if defined(RLK_SIMT_MOVES_ON_DEVICE)

#include "lane_bits.cuh"

namespace rlk::simt {

template <class Place>
constexpr int kRadixItems = kRadixTileBytes / static_cast<int>(sizeof(Place)) / kMoveThreads;
template <class Place>
constexpr int64_t kRadixTile = int64_t{kRadixItems<Place>} * kMoveThreads;

// The part of a row that a block has. Its wave w has the items [w, w + 1) kWave kItems, a lane every kWave-th: the
// order of items is that of waves, then of steps, then of lanes.
template <class Place>
struct RadixTile {
  static constexpr int kItems = kRadixItems<Place>;
  const MoveArgs& args;
  int64_t row, begin;
  int here;

  __device__ __forceinline__ RadixTile(const MoveArgs& args_, int64_t block) : args(args_) {
    const int64_t columns = args.size[kOrderColumns];
    row = move_divide(args.divisor[kByRadixTiles], block);
    begin = (block - row * args.divisor[kByRadixTiles].size) * kRadixTile<Place>;
    here = static_cast<int>(columns - begin < kRadixTile<Place> ? columns - begin : kRadixTile<Place>);
  }
  __device__ __forceinline__ int digit_number() const {
    return static_cast<int>(args.argument - args.size[kOrderShift]) / kRadixBits;
  }
  __device__ __forceinline__ bool is_last() const {
    return args.argument + kRadixBits == 8 * static_cast<int64_t>(sizeof(typename Place::Order));
  }
  __device__ __forceinline__ int digit(const Place& place) const { return place.byte(static_cast<int>(args.argument)); }
  static __device__ __forceinline__ int item_at(int step) {
    const int me = static_cast<int>(threadIdx.x);
    return (me / kWave * kItems + step) * kWave + me % kWave;
  }
  // What this thread has of the tile; nothing beyond its end.
  __device__ __forceinline__ void read(Place (&item)[kItems]) const {
    if (digit_number() == 0) {
      with_type([&](auto type) {
        const OrderedRow<decltype(type)> from(args, row);
        const auto* const own = from.from + (begin + item_at(0)) * from.stride;
        const int64_t step = kWave * from.stride;
#pragma unroll
        for (int s = 0; s < kItems; ++s) {
          if (item_at(s) < here) item[s] = from.place_of(widen(own[s * step]), begin + item_at(s));
        }
      });
    } else {
      const Place* const from = static_cast<const Place*>(args.work[(digit_number() - 1) % 2]) +
                                row * args.size[kOrderColumns] + begin + item_at(0);
#pragma unroll
      for (int s = 0; s < kItems; ++s) {
        if (item_at(s) < here) item[s] = from[s * kWave];
      }
    }
  }
  // The row's place number `at` by this digit and those before it.
  __device__ __forceinline__ void put(int64_t at, const Place& place) const {
    if (!is_last()) {
      static_cast<Place*>(args.work[digit_number() % 2])[row * args.size[kOrderColumns] + at] = place;
      return;
    }
    if (at >= args.size[kOrderCount]) return;
    const auto order = args.size[kOrderDescending] != 0 ? ~place.order() : place.order();
    with_type([&](auto type) { put_in_order<decltype(type)>(args, row, at, place.place(), order); });
  }

private:
  template <class Function>
  __device__ __forceinline__ void with_type(const Function& function) const {
    if constexpr (sizeof(typename Place::Order) == 8) {
      function(double{});
    } else {
      const int32_t dtype = args.tensor[2].dtype;
      if (dtype == kMapBf16) return function(bf16{});
      if (dtype == kMapF16) return function(f16{});
      function(float{});
    }
  }
};

// What a block shares, once for all dtypes of a kernel.
struct RadixShared {
  uint16_t count[kMoveThreads / 32][kRadixDigits];  // of the items of a wave so far; then of the waves before
  uint16_t start[kRadixDigits];                     // of a digit's items in the tile
  uint32_t base[kRadixDigits];                      // where they go in the row, less their start in the tile
  uint32_t of_waves[kRadixDigits / 32];
};
__device__ __forceinline__ RadixShared& radix_shared() {
  __shared__ RadixShared shared;
  return shared;
}

template <class Place>
__device__ __forceinline__ void radix_count(const MoveArgs& args) {
  auto& count = radix_shared().base;
  const int me = static_cast<int>(threadIdx.x);
  for (int64_t block = blockIdx.x; block < args.units; block += gridDim.x) {
    const RadixTile<Place> tile(args, block);
    count[me] = 0;
    __syncthreads();
    Place item[tile.kItems] = {};
    tile.read(item);
#pragma unroll
    for (int s = 0; s < tile.kItems; ++s) {
      if (tile.item_at(s) < tile.here) atomicAdd(&count[tile.digit(item[s])], 1u);
    }
    __syncthreads();
    static_cast<uint32_t*>(args.work[2])[block * kRadixDigits + me] = count[me];
    __syncthreads();
  }
}

// The sum of the numbers of the threads before, of the kRadixDigits first ones; `part` is shared.
__device__ __forceinline__ uint32_t radix_sum_before(uint32_t mine, uint32_t* part) {
  const int me = static_cast<int>(threadIdx.x), lane = me % kWave;
  uint32_t sum = mine;
#pragma unroll
  for (int apart = 1; apart < kWave; apart *= 2) {
    const uint32_t below = wave_read(sum, lane >= apart ? lane - apart : lane);
    if (lane >= apart) sum += below;
  }
  if (me < kRadixDigits && lane == kWave - 1) part[me / kWave] = sum;
  __syncthreads();
  uint32_t before = sum - mine;
  for (int w = 0; w < me / kWave && w < kRadixDigits / kWave; ++w) before += part[w];
  return before;
}

// A block of kOrderWideThreads has a row: a thread adds the counts of a digit in a quarter of the row's tiles.
__device__ __forceinline__ void radix_offset(const MoveArgs& args) {
  constexpr int kParts = kOrderWideThreads / kRadixDigits;
  __shared__ uint32_t part[kParts][kRadixDigits];
  __shared__ uint32_t of_waves[kRadixDigits / 32];
  const int me = static_cast<int>(threadIdx.x), digit = me % kRadixDigits, own = me / kRadixDigits;
  const int64_t tiles = args.divisor[kByRadixTiles].size;
  const int64_t first = tiles * own / kParts, last = tiles * (own + 1) / kParts;
  for (int64_t row = blockIdx.x; row < args.units; row += gridDim.x) {
    uint32_t* const counts = static_cast<uint32_t*>(args.work[2]) + row * tiles * kRadixDigits + digit;
    uint32_t sum = 0;
#pragma unroll 8
    for (int64_t tile = first; tile < last; ++tile) sum += counts[tile * kRadixDigits];
    part[own][digit] = sum;
    __syncthreads();
    uint32_t all = 0;
    for (int p = 0; p < kParts; ++p) all += part[p][digit];
    const uint32_t lower = radix_sum_before(all, of_waves);
    __syncthreads();
    if (own == 0) {  // what is before each part of the tiles
      uint32_t before = lower;
      for (int p = 0; p < kParts; ++p) {
        const uint32_t of_part = part[p][digit];
        part[p][digit] = before;
        before += of_part;
      }
    }
    __syncthreads();
    uint32_t before = part[own][digit];
#pragma unroll 4
    for (int64_t tile = first; tile < last; ++tile) {
      const uint32_t count = counts[tile * kRadixDigits];
      counts[tile * kRadixDigits] = before;
      before += count;
    }
    __syncthreads();
  }
}

template <class Place>
__device__ __forceinline__ void radix_scatter(const MoveArgs& args) {
  constexpr int kWaves = kMoveThreads / kWave;
  RadixShared& shared = radix_shared();
  auto& count = shared.count;
  Place* const sorted = shared_places<Place>();
  const int me = static_cast<int>(threadIdx.x), lane = me % kWave, wave = me / kWave;
  const LaneBits before_me = (LaneBits{1} << lane) - 1;
  for (int64_t block = blockIdx.x; block < args.units; block += gridDim.x) {
    const RadixTile<Place> tile(args, block);
    for (int w = 0; w < kWaves; ++w) count[w][me] = 0;
    Place item[tile.kItems] = {};
    int rank[tile.kItems];
    tile.read(item);
    __syncthreads();
#pragma unroll
    for (int s = 0; s < tile.kItems; ++s) {
      const bool is_there = tile.item_at(s) < tile.here;
      const int digit = tile.digit(item[s]);
      LaneBits same = lanes_where(is_there);
#pragma unroll
      for (int b = 0; b < kRadixBits; ++b) {
        const bool bit = (digit >> b & 1) != 0;
        const LaneBits set = lanes_where(bit);
        same &= bit ? set : ~set;
      }
      const int before = count_lanes(same & before_me);
      rank[s] = count[wave][digit] + before;
      wave_sync();
      if (is_there && before == 0) count[wave][digit] = static_cast<uint16_t>(rank[s] + count_lanes(same));
      wave_sync();
    }
    __syncthreads();
    uint32_t all = 0;
    for (int w = 0; w < kWaves; ++w) {
      const uint16_t of_wave = count[w][me];
      count[w][me] = static_cast<uint16_t>(all);
      all += of_wave;
    }
    const uint32_t first = radix_sum_before(all, shared.of_waves);
    shared.start[me] = static_cast<uint16_t>(first);
    shared.base[me] = static_cast<const uint32_t*>(args.work[2])[block * kRadixDigits + me] - first;
    __syncthreads();
#pragma unroll
    for (int s = 0; s < tile.kItems; ++s) {
      const int digit = tile.digit(item[s]);
      if (tile.item_at(s) < tile.here) sorted[shared.start[digit] + count[wave][digit] + rank[s]] = item[s];
    }
    __syncthreads();
    for (int i = me; i < tile.here; i += kMoveThreads) {
      const Place place = sorted[i];
      tile.put(static_cast<uint32_t>(shared.base[tile.digit(place)] + static_cast<uint32_t>(i)), place);
    }
    __syncthreads();
  }
}

// Calls function(Place{}) with the places of the row's dtype.
template <class Function>
__device__ __forceinline__ void with_place_type(const MoveArgs& args, const Function& function) {
  if (args.tensor[2].dtype == kMapF64) return function(LongPlace{});
  function(ShortPlace{});
}

}  // namespace rlk::simt

#endif
