// Groups of one number of samples, at most a wave, whose baseline is a mean or given: a thread has one sample, or four
// neighbours where 16 bytes (of 16-bit numbers 8) can be read at once. Each sample is read once; args.team threads have
// a group, args.pack samples each. Sums are in the same order for both packs: of pairs, then of pairs of pairs.
#pragma once

#include "groups.cuh"

#if defined(RLK_SIMT_GROUPS_ON_DEVICE)

#include "lane_bits.cuh"

namespace rlk::simt {

template <int kPack>
class SmallGroups {
public:
  __device__ __forceinline__ explicit SmallGroups(const GroupArgs& args)
      : args_(args), lane_(static_cast<int>(threadIdx.x) % args.team) {}

  // All threads of a wave come here.
  __device__ __forceinline__ void work_on(int64_t g) const {
    const int first = lane_ * kPack;
    const bool is_here = g < args_.groups && first < args_.group_samples;
    const int64_t at = is_here ? g * args_.group_samples + first : 0;
    double x[kPack] = {};
    bool has = is_here;  // with four there is no mask
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
    moments.offset = sum(rest) / static_cast<double>(moments.count > 1 ? moments.count : 1);
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
    double sum = of[0];
    if constexpr (kPack == 4) sum = formula::Add(formula::Add(of[0], of[1]), formula::Add(of[2], of[3]));
#pragma unroll 1
    for (int lanes = 1; lanes < args_.team; lanes *= 2) sum = formula::Add(sum, wave_xor(sum, lanes));
    return sum;
  }
  __device__ __forceinline__ void read(int64_t at, double (&x)[kPack]) const {
    if constexpr (kPack == 1) {
      x[0] = grid_read(args_.x, at * args_.x.row);
    } else if (args_.x.dtype == kMapF32) {
      const uint4 bits = reinterpret_cast<const uint4*>(args_.x.data)[at / 4];
      const uint32_t word[4] = {bits.x, bits.y, bits.z, bits.w};
#pragma unroll
      for (int i = 0; i < 4; ++i) x[i] = static_cast<double>(__int_as_float(static_cast<int>(word[i])));
    } else {
      const uint64_t bits = static_cast<const uint64_t*>(args_.x.data)[at / 4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        x[i] = static_cast<double>(grid_widen<float>(static_cast<uint32_t>(bits >> (16 * i) & 0xffffu), args_.x.dtype));
      }
    }
  }
  __device__ __forceinline__ void write(int64_t at, bool has, const double (&x)[kPack], const Moments& moments) const {
    const double divisor = group_divisor(args_, args_.scale == kScaleNone ? 1 : deviation_of(args_, moments));
    double mean = formula::Add(moments.pivot, moments.offset);
    if (moments.count == 1 && args_.singleton == kSingletonRaw) mean = 0;
    const auto n = static_cast<double>(moments.count);
    const double factor = args_.baseline == kBaselineRloo && n > 1 ? n / (n - 1) : 1;
    // A division takes many times a product's time. The inverse costs one rounding more, where it has all its digits.
    const double inverse = 1 / divisor;
    const bool has_inverse = inverse >= 0x1p-1022 && inverse < INFINITY;
    double advantage[kPack];
#pragma unroll
    for (int i = 0; i < kPack; ++i) {
      const double baseline =
          args_.baseline == kBaselineGiven ? grid_read(args_.baselines, (at + i) * args_.baselines.row) : mean;
      const double scaled = formula::Mul(formula::Sub(x[i], baseline), factor);
      advantage[i] = !has ? 0 : has_inverse ? formula::Mul(scaled, inverse) : scaled / divisor;
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
  template <class T, class Bits>
  __device__ __forceinline__ void store(const double (&advantage)[kPack], T, Bits bits, int64_t at) const {
    T element[kPack];
#pragma unroll
    for (int i = 0; i < kPack; ++i) element[i] = Narrow<T>::of(advantage[i]);
    static_assert(sizeof(element) == sizeof(bits), "a pack");
    __builtin_memcpy(&bits, element, sizeof(bits));
    reinterpret_cast<Bits*>(args_.out.data)[at / kPack] = bits;
  }

  const GroupArgs& args_;
  const int lane_;
};

template <int kPack>
__device__ __forceinline__ void small_groups_of(const GroupArgs& args) {
  const SmallGroups<kPack> groups(args);
  const int teams = kGroupThreads / args.team;
  for (int64_t begin = static_cast<int64_t>(blockIdx.x) * teams; begin < args.groups;
       begin += static_cast<int64_t>(gridDim.x) * teams) {
    groups.work_on(begin + static_cast<int>(threadIdx.x) / args.team);
  }
}
__device__ __forceinline__ void small_groups(const GroupArgs& args) {
  if (args.pack == 4) return small_groups_of<4>(args);
  small_groups_of<1>(args);
}

}  // namespace rlk::simt

#define RLK_SIMT_SMALL_GROUPS(OP)                                                                    \
  RLK_SIMT_KERNEL(rlk::simt::kGroupThreads, 6)                                                       \
  RLK_SIMT_CAT(RLK_SIMT_IMAGE, _groups_##OP##_small)(RLK_SIMT_ARGUMENT(rlk::simt::GroupArgs) args) { \
    rlk::simt::small_groups(args);                                                                   \
  }

#endif
