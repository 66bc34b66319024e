// The first places of long rows by peaks, for order.cuh and sample.cuh: a row is read once.
//
// Where many blocks have a row, kPeakLanes threads read a stretch of it, each its share, and leave the first order of
// every share: its peak. Then a block has the row. It finds an order which at least as many peaks as places are wanted
// do not exceed, and mostly not many more, and reads again only the shares of these peaks.
#pragma once

#include "move.cuh"
#include "order.h"

#if defined(RLK_SIMT_MOVES_ON_DEVICE)

#include "lane_bits.cuh"

namespace rlk::simt {

// Packs of a row's columns [begin, end) that are this one's of `workers`: function(column, their numbers, how many of
// them count). Where packs are aligned, `batch` of them are on their way at a time.
template <int batch, class T, class Function>
__device__ __forceinline__ void each_pack(const T* from, int64_t columns, int64_t begin, int64_t end, int worker,
                                          int workers, const Function& function) {
  constexpr int kSize = Pack<T>::kSize;
  const int64_t step = static_cast<int64_t>(workers) * kSize;
  int64_t c = begin + worker * kSize;
  if (batch > 1 && reinterpret_cast<uintptr_t>(from + c) % 16 == 0) {
    for (; c + (batch - 1) * step + kSize <= end; c += batch * step) {
      Pack<T> pack[batch];
#pragma unroll
      for (int p = 0; p < batch; ++p) pack[p].bits = load_stream(from + c + p * step);
#pragma unroll
      for (int p = 0; p < batch; ++p) {
        Accumulator<T> x[kSize];
        pack[p].unpack(x);
        function(c + p * step, x, kSize);
      }
    }
  }
  for (; c < end; c += step) {
    Accumulator<T> x[kSize];
    load_pack(from, c, columns, T{}).unpack(x);
    function(c, x, static_cast<int>(end - c < kSize ? end - c : kSize));
  }
}

// function(row, stretch, begin, end, lane), of the stretch's columns. Every thread of a block calls it as often; where
// there is no stretch left, with no columns.
template <class Function>
__device__ __forceinline__ void each_stretch(const MoveArgs& args, const MoveDivisor& stretches, int64_t length,
                                             int64_t columns, const Function& function) {
  constexpr int kTogether = kMoveThreads / kPeakLanes;
  const int me = static_cast<int>(threadIdx.x), lane = me % kPeakLanes;
  for (int64_t first = static_cast<int64_t>(blockIdx.x) * kTogether; first < args.units;
       first += static_cast<int64_t>(gridDim.x) * kTogether) {
    const int64_t given = first + me / kPeakLanes, at = given < args.units ? given : args.units - 1;
    const int64_t row = move_divide(stretches, at), stretch = at - row * stretches.size;
    const int64_t begin = stretch * length, end = begin + length < columns ? begin + length : columns;
    function(row, stretch, begin, given < args.units ? end : begin, lane);
  }
}

struct PeakShared {
  uint64_t first[kPeakThreads / 32], last[kPeakThreads / 32];
  int count[2][kPeakThreads / 32];
  unsigned shares, places;  // that are listed
};
__device__ __forceinline__ PeakShared& peak_shared() {
  __shared__ PeakShared shared;
  return shared;
}

// A row's peaks in a block of at most kPeakThreads: each thread has the first of several groups of them.
template <class Order>
class PeakedRow {
public:
  // Orders from `end` on do not count.
  __device__ __forceinline__ PeakedRow(const Order* peaks, int64_t count, int64_t wanted, Order end)
      : peaks_(peaks), count_(count), wanted_(wanted), end_(end), has_few_(4 * wanted <= blockDim.x) {
    const int me = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
#pragma unroll
    for (Order& own : own_) own = kNone;
    for (int64_t base = me; base < count; base += threads * kPeakGroups) {
#pragma unroll
      for (int g = 0; g < kPeakGroups; ++g) {
        const int64_t i = base + g * threads;
        if (i < count && peaks[i] < own_[g]) own_[g] = peaks[i];
      }
    }
    all_ = own_[0];
    Order last = 0;
#pragma unroll
    for (const Order own : own_) {
      if (own < all_) all_ = own;
      if (own < end && own > last) last = own;
    }
    if (has_few_) last = all_ < end ? all_ : Order{0};
    Order first = all_;
    for (int lanes = kWave / 2; lanes > 0; lanes /= 2) {
      const Order other = wave_xor(first, lanes), other_last = wave_xor(last, lanes);
      first = other < first ? other : first;
      last = other_last > last ? other_last : last;
    }
    PeakShared& shared = peak_shared();
    if (me % kWave == 0) {
      shared.first[me / kWave] = first;
      shared.last[me / kWave] = last;
    }
    if (me == 0) shared.shares = shared.places = 0;
    __syncthreads();
    for (int w = 0; w < threads / kWave; ++w) {
      first = shared.first[w] < first ? static_cast<Order>(shared.first[w]) : first;
      last = shared.last[w] > last ? static_cast<Order>(shared.last[w]) : last;
    }
    first_ = first;
    last_ = last;
  }
  __device__ __forceinline__ Order first() const {
    return first_;
  }

