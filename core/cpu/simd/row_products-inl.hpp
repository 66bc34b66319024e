// Products of a few rows with many rows of memory, for every Highway target: the numbers of the few are broadcast, the
// many lie in the lanes of vectors. They come from memory once, straight into registers, where a square of as many rows
// as a vector has lanes is transposed and widened; no pass through scratch, which would take longer than memory does.
//
// Each lane's sum is one chain of multiply-adds in the order of depth, as in the tiles of many rows (outer_sums), and
// so are its bits.
#if defined(RLK_CPU_ROW_PRODUCTS_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef RLK_CPU_ROW_PRODUCTS_INL
#undef RLK_CPU_ROW_PRODUCTS_INL
#else
#define RLK_CPU_ROW_PRODUCTS_INL
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "core/cpu/simd/convert-inl.hpp"
#include "core/cpu/simd/register_tile-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace rlk::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if RLK_CPU_VECTOR_ARRAYS

// Can rows of E be read as vectors of T?
template <typename T, typename E>
constexpr bool kWidens = sizeof(E) == sizeof(T) || (sizeof(E) == 2 && sizeof(T) == 4);

// Lanes of a vector, and of its 128-bit blocks.
template <typename T>
constexpr int kLanes = static_cast<int>(hn::MaxLanes(hn::ScalableTag<T>()));
template <typename T>
constexpr int kBlockLanes = std::min(kLanes<T>, 16 / static_cast<int>(sizeof(T)));

// Asks for memory that is wanted later than L1 would keep it: rows lie a power of two apart, often.
HWY_INLINE void prefetch_far(const void* p) {
  __builtin_prefetch(p, 0, 2);
}

// 128-bit blocks of a vector that transpose_square knows.
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
constexpr int kMostBlocks = 4;
// Blocks 0 and 2, or 1 and 3, of a and then of b.
HWY_INLINE hn::Vec512<float> even_blocks(hn::Vec512<float> b, hn::Vec512<float> a) {
  return hn::Vec512<float>{_mm512_shuffle_f32x4(a.raw, b.raw, 0x88)};
}
HWY_INLINE hn::Vec512<float> odd_blocks(hn::Vec512<float> b, hn::Vec512<float> a) {
  return hn::Vec512<float>{_mm512_shuffle_f32x4(a.raw, b.raw, 0xDD)};
}
HWY_INLINE hn::Vec512<double> even_blocks(hn::Vec512<double> b, hn::Vec512<double> a) {
  return hn::Vec512<double>{_mm512_shuffle_f64x2(a.raw, b.raw, 0x88)};
}
HWY_INLINE hn::Vec512<double> odd_blocks(hn::Vec512<double> b, hn::Vec512<double> a) {
  return hn::Vec512<double>{_mm512_shuffle_f64x2(a.raw, b.raw, 0xDD)};
}
#else
constexpr int kMostBlocks = 2;
#endif

// Lane j of v[i] and lane i of v[j] change places.
template <typename T>
HWY_INLINE void transpose_square([[maybe_unused]] hn::VFromD<hn::ScalableTag<T>> (&v)[kLanes<T>]) {
#if HWY_TARGET != HWY_SCALAR
  using V = hn::VFromD<hn::ScalableTag<T>>;
  const hn::ScalableTag<T> d;
  constexpr int kSide = kBlockLanes<T>, kBlocks = kLanes<T> / kSide;
  // A vector of more blocks is a target of a later Highway: its step between the blocks is to be written below.
  static_assert(kBlocks <= kMostBlocks);
  // Squares of 128-bit blocks.
#pragma GCC unroll 8
  for (int i = 0; i < kLanes<T>; i += kSide) {
    const V lower01 = hn::InterleaveLower(d, v[i], v[i + 1]), upper01 = hn::InterleaveUpper(d, v[i], v[i + 1]);
    if constexpr (kSide == 2) {
      v[i] = lower01, v[i + 1] = upper01;
    } else {
      const hn::Repartition<double, decltype(d)> dw;
      const V lower23 = hn::InterleaveLower(d, v[i + 2], v[i + 3]),
              upper23 = hn::InterleaveUpper(d, v[i + 2], v[i + 3]);
      const auto w01 = hn::BitCast(dw, lower01), w23 = hn::BitCast(dw, lower23);
      const auto x01 = hn::BitCast(dw, upper01), x23 = hn::BitCast(dw, upper23);
      v[i] = hn::BitCast(d, hn::InterleaveLower(dw, w01, w23));
      v[i + 1] = hn::BitCast(d, hn::InterleaveUpper(dw, w01, w23));
      v[i + 2] = hn::BitCast(d, hn::InterleaveLower(dw, x01, x23));
      v[i + 3] = hn::BitCast(d, hn::InterleaveUpper(dw, x01, x23));
    }
  }
  // The square of these blocks.
#pragma GCC unroll 4
  for (int c = 0; c < kSide && kBlocks > 1; ++c) {
    const V x0 = v[c], x1 = v[kSide % kLanes<T> + c];
    if constexpr (kBlocks == 2) {
      v[c] = hn::ConcatLowerLower(d, x1, x0);
      v[kSide + c] = hn::ConcatUpperUpper(d, x1, x0);
    }
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
    if constexpr (kBlocks == 4) {
      const V x2 = v[2 * kSide + c], x3 = v[3 * kSide + c];
      const V lower01 = hn::ConcatLowerLower(d, x1, x0), lower23 = hn::ConcatLowerLower(d, x3, x2);
      const V upper01 = hn::ConcatUpperUpper(d, x1, x0), upper23 = hn::ConcatUpperUpper(d, x3, x2);
      v[c] = even_blocks(lower23, lower01);
      v[kSide + c] = odd_blocks(lower23, lower01);
      v[2 * kSide + c] = even_blocks(upper23, upper01);
      v[3 * kSide + c] = odd_blocks(upper23, upper01);
    }
#endif
  }
#endif
}

