// Heads whose pairs of elements are turned by the angles of their token's position (rotary embedding).
//
// Tensors: query_out, key_out, query, key (token, head, element), the cosines and sines (position, cosines and then
// sines), the positions.
#pragma once

#include "move.cuh"

#if defined(RLK_SIMT_MOVES_ON_DEVICE)

#include <rlk/formula/rotary.hpp>

namespace rlk::simt {

// Of pairs first .. first + count. C: of the cosines.
template <class T, class C>
__device__ __forceinline__ void turn_pairs(const MoveArgs& args, const MoveTensor& out, int64_t out_at,
                                           const MoveTensor& in, int64_t in_at, int64_t position, int64_t first,
                                           int count) {
  using A = Accumulator<T>;
  constexpr int kSize = Pack<T>::kSize;
  const MoveTensor& cache = args.tensor[4];
  const int64_t pairs = args.size[kTurnPairs];
  const bool are_halves = args.size[kTurnHalves] != 0;
  A cosine[kSize], sine[kSize], a[kSize], b[kSize];
  const int64_t at = position * cache.stride[0] + first * cache.stride[1];
  move_read<A, C>(cache, at, cache.stride[1], count, cosine);
  move_read<A, C>(cache, at + pairs * cache.stride[1], cache.stride[1], count, sine);
  const int64_t step = are_halves ? 1 : 2, behind = are_halves ? pairs : 1;
  const int64_t from = in_at + (args.size[kTurnOffset] + step * first) * in.stride[2];
  const int64_t to = out_at + (args.size[kTurnOffset] + step * first) * out.stride[2];
  const bool are_neighbours = !are_halves && count == kSize;
  if (are_neighbours) {
    A both[2 * kSize];
    move_read<A, T>(in, from, in.stride[2], 2 * kSize, both);
#pragma unroll
    for (int e = 0; e < kSize; ++e) {
      a[e] = both[2 * e];
      b[e] = both[2 * e + 1];
    }
  } else {
    move_read<A, T>(in, from, step * in.stride[2], count, a);
    move_read<A, T>(in, from + behind * in.stride[2], step * in.stride[2], count, b);
  }
  const double sign = args.size[kTurnInverse] != 0 ? -1.0 : 1.0;
#pragma unroll
  for (int e = 0; e < kSize; ++e) {
    const auto pair = formula::turned(formula::Lane<A>{}, a[e], b[e], cosine[e], sine[e], cosine[e], sine[e], sign);
    a[e] = pair.first;
    b[e] = pair.second;
  }
  if (are_neighbours) {
    A both[2 * kSize];
#pragma unroll
    for (int e = 0; e < kSize; ++e) {
      both[2 * e] = a[e];
      both[2 * e + 1] = b[e];
    }
    move_write_as<A, T>(out, to, out.stride[2], 2 * kSize, both);
  } else {
    move_write_as<A, T>(out, to, step * out.stride[2], count, a);
    move_write_as<A, T>(out, to + behind * out.stride[2], step * out.stride[2], count, b);
  }
}

template <class T>
__device__ __forceinline__ void turn(const MoveArgs& args, int64_t unit) {
  constexpr int kSize = Pack<T>::kSize;
  const MoveDivisor &by_packs = args.divisor[kByTurnPacks], &by_heads = args.divisor[kByTurnHeads];
  const int64_t row = move_divide(by_packs, unit), token = move_divide(by_heads, row);
  const int64_t head = row - token * by_heads.size, query_heads = args.size[kTurnQueryHeads];
  const int which = head < query_heads ? 0 : 1;
  const int64_t own = which == 0 ? head : head - query_heads;
  const MoveTensor &out = args.tensor[which], &in = args.tensor[2 + which];
  const int64_t position = move_id(args.tensor[5], token * args.tensor[5].stride[0]);
  const bool exists = position >= 0 && position < args.size[kTurnPositions];
  if (!exists) report_data_error(args.errors, kDataIdOutOfRange, token, position);
  if (out.data == nullptr) return;  // there are no heads
  const int64_t out_at = token * out.stride[0] + own * out.stride[1];
  const int64_t in_at = token * in.stride[0] + own * in.stride[1];
  const int64_t pairs = args.size[kTurnPairs], offset = args.size[kTurnOffset];
  const int64_t turning = (pairs + kSize - 1) / kSize, pack = unit - row * by_packs.size;
  if (exists && pack < turning) {
    const int64_t first = pack * kSize, left = pairs - first;
    const int count = left < kSize ? static_cast<int>(left) : kSize;
    if constexpr (sizeof(T) < 4) {
      if (args.tensor[4].dtype == kMapF32) {
        return turn_pairs<T, float>(args, out, out_at, in, in_at, position, first, count);
      }
    }
    return turn_pairs<T, T>(args, out, out_at, in, in_at, position, first, count);
  }
  // One by one: elements that are not turned, and NaN.
  const bool are_turned = pack < turning;
  const int64_t size = are_turned ? 2 * kSize : kSize, first = (are_turned ? pack : pack - turning) * size;
  const int64_t all = are_turned ? 2 * pairs : args.size[kTurnElements] - 2 * pairs;
  for (int64_t i = first; i < first + size && i < all; ++i) {
    const int64_t element = are_turned ? offset + i : i < offset ? i : i + 2 * pairs;
    T* const to = static_cast<T*>(out.data) + out_at + element * out.stride[2];
    *to = exists ? static_cast<const T*>(in.data)[in_at + element * in.stride[2]]
                 : Narrow<T>::of(static_cast<Accumulator<T>>(NAN));
  }
}

}  // namespace rlk::simt

#endif
