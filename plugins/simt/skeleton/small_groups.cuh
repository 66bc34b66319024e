// Groups of one number of samples, at most a wave, whose baseline is a mean or given: a thread has one sample, or four
// or eight neighbours where 16 bytes (of 16-bit numbers 8) can be read at once. Each sample is read once; args.team
// threads have a group, args.pack samples each. Sums are in the same order for all packs: of pairs, then of pairs of
// pairs. A division takes many times a product's time: a group's numbers are multiplied by inverses.
#pragma once

#include "groups.cuh"

#if defined(RLK_SIMT_GROUPS_ON_DEVICE)

#include "lane_bits.cuh"

namespace rlk::simt {

template <int kPack>
class SmallGroups {
public:
  __device__ __forceinline__ explicit SmallGroups(const GroupArgs& args)
      : args_(args), lane_(static_cast<int>(threadIdx.x) & (args.team - 1)) {}

  // All threads of a wave come here.
  __device__ __forceinline__ void work_on(int64_t g) const {
    const int first = lane_ * kPack;
    const bool is_here = g < args_.groups && first < args_.group_samples;
    const int64_t at = is_here ? g * args_.group_samples + first : 0;
    double x[kPack] = {};
    bool has = is_here;  // with several there is no mask
    if (is_here) read(at, x);
    Moments moments;
    int from = 0;  // the lane whose first number is the pivot
    if constexpr (kPack == 1) {
      has = is_here && RewardSamples{args_, 0}.is_sample(at);
      const int wave_lane = static_cast<int>(threadIdx.x) % kWave, team_lane = wave_lane - lane_;
      const LaneBits own = lanes_where(has) >> team_lane & (~LaneBits{0} >> (kWave - args_.team));
      moments.count = count_lanes(own);
      from = own == 0 ? team_lane : team_lane + count_lanes((own & (~own + 1)) - 1);  // the lowest
    } else {
      moments.count = g < args_.groups ? args_.group_samples : 0;
      from = static_cast<int>(threadIdx.x) % kWave - lane_;
    }
    moments.pivot = wave_read(x[0], from);
    if (moments.count == 0) moments.pivot = 0;
    double rest[kPack];
#pragma unroll
    for (int i = 0; i < kPack; ++i) rest[i] = has ? formula::Sub(x[i], moments.pivot) : 0;
    moments.offset = formula::Mul(sum(rest), share_of(moments.count, args_.share));
#pragma unroll
    for (int i = 0; i < kPack; ++i) {
      const double to_mean = formula::Sub(rest[i], moments.offset);
      rest[i] = has ? formula::Mul(to_mean, to_mean) : 0;
    }
    moments.squares = sum(rest);
    if (is_here) write(at, has, x, moments);
  }

private:
  __device__ __forceinline__ double sum(const double (&of)[kPack]) const {
    double pairs[kPack];
#pragma unroll
    for (int i = 0; i < kPack; ++i) pairs[i] = of[i];
#pragma unroll
    for (int width = 1; width < kPack; width *= 2) {
#pragma unroll
      for (int i = 0; i < kPack; i += 2 * width) pairs[i] = formula::Add(pairs[i], pairs[i + width]);
    }
    double sum = pairs[0];
#pragma unroll 1
    for (int lanes = 1; lanes < args_.team; lanes *= 2) sum = formula::Add(sum, wave_xor(sum, lanes));
    return sum;
  }
  __device__ __forceinline__ void read(int64_t at, double (&x)[kPack]) const {
    if constexpr (kPack == 1) {
      x[0] = grid_read(args_.x, at * args_.x.row);
    } else if (args_.x.dtype == kMapF32) {
      uint4 bits[kPack / 4];
      float number[kPack];
#pragma unroll
      for (int p = 0; p < kPack / 4; ++p) bits[p] = reinterpret_cast<const uint4*>(args_.x.data)[at / 4 + p];
      __builtin_memcpy(number, bits, sizeof(number));
#pragma unroll
      for (int i = 0; i < kPack; ++i) x[i] = static_cast<double>(number[i]);
    } else {
      uint64_t bits[kPack / 4];
#pragma unroll
      for (int p = 0; p < kPack / 4; ++p) bits[p] = static_cast<const uint64_t*>(args_.x.data)[at / 4 + p];
#pragma unroll
      for (int i = 0; i < kPack; ++i) {
        const auto half = static_cast<uint32_t>(bits[i / 4] >> (16 * (i % 4)) & 0xffffu);
        x[i] = static_cast<double>(grid_widen<float>(half, args_.x.dtype));
      }
    }
  }
  __device__ __forceinline__ void write(int64_t at, bool has, const double (&x)[kPack], const Moments& moments) const {
    const double divisor = group_divisor(args_, args_.scale == kScaleNone ? 1 : deviation(moments));
    double mean = formula::Add(moments.pivot, moments.offset);
    if (moments.count == 1 && args_.singleton == kSingletonRaw) mean = 0;
    const auto n = static_cast<double>(moments.count);
    const double factor = args_.baseline == kBaselineRloo && n > 1 ? n / (n - 1) : 1;
    // The inverse costs one rounding more, where it has all its digits.
    const double inverse = 1 / divisor;
    const bool has_inverse = inverse >= 0x1p-1022 && inverse < INFINITY;
    double advantage[kPack];
    if (has && has_inverse && args_.baseline != kBaselineGiven) {  // most often: no question for each sample
#pragma unroll
      for (int i = 0; i < kPack; ++i) {
        advantage[i] = formula::Mul(formula::Mul(formula::Sub(x[i], mean), factor), inverse);
      }
    } else {
#pragma unroll
      for (int i = 0; i < kPack; ++i) {
        const double baseline =
            args_.baseline == kBaselineGiven ? grid_read(args_.baselines, (at + i) * args_.baselines.row) : mean;
        const double scaled = formula::Mul(formula::Sub(x[i], baseline), factor);
        advantage[i] = !has ? 0 : has_inverse ? formula::Mul(scaled, inverse) : scaled / divisor;
      }
    }
    if constexpr (kPack == 1) {
      grid_put(args_.out, at * args_.out.row, advantage[0]);
    } else if (args_.out.dtype == kMapF32) {
      store(advantage, float{}, uint4{}, at);
    } else if (args_.out.dtype == kMapBf16) {
      store(advantage, bf16{}, uint64_t{}, at);
    } else {
      store(advantage, f16{}, uint64_t{}, at);
    }
  }
  // 1 / number, or 1 of less than one. all: what the host made of groups of one size, if they are.
  __device__ __forceinline__ double share_of(int64_t number, double all) const {
    if (args_.mask.data == nullptr) return all;
    return 1 / static_cast<double>(number > 1 ? number : 1);
  }
  __device__ __forceinline__ double deviation(const Moments& moments) const {
    if (moments.count < 2) return deviation_of(args_, moments);
    const int64_t free = args_.std == kStdUnbiased ? moments.count - 1 : moments.count;
    return ::sqrt(formula::Mul(moments.squares, share_of(free, args_.free_share)));
  }
  template <class T, class Bits>
  __device__ __forceinline__ void store(const double (&advantage)[kPack], T, Bits, int64_t at) const {
    T element[kPack];
    Bits bits[kPack / 4];
#pragma unroll
    for (int i = 0; i < kPack; ++i) element[i] = Narrow<T>::of(advantage[i]);
    static_assert(sizeof(element) == sizeof(bits), "packs of four");
    __builtin_memcpy(bits, element, sizeof(bits));
#pragma unroll
    for (int p = 0; p < kPack / 4; ++p) reinterpret_cast<Bits*>(args_.out.data)[at / 4 + p] = bits[p];
  }