// As E, where vectors of T are made of its elements: false for dtypes that are fetched number by number.
template <typename T, class Function>
HWY_INLINE bool with_vectors_of(Dtype dtype, const Function& function) {
  bool done = false;
  with_element(dtype, [&](auto tag) HWY_ATTR {
    if constexpr (kWidens<T, decltype(tag)>) {
      function(tag);
      done = true;
    }
  });
  return done;
}

// A vector of what the first `count` < lanes elements are, and zeros.
template <class D, typename E>
HWY_INLINE hn::VFromD<D> load_some(D d, const E* from, int64_t count) {
  E some[kLanes<hn::TFromD<D>>];
  std::memset(&some, 0, sizeof some);
  std::memcpy(&some, from, static_cast<size_t>(count) * sizeof(E));
  return load(d, static_cast<const E*>(some));
}

// to[i * stride + row] = row_at(row)[i] for i < count and row < rows; zeros for further rows up to whole vectors, for
// which there is room.
template <typename T, typename E, class RowAt>
HWY_NOINLINE void transpose_rows(const RowAt& row_at, int64_t rows, int64_t count, T* to, int64_t stride) {
  constexpr int64_t kSide = kLanes<T>;
  const hn::ScalableTag<T> d;
  hn::VFromD<decltype(d)> square[kSide];
  for (int64_t row = 0; row < rows; row += kSide) {
    const int64_t here = std::min(kSide, rows - row);
    const E* from[kSide];
    for (int64_t k = 0; k < kSide; ++k) from[k] = row_at(row + std::min(k, here - 1));
    for (int64_t i = 0; i < count; i += kSide) {
      const int64_t columns = std::min(kSide, count - i);
#pragma GCC unroll 16
      for (int k = 0; k < kSide; ++k) {
        square[k] = k >= here          ? hn::Zero(d)
                    : columns == kSide ? load(d, from[k] + i)
                                       : load_some(d, from[k] + i, columns);
      }
      transpose_square<T>(square);
#pragma GCC unroll 16
      for (int k = 0; k < kSide; ++k) {
        if (k < columns) hn::StoreU(square[k], d, to + (i + k) * stride + row);
      }
    }
  }
}

// put(r, sum) for r < kRows with sum[lane] = the sum over t of few[t * kRows + r] * rows[lane][t], one chain. E is what
// a row in memory has. steps is kChain unless E is T.
template <int kRows, typename T, typename E, class Put>
HWY_INLINE void row_chain(const T* HWY_RESTRICT few, const E* const* HWY_RESTRICT rows, int64_t steps, const Put& put) {
  using V = hn::VFromD<hn::ScalableTag<T>>;
  const hn::ScalableTag<T> d;
  V sums[kRows];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) sums[r] = hn::Zero(d);
  const auto add = [&](const T* HWY_RESTRICT scalars, V numbers) HWY_ATTR {
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) sums[r] = hn::MulAdd(hn::Set(d, scalars[r]), numbers, sums[r]);
  };
  V square[kLanes<T>];
  constexpr bool kPairs = std::is_same_v<E, Bf16> && HWY_TARGET != HWY_SCALAR;
  if constexpr (kPairs) {  // two neighbours are transposed as one number
    const hn::RebindToUnsigned<decltype(d)> du;
    for (int64_t t = 0; t < kChain; t += 2 * kLanes<T>) {
#pragma GCC unroll 16
      for (int i = 0; i < kLanes<T>; ++i) {
        square[i] = hn::BitCast(d, hn::LoadU(du, reinterpret_cast<const uint32_t*>(rows[i] + t)));
      }
      transpose_square<T>(square);
#pragma GCC unroll 16
      for (int i = 0; i < kLanes<T>; ++i) {
        const auto pair = hn::BitCast(du, square[i]);
        const T* const scalars = few + (t + 2 * int64_t{i}) * kRows;
        add(scalars, hn::BitCast(d, hn::ShiftLeft<16>(pair)));
        add(scalars + kRows, hn::BitCast(d, hn::And(pair, hn::Set(du, 0xFFFF0000u))));
      }
    }
  } else {
    for (int64_t t = 0; t < steps; t += kLanes<T>) {
#pragma GCC unroll 16
      for (int i = 0; i < kLanes<T>; ++i) square[i] = load(d, rows[i] + t);
      transpose_square<T>(square);
      if (steps - t >= kLanes<T>) {
#pragma GCC unroll 16
        for (int i = 0; i < kLanes<T>; ++i) add(few + (t + i) * kRows, square[i]);
      } else {
        T left_over[kLanes<T> * kLanes<T>];
#pragma GCC unroll 16
        for (int i = 0; i < kLanes<T>; ++i) hn::StoreU(square[i], d, left_over + i * kLanes<T>);
        for (int64_t i = 0; i < steps - t; ++i) add(few + (t + i) * kRows, hn::LoadU(d, left_over + i * kLanes<T>));
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) put(r, sums[r]);
}

#else

// As above, of what needs no conversion.
template <typename T, typename E, class RowAt>
void transpose_rows(const RowAt& row_at, int64_t rows, int64_t count, T* to, int64_t stride) {
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t i = 0; i < count; ++i) to[i * stride + row] = row_at(row)[i];
  }
}

#endif  // RLK_CPU_VECTOR_ARRAYS

}  // namespace rlk::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // per target
