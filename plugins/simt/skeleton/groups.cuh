// groups: numbers that are normalised by the mean and the deviation of their group, or of all of them.
//
//   RLK_SIMT_GROUPS(Whiten, whiten, whitening(call))
//   RLK_SIMT_GROUPS(GroupAdvantages, group_advantages, normalised_groups(call))
//
// The operator's name in the declarations' views, what is done with a chunk of the numbers or with groups, and how the
// host reads a call (host/groups.hpp). In fp64.
//
// Where something is asked of all samples, blocks leave the moments (or, in resampling.cuh, the range) of chunks in the
// workspace, and the next launch composes them in each block. Threads of a group: as many as it has samples where all
// groups have the same number, up to a wave, or a block (small_groups.cuh has the commonest of them); a wave where ids
// name the groups: that of a group's first row has the group, and finds its rows by comparing ids, so the work grows
// with the square of their number. Sums are in an order that depends on the shapes alone.
#pragma once

#if !defined(RLK_SIMT_GROUPS)  // the host reads operators too, with words of its own (host/group_words.hpp)
#define RLK_SIMT_GROUPS_ON_DEVICE

#if !defined(RLK_FORMULA)
#define RLK_FORMULA __device__ __forceinline__
#endif
#include "../element.cuh"

#include <rlk/formula/vocabulary.hpp>

#include "each.h"
#include "moments.cuh"
#include "scan_packs.cuh"

namespace rlk::simt {

// The numbers of a matrix, row by row.
struct MatrixSamples {
  const GroupArgs& args;

  __device__ __forceinline__ int64_t place(const GridTensor& tensor, int64_t i) const {
    if (args.one_row != 0) return i * tensor.column;
    const int64_t row = i / args.columns;
    return row * tensor.row + (i - row * args.columns) * tensor.column;
  }
  __device__ __forceinline__ bool counts(int64_t i) const {
    return args.mask.data == nullptr || static_cast<const uint8_t*>(args.mask.data)[place(args.mask, i)] != 0;
  }
  __device__ __forceinline__ double read(int64_t i) const { return grid_read(args.x, place(args.x, i)); }
  __device__ __forceinline__ bool is_plain() const { return args.one_row != 0; }
  __device__ __forceinline__ int64_t stride(const GridTensor& tensor) const { return tensor.column; }
  __device__ __forceinline__ bool is_member(int64_t) const { return true; }
};

// Reward k of every sample, or the sum of its rewards.
struct RewardSamples {
  const GroupArgs& args;
  int64_t k;

  __device__ __forceinline__ bool has(int64_t i, int64_t reward) const {
    return args.mask.data == nullptr ||
           static_cast<const uint8_t*>(args.mask.data)[i * args.mask.row + reward * args.mask.column] != 0;
  }
  __device__ __forceinline__ double weight(int64_t reward) const {
    return args.weights.data == nullptr ? 1 : grid_read(args.weights, reward * args.weights.row);
  }
  __device__ __forceinline__ bool has_any(int64_t i) const {
    bool any = args.mask.data == nullptr;
    for (int64_t reward = 0; reward < args.columns && !any; ++reward) any = has(i, reward);
    return any;
  }
  // Whether it is a sample of this reward; counts() asks for a group, too.
  __device__ __forceinline__ bool is_sample(int64_t i) const {
    return args.combine == kCombineNormal ? has(i, k) : has_any(i);
  }
  __device__ __forceinline__ bool is_member(int64_t i) const {
    if (args.grouping != kGroupingIds) return true;
    const int64_t id = group_integer(args.ids, i);
    return id >= 0 && id < args.samples;
  }
  __device__ __forceinline__ bool counts(int64_t i) const { return is_sample(i) && is_member(i); }
  __device__ __forceinline__ bool is_plain() const {
    return args.combine == kCombineNormal || (args.columns == 1 && args.weights.data == nullptr);
  }
  __device__ __forceinline__ int64_t place(const GridTensor& tensor, int64_t i) const {
    return i * tensor.row + k * tensor.column;
  }
  __device__ __forceinline__ int64_t stride(const GridTensor& tensor) const { return tensor.row; }
  __device__ __forceinline__ double read(int64_t i) const {
    if (args.combine == kCombineNormal) return grid_read(args.x, i * args.x.row + k * args.x.column);
    double sum = 0;
    for (int64_t reward = 0; reward < args.columns; ++reward) {
      if (!has(i, reward)) continue;
      const double x = grid_read(args.x, i * args.x.row + reward * args.x.column);
      sum = formula::Add(sum, formula::Mul(weight(reward), x));
    }
    return sum;
  }
};

// Those of a group.
struct MemberSamples {
  const GroupArgs& args;
  const RewardSamples& all;
  int64_t id;  // -1: groups have no ids

