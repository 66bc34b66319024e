// Sums of many numbers in fp64, better than a good fp64 implementation has them.
#pragma once

#include <cmath>

namespace rlk::golden {

// A sum that keeps what each addition rounds away (Knuth's two-sum): equal terms round the same way, so that even in
// fp64 a plain sum over many of them would be off by more than a good fp64 implementation is.
class Sum {
public:
  void add(double term) {
    const double total = total_ + term;
    const double added = total - total_;
    rest_ += (total_ - (total - added)) + (term - added);
    total_ = total;
  }
  double value() const { return std::isfinite(total_) ? total_ + rest_ : total_; }

private:
  double total_ = 0, rest_ = 0;
};

}  // namespace rlk::golden
