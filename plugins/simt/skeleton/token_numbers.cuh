// Numbers of tokens of any dtype and stride: bits first, of several tokens and tensors, then numbers in fp64.
#pragma once

#include "../element.cuh"
#include "tokens.h"

namespace rlk::simt {

// Bits of a tensor's tokens, read and then widened in two steps: nothing waits for one tensor before it asks for the
// next.
template <int kStep>
__device__ __forceinline__ void read_tokens(const TokenTensor& tensor, int64_t row, const int64_t (&token)[kStep],
                                            uint64_t (&bits)[kStep]) {
  if (tensor.data == nullptr) return;
  const auto read = [&](auto word) {
    using Word = decltype(word);
    const Word* const from = static_cast<const Word*>(tensor.data) + row * tensor.sequence;
#pragma unroll
    for (int s = 0; s < kStep; ++s) bits[s] = from[token[s] * tensor.token];
  };
  if (tensor.dtype == kMapF32) {
    read(uint32_t{});
  } else if (tensor.dtype == kMapF64) {
    read(uint64_t{});
  } else if (tensor.dtype == kMapU8 || tensor.dtype == kMapBool) {
    read(uint8_t{});
  } else {
    read(uint16_t{});
  }
}
template <class To, class Word>
__device__ __forceinline__ To of_bits(Word word) {
  To to;
  static_assert(sizeof(to) == sizeof(word), "the same bits");
  __builtin_memcpy(&to, &word, sizeof(to));
  return to;
}
template <int kStep>
__device__ __forceinline__ void widen_tokens(const TokenTensor& tensor, const uint64_t (&bits)[kStep],
                                             double (&number)[kStep]) {
  const auto widen_each = [&](auto of) {
#pragma unroll
    for (int s = 0; s < kStep; ++s) number[s] = of(bits[s]);
  };
  if (tensor.data == nullptr) {
    widen_each([&](uint64_t) { return tensor.value; });
  } else if (tensor.dtype == kMapF32) {
    widen_each([](uint64_t b) { return static_cast<double>(of_bits<float>(static_cast<uint32_t>(b))); });
  } else if (tensor.dtype == kMapF64) {
    widen_each([](uint64_t b) { return of_bits<double>(b); });
  } else if (tensor.dtype == kMapBf16) {
    widen_each([](uint64_t b) { return static_cast<double>(widen(of_bits<bf16>(static_cast<uint16_t>(b)))); });
  } else if (tensor.dtype == kMapF16) {
    widen_each([](uint64_t b) { return static_cast<double>(widen(of_bits<f16>(static_cast<uint16_t>(b)))); });
  } else {
    widen_each([](uint64_t b) { return static_cast<double>(b); });
  }
}

// Four neighbours of a row, of which `count` are there: bits, then numbers. Numbers of fp64 are read when they are
// asked for.
using TokenBits = uint32_t[kTokenPack];
__device__ __forceinline__ bool is_whole_pack(const TokenTensor& tensor, const void* from, int bytes, int count) {
  return count == kTokenPack && tensor.token == 1 && reinterpret_cast<uintptr_t>(from) % bytes == 0;
}
__device__ __forceinline__ void read_pack(const TokenTensor& tensor, int64_t row, int64_t token, int count,
                                          TokenBits& bits) {
  if (tensor.data == nullptr || tensor.dtype == kMapF64) return;
  const int64_t at = row * tensor.sequence + token * tensor.token;
  const auto read = [&](auto word, auto pack) {
    using Word = decltype(word);
    const Word* const from = static_cast<const Word*>(tensor.data) + at;
    if (is_whole_pack(tensor, from, sizeof(pack), count)) {
      Word words[kTokenPack];
      pack = *reinterpret_cast<const decltype(pack)*>(from);
      static_assert(sizeof(words) == sizeof(pack), "a pack");
      __builtin_memcpy(words, &pack, sizeof(words));
#pragma unroll
      for (int i = 0; i < kTokenPack; ++i) bits[i] = words[i];
    } else {
#pragma unroll
      for (int i = 0; i < kTokenPack; ++i) bits[i] = from[i < count ? i * tensor.token : 0];
    }
  };
  if (tensor.dtype == kMapF32) {
    read(uint32_t{}, uint4{});
  } else if (tensor.dtype == kMapU8 || tensor.dtype == kMapBool) {
    read(uint8_t{}, uint32_t{});
  } else {
    read(uint16_t{}, uint64_t{});
  }
}
__device__ __forceinline__ void widen_pack(const TokenTensor& tensor, int64_t row, int64_t token, int count,
                                           const TokenBits& bits, double (&number)[kTokenPack]) {
  const auto widen_each = [&](auto of) {
#pragma unroll
    for (int i = 0; i < kTokenPack; ++i) number[i] = of(i);
  };
  if (tensor.data == nullptr) {
    widen_each([&](int) { return tensor.value; });
  } else if (tensor.dtype == kMapF32) {
    widen_each([&](int i) { return static_cast<double>(of_bits<float>(bits[i])); });
  } else if (tensor.dtype == kMapBf16) {
    widen_each([&](int i) { return static_cast<double>(widen(of_bits<bf16>(static_cast<uint16_t>(bits[i])))); });
  } else if (tensor.dtype == kMapF16) {
    widen_each([&](int i) { return static_cast<double>(widen(of_bits<f16>(static_cast<uint16_t>(bits[i])))); });
  } else if (tensor.dtype == kMapF64) {
    const double* const from = static_cast<const double*>(tensor.data) + row * tensor.sequence + token * tensor.token;
    widen_each([&](int i) { return from[i < count ? i * tensor.token : 0]; });
  } else {
    widen_each([&](int i) { return static_cast<double>(bits[i]); });
  }
}
template <bool kValue>
struct TokenBytes {
  static constexpr bool value = kValue;
};
// The same without a question at each of them: whole packs of fp32 or, where kIsBytes, of bytes, which are 0 or else 1.
template <bool kIsBytes>
__device__ __forceinline__ bool is_brief_tensor(const TokenTensor& tensor, int64_t row, int64_t token) {
  if (tensor.data == nullptr) return true;
  constexpr int kBytes = kIsBytes ? 1 : 4;
  const bool is_dtype = kIsBytes ? tensor.dtype == kMapU8 || tensor.dtype == kMapBool : tensor.dtype == kMapF32;
  const auto from = reinterpret_cast<uintptr_t>(tensor.data) + (row * tensor.sequence + token) * kBytes;
  return is_dtype && tensor.token == 1 && from % (kBytes * kTokenPack) == 0;
}
template <bool kIsBytes>
__device__ __forceinline__ unsigned char* brief_place(const TokenTensor& tensor, int64_t row, int64_t token) {
  return static_cast<unsigned char*>(tensor.data) + (row * tensor.sequence + token) * (kIsBytes ? 1 : 4);
}
template <bool kIsBytes>
__device__ __forceinline__ void read_brief(const unsigned char* place, TokenBits& bits) {
  if constexpr (kIsBytes) {
    bits[0] = *reinterpret_cast<const uint32_t*>(place);
  } else {
    const uint4 pack = *reinterpret_cast<const uint4*>(place);  // the next pass reads it again
    bits[0] = pack.x;
    bits[1] = pack.y;
    bits[2] = pack.z;
    bits[3] = pack.w;
  }
}
// is_there: whether it has been read; else it is its value everywhere.
template <bool kIsBytes>
__device__ __forceinline__ void widen_brief(const TokenTensor& tensor, bool is_there, const TokenBits& bits,
                                            double (&number)[kTokenPack]) {
#pragma unroll
  for (int i = 0; i < kTokenPack; ++i) {
    const double there = kIsBytes ? ((bits[0] >> (8 * i) & 0xffu) != 0 ? 1.0 : 0.0)
                                  : static_cast<double>(of_bits<float>(bits[kIsBytes ? 0 : i]));
    number[i] = is_there ? there : tensor.value;
  }
}
template <bool kIsBytes>
__device__ __forceinline__ void numbers_brief(const TokenBits& bits, float (&number)[kTokenPack]) {
#pragma unroll
  for (int i = 0; i < kTokenPack; ++i) {
    number[i] = kIsBytes ? ((bits[0] >> (8 * i) & 0xffu) != 0 ? 1.0f : 0.0f) : of_bits<float>(bits[kIsBytes ? 0 : i]);
  }
}
// Of whole words from `first` on, each the next one of this thread, the bytes that are not 0.
__device__ __forceinline__ double count_bytes(const TokenTensor& tensor, int64_t row, int64_t end, int64_t& first) {
  constexpr int kStep = kTokenPack * kTokenThreads, kWords = static_cast<int>(kTokenChunk / kStep);
  static_assert(kWords < 256, "a byte counts those at its place");
  uint32_t count = 0;
#pragma unroll
  for (int i = 0; i < kWords; ++i) {
    if (first > end - kTokenPack) continue;
    TokenBits bits;
    read_brief<true>(brief_place<true>(tensor, row, first), bits);
    count += ((((bits[0] & 0x7f7f7f7fu) + 0x7f7f7f7fu) | bits[0]) >> 7) & 0x01010101u;
    first += kStep;
  }
  return static_cast<double>((count & 0xffu) + (count >> 8 & 0xffu) + (count >> 16 & 0xffu) + (count >> 24));
}
// One token's.
template <bool kIsBytes>
__device__ __forceinline__ double number_brief(const TokenTensor& tensor, int64_t row, int64_t token) {
  const int64_t at = row * tensor.sequence + token;
  if constexpr (kIsBytes) return static_cast<const uint8_t*>(tensor.data)[at] != 0 ? 1 : 0;
  return static_cast<double>(static_cast<const float*>(tensor.data)[at]);
}
template <class Number>
__device__ __forceinline__ void put_brief(unsigned char* place, const Number (&number)[kTokenPack]) {
  float pack[kTokenPack];
  uint4 bits;
#pragma unroll
  for (int i = 0; i < kTokenPack; ++i) pack[i] = Narrow<float>::of(number[i]);
  __builtin_memcpy(&bits, pack, sizeof(bits));
  store_stream(place, bits);
}

// View: TokenView, which puts what is no pack.
template <class View>
__device__ __forceinline__ void put_pack(const View& view, const TokenTensor& tensor, int place, int64_t row,
                                         int64_t token, int count, const double (&number)[kTokenPack]) {
  if (tensor.data == nullptr) return;
  float* const to = static_cast<float*>(tensor.data) + row * tensor.sequence + token * tensor.token;
  if (tensor.dtype == kMapF32 && is_whole_pack(tensor, to, 16, count)) {
    float pack[kTokenPack];
    uint4 bits;
#pragma unroll
    for (int i = 0; i < kTokenPack; ++i) pack[i] = Narrow<float>::of(number[i]);
    __builtin_memcpy(&bits, pack, sizeof(bits));
    *reinterpret_cast<uint4*>(to) = bits;
    return;
  }
#pragma unroll
  for (int i = 0; i < kTokenPack; ++i) {
    if (i < count) view.put(place, row, token + i, number[i]);
  }
}

}  // namespace rlk::simt
