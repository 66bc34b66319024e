// The loops by which a machine's limits are measured: reading memory, copying it, and multiply-adds in registers.
#if defined(RLK_BENCH_LIMIT_LOOPS_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef RLK_BENCH_LIMIT_LOOPS_INL
#undef RLK_BENCH_LIMIT_LOOPS_INL
#else
#define RLK_BENCH_LIMIT_LOOPS_INL
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <cstdint>

HWY_BEFORE_NAMESPACE();
namespace rlk::bench::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// The sum of count floats, a multiple of eight vectors.
inline float read_all(const float* p, int64_t count) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  auto s0 = hn::Zero(d), s1 = s0, s2 = s0, s3 = s0;
  for (int64_t i = 0; i + 4 * lanes <= count; i += 4 * lanes) {
    s0 = hn::Add(s0, hn::LoadU(d, p + i));
    s1 = hn::Add(s1, hn::LoadU(d, p + i + lanes));
    s2 = hn::Add(s2, hn::LoadU(d, p + i + 2 * lanes));
    s3 = hn::Add(s3, hn::LoadU(d, p + i + 3 * lanes));
  }
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(s0, s1), hn::Add(s2, s3))));
}

// Past the caches, as no kernel can better: a plain store would first read what it overwrites. to is aligned to
// vectors.
inline void copy_all(const float* from, int64_t count, float* to) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t i = 0; i + lanes <= count; i += lanes) hn::Stream(hn::LoadU(d, from + i), d, to + i);
  hwy::FlushStream();
}

// steps * 10 multiply-adds of vectors in independent chains; returns the operations done. Each chain begins with
// another number: of equal chains a compiler makes one.
inline double multiply_add(int64_t steps, float* sink) {
  const hn::ScalableTag<float> d;
  const auto x = hn::Set(d, 0.999f), y = hn::Set(d, 1e-3f);
  const auto from = [&](float value) HWY_ATTR { return hn::Set(d, value); };
  auto a0 = from(0.0f), a1 = from(0.1f), a2 = from(0.2f), a3 = from(0.3f), a4 = from(0.4f), a5 = from(0.5f);
  auto a6 = from(0.6f), a7 = from(0.7f), a8 = from(0.8f), a9 = from(0.9f);
  for (int64_t i = 0; i < steps; ++i) {
    a0 = hn::MulAdd(a0, x, y), a1 = hn::MulAdd(a1, x, y), a2 = hn::MulAdd(a2, x, y), a3 = hn::MulAdd(a3, x, y);
    a4 = hn::MulAdd(a4, x, y), a5 = hn::MulAdd(a5, x, y), a6 = hn::MulAdd(a6, x, y), a7 = hn::MulAdd(a7, x, y);
    a8 = hn::MulAdd(a8, x, y), a9 = hn::MulAdd(a9, x, y);
  }
  const auto sum = hn::Add(hn::Add(hn::Add(a0, a1), hn::Add(a2, a3)),
                           hn::Add(hn::Add(hn::Add(a4, a5), hn::Add(a6, a7)), hn::Add(a8, a9)));
  *sink += hn::GetLane(sum);
  return 2.0 * 10.0 * static_cast<double>(steps) * static_cast<double>(hn::Lanes(d));
}

}  // namespace rlk::bench::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per target
