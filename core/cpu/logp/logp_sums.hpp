// How the partial sums of a row become its log-sum-exp and entropy. Internal to the kernels.
#pragma once

#include <algorithm>
#include <cmath>

#include "core/cpu/logp/logp_block.hpp"

namespace rlk::cpu {

// The running sums of a row; blocks are added in column order.
class RowSums {
public:
  explicit RowSums(const Scores& scores) : slope_(scores.slope), temperature_(scores.temperature) {}

  void add(const BlockSums& block) {
    if (block.max == kAllMasked) return;
    if (total_.max == kAllMasked) {
      total_ = block;
      return;
    }
    BlockSums moved = block;
    const double max = std::max(total_.max, block.max);
    move(total_, max);
    move(moved, max);
    total_.sum += moved.sum;
    total_.weighted += moved.weighted;
    total_.squares += moved.squares;
  }
  const BlockSums& total() const { return total_; }
  bool all_masked() const { return total_.max == kAllMasked; }
  double lse() const { return total_.max / temperature_ + std::log(total_.sum); }
  // The log-probability of a capped logit of the row. Not its score - lse: where scores are large, lse has no digits
  // left for the sum.
  double logp(double capped) const { return (capped - total_.max) / temperature_ - std::log(total_.sum); }
  double entropy() const { return std::log(total_.sum) - kLn2 * total_.weighted / total_.sum; }
  double sum_p2() const { return total_.squares / total_.sum / total_.sum; }

private:
  // A larger maximum divides every term and lowers every exponent by the difference.
  void move(BlockSums& sums, double max) const {
    if (sums.max == max) return;
    const double up = (max - sums.max) * slope_;
    const double factor = std::exp2(-up);
    sums.weighted = factor > 0 ? factor * (sums.weighted - up * sums.sum) : 0.0;
    sums.sum *= factor;
    sums.squares *= factor * factor;
    sums.max = max;
  }
  double slope_, temperature_;
  BlockSums total_{kAllMasked, 0, 0, 0};
};

}  // namespace rlk::cpu
