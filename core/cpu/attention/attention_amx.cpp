#include "core/cpu/attention/attention_amx.hpp"

#include "core/cpu/simd/amx_tiles.hpp"

namespace rlk::cpu {
namespace {

constexpr int64_t kPart = kAmxKeys * kAmxRows;  // numbers of one part of a group's weights

void emulate_scores(const uint16_t* keys, int64_t depth, const uint16_t* queries, int64_t width, float* scores) {
  for (int64_t key = 0; key < kAmxKeys; ++key) {
    for (int64_t row = 0; row < width; ++row) {
      const uint16_t* const right = queries + row / kAmxRows * kAmxRows * depth + row % kAmxRows * 2;
      float sum = 0;
      for (int64_t d = 0; d < depth; d += kAmxDepth) {
        sum = emulated_products(sum, keys + key * depth + d, right + d * kAmxRows, 2 * kAmxRows);
      }
      scores[key * width + row] = sum;
    }
  }
}

void emulate_values(const uint16_t* columns, int64_t depth, const uint16_t* weights, int64_t width, float* sums) {
  for (int64_t d = 0; d < depth; ++d) {
    for (int64_t row = 0; row < width; ++row) {
      const uint16_t* const right = weights + row / kAmxRows * kAmxWeights + row % kAmxRows * 2;
      float sum = 0;
      for (int64_t key = 0; key < kAmxKeys; key += kAmxDepth) {
        for (int64_t part = kAmxParts - 1; part >= 0; --part) {
          sum =
              emulated_products(sum, columns + d * kAmxKeys + key, right + part * kPart + key * kAmxRows, 2 * kAmxRows);
        }
      }
      sums[d * width + row] = sum;
    }
  }
}

#if RLK_CPU_HAS_AMX

// Two tiles of keys and one or two groups of rows.
template <int kGroups>
RLK_AMX void score_tiles(const uint16_t* keys, int64_t depth, const uint16_t* queries, int64_t width, float* scores) {
  _tile_zero(0);
  _tile_zero(2);
  if constexpr (kGroups > 1) _tile_zero(1);
  if constexpr (kGroups > 1) _tile_zero(3);
  for (int64_t d = 0; d < depth; d += kAmxDepth) {
    _tile_loadd(4, keys + d, depth * 2);
    _tile_loadd(5, keys + kAmxRows * depth + d, depth * 2);
    _tile_loadd(6, queries + d * kAmxRows, 64);
    if constexpr (kGroups > 1) _tile_loadd(7, queries + (depth + d) * kAmxRows, 64);
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(2, 5, 6);
    if constexpr (kGroups > 1) _tile_dpbf16ps(1, 4, 7);
    if constexpr (kGroups > 1) _tile_dpbf16ps(3, 5, 7);
  }
  _tile_stored(0, scores, width * 4);
  _tile_stored(2, scores + kAmxRows * width, width * 4);
  if constexpr (kGroups > 1) _tile_stored(1, scores + kAmxRows, width * 4);
  if constexpr (kGroups > 1) _tile_stored(3, scores + kAmxRows * width + kAmxRows, width * 4);
}

RLK_AMX void tile_scores(const uint16_t* keys, int64_t depth, const uint16_t* queries, int64_t width, float* scores) {
  configure_tiles(kAmxRows);
  settle_memory(keys);
  for (int64_t row = 0; row < width; row += 2 * kAmxRows) {
    for (int64_t key = 0; key < kAmxKeys; key += 2 * kAmxRows) {
      const auto of = row + kAmxRows < width ? score_tiles<2> : score_tiles<1>;
      of(keys + key * depth, depth, queries + row * depth, width, scores + key * width + row);
    }
  }
  settle_memory(scores);
  _tile_release();
}

// Two tiles of D and one or two groups of rows.
template <int kGroups>
RLK_AMX void value_tiles(const uint16_t* columns, const uint16_t* weights, int64_t width, float* sums) {
  _tile_zero(0);
  _tile_zero(2);
  if constexpr (kGroups > 1) _tile_zero(1);
  if constexpr (kGroups > 1) _tile_zero(3);
  for (int64_t key = 0; key < kAmxKeys; key += kAmxDepth) {
    _tile_loadd(4, columns + key, kAmxKeys * 2);
    _tile_loadd(5, columns + kAmxRows * kAmxKeys + key, kAmxKeys * 2);
    for (int64_t part = kAmxParts - 1; part >= 0; --part) {
      const uint16_t* const right = weights + part * kPart + key * kAmxRows;
      _tile_loadd(6, right, 64);
      if constexpr (kGroups > 1) _tile_loadd(7, right + kAmxWeights, 64);
      _tile_dpbf16ps(0, 4, 6);
      _tile_dpbf16ps(2, 5, 6);
      if constexpr (kGroups > 1) _tile_dpbf16ps(1, 4, 7);
      if constexpr (kGroups > 1) _tile_dpbf16ps(3, 5, 7);
    }
  }
  _tile_stored(0, sums, width * 4);
  _tile_stored(2, sums + kAmxRows * width, width * 4);
  if constexpr (kGroups > 1) _tile_stored(1, sums + kAmxRows, width * 4);
  if constexpr (kGroups > 1) _tile_stored(3, sums + kAmxRows * width + kAmxRows, width * 4);
}

RLK_AMX void tile_values(const uint16_t* columns, int64_t depth, const uint16_t* weights, int64_t width, float* sums) {
  configure_tiles(kAmxRows);
  settle_memory(weights);
  for (int64_t row = 0; row < width; row += 2 * kAmxRows) {
    for (int64_t d = 0; d < depth; d += 2 * kAmxRows) {
      const auto of = row + kAmxRows < width ? value_tiles<2> : value_tiles<1>;
      of(columns + d * kAmxKeys, weights + row / kAmxRows * kAmxWeights, width, sums + d * width + row);
    }
  }
  settle_memory(sums);
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

RLK_AMX void transpose_by_vectors(const uint16_t* rows, int64_t depth, uint16_t* columns) {
  for (int64_t key = 0; key < kAmxKeys; key += 32) {
    for (int64_t d = 0; d < depth; d += 32) {
      __m512i low[16], high[16];  // of two keys, interleaved: numbers 8 q .. 8 q + 3 and 8 q + 4 .. 8 q + 7
#pragma GCC unroll 16
      for (int pair = 0; pair < 16; ++pair) {
        const uint16_t* const row = rows + (key + 2 * pair) * depth + d;
        const __m512i even = _mm512_loadu_si512(row), odd = _mm512_loadu_si512(row + depth);
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

void tile_scores(const uint16_t*, int64_t, const uint16_t*, int64_t, float*) {}
void tile_values(const uint16_t*, int64_t, const uint16_t*, int64_t, float*) {}
void transpose_by_vectors(const uint16_t*, int64_t, uint16_t*) {}

#endif

}  // namespace

void amx_transpose(const uint16_t* rows, int64_t depth, uint16_t* columns) {
  if (!amx_is_emulated()) return transpose_by_vectors(rows, depth, columns);
  for (int64_t key = 0; key < kAmxKeys; ++key) {
    for (int64_t d = 0; d < depth; ++d) columns[d * kAmxKeys + key] = rows[key * depth + d];
  }
}

void amx_scores(const uint16_t* keys, int64_t depth, const uint16_t* queries, int64_t width, float* scores) {
  (amx_is_emulated() ? emulate_scores : tile_scores)(keys, depth, queries, width, scores);
}

void amx_values(const uint16_t* columns, int64_t depth, const uint16_t* weights, int64_t width, float* sums) {
  (amx_is_emulated() ? emulate_values : tile_values)(columns, depth, weights, width, sums);
}

}  // namespace rlk::cpu
