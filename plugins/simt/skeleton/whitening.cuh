// What whiten does with the numbers of a batch (groups.cuh): moments of chunks, then every number. Numbers in packs
// have kernels of their own, whose registers hold what is on its way.
#pragma once

#include "groups.cuh"

#if defined(RLK_SIMT_GROUPS_ON_DEVICE)

namespace rlk::simt {

struct whiten {
  // As many chunks at once as a batch of some hundred sequences has: registers to spare would leave most for later.
  static constexpr int kBlocks = 4;

  template <bool kLong>
  static __device__ __forceinline__ void parts(const GroupArgs& args) {
    for (int64_t chunk = blockIdx.x; chunk < args.chunks; chunk += gridDim.x) {
      write_part<kLong>(args, MatrixSamples{args}, chunk, static_cast<MomentsPart*>(args.part)[chunk]);
    }
  }
  // Where numbers are in packs: kernels of their own, whose registers hold what is on its way.
  static __device__ __forceinline__ void packed_parts(const GroupArgs& args) {
    for (int64_t chunk = blockIdx.x; chunk < args.chunks; chunk += gridDim.x) {
      auto& part = static_cast<MomentsPart*>(args.part)[chunk];
      const int64_t first = chunk * args.chunk, limit = first + args.chunk;
      const int64_t last = limit < args.samples ? limit : args.samples;
      const Moments moments = args.dtype == kMapF32 ? moments_of_packs<true>(args, first, last)
                                                    : moments_of_packs<false>(args, first, last);
      if (threadIdx.x == 0) part = {static_cast<double>(moments.count), moments.pivot, moments.offset, moments.squares};
    }
  }

  // What becomes of a number.
  template <bool kLong>
  struct Normal {
    double mean, divisor, factor, shift;
    bool has_factor;

    __device__ __forceinline__ explicit Normal(const GroupArgs& args) {
      double variance = 0;
      if (args.mean.data != nullptr) {
        mean = grid_read(args.mean, 0);
        variance = grid_read(args.variance, 0);
      } else {
        const Moments all = moments_of_parts<kLong>(static_cast<const MomentsPart*>(args.part), args.chunks);
        mean = all.mean();
        variance = all.variance(args.std);
      }
      const double floor = variance < args.eps ? args.eps : variance;  // NaN where the variance is
      divisor = args.eps_mode == kWhitenDeviation  ? ::sqrt(variance) + args.eps
                : args.eps_mode == kWhitenVariance ? ::sqrt(variance + args.eps)
                                                   : ::sqrt(floor);
      shift = args.shift_mean == kShiftMeanOn ? 0 : mean;
      // A division takes many times a product's time. The factor costs one rounding more, where it has all its digits.
      factor = 1 / divisor;
      has_factor = factor >= 0x1p-1022 && factor < INFINITY;
    }
    __device__ __forceinline__ double of(bool counts, double x) const {
      const double rest = formula::Sub(x, mean);
      const double y = formula::Add(has_factor ? formula::Mul(rest, factor) : rest / divisor, shift);
      return counts ? y : 0;
    }
  };

  template <bool kLong>
  static __device__ __forceinline__ void apply(const GroupArgs& args) {
    apply_by_numbers<kLong>(args, Normal<kLong>(args));
  }
  static __device__ __forceinline__ void packed_apply(const GroupArgs& args) {
    const bool is_f32 = args.dtype == kMapF32 && args.out.dtype == kMapF32;
    is_f32 ? apply_to_packs<true>(args) : apply_to_packs<false>(args);
  }
  template <bool kLong>
  static __device__ __forceinline__ void apply_by_numbers(const GroupArgs& args, const Normal<kLong>& normal) {
    const MatrixSamples samples = {args};
    for (int64_t chunk = blockIdx.x; chunk < args.chunks; chunk += gridDim.x) {
      const int64_t begin = chunk * args.chunk, limit = begin + args.chunk;
      const int64_t end = limit < args.samples ? limit : args.samples;
      if (!samples.is_plain()) {
#pragma unroll 1
        for (int64_t i = begin + threadIdx.x; i < end; i += kGroupThreads) {
          grid_put(args.out, samples.place(args.out, i), normal.of(samples.counts(i), samples.read(i)));
        }
        continue;
      }
#pragma unroll 1
      for (int64_t first = begin + threadIdx.x; first < end; first += kGroupThreads * kGroupItems) {
        double x[kGroupItems];
        uint8_t counts[kGroupItems];
        samples_at<typename GroupNumber<kLong>::type>(samples, first, kGroupThreads, end, x, counts);
#pragma unroll
        for (int i = 0; i < kGroupItems; ++i) {
          const int64_t at = first + i * kGroupThreads;
          if (at < end) grid_put(args.out, samples.place(args.out, at), normal.of(counts[i] != 0, x[i]));
        }
      }
    }
  }

  // The first pack is on its way while the parts are composed, then two while one is computed.
  template <bool kF32>
  static __device__ __forceinline__ void apply_to_packs(const GroupArgs& args) {
    using Pack = GroupPacks<kF32>;
    constexpr int64_t kStep = kGroupItems * kGroupThreads;
    const auto end_of = [&](int64_t chunk) {
      const int64_t limit = (chunk + 1) * args.chunk;
      return limit < args.samples ? limit : args.samples;
    };
    int64_t chunk = blockIdx.x, at = chunk * args.chunk, end = end_of(chunk);
    Pack pack(args, at, end);
    const Normal<false> normal(args);
    if (!normal.has_factor) return apply_by_numbers<false>(args, normal);
    while (true) {
      Pack next(args, at + kStep, end);
#pragma unroll 1
      for (; at < end; at += kStep) {
        const Pack after(args, at + 2 * kStep, end);
        write_pack(args, normal, pack, Pack::place(at), end);
        pack = next;
        next = after;
      }
      chunk += gridDim.x;
      if (chunk >= args.chunks) return;
      at = chunk * args.chunk;
      end = end_of(chunk);
      pack = Pack(args, at, end);
    }
  }
  template <bool kF32>
  static __device__ __forceinline__ void write_pack(const GroupArgs& args, const Normal<false>& normal,
                                                    const GroupPacks<kF32>& pack, int64_t at, int64_t end) {
    if (at >= end) return;
    const bool is_f32 = kF32 || args.out.dtype == kMapF32;
    const uint32_t which = pack.which();
    float y[kGroupItems];  // of 16 bits: rounded to odd, as Narrow of a double
#pragma unroll
    for (int i = 0; i < kGroupItems; ++i) {
      const double rest = formula::Sub(pack.number(args, i), normal.mean);
      const double full = formula::Add(formula::Mul(rest, normal.factor), normal.shift);
      const float number = is_f32 ? static_cast<float>(full) : round_to_odd(full);
      y[i] = (which >> i & 1) != 0 ? number : 0;
    }
    store_neighbours(args.out, at, y);
  }
};

}  // namespace rlk::simt

#define RLK_SIMT_PACKED_GROUPS(OP, What)                         \
  RLK_SIMT_GROUP_KERNEL(OP, packed_parts, 4, What::packed_parts) \
  RLK_SIMT_GROUP_KERNEL(OP, packed, 4, What::packed_apply)

#endif
