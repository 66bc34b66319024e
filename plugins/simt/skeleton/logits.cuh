// Rows of logits over a temperature: their log-sum-exp in one pass, and the gradient that a token's log-probability
// gives them in another.
#pragma once

#include "logit_packs.cuh"

#if defined(RLK_SIMT_ROWS_ON_DEVICE)

#include <float.h>

#include "../logp.cuh"

namespace rlk::simt {

constexpr double kLogitsLog2e = 1.4426950408889634074;

// What sums are scaled with: as good as the sum of fp32 terms asks.
template <class A>
struct LogitFactor {
  using type = formula::BriefLongLane;
};
template <>
struct LogitFactor<double> {
  using type = formula::Lane<double>;
};

// A temperature, and its inverse for what becomes fp32.
struct LogitTemperature {
  double value, inverse;

  __device__ __forceinline__ explicit LogitTemperature(double temperature)
      : value(temperature), inverse(temperature == 1 ? 1 : 1 / temperature) {}
  template <bool kLong>
  __device__ __forceinline__ double divide(double x) const {
    return kLong ? x / value : x * inverse;
  }
};

// What a thread has of a row: the largest logit that its wave has seen or it itself, and the sum of
// exp((x - largest) / temperature). The difference comes first: it is exact where the power is not small.
template <class Row>
struct LogitPart {
  using A = typename Row::A;
  A largest = -A(INFINITY);
  RowSum<Row::kLong> total;

  __device__ __forceinline__ void scale_to(A top, const LogitTemperature& temperature) {
    if (largest == top) return;
    if (total.sum != 0) {
      const double difference = static_cast<double>(largest) - static_cast<double>(top);
      const double factor = exp(typename LogitFactor<A>::type(), temperature.divide<Row::kLong>(difference));
      total.sum *= factor;
      if constexpr (Row::kLong) total.lost *= factor;
    }
    largest = top;
  }
};
template <class Row>
__device__ __forceinline__ LogitPart<Row> logit_part(const Row& row, const typename Row::Source& source,
                                                     const LogitTemperature& temperature) {
  using A = typename Row::A;
  constexpr int kSize = Row::kSize, kTile = kLogitTile<Row>;
  using Tile = Pack<typename Row::Element>[kTile];
  const A scale = static_cast<A>(kLogitsLog2e / temperature.value);
  LogitPart<Row> part;
  // The wave's largest logit so far: else nearly every tile of a short row has a larger one for some lane.
  const auto begin = [&](const Tile& tile) {
    part.largest = largest(tile);
#pragma unroll
    for (int lanes = kWave / 2; lanes > 0; lanes /= 2) {
      part.largest = larger_number(part.largest, wave_xor(part.largest, lanes));
    }
  };
  each_logit_tile(row, source, begin, [&](int64_t, const Tile& tile) {
    const A top = largest(tile);
    if (top > part.largest) part.scale_to(top, temperature);
    const A shift = part.largest == -A(INFINITY) ? A(0) : part.largest;
#pragma unroll
    for (int u = 0; u < kTile; ++u) {
      A term[kSize];
      unpack(tile[u], term);
#pragma unroll
      for (int e = 0; e < kSize; ++e) term[e] = exp2_fast(formula::Mul(formula::Sub(term[e], shift), scale));
      row.add_terms(part.total, term);
    }
  });
  return part;
}

// Of an active row and its token.
struct LogitRow {
  double logp, lse;
  double largest, log_sum;
  bool is_empty;  // every logit is -inf: its numbers are NaN

  // Not by lse, which has no digits for the sum where scores are large.
  __device__ __forceinline__ double logp_of(double logit, double temperature) const {
    return (logit - largest) / temperature - log_sum;
  }
};
template <class Row>
__device__ __forceinline__ LogitRow logit_row_of(Row& row, const typename Row::Source& source, int64_t target,
                                                 const LogitTemperature& temperature, double largest, double sum,
                                                 double log_of_sum) {
  const bool is_empty = sum == 0;
  if (is_empty) row.report(kDataNoFiniteLogit, 0);
  const double log_sum = is_empty ? NAN : log_of_sum;
  LogitRow out{0, temperature.divide<Row::kLong>(largest) + log_sum, largest, log_sum, is_empty};
  const double logit = widen(source.data[target * source.column]);
  out.logp = temperature.divide<Row::kLong>(logit - largest) - log_sum;
  return out;
}
template <class Row>
__device__ __forceinline__ LogitRow logit_row(Row& row, const typename Row::Source& source, int64_t target,
                                              double of_scores) {
  const LogitTemperature temperature(of_scores);
  LogitPart<Row> part = logit_part(row, source, temperature);
  part.scale_to(row.reduce(RowLargest<typename Row::A>{part.largest}).value, temperature);
  const double sum = row.reduce(part.total).value();
  return logit_row_of(row, source, target, temperature, static_cast<double>(part.largest), sum, ::log(sum));
}

// Of the second model, too, which may be absent: then its numbers are 0.
struct LogitRows {
  LogitRow first, second;
};
template <class A>
struct TwoLargest {
  RowLargest<A> first, second;

