// Two fp32 operations and then integers: no product meets a sum before the numbers are integers, so that no compiler
// can fuse them, and every target gives the same bits.
#include "core/cpu/sampling/sample_block.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/cpu/sampling/sample_block.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "core/cpu/simd/convert-inl.hpp"
#include "core/cpu/simd/math-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace rlk::cpu::HWY_NAMESPACE {

constexpr float kLowestU = -28.0f;              // weighs nothing
constexpr float kUnit = 67108864.0f;            // 2^26
constexpr int kBinShift = 26 - 5;               // 32 bins for a unit of u
constexpr uint64_t kLog2E = 1549082005;         // log2(e) 2^30
constexpr uint64_t kTopExponent = 40ull << 56;  // of the maximum
constexpr uint64_t kHighestPower = 44521;       // 2^g on [0, 1) in units of 2^-31, highest power first
constexpr uint64_t kPowers[7] = {313739, 2875277, 20650546, 119194876, 515882451, 1488522236, 2147483648};

void load_scores(const void* logits, Dtype dtype, int64_t stride, int64_t count, float* x) {
  widen(logits, dtype, stride, count, x);
  for (int64_t i = count; i % kSampleLanes != 0; ++i) x[i] = -std::numeric_limits<float>::infinity();
}

SampleTop top_of(const float* x, int64_t padded, float* largest) {
  const hn::CappedTag<float, kSampleLanes> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto infinity = hn::Set(d, std::numeric_limits<float>::infinity());
  auto max = hn::Neg(infinity);
  auto strange = hn::Gt(max, infinity);
  for (int64_t i = 0; i < padded; i += kSampleLanes) {
    auto of_these = hn::Neg(infinity);
    for (int64_t j = i; j < i + kSampleLanes; j += lanes) {
      const auto score = load(d, x + j);
      strange = hn::Or(strange, hn::Not(hn::Lt(score, infinity)));
      of_these = hn::Max(of_these, score);
    }
    *largest++ = hn::GetLane(hn::MaxOfLanes(d, of_these));
    max = hn::Max(max, of_these);
  }
  return {largest_lane(d, max), !hn::AllFalse(d, strange)};
}

#if HWY_TARGET == HWY_SCALAR
SampleSums weights_of(const float* x, int64_t padded, float max, float temperature, uint64_t least, uint64_t* w,
                      uint16_t* bins) {
  SampleSums sums{0, 0};
  for (int64_t i = 0; i < padded; ++i) {
    const float u = (x[i] - max) / temperature;
    const auto q = static_cast<uint64_t>(u > kLowestU ? -u * kUnit : -kLowestU * kUnit);
    if (bins != nullptr) bins[i] = static_cast<uint16_t>(q >> kBinShift);
    w[i] = 0;
    if (q * kLog2E > kTopExponent) continue;
    const uint64_t distance = kTopExponent - q * kLog2E;
    const uint64_t g = distance >> 24 & 0xffffffffu;
    uint64_t h = kHighestPower;
    for (const uint64_t c : kPowers) h = c + (h * g >> 32);
    w[i] = h << 9 >> (40 - (distance >> 56));
    sums.all += w[i];
    sums.heavy += w[i] >= least ? w[i] : 0;
  }
  return sums;
}

uint64_t kept_sum_of(const float* x, const uint64_t* w, int64_t count, float score, bool or_equal, uint64_t least) {
  uint64_t sum = 0;
  for (int64_t i = 0; i < count; ++i) {
    sum += (x[i] > score || (or_equal && x[i] == score)) && w[i] >= least ? w[i] : 0;
  }
  return sum;
}
#else
using Quads = hn::ScalableTag<uint64_t>;

// Of the lower halves of the lanes.
HWY_INLINE hn::VFromD<Quads> multiply(hn::VFromD<Quads> a, hn::VFromD<Quads> b) {
  const hn::RepartitionToNarrow<Quads> d32;
  return hn::MulEven(hn::BitCast(d32, a), hn::BitCast(d32, b));
}

HWY_INLINE hn::VFromD<Quads> weight_of(hn::VFromD<Quads> q) {
  const Quads d;
  const hn::RebindToSigned<Quads> di;
  const auto spent = multiply(q, hn::Set(d, kLog2E));
  const auto top = hn::Set(d, kTopExponent);
  // Both are below 2^63.
  const auto nothing = hn::RebindMask(d, hn::Gt(hn::BitCast(di, spent), hn::BitCast(di, top)));
  const auto distance = hn::IfThenZeroElse(nothing, hn::Sub(top, spent));
  const auto g = hn::And(hn::ShiftRight<24>(distance), hn::Set(d, uint64_t{0xffffffff}));
  auto h = hn::Set(d, kHighestPower);
  for (const uint64_t c : kPowers) h = hn::Add(hn::Set(d, c), hn::ShiftRight<32>(multiply(h, g)));
  const auto weight = hn::Shr(hn::ShiftLeft<9>(h), hn::Sub(hn::Set(d, uint64_t{40}), hn::ShiftRight<56>(distance)));
  return hn::IfThenZeroElse(nothing, weight);
}

