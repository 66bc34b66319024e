// What the host passes to a kernel of groups, the same for every operator (groups.cuh).
#pragma once

#include "../args.h"
#include "grid_tensor.h"

namespace rlk::simt {

constexpr int kGroupThreads = 256;
constexpr int kGroupItems = 8;            // samples that a thread reads at a time
constexpr int kGroupKept = 32;            // that it keeps of a chunk
constexpr int64_t kGroupOwnCheck = 1024;  // groups whose boundaries every block checks itself
constexpr int kGroupFewestWave = 32;      // of any device

// Of a chunk of the samples: how many count, a number of them, the mean's distance to it, the sum of the squares of
// distances to the mean, and how many are not 0.
struct MomentsPart {
  double count, pivot, offset, squares, nonzero;
};

// The same for ranges: NaN where one of the numbers is.
struct RangePart {
  double smallest, largest;
};
constexpr int64_t kGroupPartBytes = sizeof(MomentsPart);
static_assert(sizeof(RangePart) <= kGroupPartBytes);

struct GroupArgs {
  GridTensor x;     // [samples, rewards], or numbers in rows
  GridTensor mask;  // as x
  GridTensor weights, lengths, baselines;
  GridTensor ids;  // of each sample's group, or the boundaries of groups
  GridTensor mean, variance;
  GridTensor out;
  int64_t samples;
  int64_t columns;  // rewards of a sample; numbers of a row
  int64_t groups;   // of boundaries; fixed groups are groups of group_samples
  int64_t group_samples;
  int64_t chunk, chunks;  // samples of a part; parts of each reward
  void* part;             // MomentsPart or RangePart; nullptr: nothing of all samples is asked for
  double* sums;           // of each sample, where several rewards are normalised
  int64_t* bad;           // where the check of the boundaries left what it found; nullptr: every block checks
  double eps;
  double power, best_weight, other_weight;  // of resampling
  double share, free_share;  // of groups of one size: 1 / samples, and what the squares' sum is multiplied by
  // The operators' options, as numbers of their enumerations.
  int32_t grouping, std, eps_mode, scale, baseline, singleton, rescale, combine, shift_mean, method;
  int32_t team;      // threads of a group: a power of two, at most a wave; or a block's
  int32_t dtype;     // of x
  int32_t pack;      // samples of a thread in small_groups.cuh; 0: it is not asked
  int32_t one_row;   // rows of x, mask and out follow each other without gaps
  int32_t in_packs;  // and kGroupItems of them, at most 32 bits each, are whole packs of memory
  DataErrorSink errors;
};

// Numbers of enumerations that the kernels know; the host checks them.
constexpr int32_t kGroupingFixed = 0, kGroupingBoundaries = 1, kGroupingIds = 2;
constexpr int32_t kStdUnbiased = 0;
constexpr int32_t kScaleGroup = 0, kScaleBatch = 1, kScaleNone = 2;
constexpr int32_t kBaselineMean = 0, kBaselineRloo = 1, kBaselineOpo = 2, kBaselineGiven = 3, kBaselineSecondBest = 4;
constexpr int32_t kSingletonRaw = 1;
constexpr int32_t kRescaleNonzero = 1;
constexpr int32_t kEpsAdditive = 0;
constexpr int32_t kCombineSums = 0, kCombineNormal = 1;
constexpr int32_t kWhitenVariance = 0, kWhitenVarianceFloor = 1, kWhitenDeviation = 2;
constexpr int32_t kShiftMeanOn = 0;
constexpr int32_t kMethodPow = 0, kMethodMaxMin = 1, kMethodMaxRandom = 2;

}  // namespace rlk::simt
