// One token per row, drawn from filtered and tempered logits: integers that are the declaration's to the bit.
//
//   peaks    the first order of every share of a row (peaks.cuh), by falling score, and of every stretch
//   weigh    where sums over all tokens are asked for, a wave adds the weights of its segment
//   draw     a block lists at least as many of a row's first tokens as are wanted, and sorts them. The filters keep the
//            first ones of the list, whose number is looked for in their running sum
//
// A row is read once, and again for sums over all tokens. What the list cannot answer (more equal scores than it holds,
// a top_p of more tokens than that) a block finds out in the row itself, by the digits of scores and ids
// (sample_rows.cuh).
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
struct SampleStretch {
  double raw_max;            // of the logits as given
  uint32_t first, reserved;  // order
};
struct SampleSegment {
  uint64_t all, heavy;  // sums of weights, and of those that min_p keeps
  double raw_sum;
};
static_assert(sizeof(SampleStretch) == kSampleStretchBytes && sizeof(SampleSegment) == kSampleSegmentBytes,
              "as the host has it");
constexpr uint32_t kSampleNothing = 0xff800000;  // the order of -inf, inverted: such a token is not active
constexpr uint32_t kSampleStrange = 0x007fffff;  // the order of +inf; a NaN is before it
constexpr int32_t kSampleDrawn = 0, kSampleGreedy = 1, kSampleNoFinite = 2, kSampleNan = 3, kSampleNoRound = 4;

__device__ __forceinline__ uint32_t sample_order(float x) {
  return ~order_of(x);
}

// The score of an order, 0 of -0.
__device__ __forceinline__ float sample_score(uint32_t order) {
  return number_of(~order);
}

struct SampleWork {
  uint32_t* peaks;
  SampleStretch* stretches;
  SampleSegment* segments;

