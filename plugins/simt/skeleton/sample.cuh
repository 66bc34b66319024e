// One token per row, drawn from filtered and tempered logits: integers that are the declaration's to the bit.
//
//   peaks    a wave finds the first token of a segment of a row, by falling score and rising id
//   bound    a block sorts a row's peaks: at least as many tokens as wanted come before or at the peak of that number,
//            and mostly not many more; it knows the largest score, too
//   gather   those tokens are listed in any order. Where sums over all tokens are asked for, a wave adds the weights of
//            its segment
//   draw     a block sorts the list. The filters keep its first tokens, whose number is looked for in their running sum
//
// A row is read twice. What the list cannot answer (more equal scores than it holds, a top_p of more tokens than that)
// a block finds out in the row itself, by the digits of scores and ids (sample_rows.cuh).
//
// Sums of integers are the same in any order, so atomics and lists in any order change nothing.
#pragma once

#include "order.cuh"

#include <rlk/formula/sample.hpp>

#include "sample.h"

#if defined(RLK_SIMT_MOVES_ON_DEVICE)

namespace rlk::simt {

using formula::sample_weight;

__device__ __forceinline__ const SampleRules& sample_rules(const MoveArgs& args) {
  return move_rules<SampleRules>(args);
}

// What the kernels tell each other of a row. Orders are those of scores, inverted: the largest comes first.
struct SampleState {
  float max;
  uint32_t bound;            // tokens up to this order are listed
  unsigned long long count;  // of them
  double raw_max;            // of the logits as given
  int32_t status, reserved;
};
struct SampleSegment {
  uint64_t all, heavy;  // sums of weights, and of those that min_p keeps
  double raw_max, raw_sum;
  uint32_t first, reserved;  // order
};
static_assert(sizeof(SampleState) == kSampleStateBytes && sizeof(SampleSegment) == kSampleSegmentBytes,
              "as the host has it");
constexpr uint32_t kSampleNothing = 0xff800000;  // the order of -inf, inverted: such a token is not active
constexpr uint32_t kSampleStrange = 0x007fffff;  // the order of +inf; a NaN is before it
constexpr int32_t kSampleDrawn = 0, kSampleGreedy = 1, kSampleNoFinite = 2, kSampleNan = 3, kSampleNoRound = 4;

__device__ __forceinline__ uint32_t sample_order(float x) {
  return ~order_of(x);
}

struct SampleWork {
  SampleState& state;
  SampleSegment* segments;
  uint64_t* list;

  __device__ __forceinline__ SampleWork(const MoveArgs& args, int64_t row)
      : state(static_cast<SampleState*>(args.work[1])[row]),
        segments(static_cast<SampleSegment*>(args.work[0]) + row * args.divisor[kBySampleSegments].size),
        list(static_cast<uint64_t*>(args.work[2]) + row * sample_list(sample_rules(args).vocab)) {}
};

// The settings of a row of the launch, and its scores.
struct SampleRow {
  const MoveArgs& args;
  const SampleRules& rules;
  const int64_t n;  // of the call

  __device__ __forceinline__ SampleRow(const MoveArgs& given, int64_t row)
      : args(given), rules(sample_rules(given)), n(row_of_call(given, row)) {}

  __device__ __forceinline__ float number(int t, float scalar) const {
    const MoveTensor& tensor = args.tensor[t];
    return tensor.data == nullptr ? scalar : static_cast<const float*>(tensor.data)[n * tensor.stride[0]];
  }
  __device__ __forceinline__ int64_t integer(int t, int64_t scalar) const {
    const MoveTensor& tensor = args.tensor[t];
    return tensor.data == nullptr ? scalar : static_cast<const int64_t*>(tensor.data)[n * tensor.stride[0]];
  }
  __device__ __forceinline__ float temperature() const { return number(kSampleTemperatures, rules.temperature); }
  __device__ __forceinline__ float top_p() const { return number(kSampleTopPs, rules.top_p); }
  __device__ __forceinline__ bool by_p() const { return top_p() < 1; }
  __device__ __forceinline__ int64_t top_k() const { return integer(kSampleTopKs, rules.top_k); }
  __device__ __forceinline__ bool by_k() const {
    const int64_t k = top_k();
    return k > 0 && k < rules.vocab;
  }
  __device__ __forceinline__ uint64_t least() const { return formula::least_weight(number(kSampleMinPs, rules.min_p)); }
  __device__ __forceinline__ bool has_rounds() const { return rules.has_rounds != 0; }
  // Whether sums over all tokens are asked for: else what top_k keeps is all that counts.
  __device__ __forceinline__ bool asks_all() const { return !by_k() || rules.is_joint != 0 || has_rounds(); }

