// How the partial sums of a row become its log-sum-exp and entropy. Internal to the kernels.
#pragma once

#include <algorithm>
#include <cmath>

#include "core/cpu/logp/logp_block.hpp"

namespace rlk::cpu {

// The running sums of a row; blocks are added in column order.
class RowSums {
public:
  void add(const BlockSums& block) {
    if (block.shift == kNoShift) return;
    if (total_.shift == kNoShift) {
      total_ = block;
      return;
    }
    BlockSums moved = block;
    const double shift = std::max(total_.shift, block.shift);
    move(total_, shift);
    move(moved, shift);
    total_.sum += moved.sum;
    total_.weighted += moved.weighted;
  }
  const BlockSums& total() const { return total_; }
  bool all_masked() const { return total_.shift == kNoShift; }
  double lse() const { return kLn2 * (total_.shift + std::log2(total_.sum)); }
  // The log-probability of a score in base 2. Not score - lse: where scores are large, lse has no digits left for the
  // sum.
  double logp(double y) const { return kLn2 * ((y - total_.shift) - std::log2(total_.sum)); }
  double entropy() const { return kLn2 * (std::log2(total_.sum) - total_.weighted / total_.sum); }

private:
  // With s = sum 2^(y - shift): a larger shift divides every term and lowers every exponent by the difference.
  static void move(BlockSums& sums, double shift) {
    if (sums.shift == shift) return;
    const double up = shift - sums.shift;
    const double factor = std::exp2(-up);
    sums.weighted = factor > 0 ? factor * (sums.weighted - up * sums.sum) : 0.0;
    sums.sum *= factor;
    sums.shift = shift;
  }
  BlockSums total_{kNoShift, 0, 0};
};

}  // namespace rlk::cpu