  const GroupArgs& args_;
  const int lane_;
};

template <int kPack>
__device__ __forceinline__ void small_groups_of(const GroupArgs& args) {
  const SmallGroups<kPack> groups(args);
  const int bits = count_lanes(static_cast<LaneBits>(args.team - 1)), teams = kGroupThreads >> bits;
  for (int64_t begin = static_cast<int64_t>(blockIdx.x) * teams; begin < args.groups;
       begin += static_cast<int64_t>(gridDim.x) * teams) {
    groups.work_on(begin + (static_cast<int>(threadIdx.x) >> bits));
  }
}
__device__ __forceinline__ void small_groups(const GroupArgs& args) {
  if (args.pack == 8) return small_groups_of<8>(args);
  if (args.pack == 4) return small_groups_of<4>(args);
  small_groups_of<1>(args);
}

}  // namespace rlk::simt

#define RLK_SIMT_SMALL_GROUPS(OP)                                                                    \
  RLK_SIMT_KERNEL(rlk::simt::kGroupThreads, 4)                                                       \
  RLK_SIMT_CAT(RLK_SIMT_IMAGE, _groups_##OP##_small)(RLK_SIMT_ARGUMENT(rlk::simt::GroupArgs) args) { \
    rlk::simt::wait_for_earlier();                                                                   \
    rlk::simt::small_groups(args);                                                                   \
  }

#endif
