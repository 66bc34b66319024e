// Writing past the caches: see past_caches.hpp.
#if defined(RLK_CPU_PAST_CACHES_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef RLK_CPU_PAST_CACHES_INL
#undef RLK_CPU_PAST_CACHES_INL
#else
#define RLK_CPU_PAST_CACHES_INL
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "core/cpu/simd/past_caches.hpp"

HWY_BEFORE_NAMESPACE();
namespace rlk::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Copies bytes past the caches. Other threads see them after a FlushStream of this one.
HWY_NOINLINE inline void copy_past_caches(const void* from, int64_t bytes, void* to) {
  const hn::ScalableTag<uint8_t> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto* source = static_cast<const uint8_t*>(from);
  auto* target = static_cast<uint8_t*>(to);
  const auto past_line = static_cast<int64_t>(reinterpret_cast<uintptr_t>(to) % kCacheLine);
  int64_t i = past_line == 0 ? 0 : std::min(bytes, kCacheLine - past_line);
  std::memcpy(target, source, static_cast<size_t>(i));
  for (; i + lanes <= bytes; i += lanes) hn::Stream(hn::LoadU(d, source + i), d, target + i);
  std::memcpy(target + i, source + i, static_cast<size_t>(bytes - i));
}

}  // namespace rlk::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // per target