  // An order which no fewer places than wanted do not exceed; or the end, where that many are not known to be before
  // it. Less than an eighth more peaks than wanted are good enough.
  __device__ __forceinline__ Order bound() {
    if (wanted_ <= 1) return first_ < end_ ? first_ : end_;
    int64_t count = count_to(last_);
    if (count < wanted_) return end_;
    const int64_t enough = wanted_ + wanted_ / 8 + 2;
    Order low = first_, high = last_;
    while (count > enough && high - low > 1) {
      const Order middle = low + (high - low) / 2;
      const int64_t found = count_to(middle);
      if (found >= wanted_) {
        high = middle;
        count = found;
      } else {
        low = middle;
      }
    }
    return high;
  }

  // The shares whose peaks do not exceed the bound; of more than kOrderList only the number.
  __device__ __forceinline__ int64_t list_shares(Order bound, uint32_t* shares) const {
    PeakShared& shared = peak_shared();
    for (int64_t i = threadIdx.x; i < count_; i += blockDim.x) {
      if (peaks_[i] > bound) continue;
      const unsigned at = atomicAdd(&shared.shares, 1u);
      if (at < static_cast<unsigned>(kOrderList)) shares[at] = static_cast<uint32_t>(i);
    }
    __syncthreads();
    return shared.shares;
  }

private:
  static constexpr Order kNone = ~Order{0};

  // Groups whose first does not exceed the bound.
  __device__ __forceinline__ int64_t count_to(Order bound) {
    int count = 0;
    if (has_few_) {
      count = count_lanes(lanes_where(all_ <= bound));
    } else {
#pragma unroll
      for (const Order own : own_) count += count_lanes(lanes_where(own <= bound));
    }
    int* const part = peak_shared().count[turn_];
    turn_ ^= 1;
    const int me = static_cast<int>(threadIdx.x), waves = static_cast<int>(blockDim.x) / kWave;
    if (me % kWave == 0) part[me / kWave] = count;
    __syncthreads();
    count = 0;
    for (int w = 0; w < waves; ++w) count += part[w];
    return count;
  }

  const Order* const peaks_;
  const int64_t count_, wanted_;
  const Order end_;
  const bool has_few_;  // a group for each thread tells enough
  Order own_[kPeakGroups], all_, first_, last_;
  int turn_ = 0;
};

// function(column) for the packs, of `unit` columns, of the listed shares.
template <class Function>
__device__ __forceinline__ void each_listed_pack(const uint32_t* shares, int64_t listed, int64_t length, int64_t unit,
                                                 const Function& function) {
  const auto packs = static_cast<uint32_t>(length / (kPeakLanes * unit));
  const auto all = static_cast<uint32_t>(listed) * packs;
  for (uint32_t i = threadIdx.x; i < all; i += blockDim.x) {
    const uint32_t number = i / packs, share = shares[number], pack = i - number * packs;
    function(static_cast<int64_t>(share / kPeakLanes) * length +
             (static_cast<int64_t>(pack) * kPeakLanes + share % kPeakLanes) * unit);
  }
}

}  // namespace rlk::simt

#endif
