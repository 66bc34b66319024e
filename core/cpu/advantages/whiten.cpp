// Mean from differences to one of the numbers, variance from differences to the means of chunks, then every number.
// Cost model: the numbers are read from memory once for both moments, unless these are given, and once more to be
// written.
#include <rlk/sdk/ops/whiten.hpp>

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/cpu/advantages/whiten.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "core/cpu/simd/skeleton-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace rlk::cpu::HWY_NAMESPACE {
using namespace sdk::ops::whiten;  // NOLINT(google-build-using-namespace): its enumerations
using WhitenCall = CallOf<sdk::ops::Whiten>;

// Of the numbers of a chunk that count: how many, the sum of their differences to the pivot, and the squares of their
// differences to their own mean.
struct ChunkSums {
  double count, sum, squares;
  double mean() const { return sum / std::max(count, 1.0); }
};

// The first number that counts; 0 when there is none. Differences to it are exactly 0 where all numbers are equal.
double pivot_of(const WhitenCall& call) {
  for (int64_t b = 0; b < call.B; ++b) {
    for (int64_t t = 0; t < call.L; ++t) {
      if (call.mask.keeps(b, t)) return call.x.get(b, t);
    }
  }
  return 0;
}

// Mean and variance; the masks are one or none.
template <class... Masks>
std::pair<double, double> moments(const WhitenCall& call, const Context& context, const Masks&... masks) {
  if (call.mean.present()) return {call.mean.get(0), call.variance.get(0)};
  const double pivot = pivot_of(call);
  const auto in = from(call.x, masks...);
  const auto n_chunks = static_cast<size_t>(chunks_of(elements_of(call.x)));
  const std::span<ChunkSums> chunks(static_cast<ChunkSums*>(context.workspace), n_chunks);
  for_each_chunk<double>(context, in, [&](int64_t chunk, const auto& lines, int64_t size) HWY_ATTR {
    const auto [count, sum] = sums_of_lines<double>(
        lines, size, [](auto d, auto, auto... mask) HWY_ATTR { return if_kept(d, mask..., hn::Set(d, 1.0)); },
        [=](auto d, auto x, auto... mask) HWY_ATTR { return if_kept(d, mask..., hn::Sub(x, hn::Set(d, pivot))); });
    ChunkSums& own = chunks[static_cast<size_t>(chunk)] = {count, sum, 0};
    own.squares = sum_of_lines<double>(lines, size, [=, mean = own.mean()](auto d, auto x, auto... mask) HWY_ATTR {
      const auto rest = hn::Sub(hn::Sub(x, hn::Set(d, pivot)), hn::Set(d, mean));
      return if_kept(d, mask..., hn::Mul(rest, rest));
    });
  });
  LongSum sum, squares;
  double count = 0;
  for (const ChunkSums& own : chunks) {
    sum.add(own.sum);
    count += own.count;
  }
  const double mean = sum.value() / std::max(count, 1.0);
  for (const ChunkSums& own : chunks) {
    squares.add(own.squares);
    squares.add(own.count * (own.mean() - mean) * (own.mean() - mean));
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
  with_mask(call.mask, [&](const auto&... masks) {
    const std::pair<double, double> of_all = moments(call, context, masks...);
    const double mean = of_all.first, divisor = divisor_of(call.params, of_all.second);
    const double shift = call.params.shift_mean == ShiftMean::on ? 0 : mean;
    // A division takes many times a product's time. The factor costs one rounding more, where it has all its digits.
    const double factor = 1 / divisor;
    const bool has_factor = std::isnormal(factor);
    map<double>(context, to(call.y), from(call.x, masks...), [=](auto d, auto x, auto... mask) HWY_ATTR {
      const auto rest = hn::Sub(x, hn::Set(d, mean));
      const auto y = has_factor ? hn::Mul(rest, hn::Set(d, factor)) : hn::Div(rest, hn::Set(d, divisor));
      return if_kept(d, mask..., hn::Add(y, hn::Set(d, shift)));
    });
  });
}

}  // namespace rlk::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

namespace rlk::cpu {

RLK_CPU_VECTOR_KERNEL(
    Whiten, whiten, .operations = per_element<100>, .workspace_bytes = [](const auto& call) {
      return chunks_of(elements_of(call.x)) * static_cast<int64_t>(sizeof(HWY_NAMESPACE::ChunkSums));
    });

}  // namespace rlk::cpu
