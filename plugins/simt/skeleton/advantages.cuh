// The advantages of groups of sequences for what is done of all rows (rows_all.cuh): GRPO's.
#pragma once

#include "rows_all.cuh"

#if defined(RLK_SIMT_ROWS_ON_DEVICE)

#include <rlk/formula/grpo.hpp>

namespace rlk::simt {

__device__ __forceinline__ double wave_sum(RowSum<true> sum) {
#pragma unroll 1
  for (int lanes = kWave / 2; lanes > 0; lanes /= 2) sum.add(sum.of_lane(lanes));
  return sum.value();
}

// One group, by a wave. Differences to one of its rewards are exactly 0 where all are equal.
template <class Reward, class Put>
__device__ __forceinline__ void advantages_of_group(const formula::GrpoTerms& terms, int64_t first, int64_t last,
                                                    const Reward& reward, const Put& put) {
  const int64_t begin = first + static_cast<int>(threadIdx.x) % kWave;
  const auto sequences = static_cast<double>(last - first);
  const double pivot = first < last ? reward(first) : 0;
  RowSum<true> sum, squares;
  for (int64_t b = begin; b < last; b += kWave) sum.add(formula::Sub(reward(b), pivot));
  const double offset = wave_sum(sum) / (sequences > 1 ? sequences : 1);
  for (int64_t b = begin; b < last; b += kWave) {
    const double rest = formula::Sub(formula::Sub(reward(b), pivot), offset);
    squares.add(formula::Mul(rest, rest));
  }
  const double divisor = formula::advantage_divisor(terms, wave_sum(squares), sequences);
  for (int64_t b = begin; b < last; b += kWave) {
    put(b, formula::Sub(reward(b), formula::Add(pivot, offset)) / divisor);
  }
}

// put(b, advantage) of every sequence, by one thread each. False where boundaries are wrong: then all are NaN.
template <int r, int b, class Put>
__device__ __forceinline__ bool group_advantages(const AllRows& all, const formula::GrpoTerms& terms,
                                                 RowName<r> rewards, RowName<b> boundaries, const Put& put) {
  const int64_t sequences = all.blocks();
  if (terms.has_boundaries && !all.are_sound(boundaries, terms.groups, sequences)) {
    for (int64_t i = threadIdx.x; i < sequences; i += kRowAllThreads) put(i, NAN);
    return false;
  }
  const int64_t each = terms.group_sequences > 0 ? terms.group_sequences : sequences > 0 ? sequences : 1;
  const int64_t groups = terms.has_boundaries ? terms.groups : sequences / each;
#pragma unroll 1
  for (int64_t g = threadIdx.x / kWave; g < groups; g += kRowAllThreads / kWave) {
    const int64_t first = terms.has_boundaries ? all.integer_of_call(boundaries, g) : g * each;
    const int64_t last = terms.has_boundaries ? all.integer_of_call(boundaries, g + 1) : first + each;
    advantages_of_group(
        terms, first, last, [&](int64_t i) { return all.of_block(rewards, i); }, put);
  }
  return true;
}

}  // namespace rlk::simt

#endif