  // The penalties of a row.
  struct Penalties {
    float repetition, frequency, presence;
  };
  __device__ __forceinline__ Penalties penalties() const {
    return {number(kSampleRepetition, rules.repetition), number(kSampleFrequency, rules.frequency),
            number(kSamplePresence, rules.presence)};
  }
  __device__ __forceinline__ bool is_plain() const {
    return args.tensor[kSamplePrompt].data == nullptr && args.tensor[kSampleCounts].data == nullptr &&
           args.tensor[kSampleAllowed].data == nullptr;
  }
  __device__ __forceinline__ uint8_t byte(int t, int64_t v) const {
    const MoveTensor& tensor = args.tensor[t];
    return static_cast<const uint8_t*>(tensor.data)[n * tensor.stride[0] + v * tensor.stride[1]];
  }
  // Each operation is rounded on its own.
  __device__ __forceinline__ float penalised(const Penalties& by, float a, int64_t v) const {
    using formula::Mul;
    using formula::Sub;
    if (args.tensor[kSampleAllowed].data != nullptr && byte(kSampleAllowed, v) == 0) return -INFINITY;
    const MoveTensor& counts = args.tensor[kSampleCounts];
    const int32_t count = counts.data == nullptr
                              ? 0
                              : static_cast<const int32_t*>(counts.data)[n * counts.stride[0] + v * counts.stride[1]];
    float x = a;
    if (count > 0 || (args.tensor[kSamplePrompt].data != nullptr && byte(kSamplePrompt, v) != 0)) {
      x = a > 0 ? a / by.repetition : Mul(a, by.repetition);
    }
    if (count > 0) x = Sub(Sub(x, Mul(by.frequency, static_cast<float>(count))), by.presence);
    return x;
  }

  // function(v, score, logit) for the tokens of [begin, end) that are this one's of `workers`.
  template <class T, class Function>
  __device__ __forceinline__ void each_as(int64_t begin, int64_t end, int worker, int workers,
                                          const Function& function) const {
    constexpr int kSize = Pack<T>::kSize;
    const MoveTensor& logits = args.tensor[kSampleLogits];
    const T* const from = static_cast<const T*>(logits.data) + n * logits.stride[0];
    const Penalties by = penalties();
    const bool plain = is_plain();
    const auto one = [&](int64_t v, Accumulator<T> a) {
      const auto x = static_cast<float>(a);
      function(v, plain ? x : penalised(by, x, v), a);
    };
    if (logits.stride[1] != 1) {
      for (int64_t v = begin + worker; v < end; v += workers) one(v, widen(from[v * logits.stride[1]]));
      return;
    }
#pragma unroll 2
    for (int64_t v = begin + worker * kSize; v < end; v += workers * kSize) {
      const Pack<T> pack = load_pack(from, v, rules.vocab, T{});
      Accumulator<T> a[kSize];
      pack.unpack(a);
#pragma unroll
      for (int e = 0; e < kSize; ++e) {
        if (v + e < end) one(v + e, a[e]);
      }
    }
  }
  template <class Function>
  __device__ __forceinline__ void each(int64_t begin, int64_t end, int worker, int workers,
                                       const Function& function) const {
    with_move_type(args.tensor[kSampleLogits].dtype,
                   [&](auto type) { each_as<decltype(type)>(begin, end, worker, workers, function); });
  }
  __device__ __forceinline__ double logit(int64_t v) const {
    const MoveTensor& logits = args.tensor[kSampleLogits];
    return move_number(logits, n * logits.stride[0] + v * logits.stride[1]);
  }
  __device__ __forceinline__ float score(int64_t v) const {
    const auto a = static_cast<float>(logit(v));
    return is_plain() ? a : penalised(penalties(), a, v);
  }
  __device__ __forceinline__ uint8_t* mask(int64_t v) const {
    const MoveTensor& tensor = args.tensor[kSampleMask];
    return static_cast<uint8_t*>(tensor.data) + n * tensor.stride[0] + v * tensor.stride[1];
  }
  __device__ __forceinline__ bool has_mask() const {
    return args.tensor[kSampleMask].data != nullptr;
  }
};

// Weights of a row.
struct SampleWeights {
  float max, temperature;

