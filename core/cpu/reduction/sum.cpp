// Sums and means of rows, and running sums with their gradient.
#include <rlk/sdk/ops/cumsum.hpp>
#include <rlk/sdk/ops/cumsum_backward.hpp>
#include <rlk/sdk/ops/mean.hpp>
#include <rlk/sdk/ops/sum.hpp>

#include <cmath>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/cpu/reduction/sum.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "core/cpu/simd/skeleton-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace rlk::cpu::HWY_NAMESPACE {

HWY_INLINE void sums_of_rows(const Context& context, const Array& y, const Array& x, int64_t rows, int64_t columns,
                             double divisor) {
  with_compute_type(from(x), [&](auto tc) HWY_ATTR {
    for_each_row(context, rows, columns, [&](int64_t n) HWY_ATTR {
      const auto number = [](auto, auto v) HWY_ATTR { return v; };
      const auto row = from(line_of(x, n));
      double sum = sum_of_lines<decltype(tc)>(row, columns, number);
      if (!std::isfinite(sum)) [[unlikely]] {  // its parts may be beyond fp32
        sum = sum_of_lines<double>(row, columns, number);
      }
      y.put(n, sum / divisor);
    });
  });
}

void sum(const CallOf<sdk::ops::Sum>& call, const Context& context) {
  sums_of_rows(context, call.y, call.x, call.N, call.D, 1);
}
void mean(const CallOf<sdk::ops::Mean>& call, const Context& context) {
  sums_of_rows(context, call.y, call.x, call.N, call.D, static_cast<double>(call.D));
}

// A plain sum in fp64 is enough for all dtypes but f64.
struct PlainSum {
  double sum = 0;
  void add(double term) { sum += term; }
  double value() const { return sum; }
};
template <class Sum>
HWY_INLINE void running_sums(const Line& y, const Line& x, int64_t count) {
  double block[kLineBlock];
  Sum sum;
  for (int64_t begin = 0; begin < count; begin += kLineBlock) {
    const int64_t n = std::min(kLineBlock, count - begin);
    read_line(x.from(begin), n, static_cast<double*>(block));
    for (int64_t i = 0; i < n; ++i) {
      sum.add(block[i]);
      block[i] = sum.value();
    }
    write_line(static_cast<const double*>(block), n, y.from(begin));
  }
}
HWY_INLINE void running_sums(const Line& y, const Line& x, int64_t count) {
  x.dtype == Dtype::f64 ? running_sums<LongSum>(y, x, count) : running_sums<PlainSum>(y, x, count);
}

void cumsum(const CallOf<sdk::ops::Cumsum>& call, const Context& context) {
  for_each_row(context, call.N, call.D,
               [&](int64_t n) HWY_ATTR { running_sums(line_of(call.y, n), line_of(call.x, n), call.D); });
}

void cumsum_backward(const CallOf<sdk::ops::CumsumBackward>& call, const Context& context) {
  for_each_row(context, call.N, call.D, [&](int64_t n) HWY_ATTR {
    Line to = line_of(call.grad_x, n).from(call.D - 1), from = line_of(call.grad_y, n).from(call.D - 1);
    to.stride = -to.stride;
    from.stride = -from.stride;
    running_sums(to, from, call.D);
  });
}

}  // namespace rlk::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

namespace rlk::cpu {

#if HWY_ONCE
template <class Call>
double per_number(const Call& call) {
  return static_cast<double>(call.N) * static_cast<double>(call.D);
}
#endif

RLK_CPU_VECTOR_KERNEL(Sum, sum, .operations = per_number);
RLK_CPU_VECTOR_KERNEL(Mean, mean, .operations = per_number);
RLK_CPU_VECTOR_KERNEL(Cumsum, cumsum, .operations = per_element<100>);
RLK_CPU_VECTOR_KERNEL(CumsumBackward, cumsum_backward, .operations = per_element<100>);

}  // namespace rlk::cpu
