// Bringing a block of logits, with bias, into a contiguous buffer, and capping it; for every Highway target.
#if defined(RLK_CPU_LOGP_GATHER_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef RLK_CPU_LOGP_GATHER_INL
#undef RLK_CPU_LOGP_GATHER_INL
#else
#define RLK_CPU_LOGP_GATHER_INL
#endif

#include "core/cpu/logp/logp_block.hpp"
#include "core/cpu/simd/convert-inl.hpp"
#include "core/cpu/simd/math-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace rlk::cpu::HWY_NAMESPACE {

// A block, and room for a last vector to run over.
constexpr int64_t kGatherBuffer = kLogpBlock + 256;

template <typename T>
HWY_INLINE T minus_inf_of() {
  if constexpr (sizeof(T) == 2) {
    const uint16_t bits = std::is_same_v<T, Bf16> ? 0xFF80 : 0xFC00;
    T value;
    std::memcpy(&value, &bits, sizeof(bits));
    return value;
  } else {
    return -std::numeric_limits<T>::infinity();
  }
}

constexpr int64_t kPrefetchBytes = 16384;  // along a row

// logits + bias of columns [begin, end), and zeros where a last vector runs over.
template <typename TC>
HWY_INLINE void gather(const Scores& scores, const void* row, int64_t begin, int64_t end, TC* buffer) {
  const int64_t count = end - begin;
  widen(element(row, begin * scores.col_stride, scores.dtype), scores.dtype, scores.col_stride, count, buffer);
  const auto lanes = static_cast<int64_t>(hn::Lanes(hn::ScalableTag<TC>()));
  for (int64_t i = count; i < count + lanes; ++i) buffer[i] = 0;
  if (scores.bias == nullptr) return;
  TC bias[kLogpBlock];
  const void* from = element(scores.bias, begin * scores.bias_stride, scores.dtype);
  widen(from, scores.dtype, scores.bias_stride, count, static_cast<TC*>(bias));
  for (int64_t i = 0; i < count; ++i) buffer[i] += bias[i];
}

// -inf for what keep_mask drops of columns [begin, end).
template <typename TC>
HWY_INLINE void drop(const Scores& scores, int64_t begin, int64_t end, TC* buffer) {
  if (scores.keep == nullptr) return;
  for (int64_t v = begin; v < end; ++v) {
    if (scores.keep[v * scores.keep_stride] == 0) buffer[v - begin] = -std::numeric_limits<TC>::infinity();
  }
}

// softcap * tanh(x / softcap), and its derivative.
template <class D>
HWY_INLINE hn::VFromD<D> cap(D d, hn::VFromD<D> x, double softcap, hn::VFromD<D>& derivative) {
  using TC = hn::TFromD<D>;
  const auto factor = static_cast<TC>(2 * kLog2e / softcap);
  return hn::Mul(hn::Set(d, static_cast<TC>(softcap)), tanh_scaled(d, x, factor, derivative));
}

}  // namespace rlk::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // per target
