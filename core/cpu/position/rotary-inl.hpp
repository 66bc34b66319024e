// Heads of a token whose pairs of elements are turned: one arithmetic for all operators that turn.
#if defined(RLK_CPU_ROTARY_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef RLK_CPU_ROTARY_INL
#undef RLK_CPU_ROTARY_INL
#else
#define RLK_CPU_ROTARY_INL
#endif

#include "core/cpu/simd/formulas-inl.hpp"
#include "core/cpu/simd/skeleton-inl.hpp"

#include <rlk/formula/rotary.hpp>

#ifndef RLK_CPU_ROTARY_ONCE
#define RLK_CPU_ROTARY_ONCE
namespace rlk::cpu {

// Of one token. Each member of a pair has a cosine and a sine of its own.
struct Turn {
  int64_t offset, pairs;  // the first element that is turned; how many pairs
  bool are_halves;        // else neighbours
  bool is_inverse;
  Line cos_a, sin_a, cos_b, sin_b;
};

}  // namespace rlk::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace rlk::cpu::HWY_NAMESPACE {

template <class TC>
HWY_INLINE void turn_heads(const Array& in, const Array& out, int64_t n, const Turn& turn) {
  const int64_t size = in.shape[2], behind = turn.offset + 2 * turn.pairs;
  const auto head_of = [n](const Array& array, int64_t head) {
    const int64_t at = n * array.strides[0] + head * array.strides[1];
    return Line{element(array.data, at, array.dtype), array.dtype, array.strides[2]};
  };
  const auto member = [&](const Line& head, int64_t which) {
    Line line = head.from(turn.offset + which * (turn.are_halves ? turn.pairs : 1));
    if (!turn.are_halves) line.stride *= 2;
    return line;
  };
  const double sign = turn.is_inverse ? -1 : 1;
  for (int64_t h = 0; h < in.shape[1]; ++h) {
    const Line from_head = head_of(in, h), to_head = head_of(out, h);
    map_lines<TC>(to(member(to_head, 0), member(to_head, 1)),
                  from(member(from_head, 0), member(from_head, 1), turn.cos_a, turn.sin_a, turn.cos_b, turn.sin_b),
                  turn.pairs,
                  [sign](auto d, auto a, auto b, auto cos_a, auto sin_a, auto cos_b, auto sin_b, auto& to_a, auto& to_b)
                      HWY_ATTR { put(turned(d, a, b, cos_a, sin_a, cos_b, sin_b, sign), to_a, to_b); });
    if (from_head.data == to_head.data) continue;
    const auto copy = [](auto, auto v) HWY_ATTR { return v; };
    map_lines<TC>(to(to_head), from(from_head), turn.offset, copy);
    map_lines<TC>(to(to_head.from(behind)), from(from_head.from(behind)), size - behind, copy);
  }
}

}  // namespace rlk::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // per target
