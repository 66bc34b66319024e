// One block of one row of logits: the unit that is compiled for every instruction set. Internal to the kernels.
#pragma once

#include <limits>

#include "core/cpu/simd/array.hpp"

namespace rlk::cpu {

constexpr int64_t kLogpBlock = 4096;  // columns: 16 KiB of fp32, half of the smallest usual L1

constexpr double kLog2e = 1.4426950408889634;
constexpr double kLn2 = 0.6931471805599453;

// How raw logits become scores: z = cap(x + bias) / temperature, and y = z log2(e) in base 2.
struct Scores {
  Dtype dtype;
  bool in_f64;   // compute in fp64: fp64 logits, or parameters that fp32 cannot hold
  double slope;  // log2(e) / temperature
  double temperature;
  double softcap;  // 0: none
  int64_t col_stride;
  const void* bias;  // optional
  int64_t bias_stride;
  const uint8_t* keep = nullptr;  // optional, of one row: where it is 0 the score is -inf, whatever the logit is
  int64_t keep_stride = 0;

  // Of one row of keep_mask.
  Scores of_row(const Array& keep_mask, int64_t row) const {
    Scores own = *this;
    if (!keep_mask.present()) return own;
    own.keep = keep_mask.as<const uint8_t>() + row * keep_mask.strides[0];
    own.keep_stride = keep_mask.strides[1];
    return own;
  }
};
Scores make_scores(Dtype dtype, double temperature, double softcap, int64_t col_stride, const Array& bias = {});

// cap(x + bias) of one column, the very number that block_sums sees: what is not the maximum is not above it.
double capped_logit(const Scores& scores, const void* row, int64_t column);
// z[column] of the declaration.
double score_of(const Scores& scores, const void* row, int64_t column);
// A log-probability by a saved lse: above 0 by what rounding gives, and no more where lse has no digits behind the
// point.
inline double logp_by_lse(double score, double lse) {
  const double logp = score - lse;
  return logp > 1.0 / 64 ? 1.0 / 64 : logp;
}

// Sums over a block relative to one of its capped logits, `max`: with y[v] = (cap(x[v] + bias[v]) - max) slope, sum =
// sum_v 2^y[v], weighted = sum_v 2^y[v] y[v] and squares = sum_v 2^(2 y[v]). It is the largest, or one that has much of
// the block's probability: then no token is so certain that rounding matters. So no log-probability comes out above 0,
// no entropy below it, and no sum of squared probabilities above 1. max is kAllMasked when every score is -inf; NaN and
// +inf make the sums NaN.
struct BlockSums {
  double max, sum, weighted, squares;
};
// What is summed: only what an output asks for.
enum class Sums : uint8_t { plain, weighted, weighted_and_squares };
inline Sums sums_for(bool entropy, bool sum_p2) {
  return sum_p2 ? Sums::weighted_and_squares : entropy ? Sums::weighted : Sums::plain;
}
constexpr double kAllMasked = -std::numeric_limits<double>::infinity();

// The sums of columns [begin, end).
BlockSums block_sums(const Scores& scores, const void* row, int64_t begin, int64_t end, Sums wanted);

}  // namespace rlk::cpu
