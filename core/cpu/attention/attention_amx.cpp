#include "core/cpu/attention/attention_amx.hpp"

#include <algorithm>
#include <cmath>

#include "core/cpu/simd/amx_tiles.hpp"

namespace rlk::cpu {
namespace {

constexpr int64_t kPart = kAmxKeys * kAmxRows;  // numbers of one part of a group's weights

void emulate_scores(AmxRows keys, int64_t depth, const uint16_t* queries, int64_t width, float* scores) {
  for (int64_t key = 0; key < kAmxKeys; ++key) {
    for (int64_t row = 0; row < width; ++row) {
      const uint16_t* const right = queries + row / kAmxRows * kAmxRows * depth + row % kAmxRows * 2;
      float sum = 0;
      for (int64_t d = 0; d < depth; d += kAmxDepth) {
        sum = emulated_products(sum, keys.data + key * keys.stride + d, right + d * kAmxRows, 2 * kAmxRows);
      }
      scores[key * width + row] = sum;
    }
  }
}

void emulate_values(const uint16_t* columns, int64_t size, const uint16_t* weights, int64_t width, const float* factor,
                    float* out) {
  for (int64_t d = 0; d < size; ++d) {
    for (int64_t row = 0; row < width; ++row) {
      const uint16_t* const right = weights + row / kAmxRows * kAmxWeights + row % kAmxRows * 2;
      float sum = 0;
      for (int64_t key = 0; key < kAmxKeys; key += kAmxDepth) {
        for (int64_t part = kAmxParts - 1; part >= 0; --part) {
          sum =
              emulated_products(sum, columns + d * kAmxKeys + key, right + part * kPart + key * kAmxRows, 2 * kAmxRows);
        }
      }
      out[d * width + row] = std::fma(out[d * width + row], factor[row], sum);
    }
  }
}

#if RLK_CPU_HAS_AMX

// Sums are tiles 0 and 2 for the first group of rows, 1 and 3 for the second; factors 4 and 5, and 6 and 7 for the
// groups.
template <int kGroups>
RLK_AMX inline void zero_sums() {
  _tile_zero(0);
  _tile_zero(2);
  if constexpr (kGroups > 1) _tile_zero(1);
  if constexpr (kGroups > 1) _tile_zero(3);
}
template <int kGroups>
RLK_AMX inline void multiply_tiles() {
  _tile_dpbf16ps(0, 4, 6);
  _tile_dpbf16ps(2, 5, 6);
  if constexpr (kGroups > 1) _tile_dpbf16ps(1, 4, 7);
  if constexpr (kGroups > 1) _tile_dpbf16ps(3, 5, 7);
}
template <int kGroups>
RLK_AMX inline void store_sums(float* to, int64_t width) {
  _tile_stored(0, to, width * 4);
  _tile_stored(2, to + kAmxRows * width, width * 4);
  if constexpr (kGroups > 1) _tile_stored(1, to + kAmxRows, width * 4);
  if constexpr (kGroups > 1) _tile_stored(3, to + kAmxRows * width + kAmxRows, width * 4);
}

// Two tiles of keys, from `keys` on, and one or two groups of rows.
template <int kGroups>
RLK_AMX void score_tiles(AmxRows keys, int64_t depth, const uint16_t* queries, int64_t width, float* scores) {
  zero_sums<kGroups>();
  for (int64_t d = 0; d < depth; d += kAmxDepth) {
    _tile_loadd(4, keys.data + d, keys.stride * 2);
    _tile_loadd(5, keys.data + kAmxRows * keys.stride + d, keys.stride * 2);
    _tile_loadd(6, queries + d * kAmxRows, 64);
    if constexpr (kGroups > 1) _tile_loadd(7, queries + (depth + d) * kAmxRows, 64);
    multiply_tiles<kGroups>();
  }
  store_sums<kGroups>(scores, width);
}

RLK_AMX void tile_scores(AmxRows keys, int64_t depth, const uint16_t* queries, int64_t width, float* scores) {
  configure_tiles(kAmxRows);
  settle_memory(keys.data);
  for (int64_t row = 0; row < width; row += 2 * kAmxRows) {
    for (int64_t key = 0; key < kAmxKeys; key += 2 * kAmxRows) {
      const auto of = row + kAmxRows < width ? score_tiles<2> : score_tiles<1>;
      of({keys.data + key * keys.stride, keys.stride}, depth, queries + row * depth, width, scores + key * width + row);
    }
  }
  settle_memory(scores);
  _tile_release();
}

// Two tiles of D and one or two groups of rows, into sums[d][row] with rows of two groups.
template <int kGroups>
RLK_AMX void value_tiles(const uint16_t* columns, const uint16_t* weights, float* sums) {
  constexpr int64_t kRow = 2 * kAmxRows;
  zero_sums<kGroups>();
  for (int64_t key = 0; key < kAmxKeys; key += kAmxDepth) {
    _tile_loadd(4, columns + key, kAmxKeys * 2);
    _tile_loadd(5, columns + kAmxRows * kAmxKeys + key, kAmxKeys * 2);
    for (int64_t part = kAmxParts - 1; part >= 0; --part) {
      const uint16_t* const right = weights + part * kPart + key * kAmxRows;
      _tile_loadd(6, right, 64);
      if constexpr (kGroups > 1) _tile_loadd(7, right + kAmxWeights, 64);
      multiply_tiles<kGroups>();
    }
  }
  store_sums<kGroups>(sums, kRow);
}

template <int kGroups>
RLK_AMX void value_columns(const uint16_t* columns, int64_t size, const uint16_t* weights, int64_t width,
                           const float* factor, float* out) {
  constexpr int64_t kTiles = 2 * kAmxRows;
  alignas(64) float sums[kTiles * kTiles];
  for (int64_t d = 0; d < size; d += kTiles) {
    value_tiles<kGroups>(columns + d * kAmxKeys, weights, sums);
    settle_memory(sums);
    for (int64_t i = 0; i < std::min(kTiles, size - d); ++i) {
      for (int64_t group = 0; group < kGroups; ++group) {
        float* const to = out + (d + i) * width + group * kAmxRows;
        const __m512 scale = _mm512_loadu_ps(factor + group * kAmxRows);
        const __m512 sum = _mm512_load_ps(sums + i * kTiles + group * kAmxRows);
        _mm512_storeu_ps(to, _mm512_fmadd_ps(_mm512_loadu_ps(to), scale, sum));
      }
    }
  }
}

RLK_AMX void tile_values(const uint16_t* columns, int64_t size, const uint16_t* weights, int64_t width,
                         const float* factor, float* out) {
  configure_tiles(kAmxRows);
  settle_memory(weights);
  for (int64_t row = 0; row < width; row += 2 * kAmxRows) {
    const auto of = row + kAmxRows < width ? value_columns<2> : value_columns<1>;
    of(columns, size, weights + row / kAmxRows * kAmxWeights, width, factor + row, out + row);
  }
  _tile_release();
}

// The forms with a mask: g++ 12 takes the others' registers for uninitialised.
RLK_AMX inline __m512i low_pairs(__m512i a, __m512i b) {
  return _mm512_maskz_unpacklo_epi32(0xffff, a, b);
}
RLK_AMX inline __m512i high_pairs(__m512i a, __m512i b) {
  return _mm512_maskz_unpackhi_epi32(0xffff, a, b);
}
RLK_AMX inline __m512i low_fours(__m512i a, __m512i b) {
  return _mm512_maskz_unpacklo_epi64(0xff, a, b);
}
RLK_AMX inline __m512i high_fours(__m512i a, __m512i b) {
  return _mm512_maskz_unpackhi_epi64(0xff, a, b);
}
// Quarters 0 and 2 of a, then of b; quarters 1 and 3.
RLK_AMX inline __m512i even_quarters(__m512i a, __m512i b) {
  return _mm512_maskz_shuffle_i32x4(0xffff, a, b, 0x88);
}
RLK_AMX inline __m512i odd_quarters(__m512i a, __m512i b) {
  return _mm512_maskz_shuffle_i32x4(0xffff, a, b, 0xdd);
}

// Sixteen rows of sixteen pairs, transposed: pair 4 q + n of every row goes to out + n * stride_low + q * stride_high.
RLK_AMX inline void transpose_pairs(__m512i (&r)[16], uint16_t* out, int64_t stride_low, int64_t stride_high) {
  __m512i t[16];
#pragma GCC unroll 16
  for (int i = 0; i < 16; i += 2) {
    t[i] = low_pairs(r[i], r[i + 1]);
    t[i + 1] = high_pairs(r[i], r[i + 1]);
  }
#pragma GCC unroll 16
  for (int i = 0; i < 16; i += 4) {  // r[i + n]: pair n of each quarter, rows i .. i + 3
    r[i] = low_fours(t[i], t[i + 2]);
    r[i + 1] = high_fours(t[i], t[i + 2]);
    r[i + 2] = low_fours(t[i + 1], t[i + 3]);
    r[i + 3] = high_fours(t[i + 1], t[i + 3]);
  }
#pragma GCC unroll 16
  for (int n = 0; n < 4; ++n) {
    const __m512i even0 = even_quarters(r[n], r[4 + n]), even1 = even_quarters(r[8 + n], r[12 + n]);
    const __m512i odd0 = odd_quarters(r[n], r[4 + n]), odd1 = odd_quarters(r[8 + n], r[12 + n]);
    uint16_t* const to = out + n * stride_low;
    _mm512_storeu_si512(to, even_quarters(even0, even1));
    _mm512_storeu_si512(to + stride_high, even_quarters(odd0, odd1));
    _mm512_storeu_si512(to + 2 * stride_high, odd_quarters(even0, even1));
    _mm512_storeu_si512(to + 3 * stride_high, odd_quarters(odd0, odd1));
  }
}

RLK_AMX void transpose_by_vectors(AmxRows rows, int64_t depth, uint16_t* columns) {
  for (int64_t key = 0; key < kAmxKeys; key += 32) {
    for (int64_t d = 0; d < depth; d += 32) {
      __m512i low[16], high[16];  // of two keys, interleaved: numbers 8 q .. 8 q + 3 and 8 q + 4 .. 8 q + 7
#pragma GCC unroll 16
      for (int64_t pair = 0; pair < 16; ++pair) {
        const uint16_t* const row = rows.data + (key + 2 * pair) * rows.stride + d;
        const __m512i even = _mm512_loadu_si512(row), odd = _mm512_loadu_si512(row + rows.stride);
        low[pair] = _mm512_unpacklo_epi16(even, odd);
        high[pair] = _mm512_unpackhi_epi16(even, odd);
      }
      uint16_t* const out = columns + d * kAmxKeys + key;
      transpose_pairs(low, out, kAmxKeys, 8 * kAmxKeys);
      transpose_pairs(high, out + 4 * kAmxKeys, kAmxKeys, 8 * kAmxKeys);
    }
  }
}

#else

void tile_scores(AmxRows, int64_t, const uint16_t*, int64_t, float*) {}
void tile_values(const uint16_t*, int64_t, const uint16_t*, int64_t, const float*, float*) {}
void transpose_by_vectors(AmxRows, int64_t, uint16_t*) {}

#endif

}  // namespace

void amx_transpose(AmxRows rows, int64_t depth, uint16_t* columns) {
  if (!amx_is_emulated()) return transpose_by_vectors(rows, depth, columns);
  for (int64_t key = 0; key < kAmxKeys; ++key) {
    for (int64_t d = 0; d < depth; ++d) columns[d * kAmxKeys + key] = rows.data[key * rows.stride + d];
  }
}

void amx_scores(AmxRows keys, int64_t depth, const uint16_t* queries, int64_t width, float* scores) {
  (amx_is_emulated() ? emulate_scores : tile_scores)(keys, depth, queries, width, scores);
}

void amx_values(const uint16_t* columns, int64_t size, const uint16_t* weights, int64_t width, const float* factor,
                float* out) {
  (amx_is_emulated() ? emulate_values : tile_values)(columns, size, weights, width, factor, out);
}

}  // namespace rlk::cpu
