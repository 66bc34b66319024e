// How long rows stream: packs of them on their way while others are computed with, of one matrix or of two.
#pragma once

#include "rows.cuh"

#if defined(RLK_SIMT_ROWS_ON_DEVICE)

namespace rlk::simt {

// Packs of a thread that are under way while it computes with as many.
template <class Row>
constexpr int kLogitTile = !Row::kInPacks ? 1
                           : Row::kLong   ? 2
                                          : 4;

// A row's packs from one of this thread's on, which go by.
template <class Row>
class LogitPacks {
public:
  using T = typename Row::Element;
  using Packed = Pack<T>;
  __device__ __forceinline__ LogitPacks(const Row& row, const typename Row::Source& source, int64_t first)
      : row_(row), source_(source), at_(source.data + first * Row::kSize) {}

  // The pack from which on it goes; moved by so many packs.
  __device__ __forceinline__ void move(int64_t packs) { at_ += packs * Row::kSize; }

  // Packs, a group apart, of which the first is number `first`: what is beyond the row is -inf. Mostly all of them are
  // in the row, which one question tells.
  template <int kTile>
  __device__ __forceinline__ void load(int64_t first, Packed (&tile)[kTile]) const {
    const int64_t left = row_.packs() - first;
    if (Row::kInPacks && kTile > 1 && left > (kTile - 1) * row_.group()) {
#pragma unroll
      for (int u = 0; u < kTile; ++u) tile[u].bits = load_stream(at_ + u * row_.group() * Row::kSize);
    } else {
#pragma unroll
      for (int u = 0; u < kTile; ++u) tile[u] = one(first + u * row_.group(), left > u * row_.group(), u);
    }
  }

private:
  __device__ __forceinline__ Packed one(int64_t pack, bool is_there, int u) const {
    const T lowest = Narrow<T>::of(-Accumulator<T>(INFINITY));
    const int64_t column = pack * Row::kSize;
    Packed out;
    if constexpr (Row::kInPacks) {
      if (is_there) {
        out.bits = load_stream(at_ + u * row_.group() * Row::kSize);
        return out;
      }
    }
    T element[Row::kSize];
#pragma unroll
    for (int e = 0; e < Row::kSize; ++e) {
      element[e] = Row::kInPacks || column + e >= row_.columns() ? lowest : source_.data[(column + e) * source_.column];
    }
    __builtin_memcpy(&out.bits, element, sizeof(out.bits));
    return out;
  }

  const Row& row_;
  const typename Row::Source source_;
  const T* at_;
};
// Calls begin(tile) with the first kLogitTile packs of this thread, and visit(the first of its places, tile) with all
// of them in turn.
template <class Row, class Begin, class Visit>
__device__ __forceinline__ void each_logit_tile(const Row& row, const typename Row::Source& source, const Begin& begin,
                                                const Visit& visit) {
  constexpr int kTile = kLogitTile<Row>;
  const int64_t step = kTile * row.group();
  LogitPacks<Row> packs(row, source, row.place());
  Pack<typename Row::Element> next[kTile];
  packs.load(row.place(), next);
  begin(next);
#pragma unroll 1
  for (int64_t first = row.place(); first < row.packs(); first += step) {
    Pack<typename Row::Element> tile[kTile];
#pragma unroll
    for (int u = 0; u < kTile; ++u) tile[u] = next[u];
    packs.move(step);
    packs.load(first + step, next);
    visit(first, tile);
  }
}
// Calls visit(its place, pack, pack) with every pack of this thread, of two matrices. From the row's end: what was read
// last is nearest.
template <class Row, class Visit>
__device__ __forceinline__ void each_logit_pair(const Row& row, const typename Row::Source& a,
                                                const typename Row::Source& b, const Visit& visit) {
  constexpr int kTile = Row::kInPacks && !Row::kLong ? 2 : 1;
  const int64_t step = static_cast<int64_t>(kTile) * row.group();
  if (row.place() >= row.packs()) return;
  int64_t first = row.place() + (row.packs() - 1 - row.place()) / step * step;
  LogitPacks<Row> of_a(row, a, first), of_b(row, b, first);
  Pack<typename Row::Element> next_a[kTile], next_b[kTile];
  of_a.load(first, next_a);
  of_b.load(first, next_b);
#pragma unroll 1
  for (; first >= 0; first -= step) {
    Pack<typename Row::Element> tile_a[kTile], tile_b[kTile];
#pragma unroll
    for (int u = 0; u < kTile; ++u) {
      tile_a[u] = next_a[u];
      tile_b[u] = next_b[u];
    }
    if (first >= step) {
      of_a.move(-step);
      of_b.move(-step);
      of_a.load(first - step, next_a);
      of_b.load(first - step, next_b);
    }
#pragma unroll
    for (int u = 0; u < kTile; ++u) visit(first + u * row.group(), tile_a[u], tile_b[u]);
  }
}

}  // namespace rlk::simt

#endif
