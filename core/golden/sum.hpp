// Sums of many numbers in fp64, better than a good fp64 implementation has them.
#pragma once

#include <cmath>
#include <span>

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

// Whether a dot product is not rounded at all, in whatever order: of its terms one at most is not 0, and that one is a
// number of the arithmetic, whose numbers are off by epsilon.
inline bool is_exact_product(std::span<const double> a, std::span<const double> b, double epsilon) {
  double only = 0;
  for (size_t d = 0; d < a.size(); ++d) {
    if (a[d] == 0 && std::isfinite(b[d])) continue;
    if (b[d] == 0 && std::isfinite(a[d])) continue;
    const double product = a[d] * b[d];
    const bool fits = epsilon == 0x1p-24 ? static_cast<double>(static_cast<float>(product)) == product
                                         : std::fma(a[d], b[d], -product) == 0;
    if (only != 0 || !std::isfinite(product) || !fits) return false;
    only = product;
  }
  return true;
}

}  // namespace rlk::golden