  __device__ __forceinline__ bool is_member(int64_t i) const { return id < 0 || group_integer(args.ids, i) == id; }
  __device__ __forceinline__ bool counts(int64_t i) const { return is_member(i) && all.is_sample(i); }
  __device__ __forceinline__ double read(int64_t i) const { return all.read(i); }
  __device__ __forceinline__ bool is_plain() const { return all.is_plain(); }
  __device__ __forceinline__ int64_t place(const GridTensor& tensor, int64_t i) const { return all.place(tensor, i); }
  __device__ __forceinline__ int64_t stride(const GridTensor& tensor) const { return all.stride(tensor); }
};

// The largest number of a group and the next one, which is as large where it is there twice.
struct BestTwo {
  double best = -INFINITY, second = -INFINITY;
  int32_t nan = 0;

  __device__ __forceinline__ void add(double x) {
    if (x != x) nan = 1;
    if (x > best) {
      second = best;
      best = x;
    } else if (x > second) {
      second = x;
    }
  }
  __device__ __forceinline__ void add(const BestTwo& other) {
    const double lower = other.best > best ? best : other.best;
    const double next = other.second > second ? other.second : second;
    best = other.best > best ? other.best : best;
    second = lower > next ? lower : next;
    nan |= other.nan;
  }
  __device__ __forceinline__ BestTwo of_lane(int lanes) const {
    BestTwo other;
    other.best = wave_xor(best, lanes);
    other.second = wave_xor(second, lanes);
    other.nan = wave_xor(nan, lanes);
    return other;
  }
};

__device__ __forceinline__ double deviation_of(const GroupArgs& args, const Moments& moments) {
  if (moments.count == 0) return 0;
  if (moments.count == 1) return args.singleton == kSingletonRaw ? 1 : 0;
  return ::sqrt(moments.variance(args.std));
}

__device__ __forceinline__ double group_divisor(const GroupArgs& args, double deviation) {
  if (args.scale == kScaleNone) return 1;
  if (args.eps_mode == kEpsAdditive) return deviation + args.eps;
  return deviation < args.eps ? args.eps : deviation;  // a NaN stays
}

struct OfAll {
  double deviation = 0, rescale = 1;
};

// Rewards less a baseline, divided by a deviation, of the samples of one group.
template <bool kLong>
class Normaliser {
public:
  __device__ __forceinline__ Normaliser(const GroupArgs& args, const Team& team, const RewardSamples& samples,
                                        const OfAll& of_all)
      : args_(args), team_(team), samples_(samples), of_all_(of_all) {}

  // Rows first .. last with that id. All teams of a wave come here; one may have no rows.
  __device__ __forceinline__ void write(int64_t first, int64_t last, int64_t id) const {
    const MemberSamples members = {args_, samples_, id};
    const Moments moments = moments_of<kLong>(team_, members, first, last);
    const double divisor =
        group_divisor(args_, args_.scale == kScaleBatch ? of_all_.deviation : deviation_of(args_, moments));
    BestTwo two;
    double pivot = moments.pivot, offset = moments.offset;
    if (moments.count == 1 && args_.singleton == kSingletonRaw) pivot = offset = 0;
    if (args_.baseline == kBaselineSecondBest || args_.baseline == kBaselineOpo) {
      look_again(members, moments, first, last, two, pivot, offset);
    }
    const bool alone = moments.count > 1 && two.best > two.second;
    const double distance = (two.best - two.second) * of_all_.rescale / divisor;
    const auto n = static_cast<double>(moments.count);
    const double factor = formula::Mul(args_.baseline == kBaselineRloo && n > 1 ? n / (n - 1) : 1, of_all_.rescale);
#pragma unroll 1
    for (int64_t i = first + team_.lane(); i < last; i += team_.size()) {
      if (!members.is_member(i)) continue;
      const bool has = samples_.is_sample(i);
      double advantage = 0;
      if (has) {
        const double x = samples_.read(i);
        if (args_.baseline == kBaselineSecondBest) {
          advantage = two.nan != 0 ? NAN : alone && x == two.best ? distance : 0;
        } else {
          const double baseline = args_.baseline == kBaselineGiven ? grid_read(args_.baselines, i * args_.baselines.row)
                                                                   : formula::Add(pivot, offset);
          advantage = formula::Mul(formula::Sub(x, baseline), factor) / divisor;
        }
      }
      put(i, has, advantage);
    }
  }