  __device__ __forceinline__ void add(const TwoLargest& other) {
    first.add(other.first);
    second.add(other.second);
  }
  __device__ __forceinline__ TwoLargest of_lane(int lanes) const {
    return {first.of_lane(lanes), second.of_lane(lanes)};
  }
};
template <class Row, int a, int b>
__device__ __forceinline__ LogitRows logit_rows(Row& row, RowName<a> first, RowName<b> second, int64_t target,
                                                double of_scores) {
  using A = typename Row::A;
  const LogitTemperature temperature(of_scores);
  LogitPart<Row> own, other;
  // One text for both.
#pragma unroll 1
  for (int model = row.has(second) ? 1 : 0; model >= 0; --model) {
    const LogitPart<Row> of = logit_part(row, model == 0 ? row.source(first) : row.source(second), temperature);
    if (model == 0) {
      own = of;
    } else {
      other = of;
    }
  }
  const auto top = row.reduce(TwoLargest<A>{{own.largest}, {other.largest}});
  own.scale_to(top.first.value, temperature);
  other.scale_to(top.second.value, temperature);
  const auto total = row.reduce(RowSumList<Row::kLong, 2>{{own.total, other.total}});
  const double sum = total.of[0].value(), its = total.of[1].value();
  // Odd lanes take the logarithm of the second.
  const double log_of = ::log(threadIdx.x % 2 == 0 ? sum : its);
  LogitRows out{{0, 0, 0, 0, false}, {0, 0, 0, 0, false}};
  out.first = logit_row_of(row, row.source(first), target, temperature, static_cast<double>(own.largest), sum,
                           wave_read(log_of, 0));
  const double its_log = wave_read(log_of, 1);
  if (row.has(second)) {
    out.second =
        logit_row_of(row, row.source(second), target, temperature, static_cast<double>(other.largest), its, its_log);
  }
  return out;
}

// A log-probability by a saved lse: above 0 by what rounding gives, and no more where lse has no digits behind the
// point.
__device__ __forceinline__ double logp_by_lse(double logit, double temperature, double lse) {
  const double logp = logit / temperature - lse;
  return logp > 1.0 / 64 ? 1.0 / 64 : logp;
}

// log2 of a probability by lse, which has two parts here: the difference to the high one is exact where the probability
// is not small.
template <class V>
struct LogitBase {
  V high, low_power, scale;

