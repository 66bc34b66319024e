// Operators that move data: elements by ids (take.cuh), sums by ids with one owner each (sums.cuh), and kernels whose
// threads each do a unit of an operator's own.
//
//   RLK_SIMT_MOVES_KERNEL(take, take(args);)
//   RLK_SIMT_MOVES(Gather, ("take"), taken_along(call.y, call.x, call.index))
//   RLK_SIMT_MOVES_UNITS(fill, what a thread does with `unit`)
//   RLK_SIMT_MOVES_BY(LogpMerge, by_units(...), what a thread does with `unit`)
//
// The operator's name in the declarations' views; its kernels, which may be several operators'; and on the host what a
// call is: tensors, sizes and launches (host/move.hpp). A kernel's `args` are the MoveArgs that the host made. _BY
// makes the operator a kernel of its own.
//
// Ids are int32 or int64. An id out of range is a data error of its row. Whatever is summed has one owner that adds its
// terms in the order of their numbers, so results do not depend on timing.
#pragma once

#if !defined(RLK_SIMT_MOVES)  // the host reads operators too, with words of its own (host/move_words.hpp)
#define RLK_SIMT_MOVES_ON_DEVICE

#include "map.cuh"
#include "move.h"

namespace rlk::simt {

__device__ __forceinline__ int64_t move_id(const MoveTensor& ids, int64_t at) {
  return ids.dtype == kMapI64 ? static_cast<const int64_t*>(ids.data)[at] : static_cast<const int32_t*>(ids.data)[at];
}
__device__ __forceinline__ int64_t move_divide(const MoveDivisor& by, int64_t n) {
  return map_divide(n, by.size, by.multiplier, by.shift);
}

template <class Function>
__device__ __forceinline__ void move_units(const MoveArgs& args, const Function& function) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * kMoveThreads;
  for (int64_t unit = static_cast<int64_t>(blockIdx.x) * kMoveThreads + threadIdx.x; unit < args.units; unit += step) {
    function(unit);
  }
}

template <class Rules>
__device__ __forceinline__ const Rules& move_rules(const MoveArgs& args) {
  static_assert(sizeof(Rules) <= kMoveRules, "as many bytes as the arguments have room for");
  return *reinterpret_cast<const Rules*>(args.rules);
}

// The sum of a block of kMoveThreads, to all of its threads.
__device__ inline double move_block_sum(double sum) {
  __shared__ double part[kMoveThreads / 32];
  const int me = static_cast<int>(threadIdx.x);
#pragma unroll
  for (int lanes = kWave / 2; lanes > 0; lanes /= 2) sum = formula::Add(sum, wave_xor(sum, lanes));
  if (me % kWave == 0) part[me / kWave] = sum;
  __syncthreads();
  sum = part[0];
  for (int w = 1; w < kMoveThreads / kWave; ++w) sum = formula::Add(sum, part[w]);
  __syncthreads();
  return sum;
}
// What the units give together, in fp64: function(unit) of all, then put(sum). By summed_by_blocks' kernel 0.
template <class Function, class Put>
__device__ __forceinline__ void move_summed(const MoveArgs& args, const Function& function, const Put& put) {
  const int64_t blocks = (args.units + kMoveThreads - 1) / kMoveThreads;
  for (int64_t block = blockIdx.x; block < blocks; block += gridDim.x) {
    const int64_t unit = block * kMoveThreads + threadIdx.x;
    const double sum = move_block_sum(unit < args.units ? function(unit) : 0.0);
    if (threadIdx.x != 0) continue;
    if (blocks == 1) {
      put(sum);
    } else {
      static_cast<double*>(args.work[0])[block] = sum;
    }
  }
}
// By its kernel 1.
template <class Put>
__device__ __forceinline__ void move_total(const MoveArgs& args, const Put& put) {
  double sum = 0;
  for (int64_t block = threadIdx.x; block < args.units; block += kMoveThreads) {
    sum = formula::Add(sum, static_cast<const double*>(args.work[0])[block]);
  }
  sum = move_block_sum(sum);
  if (threadIdx.x == 0) put(sum);
}

// Calls function(T{}) with a floating dtype.
template <class Function>
__device__ __forceinline__ void with_move_type(int64_t dtype, const Function& function) {
  if (dtype == kMapBf16) return function(bf16{});
  if (dtype == kMapF16) return function(f16{});
  if (dtype == kMapF64) return function(double{});
  function(float{});
}

