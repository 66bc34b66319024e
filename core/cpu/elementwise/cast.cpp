// Numbers in another dtype, and one number everywhere. Floating dtypes are the skeleton's; integers go through blocks
// of fp64, or directly to each other.
#include <rlk/sdk/ops/cast.hpp>
#include <rlk/sdk/ops/fill.hpp>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/cpu/elementwise/cast.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "core/cpu/simd/bits.hpp"
#include "core/cpu/simd/skeleton-inl.hpp"

#include <rlk/formula/convert.hpp>

HWY_BEFORE_NAMESPACE();
namespace rlk::cpu::HWY_NAMESPACE {

using formula::to_integer;
using formula::to_odd_double;

HWY_INLINE void integers_to_integers(const Line& y, const Line& x, int64_t count) {
  with_integer(x.dtype, [&](auto source) HWY_ATTR {
    const auto* from = static_cast<const decltype(source)*>(x.data);
    with_bits(y.dtype, [&](auto bits) HWY_ATTR {
      using Bits = decltype(bits);
      auto* to = static_cast<Bits*>(y.data);
      if (y.dtype == Dtype::boolean) {
        for (int64_t i = 0; i < count; ++i) to[i * y.stride] = from[i * x.stride] != 0 ? 1 : 0;
      } else {
        for (int64_t i = 0; i < count; ++i) to[i * y.stride] = static_cast<Bits>(from[i * x.stride]);
      }
    });
  });
}

HWY_INLINE void integers_to_numbers(const Line& y, const Line& x, int64_t count) {
  double block[kLineBlock];
  with_integer(x.dtype, [&](auto source) HWY_ATTR {
    const auto* from = static_cast<const decltype(source)*>(x.data);
    if (y.dtype == Dtype::f64) {
      for (int64_t i = 0; i < count; ++i) block[i] = static_cast<double>(from[i * x.stride]);
    } else {
      for (int64_t i = 0; i < count; ++i) block[i] = to_odd_double(from[i * x.stride]);
    }
  });
  write_line(static_cast<const double*>(block), count, y);
}

HWY_INLINE void numbers_to_integers(const Line& y, const Line& x, int64_t count) {
  double block[kLineBlock];
  read_line(x, count, static_cast<double*>(block));
  with_integer(y.dtype, [&](auto integer) HWY_ATTR {
    using Integer = decltype(integer);
    auto* to = static_cast<Integer*>(y.data);
    if (y.dtype == Dtype::boolean) {
      for (int64_t i = 0; i < count; ++i) to[i * y.stride] = block[i] != 0 ? 1 : 0;
    } else {
      for (int64_t i = 0; i < count; ++i) to[i * y.stride] = to_integer<Integer>(block[i]);
    }
  });
}

void cast(const CallOf<sdk::ops::Cast>& call, const Context& context) {
  const bool from_number = sdk::is_floating(call.x.dtype), to_number = sdk::is_floating(call.y.dtype);
  if (from_number && to_number) {
    return map(context, to(call.y), from(call.x), [](auto, auto x) HWY_ATTR { return x; });
  }
  const Walk<2> walk({call.y, call.x});
  parallel_for(context.parallel, walk.size(), kTaskElements, [&](int64_t begin, int64_t end) HWY_ATTR {
    walk.stretches(begin, end, [&](const std::array<Line, 2>& lines, int64_t count) HWY_ATTR {
      for (int64_t i = 0; i < count; i += kLineBlock) {
        const Line y = lines[0].from(i), x = lines[1].from(i);
        const int64_t n = std::min(kLineBlock, count - i);
        from_number ? numbers_to_integers(y, x, n)
        : to_number ? integers_to_numbers(y, x, n)
                    : integers_to_integers(y, x, n);
      }
    });
  });
}

void fill(const CallOf<sdk::ops::Fill>& call, const Context& context) {
  const Line number = {const_cast<double*>(&call.params.value), Dtype::f64, 0};
  uint64_t element = 0;
  const Line one = {&element, call.y.dtype, 1};
  if (sdk::is_floating(call.y.dtype)) {
    store_element(one.data, one.dtype, 0, call.params.value);
  } else {
    numbers_to_integers(one, number, 1);
  }
  const Walk<1> walk({call.y});
  parallel_for(context.parallel, walk.size(), kTaskElements, [&](int64_t begin, int64_t end) HWY_ATTR {
    walk.stretches(begin, end, [&](const std::array<Line, 1>& lines, int64_t count) HWY_ATTR {
      with_bits(call.y.dtype, [&](auto bits) HWY_ATTR {
        using Bits = decltype(bits);
        auto* to = static_cast<Bits*>(lines[0].data);
        Bits value;
        std::memcpy(&value, &element, sizeof(value));
        for (int64_t i = 0; i < count; ++i) to[i * lines[0].stride] = value;
      });
    });
  });
}

}  // namespace rlk::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

namespace rlk::cpu {

RLK_CPU_VECTOR_KERNEL(Cast, cast, .operations = per_element<2>);
RLK_CPU_VECTOR_KERNEL(Fill, fill, .operations = per_element<1>);

}  // namespace rlk::cpu
