// Softmax of one row and its gradient: passes for the maximum, the powers and their sum, and one that writes.
#if defined(RLK_CPU_SOFTMAX_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef RLK_CPU_SOFTMAX_INL
#undef RLK_CPU_SOFTMAX_INL
#else
#define RLK_CPU_SOFTMAX_INL
#endif

#include "core/cpu/simd/formulas-inl.hpp"
#include "core/cpu/simd/scratch.hpp"
#include "core/cpu/simd/skeleton-inl.hpp"

// After the words that they are written in.
#include <rlk/formula/norm.hpp>

HWY_BEFORE_NAMESPACE();
namespace rlk::cpu::HWY_NAMESPACE {

constexpr int64_t kMostPowers = 1 << 18;  // 1 MiB of fp32: a thread's share of the cache

// Where the powers of a row are kept, so that none is computed twice: y if its numbers are TC and are not written past
// the caches, else memory of the thread's; absent when there is none or not enough. The results are the same in each.
template <class TC>
HWY_INLINE Line line_for_powers(const Line& y, int64_t count) {
  if (is_direct<TC>(y) && !y.exceeds_caches) return y;
  if (count > kMostPowers) return {};
  return {thread_scratch(static_cast<size_t>(count) * sizeof(TC)), sizeof(TC) == 8 ? Dtype::f64 : Dtype::f32, 1};
}
// Of the first `count` numbers, score(d, x) of each; 0 for the rest of `columns`.
template <class TC, class Score>
HWY_INLINE void softmax_row(const Line& y, const Line& x, int64_t count, int64_t columns, const Score& score) {
  const auto in = from(x);
  const TC largest = largest_of_lines<TC>(in, count, score);
  const auto power = [score, largest](auto d, auto v)
                         HWY_ATTR { return exp(d, hn::Sub(score(d, v), hn::Set(d, largest))); };
  const Line powers = line_for_powers<TC>(y, count);
  if (powers.present()) {
    map_lines<TC>(to(powers), in, count, power);
    const TC share =
        static_cast<TC>(1 / sum_of_lines<TC>(from(powers), count, [](auto, auto v) HWY_ATTR { return v; }));
    map_lines<TC>(to(y), from(powers), count,
                  [share](auto d, auto v) HWY_ATTR { return hn::Mul(v, hn::Set(d, share)); });
  } else {
    const TC share = static_cast<TC>(1 / sum_of_lines<TC>(in, count, power));
    map_lines<TC>(to(y), in, count,
                  [=](auto d, auto v) HWY_ATTR { return softmax_of(d, score(d, v), largest, share); });
  }
  for (int64_t k = count; k < columns; ++k) store_element(y.data, y.dtype, k * y.stride, 0);
}
template <class TC>
HWY_INLINE void softmax_row(const Line& y, const Line& x, int64_t count, int64_t columns) {
  softmax_row<TC>(y, x, count, columns, [](auto, auto v) HWY_ATTR { return v; });
}

// scale y (grad_y - sum of grad_y y) of the first `count` numbers, 0 for the rest.
template <class TC>
HWY_INLINE void softmax_gradient_row(const Line& grad_x, const Line& grad_y, const Line& y, int64_t count,
                                     int64_t columns, TC scale) {
  const auto in = from(grad_y, y);
  const auto product = [](auto, auto grad, auto p) HWY_ATTR { return hn::Mul(grad, p); };
  const auto sum = static_cast<TC>(sum_of_lines<TC>(in, count, product));
  map_lines<TC>(to(grad_x), in, count, [=](auto d, auto grad, auto p) HWY_ATTR {
    return hn::Mul(softmax_gradient(d, grad, p, sum), hn::Set(d, scale));
  });
  for (int64_t k = count; k < columns; ++k) store_element(grad_x.data, grad_x.dtype, k * grad_x.stride, 0);
}

}  // namespace rlk::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // per target
