// How the rounding plugin computes: in fp64 with every sum in extended precision, but for one thing at a time that the
// active mutant does coarsely.
#pragma once

#include "conformance/simple/element.hpp"

namespace rlk::rounding {

using simple::Dtype;
using simple::mutant;
using simple::Tensor;

// Whether the implementations claim the class accurate. Set between conformance runs.
void set_claims_accurate(bool claims);
bool claims_accurate();

// The 16 bits that a call's intermediates could be kept in: its own dtype, or bf16.
inline Dtype coarse(Dtype tensors) {
  return tensors == Dtype::f16 ? Dtype::f16 : Dtype::bf16;
}

inline double to_nearest(double x, Dtype dtype) {
  if (dtype == Dtype::f16) return simple::widen_f16(simple::narrow_f16(static_cast<float>(x)));
  return simple::widen_bf16(simple::narrow_bf16(static_cast<float>(x)));
}

// An operand of a product that a declaration permits to be rounded to 16-bit tensors' dtype.
inline double operand(double x, Dtype tensors) {
  if (mutant("operands_in_bf16")) return to_nearest(x, Dtype::bf16);
  if (tensors != Dtype::bf16 && tensors != Dtype::f16) return x;
  if (mutant("operands_rounded")) return to_nearest(x, tensors);
  return mutant("operands_truncated") ? simple::truncated(x, tensors) : x;
}

inline double load(const Tensor& tensor, int64_t at) {
  const auto x = tensor.load<double>(at);
  if (!mutant("inputs_in_tf32") || tensor.dtype() != Dtype::f32) return x;
  const uint32_t bits = simple::bits_of(static_cast<float>(x));
  return simple::float_from_bits((bits + 0xfff + (bits >> 13 & 1)) & 0xffffe000u);
}

class Sum {
public:
  void add(double term, Dtype tensors) {
    sum_ += term;
    if (mutant("sums_in_16_bits")) sum_ = to_nearest(static_cast<double>(sum_), coarse(tensors));
  }
  // For sums that are rescaled on their way.
  void scale(double factor) { sum_ *= factor; }
  double value() const { return static_cast<double>(sum_); }

private:
  long double sum_ = 0;
};

// One term of long sums is left out: that of this index.
inline bool is_dropped(int64_t index) {
  return index == 511 && mutant("term_511_dropped");
}

}  // namespace rlk::rounding
