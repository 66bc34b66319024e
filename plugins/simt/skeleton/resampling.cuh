// Weights of samples by their scores: what resampling_weights does with groups.cuh's arguments.
#pragma once

#include "groups.cuh"

#if defined(RLK_SIMT_GROUPS_ON_DEVICE)

namespace rlk::simt {

struct Range {
  double smallest = INFINITY, largest = -INFINITY;

  __device__ __forceinline__ void add(double x) {
    smallest = x < smallest || x != x ? x : smallest;
    largest = x > largest || x != x ? x : largest;
  }
  __device__ __forceinline__ void add(const Range& other) {
    smallest = other.smallest < smallest || other.smallest != other.smallest ? other.smallest : smallest;
    largest = other.largest > largest || other.largest != other.largest ? other.largest : largest;
  }
  __device__ __forceinline__ Range of_lane(int lanes) const {
    Range other;
    other.smallest = wave_xor(smallest, lanes);
    other.largest = wave_xor(largest, lanes);
    return other;
  }
};

struct resampling_weights {
  static constexpr int kBlocks = 2;

  template <bool kLong>
  static __device__ __forceinline__ void parts(const GroupArgs& args) {
    const Team team(kGroupThreads);
    for (int64_t chunk = blockIdx.x; chunk < args.chunks; chunk += gridDim.x) {
      const int64_t first = chunk * args.chunk, limit = first + args.chunk;
      Range range;
      each_sample<kLong>(team, MatrixSamples{args}, first, limit < args.samples ? limit : args.samples,
                         [&](int64_t, double x) { range.add(x); });
      range = team.reduce(range);
      if (threadIdx.x == 0) static_cast<RangePart*>(args.part)[chunk] = {range.smallest, range.largest};
    }
  }

  template <bool kLong>
  static __device__ __forceinline__ void apply(const GroupArgs& args) {
    const Team team(kGroupThreads);
    Range range;
    if (args.part != nullptr) {
      const auto* part = static_cast<const RangePart*>(args.part);
      for (int64_t c = threadIdx.x; c < args.chunks; c += kGroupThreads) {
        Range of_chunk;
        of_chunk.smallest = part[c].smallest;
        of_chunk.largest = part[c].largest;
        range.add(of_chunk);
      }
      range = team.reduce(range);
    }
    const MatrixSamples samples = {args};
    const int64_t step = static_cast<int64_t>(gridDim.x) * kGroupThreads;
    for (int64_t i = static_cast<int64_t>(blockIdx.x) * kGroupThreads + threadIdx.x; i < args.samples; i += step) {
      const double weight = samples.counts(i) ? weight_of(args, range, samples.read(i)) + args.eps : 0;
      grid_put(args.out, samples.place(args.out, i), weight);
    }
  }

private:
  static __device__ __forceinline__ double weight_of(const GroupArgs& args, const Range& range, double score) {
    if (args.method == kMethodPow) return ::pow(formula::Abs(score), args.power);
    if (range.largest != range.largest) return range.largest;
    if (args.method == kMethodMaxMin) return score == range.largest || score == range.smallest ? 1 : 0;
    return score == range.largest ? args.best_weight : args.other_weight;
  }
};

}  // namespace rlk::simt

#endif
