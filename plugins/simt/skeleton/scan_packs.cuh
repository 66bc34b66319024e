// A thread's neighbours where they are neighbours in memory, too, in either direction: read and written 16 bytes at a
// time. In memory the first of them is at `from`, which is the last of a row that is read backwards.
#pragma once

#include "grid_tensor.cuh"
#include "scan.h"

namespace rlk::simt {

constexpr int kScanBackwards = -1;

template <class Word>
__device__ __forceinline__ void turn_around(Word (&word)[kScanItems]) {
#pragma unroll
  for (int i = 0; i < kScanItems / 2; ++i) {
    const Word other = word[i];
    word[i] = word[kScanItems - 1 - i];
    word[kScanItems - 1 - i] = other;
  }
}

// kScanItems words of memory.
template <class Word>
__device__ __forceinline__ void load_words(const void* from, Word (&word)[kScanItems]) {
  constexpr int kPacks = static_cast<int>(sizeof(word)) / 16;
  uint4 pack[kPacks];
#pragma unroll
  for (int p = 0; p < kPacks; ++p) pack[p] = static_cast<const uint4*>(from)[p];
  __builtin_memcpy(word, pack, sizeof(word));
}
template <class Word>
__device__ __forceinline__ void store_words(void* to, const Word (&word)[kScanItems]) {
  constexpr int kPacks = static_cast<int>(sizeof(word)) / 16;
  uint4 pack[kPacks];
  __builtin_memcpy(pack, word, sizeof(word));
#pragma unroll
  for (int p = 0; p < kPacks; ++p) static_cast<uint4*>(to)[p] = pack[p];
}

// The place in memory of those that begin at `at` and go on by `column`, 1 or -1.
__device__ __forceinline__ int64_t first_in_memory(int64_t at, int64_t column) {
  return column == kScanBackwards ? at - (kScanItems - 1) : at;
}

template <class Bits>
__device__ __forceinline__ void load_neighbours(const GridTensor& tensor, int32_t dtype, int64_t at,
                                                Bits (&out)[kScanItems]) {
  const int64_t from = first_in_memory(at, tensor.column);
  if (sizeof(Bits) == 8 || dtype == kMapF32) {
    load_words(static_cast<const Bits*>(tensor.data) + from, out);
  } else {
    uint16_t half[kScanItems];
    load_words(static_cast<const uint16_t*>(tensor.data) + from, half);
#pragma unroll
    for (int i = 0; i < kScanItems; ++i) out[i] = half[i];
  }
  if (tensor.column == kScanBackwards) turn_around(out);
}
__device__ __forceinline__ void load_neighbours_mask(const GridTensor& mask, int64_t at, uint8_t (&out)[kScanItems]) {
  static_assert(kScanItems == sizeof(uint64_t), "a byte each");
  const uint8_t* const data = static_cast<const uint8_t*>(mask.data);
  const uint64_t word = *reinterpret_cast<const uint64_t*>(data + first_in_memory(at, mask.column));
  __builtin_memcpy(out, &word, sizeof(out));
  if (mask.column == kScanBackwards) turn_around(out);
}
template <class A>
__device__ __forceinline__ void store_neighbours(const GridTensor& tensor, int64_t at, A (&value)[kScanItems]) {
  if (tensor.column == kScanBackwards) turn_around(value);
  const int64_t to = first_in_memory(at, tensor.column);
  const auto store_as = [&](auto type) {
    using T = decltype(type);
    T element[kScanItems];
#pragma unroll
    for (int i = 0; i < kScanItems; ++i) element[i] = Narrow<T>::of(value[i]);
    store_words(static_cast<T*>(tensor.data) + to, element);
  };
  if (tensor.dtype == kMapBf16) {
    store_as(bf16{});
  } else if (tensor.dtype == kMapF16) {
    store_as(f16{});
  } else {
    store_words(static_cast<A*>(tensor.data) + to, value);
  }
}

}  // namespace rlk::simt
