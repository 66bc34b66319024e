// One block of one row of logits: the unit that is compiled for every instruction set. Internal to the kernels.
#pragma once

#include <limits>

#include "core/cpu/simd/element.hpp"

namespace rlk::cpu {

constexpr double kLog2e = 1.4426950408889634;
constexpr double kLn2 = 0.6931471805599453;

// How raw logits become scores in base 2: y = cap(x + bias) * slope, slope = log2(e) / temperature.
struct Scores {
  Dtype dtype;
  bool in_f64;  // compute in fp64: fp64 logits, or parameters that fp32 cannot hold
  double slope;
  double softcap;  // 0: none
  int64_t col_stride;
  const void* bias;  // optional
  int64_t bias_stride;
};
Scores make_scores(Dtype dtype, double temperature, double softcap, int64_t col_stride, const void* bias,
                   int64_t bias_stride);

// y[column] in fp64: z of the declaration times log2(e).
double power_of(const Scores& scores, const void* row, int64_t column);
// z[column] of the declaration, in fp64.
double score_of(const Scores& scores, const void* row, int64_t column);

// Sums over a block relative to 2^shift: sum = sum_v 2^(y[v] - shift), weighted = sum_v 2^(y[v] - shift) (y[v] -
// shift). shift is an integer, so moving to another shift is exact but for fp64's range. kNoShift: every y is -inf.
struct BlockSums {
  double shift, sum, weighted;
};
constexpr double kNoShift = -std::numeric_limits<double>::infinity();

// The smallest integer shift with every y <= shift, or kNoShift. NaN or +inf logits give NaN.
double block_shift(const Scores& scores, const void* row, int64_t begin, int64_t end);

// The sums of columns [begin, end). `shift` is tried first (NaN: none) and another taken when a y is far above it.
// weighted is computed only with `entropy`.
BlockSums block_sums(const Scores& scores, const void* row, int64_t begin, int64_t end, double shift, bool entropy);

}  // namespace rlk::cpu
