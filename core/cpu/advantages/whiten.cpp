// Mean from differences to one of the numbers, variance from differences to the means of chunks, then every number.
// Cost model: the numbers are read from memory once for both moments, unless these are given, and once more to be
// written.
#include <rlk/sdk/ops/whiten.hpp>

#include <algorithm>
#include <cmath>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/cpu/advantages/whiten.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "core/cpu/simd/skeleton-inl.hpp"

#ifndef RLK_CPU_WHITEN
#define RLK_CPU_WHITEN
namespace rlk::cpu {
using namespace sdk::ops::whiten;  // NOLINT(google-build-using-namespace): its enumerations
using WhitenCall = CallOf<sdk::ops::Whiten>;

// Of one chunk: the numbers that count, the sum of their differences to the pivot, and the squares of their differences
// to their own mean.
struct ChunkSums {
  double count, sum, squares;
};
struct Moments {
  double mean, variance;
};

}  // namespace rlk::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace rlk::cpu::HWY_NAMESPACE {

// A term of a number where that counts, 0 elsewhere.
template <class F>
HWY_INLINE auto if_kept(const F& f) {
  return [f](auto d, auto x, auto mask) HWY_ATTR { return hn::IfThenElseZero(hn::Ne(mask, hn::Zero(d)), f(d, x)); };
}

// The first number that counts; 0 when there is none. Differences to it are exactly 0 where all numbers are equal.
inline double pivot_of(const WhitenCall& call) {
  for (int64_t b = 0; b < call.B; ++b) {
    for (int64_t t = 0; t < call.L; ++t) {
      if (call.mask.keeps(b, t)) return call.x.get(b, t);
    }
  }
  return 0;
}

Moments moments(const WhitenCall& call, const Context& context) {
  if (call.mean.present()) return {call.mean.get(0), call.variance.get(0)};
  const double pivot = pivot_of(call);
  auto* chunks = static_cast<ChunkSums*>(context.workspace);
  const auto of_chunk = [&](int64_t chunk, const std::array<Line, 2>& lines, int64_t size) HWY_ATTR {
    const auto one = if_kept([](auto d, auto) HWY_ATTR { return hn::Set(d, 1.0); });
    const auto difference = if_kept([=](auto d, auto x) HWY_ATTR { return hn::Sub(x, hn::Set(d, pivot)); });
    const auto [count, sum] = sums_of_lines<double>(lines, size, one, difference);
    const double own_mean = sum / std::max(count, 1.0);
    const auto square = if_kept([=](auto d, auto x) HWY_ATTR {
      const auto own = hn::Sub(hn::Sub(x, hn::Set(d, pivot)), hn::Set(d, own_mean));
      return hn::Mul(own, own);
    });
    chunks[chunk] = {count, sum, sum_of_lines<double>(lines, size, square)};
  };
  for_each_chunk<double>(context, from(call.x, or_one(call.mask)), of_chunk);
  LongSum sum, squares;
  double count = 0;
  for (int64_t chunk = 0; chunk < chunks_of(call.B * call.L); ++chunk) {
    sum.add(chunks[chunk].sum);
    count += chunks[chunk].count;
  }
  const double mean = sum.value() / std::max(count, 1.0);
  for (int64_t chunk = 0; chunk < chunks_of(call.B * call.L); ++chunk) {
    const ChunkSums& own = chunks[chunk];
    const double difference = own.sum / std::max(own.count, 1.0) - mean;
    squares.add(own.squares);
    squares.add(own.count * difference * difference);
  }
  const double freedom = call.params.std == Std::unbiased ? count - 1 : count;
  return {pivot + mean, squares.value() / std::max(freedom, 1.0)};
}

double divisor_of(const Params& params, double variance) {
  if (params.eps_mode == EpsMode::deviation) return std::sqrt(variance) + params.eps;
  if (params.eps_mode == EpsMode::variance) return std::sqrt(variance + params.eps);
  return std::sqrt(std::max(variance, params.eps));  // NaN where the variance is
}

void whiten(const WhitenCall& call, const Context& context) {
  const auto [m, variance] = moments(call, context);
  const double mean = m, divisor = divisor_of(call.params, variance);
  const double shift = call.params.shift_mean == ShiftMean::on ? 0 : mean;
  map<double>(context, to(call.y), from(call.x, or_one(call.mask)), [=](auto d, auto x, auto mask) HWY_ATTR {
    const auto y = hn::Div(hn::Sub(x, hn::Set(d, mean)), hn::Set(d, divisor));
    return hn::IfThenElseZero(hn::Ne(mask, hn::Zero(d)), hn::Add(y, hn::Set(d, shift)));
  });
}

}  // namespace rlk::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

namespace rlk::cpu {

RLK_CPU_VECTOR_KERNEL(
    Whiten, whiten, .operations = per_element<100>, .workspace_bytes = [](const WhitenCall& call) {
      return chunks_of(call.B * call.L) * static_cast<int64_t>(sizeof(ChunkSums));
    });

}  // namespace rlk::cpu