  __device__ __forceinline__ uint64_t operator()(float x) const {
    return sample_weight(formula::Sub(x, max) / temperature);
  }
};

// A wave's segments: function(row, segment's number, its tokens).
template <class Function>
__device__ __forceinline__ void each_segment(const MoveArgs& args, const Function& function) {
  constexpr int kWaves = kMoveThreads / kWave;
  const int64_t segments = args.divisor[kBySampleSegments].size;
  const SampleRules& rules = sample_rules(args);
  for (int64_t at = static_cast<int64_t>(blockIdx.x) * kWaves + threadIdx.x / kWave; at < args.units;
       at += static_cast<int64_t>(gridDim.x) * kWaves) {
    const int64_t row = move_divide(args.divisor[kBySampleSegments], at), segment = at - row * segments;
    const int64_t begin = segment * rules.segment, end = begin + rules.segment;
    function(row, segment, begin, end < rules.vocab ? end : rules.vocab);
  }
}

__device__ __forceinline__ void sample_peaks(const MoveArgs& args) {
  const int lane = static_cast<int>(threadIdx.x) % kWave;
  const bool asks_raw = args.tensor[kSampleLogp].data != nullptr;
  each_segment(args, [&](int64_t n, int64_t segment, int64_t begin, int64_t end) {
    uint32_t first = ~uint32_t{0};
    double raw_max = -INFINITY;
    SampleRow(args, n).each(begin, end, lane, kWave, [&](int64_t, float x, auto a) {
      const uint32_t order = sample_order(x);
      first = order < first ? order : first;
      if (asks_raw) raw_max = a > raw_max ? a : raw_max;
    });
#pragma unroll
    for (int lanes = kWave / 2; lanes > 0; lanes /= 2) {
      const uint32_t other = wave_xor(first, lanes);
      first = other < first ? other : first;
      if (!asks_raw) continue;
      const double raw = wave_xor(raw_max, lanes);
      raw_max = raw > raw_max ? raw : raw_max;
    }
    if (lane == 0) SampleWork(args, n).segments[segment] = {0, 0, raw_max, 0, first, 0};
  });
}

__device__ __forceinline__ void sample_bound(const MoveArgs& args) {
  ShortPlace* const places = shared_places<ShortPlace>();
  __shared__ double raw[kMoveThreads / 32];
  const int me = static_cast<int>(threadIdx.x);
  const int64_t segments = args.divisor[kBySampleSegments].size;
  const int padded = power_of_two(segments);
  for (int64_t n = blockIdx.x; n < args.units; n += gridDim.x) {
    const SampleWork work(args, n);
    double raw_max = -INFINITY;
    for (int i = me; i < padded; i += kMoveThreads) {
      places[i] = i < segments ? ShortPlace::of(work.segments[i].first, i) : ShortPlace::last();
      if (i < segments && work.segments[i].raw_max > raw_max) raw_max = work.segments[i].raw_max;
    }
    for (int lanes = kWave / 2; lanes > 0; lanes /= 2) {
      const double other = wave_xor(raw_max, lanes);
      raw_max = other > raw_max ? other : raw_max;
    }
    if (me % kWave == 0) raw[me / kWave] = raw_max;
    sort_places(places, padded);
    if (me == 0) {
      for (int w = 1; w < kMoveThreads / kWave; ++w) raw[0] = raw[w] > raw[0] ? raw[w] : raw[0];
      const auto order_at = [&](int64_t i) { return static_cast<uint32_t>(places[i].word >> 32); };
      const SampleRow row(args, n);
      const float temperature = row.temperature();
      SampleState state{};
      state.raw_max = raw[0];
      const uint32_t first = order_at(0);
      // The score of that order.
      const uint32_t bits = ~first >> 31 != 0 ? ~first & 0x7fffffffu : first;
      __builtin_memcpy(&state.max, &bits, sizeof(bits));
      state.status = first <= kSampleStrange || temperature != temperature ? kSampleNan
                     : first >= kSampleNothing                             ? kSampleNoFinite
                     : temperature < 1e-5f                                 ? kSampleGreedy
                                                                           : kSampleDrawn;
      int64_t wanted = 1;
      if (state.status == kSampleDrawn) {
        // Where no number is asked for, as many as the list mostly holds.
        wanted = row.by_k() ? row.top_k() : 0;
        if (row.asks_all() && wanted < (segments + 1) / 2) wanted = (segments + 1) / 2;
      }
      state.bound = wanted <= segments && segments > 1 ? order_at(wanted - 1) : ~uint32_t{0};
      if (state.bound >= kSampleNothing) state.bound = kSampleNothing;
      work.state = state;
      if (state.status == kSampleNoFinite) report_data_error(args.errors, kDataNoFiniteLogit, row.n, 0);
    }
    __syncthreads();
  }
}

__device__ __forceinline__ void sample_gather(const MoveArgs& args) {
  const int lane = static_cast<int>(threadIdx.x) % kWave;
  const bool asks_raw = args.tensor[kSampleLogp].data != nullptr;
  each_segment(args, [&](int64_t n, int64_t segment, int64_t begin, int64_t end) {
    const SampleRow row(args, n);
    const SampleWork work(args, n);
    const int32_t status = work.state.status;
    if (row.has_mask()) {
      for (int64_t v = begin + lane; v < end; v += kWave) *row.mask(v) = 0;
    }
    if (status == kSampleNan || status == kSampleNoFinite) return;
    const uint32_t bound = work.state.bound;
    const bool adds = status == kSampleDrawn && row.asks_all();
    const SampleWeights weight = {work.state.max, row.temperature()};
    const double raw_max = work.state.raw_max;
    const uint64_t least = row.least();
    unsigned long long all = 0, heavy = 0;
    double raw_sum = 0;
    row.each(begin, end, lane, kWave, [&](int64_t v, float x, auto a) {
      const uint32_t order = sample_order(x);
      if (order <= bound && order < kSampleNothing) {
        const auto at = atomicAdd(&work.state.count, 1ull);
        if (at < static_cast<unsigned long long>(kSampleList)) {
          work.list[at] = static_cast<uint64_t>(order) << 32 | static_cast<uint64_t>(v);
        }
      }
      if (adds) {
        const uint64_t w = weight(x);
        all += w;
        heavy += w >= least ? w : 0;
      }
      if (asks_raw) raw_sum += formula::exp(formula::Lane<decltype(a)>(), static_cast<decltype(a)>(a - raw_max));
    });
    if (!adds && !asks_raw) return;
#pragma unroll
    for (int lanes = kWave / 2; lanes > 0; lanes /= 2) {
      all += wave_xor(all, lanes);
      heavy += wave_xor(heavy, lanes);
      raw_sum = formula::Add(raw_sum, wave_xor(raw_sum, lanes));
    }
    if (lane != 0) return;
    SampleSegment& to = work.segments[segment];
    to.all = all;
    to.heavy = heavy;
    to.raw_sum = raw_sum;
  });
}

}  // namespace rlk::simt

#endif
