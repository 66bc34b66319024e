// What the attention kernels are made of, for every Highway target: the outer product of a register tile, and rows of
// tensors as compute type.
#if defined(RLK_CPU_ATTENTION_TILE_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef RLK_CPU_ATTENTION_TILE_INL
#undef RLK_CPU_ATTENTION_TILE_INL
#else
#define RLK_CPU_ATTENTION_TILE_INL
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <algorithm>

#include "core/cpu/kernels/convert-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace rlk::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// The register tile: kRows * kVecs accumulators and a few more registers than that.
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL || HWY_TARGET == HWY_NEON
constexpr int kRows = 8;
#else
constexpr int kRows = 4;
#endif
// Sizeless vectors cannot be array elements.
#undef RLK_CPU_VECTOR_ARRAYS
#if HWY_ARCH_X86 || HWY_TARGET == HWY_NEON || HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128
#define RLK_CPU_VECTOR_ARRAYS 1
constexpr int kMaxVecs = 3;
#else
#define RLK_CPU_VECTOR_ARRAYS 0
constexpr int kMaxVecs = 1;
#endif

constexpr int64_t round_up(int64_t n, int64_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

// What a sum of products is added to.
enum class Into { nothing, scaled, sum };  // c = sum, c = c * factor + sum, c = c + sum

template <class D, typename T = hn::TFromD<D>>
HWY_INLINE void put(D d, hn::VFromD<D> sum, Into into, const T* HWY_RESTRICT factor, T* HWY_RESTRICT c) {
  if (into == Into::scaled) sum = hn::MulAdd(hn::LoadU(d, c), hn::LoadU(d, factor), sum);
  if (into == Into::sum) sum = hn::Add(hn::LoadU(d, c), sum);
  hn::StoreU(sum, d, c);
}

// sum[r][.] = sum over t of a[r * a_row + t * a_step] * b[t][.] for kRows rows of kVecs vectors, put into c; b, c and
// factor have rows of kVecs vectors.
template <int kVecs, class D, typename T = hn::TFromD<D>>
HWY_INLINE void outer_chunk(D d, const T* HWY_RESTRICT a, int64_t a_row, int64_t a_step, const T* HWY_RESTRICT b,
                            int64_t steps, T* HWY_RESTRICT c, const T* HWY_RESTRICT factor, Into into) {
  using V = hn::VFromD<D>;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t width = kVecs * lanes;
#if !RLK_CPU_VECTOR_ARRAYS
  static_assert(kVecs == 1 && kRows == 4);
  V sum0 = hn::Zero(d), sum1 = sum0, sum2 = sum0, sum3 = sum0;
  for (int64_t t = 0; t < steps; ++t) {
    const V row = hn::LoadU(d, b + t * width);
    const T* column = a + t * a_step;
    sum0 = hn::MulAdd(hn::Set(d, column[0]), row, sum0);
    sum1 = hn::MulAdd(hn::Set(d, column[a_row]), row, sum1);
    sum2 = hn::MulAdd(hn::Set(d, column[2 * a_row]), row, sum2);
    sum3 = hn::MulAdd(hn::Set(d, column[3 * a_row]), row, sum3);
  }
  put(d, sum0, into, factor, c);
  put(d, sum1, into, factor, c + width);
  put(d, sum2, into, factor, c + 2 * width);
  put(d, sum3, into, factor, c + 3 * width);
#else
  V sums[kRows][kVecs];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kVecs; ++v) sums[r][v] = hn::Zero(d);
  }
  for (int64_t t = 0; t < steps; ++t) {
    V row[kVecs];
#pragma GCC unroll 4
    for (int v = 0; v < kVecs; ++v) row[v] = hn::LoadU(d, b + t * width + v * lanes);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const V scalar = hn::Set(d, a[r * a_row + t * a_step]);
#pragma GCC unroll 4
      for (int v = 0; v < kVecs; ++v) sums[r][v] = hn::MulAdd(scalar, row[v], sums[r][v]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kVecs; ++v) put(d, sums[r][v], into, factor + v * lanes, c + r * width + v * lanes);
  }
#endif
}

// Sums of kChunk terms are added up, so that many equal terms do not all round the same way.
constexpr int64_t kChunk = 32;
template <int kVecs, class D, typename T = hn::TFromD<D>>
HWY_INLINE void outer_product(D d, const T* a, int64_t a_row, int64_t a_step, const T* b, int64_t steps, T* c,
                              const T* factor, Into into) {
  const int64_t width = kVecs * static_cast<int64_t>(hn::Lanes(d));
  for (int64_t t = 0; t < steps; t += kChunk) {
    outer_chunk<kVecs>(d, a + t * a_step, a_row, a_step, b + t * width, std::min(kChunk, steps - t), c, factor,
                       t == 0 ? into : Into::sum);
  }
}

// Rows [from, to) as compute type, the j-th at the address row(j), padded to `padded` elements with 0. Nothing is read
// of a row that is masked; it is 0. masked, from row `from` on, may be null.
template <typename T, class RowAt>
HWY_INLINE void load_rows(const RowAt& row, Dtype dtype, int64_t d_stride, int64_t size, int64_t padded, int64_t from,
                          int64_t to, const bool* masked, T* rows) {
  constexpr int64_t kRowsAhead = 8;
  // Tokens lie a power of two apart, often, where hardware neither looks ahead nor has room for many of them in L1.
  const int64_t bytes = d_stride == 1 ? size * size_of(dtype) : 0;
  for (int64_t j = from; j < to; ++j) {
    if (j + kRowsAhead < to) {
      for (int64_t byte = 0; byte < bytes; byte += 64) {
        hwy::Prefetch(static_cast<const char*>(row(j + kRowsAhead)) + byte);
      }
    }
    T* const wide = rows + (j - from) * padded;
    if (masked != nullptr && masked[j - from]) {
      std::fill_n(wide, padded, T{0});
      continue;
    }
    widen(row(j), dtype, d_stride, size, wide);
    for (int64_t i = size; i < padded; ++i) wide[i] = 0;
  }
}

// Is there an infinity or NaN? Then 0 times it is not 0, and what does not see it must not meet it.
template <class D, typename T = hn::TFromD<D>>
HWY_INLINE bool has_special_values(D d, const T* values, int64_t count) {
  using V = hn::VFromD<D>;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const V zero = hn::Zero(d);
  V probe0 = zero, probe1 = zero;  // become NaN
  int64_t i = 0;
  for (; i + 2 * lanes <= count; i += 2 * lanes) {
    probe0 = hn::MulAdd(hn::LoadU(d, values + i), zero, probe0);
    probe1 = hn::MulAdd(hn::LoadU(d, values + i + lanes), zero, probe1);
  }
  T rest = 0;
  for (; i < count; ++i) rest += values[i] * T{0};
  return rest != 0 || !hn::AllTrue(d, hn::Eq(hn::Add(probe0, probe1), zero));
}

}  // namespace rlk::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // per target