  __device__ __forceinline__ SampleWork(const MoveArgs& args, int64_t row)
      : peaks(static_cast<uint32_t*>(args.work[0]) + row * args.divisor[kBySampleStretches].size * kPeakLanes),
        stretches(static_cast<SampleStretch*>(args.work[1]) + row * args.divisor[kBySampleStretches].size),
        segments(static_cast<SampleSegment*>(args.work[2]) + row * sample_rules(args).segments) {}
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
  __device__ __forceinline__ int32_t status_of(uint32_t first) const {
    const float t = temperature();
    if (first <= kSampleStrange || t != t) return kSampleNan;
    if (first >= kSampleNothing) return kSampleNoFinite;
    return t < 1e-5f ? kSampleGreedy : kSampleDrawn;
  }
  // How many of its first tokens a row mostly needs.
  __device__ __forceinline__ int64_t wanted() const {
    if (temperature() < 1e-5f) return 1;
    const int64_t of_k = by_k() ? top_k() : 1;
    return asks_all() && (by_p() || least() > 0) && of_k < kSampleWanted ? kSampleWanted : of_k;
  }

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
  template <int batch, bool plain, class T, class Function>
  __device__ __forceinline__ void each_as(int64_t begin, int64_t end, int worker, int workers,
                                          const Function& function) const {
    const MoveTensor& logits = args.tensor[kSampleLogits];
    const T* const from = static_cast<const T*>(logits.data) + n * logits.stride[0];
    const Penalties by = penalties();
    const auto one = [&](int64_t v, Accumulator<T> a) {
      const auto x = static_cast<float>(a);
      if constexpr (plain) {
        function(v, x, a);
      } else {
        function(v, penalised(by, x, v), a);
      }
    };
    if (logits.stride[1] != 1) {
      // In the order of packs: sums are to have the same one.
      constexpr int64_t kSize = Pack<T>::kSize;
      for (int64_t c = begin + worker * kSize; c < end; c += workers * kSize) {
        const int64_t last = c + kSize < end ? c + kSize : end;
        for (int64_t v = c; v < last; ++v) one(v, widen(from[v * logits.stride[1]]));
      }
      return;
    }
    each_pack<batch>(from, rules.vocab, begin, end, worker, workers, [&](int64_t v, const auto& a, int count) {
#pragma unroll
      for (int e = 0; e < Pack<T>::kSize; ++e) {
        if (e < count) one(v + e, a[e]);
      }
    });
  }
  template <int batch, class Function>
  __device__ __forceinline__ void each(int64_t begin, int64_t end, int worker, int workers,
                                       const Function& function) const {
    const bool plain = is_plain();
    with_move_type(args.tensor[kSampleLogits].dtype, [&](auto type) {
      using T = decltype(type);
      if (plain) {
        each_as<batch, true, T>(begin, end, worker, workers, function);
      } else {
        each_as<1, false, T>(begin, end, worker, workers, function);
      }
    });
  }
  // Tokens that follow each other for one worker.
  __device__ __forceinline__ int unit() const {
    const MoveTensor& logits = args.tensor[kSampleLogits];
    return logits.dtype == kMapF64 ? 2 : logits.dtype == kMapF32 ? 4 : 8;
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

__device__ __forceinline__ void sample_peaks(const MoveArgs& args) {
  const bool asks_raw = args.tensor[kSampleLogp].data != nullptr;
  const SampleRules& rules = sample_rules(args);
  each_stretch(args, args.divisor[kBySampleStretches], rules.stretch, rules.vocab,
               [&](int64_t n, int64_t stretch, int64_t begin, int64_t end, int lane) {
                 uint32_t first = ~uint32_t{0};
                 double raw_max = -INFINITY;
                 const SampleRow row(args, n);
                 row.each<4>(begin, end, lane, kPeakLanes, [&](int64_t, float x, auto a) {
                   const uint32_t order = sample_order(x);
                   first = order < first ? order : first;
                   if (asks_raw) raw_max = a > raw_max ? a : raw_max;
                 });
                 if (row.has_mask()) {
                   for (int64_t v = begin + lane; v < end; v += kPeakLanes) *row.mask(v) = 0;
                 }
                 const SampleWork work(args, n);
                 if (begin < end) work.peaks[stretch * kPeakLanes + lane] = first;
#pragma unroll
                 for (int lanes = kPeakLanes / 2; lanes > 0; lanes /= 2) {
                   const uint32_t other = wave_xor(first, lanes);
                   first = other < first ? other : first;
                   if (!asks_raw) continue;
                   const double raw = wave_xor(raw_max, lanes);
                   raw_max = raw > raw_max ? raw : raw_max;
                 }
                 if (lane == 0 && begin < end) work.stretches[stretch] = {raw_max, first, 0};
               });
}

// The first order of a row and the largest of its logits as given, to all threads of a block.
struct SampleFirst {
  uint32_t order;
  double raw_max;
};
__device__ inline SampleFirst sample_first(const MoveArgs& args, const SampleWork& work, bool asks_raw) {
  __shared__ uint32_t order_of_wave[kMoveThreads / 32];
  __shared__ double raw_of_wave[kMoveThreads / 32];
  const int me = static_cast<int>(threadIdx.x);
  SampleFirst first = {~uint32_t{0}, -INFINITY};
  const auto take = [&](uint32_t order, double raw) {
    first.order = order < first.order ? order : first.order;
    first.raw_max = raw > first.raw_max ? raw : first.raw_max;
  };
  for (int64_t s = me; s < args.divisor[kBySampleStretches].size; s += kMoveThreads) {
    take(work.stretches[s].first, asks_raw ? work.stretches[s].raw_max : -INFINITY);
  }
  for (int lanes = kWave / 2; lanes > 0; lanes /= 2) {
    take(wave_xor(first.order, lanes), asks_raw ? wave_xor(first.raw_max, lanes) : -INFINITY);
  }
  if (me % kWave == 0) {
    order_of_wave[me / kWave] = first.order;
    raw_of_wave[me / kWave] = first.raw_max;
  }
  __syncthreads();
  for (int w = 0; w < kMoveThreads / kWave; ++w) take(order_of_wave[w], raw_of_wave[w]);
  __syncthreads();
  return first;
}

__device__ __forceinline__ void sample_weigh(const MoveArgs& args) {
  const int lane = static_cast<int>(threadIdx.x) % kWave, wave = static_cast<int>(threadIdx.x) / kWave;
  const bool asks_raw = args.tensor[kSampleLogp].data != nullptr;
  const SampleRules& rules = sample_rules(args);
  const MoveDivisor& parts = args.divisor[kBySampleParts];
  for (int64_t block = blockIdx.x; block < args.units; block += gridDim.x) {
    const int64_t n = move_divide(parts, block), from = (block - n * parts.size) * kSampleSegmentsOfPart;
    const SampleRow row(args, n);
    if (!asks_raw && !row.asks_all()) continue;
    const SampleWork work(args, n);
    const SampleFirst first = sample_first(args, work, asks_raw);
    const int32_t status = row.status_of(first.order);
    if (status == kSampleNan || status == kSampleNoFinite) continue;
    const bool adds = status == kSampleDrawn && row.asks_all();
    if (!adds && !asks_raw) continue;
    const SampleWeights weight = {sample_score(first.order), row.temperature()};
    const uint64_t least = row.least();
    for (int64_t s = from + wave; s < from + kSampleSegmentsOfPart && s < rules.segments; s += kMoveThreads / kWave) {
      const int64_t begin = s * rules.segment, end = begin + rules.segment;
      unsigned long long all = 0, heavy = 0;
      double raw_sum = 0;
      row.each<1>(begin, end < rules.vocab ? end : rules.vocab, lane, kWave, [&](int64_t, float x, auto a) {
        if (adds) {
          const uint64_t w = weight(x);
          all += w;
          heavy += w >= least ? w : 0;
        }
        if (asks_raw) {
          raw_sum += formula::exp(formula::Lane<decltype(a)>(), static_cast<decltype(a)>(a - first.raw_max));
        }
      });
#pragma unroll
      for (int lanes = kWave / 2; lanes > 0; lanes /= 2) {
        all += wave_xor(all, lanes);
        heavy += wave_xor(heavy, lanes);
        raw_sum = formula::Add(raw_sum, wave_xor(raw_sum, lanes));
      }
      if (lane == 0) work.segments[s] = {all, heavy, raw_sum};
    }
  }
}

}  // namespace rlk::simt

#endif