// Those of at least `least`, which is at most 2^40.
HWY_INLINE hn::VFromD<Quads> heavy_of(hn::VFromD<Quads> w, uint64_t least) {
  const Quads d;
  const hn::RebindToSigned<Quads> di;
  const auto lighter = hn::Gt(hn::Set(di, static_cast<int64_t>(least)), hn::BitCast(di, w));
  return hn::IfThenZeroElse(hn::RebindMask(d, lighter), w);
}

SampleSums weights_of(const float* x, int64_t padded, float max, float temperature, uint64_t least, uint64_t* w,
                      uint16_t* bins) {
  const Quads d64;
  const hn::ScalableTag<float> d;
  const hn::RebindToSigned<decltype(d)> di;
  const hn::RebindToUnsigned<decltype(d)> du;
  const hn::Rebind<uint16_t, decltype(d)> d16;
  const hn::Half<decltype(du)> half;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto maxima = hn::Set(d, max), temperatures = hn::Set(d, temperature);
  const auto lowest = hn::Set(d, kLowestU);
  auto all = hn::Zero(d64), heavy = all;
  for (int64_t i = 0; i < padded; i += lanes) {
    auto u = hn::Div(hn::Sub(load(d, x + i), maxima), temperatures);
    u = hn::IfThenElse(hn::Gt(u, lowest), u, lowest);
    const auto q = hn::BitCast(du, hn::ConvertTo(di, hn::Mul(hn::Neg(u), hn::Set(d, kUnit))));
    if (bins != nullptr) hn::StoreU(hn::TruncateTo(d16, hn::ShiftRight<kBinShift>(q)), d16, bins + i);
    const auto low = weight_of(hn::PromoteTo(d64, hn::LowerHalf(half, q)));
    const auto high = weight_of(hn::PromoteTo(d64, hn::UpperHalf(half, q)));
    hn::StoreU(low, d64, w + i);
    hn::StoreU(high, d64, w + i + lanes / 2);
    all = hn::Add(all, hn::Add(low, high));
    heavy = hn::Add(heavy, hn::Add(heavy_of(low, least), heavy_of(high, least)));
  }
  return {hn::GetLane(hn::SumOfLanes(d64, all)), hn::GetLane(hn::SumOfLanes(d64, heavy))};
}

uint64_t kept_sum_of(const float* x, const uint64_t* w, int64_t count, float score, bool or_equal, uint64_t least) {
  const Quads d64;
  const hn::RebindToFloat<Quads> wide;  // what compares has the lanes of the weights
  const hn::Rebind<float, Quads> narrow;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d64));
  const auto limit = hn::Set(wide, static_cast<double>(score));
  auto sum = hn::Zero(d64);
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const auto scores = hn::PromoteTo(wide, hn::LoadU(narrow, x + i));
    const auto kept = or_equal ? hn::Ge(scores, limit) : hn::Gt(scores, limit);
    sum = hn::Add(sum, hn::IfThenElseZero(hn::RebindMask(d64, kept), heavy_of(hn::LoadU(d64, w + i), least)));
  }
  uint64_t rest = 0;
  for (; i < count; ++i) rest += (x[i] > score || (or_equal && x[i] == score)) && w[i] >= least ? w[i] : 0;
  return hn::GetLane(hn::SumOfLanes(d64, sum)) + rest;
}
#endif

// Loops that compilers make vectors of.
void kept_of(const float* HWY_RESTRICT x, const uint64_t* HWY_RESTRICT w, int64_t count, float score, bool or_equal,
             uint64_t least, uint8_t* HWY_RESTRICT keep) {
  if (or_equal) {
    for (int64_t i = 0; i < count; ++i) keep[i] = x[i] >= score ? 1 : 0;
  } else {
    for (int64_t i = 0; i < count; ++i) keep[i] = x[i] > score ? 1 : 0;
  }
  for (int64_t i = 0; least > 0 && i < count; ++i) keep[i] = static_cast<uint8_t>(keep[i] & (w[i] >= least ? 1 : 0));
}

}  // namespace rlk::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rlk::cpu {

HWY_EXPORT(load_scores);
HWY_EXPORT(top_of);
HWY_EXPORT(weights_of);
HWY_EXPORT(kept_sum_of);
HWY_EXPORT(kept_of);

void sample_load(const void* logits, Dtype dtype, int64_t stride, int64_t count, float* x) {
  HWY_DYNAMIC_DISPATCH(load_scores)(logits, dtype, stride, count, x);
}
SampleTop sample_top(const float* x, int64_t padded, float* largest) {
  return HWY_DYNAMIC_DISPATCH(top_of)(x, padded, largest);
}
SampleSums sample_weights(const float* x, int64_t padded, float max, float temperature, uint64_t least, uint64_t* w,
                          uint16_t* bins) {
  return HWY_DYNAMIC_DISPATCH(weights_of)(x, padded, max, temperature, least, w, bins);
}
uint64_t sample_kept_sum(const float* x, const uint64_t* w, int64_t count, float score, bool or_equal, uint64_t least) {
  return HWY_DYNAMIC_DISPATCH(kept_sum_of)(x, w, count, score, or_equal, least);
}
void sample_kept(const float* x, const uint64_t* w, int64_t count, float score, bool or_equal, uint64_t least,
                 uint8_t* keep) {
  HWY_DYNAMIC_DISPATCH(kept_of)(x, w, count, score, or_equal, least, keep);
}

}  // namespace rlk::cpu
#endif  // HWY_ONCE
