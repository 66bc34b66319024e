// What the attention kernels are made of, for every Highway target: products of tiles, and rows of tensors as compute
// type.
#if defined(RLK_CPU_ATTENTION_TILE_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef RLK_CPU_ATTENTION_TILE_INL
#undef RLK_CPU_ATTENTION_TILE_INL
#else
#define RLK_CPU_ATTENTION_TILE_INL
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <algorithm>

#include "core/cpu/simd/convert-inl.hpp"
#include "core/cpu/simd/register_tile-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace rlk::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

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

// sum[r][.] = sum over t of a[r * a_row + t * a_step] * b[t][.] for kBroadcasts rows of kVecs vectors, put into c; b, c
// and factor have rows of kVecs vectors. Chains are added up.
template <int kVecs, class D, typename T = hn::TFromD<D>>
HWY_INLINE void outer_product(D d, const T* a, int64_t a_row, int64_t a_step, const T* b, int64_t steps, T* c,
                              const T* factor, Into into) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t width = kVecs * lanes;
  for (int64_t t = 0; t < steps; t += kChain) {
    const Into into_now = t == 0 ? into : Into::sum;
    outer_sums<kVecs, kBroadcasts>(
        d, a + t * a_step, a_row, a_step, b + t * width, std::min(kChain, steps - t),
        [&](int r, int v, auto sum) HWY_ATTR { put(d, sum, into_now, factor + v * lanes, c + r * width + v * lanes); });
  }
}

// Rows that are no single line: so many elements d_stride apart, then the next ones `stride` further; 0: one line.
struct Pieces {
  int64_t size = 0, stride = 0;
};

// Rows [from, to) as compute type, the j-th at the address row(j), padded to `padded` elements with 0. Nothing is read
// of a row that is masked; it is 0. masked, from row `from` on, may be null.
template <typename T, class RowAt>
HWY_INLINE void load_rows(const RowAt& row, Dtype dtype, int64_t d_stride, int64_t size, int64_t padded, int64_t from,
                          int64_t to, const bool* masked, T* rows, Pieces pieces = {}) {
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
    if (pieces.size == 0) {
      widen(row(j), dtype, d_stride, size, wide);
    } else {
      for (int64_t i = 0; i < size; i += pieces.size) {
        const void* piece = element(row(j), i / pieces.size * pieces.stride, dtype);
        widen(piece, dtype, d_stride, pieces.size, wide + i);
      }
    }
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