  __device__ __forceinline__ LogitBase(double lse, double temperature) : scale(V(kLogitsLog2e / temperature)) {
    constexpr double kMost = sizeof(V) == 4 ? FLT_MAX : DBL_MAX;
    const double product = lse * temperature;
    // What is beyond is as far as the largest number. A NaN stays one.
    const double bounded = product > kMost ? kMost : product < -kMost ? -kMost : product;
    high = static_cast<V>(bounded);
    const double rest =
        (product - static_cast<double>(high)) + (is_finite(product) ? ::fma(lse, temperature, -product) : 0);
    low_power = static_cast<V>(rest * (kLogitsLog2e / temperature));
  }
  __device__ __forceinline__ V log2_of(V logit) const {
    return formula::MulAdd(formula::Sub(logit, high), scale, -low_power);
  }
};

// log p in fp64, below 1 / 64.
__device__ __forceinline__ double log_probability(double logit, double temperature, double lse) {
  const double product = lse * temperature;
  const double log_p = is_finite(product) ? ((logit - product) - ::fma(lse, temperature, -product)) / temperature
                                          : logit / temperature - lse;
  return log_p > 1.0 / 64 ? 1.0 / 64 : log_p;
}

// Whether every logit of a row is -inf, which a sound lse says is not so.
template <class Row, int x>
__device__ __forceinline__ bool is_empty_row(Row& row, RowName<x> logits, double lse) {
  if (lse > -INFINITY) return false;
  bool any = false;
  row.template each<typename Row::Rare>(from(logits), [&](auto, int64_t, int count, auto& v) {
#pragma unroll
    for (int e = 0; e < Row::kSize; ++e) any = any || (e < count && !(v[x][e] == -INFINITY));
  });
  return !row.any(any);
}

struct LogitScale {
  double lse, temperature;
};
// slope(logit, p) of each, and what the target's is.
template <class Row, int g, class Slope>
__device__ __forceinline__ void put_logit_gradients(Row& row, RowName<g>, const typename Row::Source& source,
                                                    int64_t target, double of_target, const LogitScale& scale,
                                                    const Slope& slope) {
  using V = typename Row::A;
  constexpr int kSize = Row::kSize, kTile = kLogitTile<Row>;
  const LogitBase<V> base(scale.lse, scale.temperature);
  const V own = static_cast<V>(of_target);
  const int64_t its_pack = target / kSize;
  const int its_place = static_cast<int>(target - its_pack * kSize);
  const auto none = [](const Pack<typename Row::Element>(&)[kTile]) {};
  each_logit_tile(row, source, none, [&](int64_t first, const Pack<typename Row::Element>(&tile)[kTile]) {
#pragma unroll
    for (int u = 0; u < kTile; ++u) {
      const int64_t pack = first + u * row.group();
      if (pack >= row.packs()) break;
      V y[kSize];
      unpack(tile[u], y);
#pragma unroll
      for (int e = 0; e < kSize; ++e) y[e] = slope(y[e], exp2_fast(base.log2_of(y[e])));
      if (pack == its_pack) {
#pragma unroll
        for (int e = 0; e < kSize; ++e) y[e] = e == its_place ? own : y[e];
      }
      row.store(g, pack, row.count_of(pack), y);
    }
  });
}

// gain p everywhere but at the target, which has its own; a target of -1 is none. grad may be the logits' memory.
template <class Row, int g, int x>
__device__ __forceinline__ void put_probabilities(Row& row, RowName<g> grad, RowName<x> logits, int64_t target,
                                                  double of_target, double gain, const LogitScale& scale) {
  // Each thread has read what it needs of the row before another writes.
  row.wait();
  // A large gain times a small power is in range; an infinite one leaves what is impossible alone.
  if (!(::fabs(gain) >= (Row::kLong ? INFINITY : 0x1p100))) {
    const auto own_gain = static_cast<typename Row::A>(gain);
    put_logit_gradients(row, grad, row.source(logits), target, of_target, scale,
                        [=](auto, auto p) { return formula::Mul(own_gain, p); });
  } else {
    const LogitBase<double> base(scale.lse, scale.temperature);
    row.map_but(target, RareLane(), to(grad), from(logits), [&](auto, bool is_target, double v) {
      const double all = v == -INFINITY ? 0 : gain * exp2_fast(base.log2_of(v));
      return is_target ? of_target : all;
    });
  }
}

// The gradient of a row of logits, slope that of the log-probability of its target, whose own is in fp64.
template <class Row, int g, int x>
__device__ __forceinline__ void put_logit_gradient(Row& row, RowName<g> grad, RowName<x> logits, int64_t target,
                                                   double logit, double lse, double slope, double temperature) {
  const double gain = -slope / temperature;
  const double of_target = logit == -INFINITY ? 0 : gain * ::expm1(log_probability(logit, temperature, lse));
  put_probabilities(row, grad, logits, target, of_target, gain, {lse, temperature});
}

// The first place of a list that is in error.
struct FirstBadPlace {
  int64_t place;

  __device__ __forceinline__ void add(const FirstBadPlace& other) { place = other.place < place ? other.place : place; }
  __device__ __forceinline__ FirstBadPlace of_lane(int lanes) const { return {wave_xor(place, lanes)}; }
};
// Whether all ids of a row are columns; else the data error is told.
template <class Row, int i>
__device__ __forceinline__ bool are_columns(Row& row, RowName<i> ids, int64_t count) {
  FirstBadPlace bad{count};
#pragma unroll 1
  for (int64_t k = row.place(); k < count; k += row.group()) {
    const int64_t id = row.integer(ids, 0, k);
    if (k < bad.place && (id < 0 || id >= row.columns())) bad.place = k;
  }
  bad = row.reduce(bad);
  if (bad.place < count) row.report(kDataIdOutOfRange, row.integer(ids, 0, bad.place));
  return bad.place == count;
}

}  // namespace rlk::simt

#endif
