// The outer product of a register tile, for every Highway target: a few rows of numbers broadcast, times vectors.
#if defined(RLK_CPU_REGISTER_TILE_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef RLK_CPU_REGISTER_TILE_INL
#undef RLK_CPU_REGISTER_TILE_INL
#else
#define RLK_CPU_REGISTER_TILE_INL
#endif

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace rlk::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Terms of a sum in the compute type, before it joins others: many equal terms do not all round the same way then.
constexpr int64_t kChain = 32;

// The register tile: kBroadcasts * kMaxVecs accumulators and a few more registers than that.
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL || HWY_TARGET == HWY_NEON
constexpr int kBroadcasts = 8;
#else
constexpr int kBroadcasts = 4;
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

// put(r, v, sum) for r < kRows and v < kVecs, where sum = the sum over t of a[r * a_row + t * a_step] * b[t][v], one
// chain in the order of t. b has rows of kVecs vectors.
template <int kVecs, int kRows, class D, typename T, class Put>
HWY_INLINE void outer_sums(D d, const T* HWY_RESTRICT a, int64_t a_row, int64_t a_step, const T* HWY_RESTRICT b,
                           int64_t steps, const Put& put) {
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
  put(0, 0, sum0);
  put(1, 0, sum1);
  put(2, 0, sum2);
  put(3, 0, sum3);
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
    for (int v = 0; v < kVecs; ++v) put(r, v, sums[r][v]);
  }
#endif
}

}  // namespace rlk::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // per target