  // Adds the advantage of sample i, if it has one, to its others'.
  __device__ __forceinline__ void put(int64_t i, bool has, double advantage) const {
    double sum = has ? advantage : 0;
    if (args_.sums != nullptr) {
      const double before = samples_.k > 0 ? args_.sums[i] : 0;
      sum = has ? formula::Add(before, formula::Mul(samples_.weight(samples_.k), sum)) : before;
      args_.sums[i] = sum;
      if (samples_.k + 1 < args_.columns) return;
    }
    grid_put(args_.out, i * args_.out.row, sum);
  }

private:
  // The largest two; or (opo) the mean in which every reward weighs as much as its sample is long, which takes two
  // passes. Without any length it stays.
  __device__ __forceinline__ void look_again(const MemberSamples& members, const Moments& moments, int64_t first,
                                             int64_t last, BestTwo& two, double& pivot, double& offset) const {
    const bool weighs = args_.baseline == kBaselineOpo;
    double total = 0, own_pivot = 0;
#pragma unroll 1
    for (int pass = 0; pass < (weighs ? 2 : 1); ++pass) {
      Counted weighty;
      RowSum<kLong> sum;
      each_sample<kLong>(team_, members, first, last, [&](int64_t i, double x) {
        if (!weighs) return two.add(x);
        const int64_t tokens = group_integer(args_.lengths, i);
        const auto weight = static_cast<double>(tokens > 0 ? tokens : 0);
        sum.add(pass == 0 ? weight : formula::Mul(weight, formula::Sub(x, own_pivot)));
        weighty.first = weight > 0 && i < weighty.first ? i : weighty.first;
      });
      if (!weighs) {
        two = team_.reduce(two);
        return;
      }
      weighty = team_.reduce(weighty);
      const double of_pass = team_.reduce(sum).value();
      if (pass == 0) {
        total = of_pass;
        own_pivot = total > 0 ? samples_.read(weighty.first) : 0;
      } else if (moments.count > 1 && total > 0) {
        pivot = own_pivot;
        offset = of_pass / total;
      }
    }
  }

  const GroupArgs& args_;
  const Team& team_;
  const RewardSamples& samples_;
  const OfAll& of_all_;
};

// Where ids name the groups a wave has row n: whether it is the first of its group.
template <bool kLong>
__device__ __forceinline__ bool is_first_of_group(const GroupArgs& args, const Normaliser<kLong>& normaliser,
                                                  const RewardSamples& samples, int64_t n) {
  const int lane = static_cast<int>(threadIdx.x) % kWave;
  const int64_t id = group_integer(args.ids, n);
  if (id < 0 || id >= args.samples) {
    const bool has = samples.is_sample(n);
    if (lane == 0) normaliser.put(n, has, NAN);
    if (lane == 0 && has) report_data_error(args.errors, kDataIdOutOfRange, n, id);
    return false;
  }
  for (int64_t begin = 0; begin < n; begin += kWave) {
    const int64_t other = begin + lane;
    if (wave_ballot(other < n && group_integer(args.ids, other) == id) != 0) return false;
  }
  return true;
}

__device__ __forceinline__ bool groups_are_sound(const GroupArgs& args) {
  if (args.grouping != kGroupingBoundaries) return true;
  if (args.bad != nullptr) return *args.bad < 0;
  const Seqlens of = {args.ids.data, args.ids.row, args.groups, args.samples, args.ids.dtype == kMapI64 ? 1 : 0, 0,
                      args.errors};
  return check_seqlens<kGroupThreads>(of, blockIdx.x == 0) < 0;
}

struct group_advantages {
  static constexpr int kBlocks = 2;
  using Samples = RewardSamples;

