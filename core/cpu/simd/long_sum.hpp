// Sums of any number of fp64 terms that are off by about one rounding.
#pragma once

#include <cmath>

namespace rlk::cpu {

// Neumaier's sum. Terms that are alike round the same way: in a plain chain of some thousands of them a call in fp64
// would lose more than its bound allows.
class LongSum {
public:
  void add(double term) {
    const double next = sum_ + term;
    lost_ += std::fabs(sum_) >= std::fabs(term) ? (sum_ - next) + term : (term - next) + sum_;
    sum_ = next;
  }
  // An infinity or a NaN is that of the plain sum.
  double value() const { return std::isfinite(sum_) ? sum_ + lost_ : sum_; }

private:
  double sum_ = 0, lost_ = 0;
};

}  // namespace rlk::cpu
