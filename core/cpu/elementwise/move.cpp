// Elements that are copied or chosen: bits of any dtype, in loops that the compiler makes vectors of.
#include <rlk/sdk/ops/copy.hpp>
#include <rlk/sdk/ops/where.hpp>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/cpu/elementwise/move.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <cstring>

#include "core/cpu/simd/bits.hpp"
#include "core/cpu/simd/skeleton-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace rlk::cpu::HWY_NAMESPACE {

void copy(const CallOf<sdk::ops::Copy>& call, const Context& context) {
  const Walk<2> walk({call.y, call.x});
  parallel_for(context.parallel, walk.size(), kTaskElements, [&](int64_t begin, int64_t end) HWY_ATTR {
    walk.stretches(begin, end, [](const std::array<Line, 2>& lines, int64_t count) HWY_ATTR {
      const Line &y = lines[0], &x = lines[1];
      if (y.stride == 1 && x.stride == 1) {
        std::memmove(y.data, x.data, static_cast<size_t>(count * size_of(y.dtype)));
        return;
      }
      with_bits(y.dtype, [&](auto bits) HWY_ATTR {
        using Bits = decltype(bits);
        auto* to = static_cast<Bits*>(y.data);
        const auto* from = static_cast<const Bits*>(x.data);
        for (int64_t i = 0; i < count; ++i) to[i * y.stride] = from[i * x.stride];
      });
    });
  });
}

template <typename Bits>
HWY_INLINE void choose(const Line& out, const Line& condition, const Line& a, const Line& b, int64_t count) {
  auto* to = static_cast<Bits*>(out.data);
  const auto* holds = static_cast<const uint8_t*>(condition.data);
  const auto *if_so = static_cast<const Bits*>(a.data), *if_not = static_cast<const Bits*>(b.data);
  if (out.stride == 1 && condition.stride == 1 && a.stride == 1 && b.stride == 1) {
    for (int64_t i = 0; i < count; ++i) to[i] = holds[i] != 0 ? if_so[i] : if_not[i];
    return;
  }
  for (int64_t i = 0; i < count; ++i) {
    to[i * out.stride] = holds[i * condition.stride] != 0 ? if_so[i * a.stride] : if_not[i * b.stride];
  }
}

void where(const CallOf<sdk::ops::Where>& call, const Context& context) {
  const Walk<4> walk({call.out, call.condition, call.a, call.b});
  parallel_for(context.parallel, walk.size(), kTaskElements, [&](int64_t begin, int64_t end) HWY_ATTR {
    walk.stretches(begin, end, [](const std::array<Line, 4>& lines, int64_t count) HWY_ATTR {
      with_bits(lines[0].dtype,
                [&](auto bits) HWY_ATTR { choose<decltype(bits)>(lines[0], lines[1], lines[2], lines[3], count); });
    });
  });
}

}  // namespace rlk::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

namespace rlk::cpu {

RLK_CPU_VECTOR_KERNEL(Copy, copy, .operations = per_element<1>);
RLK_CPU_VECTOR_KERNEL(Where, where, .operations = per_element<2>);

}  // namespace rlk::cpu