  template <bool kLong>
  static __device__ __forceinline__ void parts(const GroupArgs& args) {
    const bool sound = groups_are_sound(args);
    const int64_t rewards = args.combine == kCombineNormal ? args.columns : 1;
    for (int64_t item = blockIdx.x; sound && item < rewards * args.chunks; item += gridDim.x) {
      const int64_t k = item / args.chunks;
      write_part<kLong>(args, RewardSamples{args, k}, item - k * args.chunks,
                        static_cast<MomentsPart*>(args.part)[item]);
    }
  }

  template <bool kLong>
  static __device__ __forceinline__ void apply(const GroupArgs& args) {
    if (!groups_are_sound(args)) {
      const int64_t step = static_cast<int64_t>(gridDim.x) * kGroupThreads;
      const RewardSamples samples = {args, 0};
      for (int64_t i = static_cast<int64_t>(blockIdx.x) * kGroupThreads + threadIdx.x; i < args.samples; i += step) {
        grid_put(args.out, i * args.out.row, samples.has_any(i) ? NAN : 0);
      }
      return;
    }
    const Team team(args.team);
    const int teams = kGroupThreads / args.team;
    const int64_t rewards = args.combine == kCombineNormal ? args.columns : 1;
    const int64_t groups = args.grouping == kGroupingIds ? args.samples : args.groups;
#pragma unroll 1
    for (int64_t k = 0; k < rewards; ++k) {
      OfAll of_all;
      if (args.part != nullptr) {
        const Moments all =
            moments_of_parts<kLong>(static_cast<const MomentsPart*>(args.part) + k * args.chunks, args.chunks);
        of_all.deviation = deviation_of(args, all);
        if (args.rescale == kRescaleNonzero) {
          of_all.rescale = static_cast<double>(all.count) / static_cast<double>(all.nonzero > 1 ? all.nonzero : 1);
        }
      }
      const RewardSamples samples = {args, k};
      const Normaliser<kLong> normaliser(args, team, samples, of_all);
#pragma unroll 1
      for (int64_t begin = static_cast<int64_t>(blockIdx.x) * teams; begin < groups;
           begin += static_cast<int64_t>(gridDim.x) * teams) {
        const int64_t g = begin + threadIdx.x / args.team;
        const bool is_one = g < groups;
        int64_t first = 0, last = 0, id = -1;
        if (args.grouping == kGroupingIds) {  // a wave's
          if (!is_one || !is_first_of_group(args, normaliser, samples, g)) continue;
          first = g;
          last = args.samples;
          id = group_integer(args.ids, g);
        } else if (is_one && args.grouping == kGroupingFixed) {
          first = g * args.group_samples;
          last = first + args.group_samples;
        } else if (is_one) {
          first = group_integer(args.ids, g);
          last = group_integer(args.ids, g + 1);
        }
        normaliser.write(first, last, id);
      }
    }
  }
};

__device__ __forceinline__ void group_check(const GroupArgs& args) {
  const Seqlens of = {args.ids.data, args.ids.row, args.groups, args.samples, args.ids.dtype == kMapI64 ? 1 : 0, 0,
                      args.errors};
  const int64_t bad = check_seqlens<kGroupThreads>(of, true);
  if (threadIdx.x == 0) *args.bad = bad;
}

}  // namespace rlk::simt

#define RLK_SIMT_GROUP_KERNEL(OP, suffix, blocks, ...)                                                  \
  RLK_SIMT_KERNEL(rlk::simt::kGroupThreads, blocks)                                                     \
  RLK_SIMT_CAT(RLK_SIMT_IMAGE, _groups_##OP##_##suffix)(RLK_SIMT_ARGUMENT(rlk::simt::GroupArgs) args) { \
    rlk::simt::wait_for_earlier();                                                                      \
    rlk::simt::__VA_ARGS__(args);                                                                       \
  }
#define RLK_SIMT_GROUPS(OP, What, ...)                                               \
  RLK_SIMT_GROUP_KERNEL(OP, parts_f32, rlk::simt::What::kBlocks, What::parts<false>) \
  RLK_SIMT_GROUP_KERNEL(OP, parts_f64, 2, What::parts<true>)                         \
  RLK_SIMT_GROUP_KERNEL(OP, f32, rlk::simt::What::kBlocks, What::apply<false>)       \
  RLK_SIMT_GROUP_KERNEL(OP, f64, 2, What::apply<true>)                               \
  RLK_SIMT_GROUP_KERNEL(OP, check, 2, group_check)

#endif