// `count` numbers of T from there on, as A.
template <class A, class T, int size>
__device__ __forceinline__ void move_read(const MoveTensor& tensor, int64_t at, int64_t stride, int count,
                                          A (&out)[size]) {
  const T* const from = static_cast<const T*>(tensor.data) + at;
  T element[size];
  if (size % Pack<T>::kSize == 0 && tensor.in_packs != 0 && count >= size) {
    uint4 bits[(size + Pack<T>::kSize - 1) / Pack<T>::kSize];
#pragma unroll
    for (int p = 0; p < size / Pack<T>::kSize; ++p) bits[p] = reinterpret_cast<const uint4*>(from)[p];
    __builtin_memcpy(element, bits, sizeof(element));
  } else {
#pragma unroll
    for (int e = 0; e < size; ++e) element[e] = from[e < count ? e * stride : 0];
  }
#pragma unroll
  for (int e = 0; e < size; ++e) out[e] = static_cast<A>(widen(element[e]));
}
// One number of any floating dtype.
__device__ __forceinline__ double move_number(const MoveTensor& tensor, int64_t at) {
  double number[1];
  with_move_type(tensor.dtype, [&](auto type) { move_read<double, decltype(type)>(tensor, at, 0, 1, number); });
  return number[0];
}
__device__ __forceinline__ void move_put(const MoveTensor& tensor, int64_t at, double number) {
  if (tensor.data == nullptr) return;
  with_move_type(tensor.dtype, [&](auto type) {
    using T = decltype(type);
    static_cast<T*>(tensor.data)[at] = Narrow<T>::of(number);
  });
}
template <class A, class T, int size>
__device__ __forceinline__ void move_write_as(const MoveTensor& tensor, int64_t at, int64_t stride, int count,
                                              const A (&in)[size]) {
  T* const to = static_cast<T*>(tensor.data) + at;
  constexpr int kPack = Pack<T>::kSize;
  static_assert(size % kPack == 0, "whole packs");
  if (tensor.in_packs != 0 && count >= size) {
#pragma unroll
    for (int p = 0; p < size; p += kPack) {
      T element[kPack];
#pragma unroll
      for (int e = 0; e < kPack; ++e) element[e] = Narrow<T>::of(in[p + e]);
      uint4 bits;
      __builtin_memcpy(&bits, element, sizeof(bits));
      store_stream(to + p, bits);
    }
    return;
  }
#pragma unroll
  for (int e = 0; e < size; ++e) {
    if (e < count) to[e * stride] = Narrow<T>::of(in[e]);
  }
}
// Into T, or into its accumulator.
template <class A, class T>
__device__ __forceinline__ void move_write(const MoveTensor& tensor, int64_t at, int64_t stride, int count,
                                           const A (&in)[Pack<T>::kSize]) {
  if constexpr (sizeof(T) < 4) {
    if (tensor.dtype == kMapF32) return move_write_as<A, float>(tensor, at, stride, count, in);
  }
  move_write_as<A, T>(tensor, at, stride, count, in);
}

}  // namespace rlk::simt

// The kernel's text is in rlk::simt.
#define RLK_SIMT_MOVES_KERNEL(name, ...) RLK_SIMT_MOVES_KERNEL_OF(name, kMoveThreads, __VA_ARGS__)
// Of blocks of another size.
#define RLK_SIMT_MOVES_KERNEL_OF(name, threads, ...)                              \
  namespace rlk::simt {                                                           \
  RLK_SIMT_KERNEL(threads)                                                        \
  RLK_SIMT_CAT(RLK_SIMT_IMAGE, _moves_##name)(RLK_SIMT_ARGUMENT(MoveArgs) args) { \
    wait_for_earlier();                                                           \
    __VA_ARGS__                                                                   \
  }                                                                               \
  }
#define RLK_SIMT_MOVES_UNITS(name, ...)                                                   \
  namespace rlk::simt {                                                                   \
  __device__ __forceinline__ void move_##name(const MoveArgs& args, const int64_t unit) { \
    __VA_ARGS__                                                                           \
  }                                                                                       \
  }                                                                                       \
  RLK_SIMT_MOVES_KERNEL(name, move_units(args, [&](int64_t unit) { move_##name(args, unit); });)
#define RLK_SIMT_MOVES(OP, kernels, ...)
#define RLK_SIMT_MOVES_BY(OP, call, ...) RLK_SIMT_MOVES_UNITS(OP, __VA_ARGS__)

#endif
