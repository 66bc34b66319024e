// Rows divided by the root of their mean square, and the gradients.
#include <rlk/sdk/ops/rms_norm.hpp>
#include <rlk/sdk/ops/rms_norm_backward.hpp>

#include <algorithm>
#include <cmath>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/cpu/norm/rms_norm.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "core/cpu/simd/skeleton-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace rlk::cpu::HWY_NAMESPACE {

// 1 / sqrt(mean of squares + eps) of x scaled by a power of two, which keeps squares and root within the range of TC.
struct RowRoot {
  double scale, of_scaled;
};
template <class TC>
HWY_INLINE RowRoot root_of_row(const Line& x, int64_t columns, double eps) {
  const auto mean_square = [&](double scale) HWY_ATTR {
    return sum_of_lines<double>(from(x), columns,
                                [scale](auto d, auto v) HWY_ATTR {
                                  const auto scaled = hn::Mul(v, hn::Set(d, scale));
                                  return hn::Mul(scaled, scaled);
                                }) /
           static_cast<double>(columns);
  };
  constexpr double kLow = sizeof(TC) == 8 ? 0x1p-900 : 0x1p-100, kHigh = sizeof(TC) == 8 ? 0x1p900 : 0x1p100;
  const double plain = mean_square(1.0) + eps;
  if ((plain > kLow && plain < kHigh) || std::isnan(plain)) return {1.0, 1 / std::sqrt(plain)};
  const auto largest =
      static_cast<double>(largest_of_lines<TC>(from(x), columns, [](auto, auto v) HWY_ATTR { return hn::Abs(v); }));
  if (!(largest > 0) || std::isinf(largest)) return {1.0, 1 / std::sqrt(plain)};
  const double scale = std::ldexp(1.0, -std::clamp(std::ilogb(largest), -1000, 1000));
  return {scale, 1 / std::sqrt(mean_square(scale) + eps * scale * scale)};
}

void rms_norm(const CallOf<sdk::ops::RmsNorm>& call, const Context& context) {
  const Array weight = or_one(call.weight);
  with_compute_type(from(call.x), [&](auto tc) HWY_ATTR {
    using TC = decltype(tc);
    for_each_row(context, call.N, call.H, [&](int64_t n) HWY_ATTR {
      const Line x = line_of(call.x, n);
      const RowRoot root = root_of_row<TC>(x, call.H, call.params.eps);
      const auto scale = static_cast<TC>(root.scale), rstd = static_cast<TC>(root.of_scaled);
      map_lines<TC>(to(line_of(call.y, n)), from(x, line_of(weight)), call.H, [=](auto d, auto v, auto w) HWY_ATTR {
        return hn::Mul(hn::Mul(hn::Mul(v, hn::Set(d, scale)), hn::Set(d, rstd)), w);
      });
      if (call.rstd.present()) call.rstd.put(n, root.of_scaled * root.scale);
    });
  });
}

// The gradient of the weight: columns in parallel, each a compensated sum over the rows in their order.
void weight_gradient(const CallOf<sdk::ops::RmsNormBackward>& call, const Context& context, const double* rstd) {
  constexpr int64_t kColumns = 256;
  for_each_row(context, (call.H + kColumns - 1) / kColumns, kColumns * call.N, [&](int64_t block) HWY_ATTR {
    const int64_t begin = block * kColumns, columns = std::min(kColumns, call.H - begin);
    double sums[kColumns] = {}, rests[kColumns] = {};
    const Line sum = line_of(Array::of(sums)), rest = line_of(Array::of(rests));
    for (int64_t n = 0; n < call.N; ++n) {
      const double r = rstd[n];
      map_lines<double>(to(sum, rest),
                        from(sum, rest, line_of(call.grad_y, n).from(begin), line_of(call.x, n).from(begin)), columns,
                        [r](auto d, auto total, auto lost, auto grad, auto x, auto& next, auto& next_lost) HWY_ATTR {
                          const auto term = hn::Mul(hn::Mul(grad, x), hn::Set(d, r));
                          next = hn::Add(total, term);
                          const auto added = hn::Sub(next, total);
                          const auto error = hn::Add(hn::Sub(total, hn::Sub(next, added)), hn::Sub(term, added));
                          next_lost = hn::Add(lost, error);
                        });
    }
    map_lines<double>(to(line_of(call.grad_weight).from(begin)), from(sum, rest), columns,
                      [](auto, auto total, auto lost)
                          HWY_ATTR { return hn::IfThenElse(hn::IsFinite(total), hn::Add(total, lost), total); });
  });
}

// In fp64: products of three numbers and a cube leave the range of fp32 where the gradient does not.
void rms_norm_backward(const CallOf<sdk::ops::RmsNormBackward>& call, const Context& context) {
  auto* rstd = static_cast<double*>(context.workspace);
  const Array weight = or_one(call.weight);
  const auto columns = static_cast<double>(call.H);
  for_each_row(context, call.N, call.H, [&](int64_t n) HWY_ATTR {
    const auto in = from(line_of(call.grad_y, n), line_of(call.x, n), line_of(weight));
    const RowRoot root = root_of_row<double>(in[1], call.H, call.params.eps);
    const double r = rstd[n] = root.of_scaled * root.scale;
    const double product = sum_of_lines<double>(in, call.H, [r](auto d, auto grad, auto x, auto w) HWY_ATTR {
      return hn::Mul(hn::Mul(grad, w), hn::Mul(x, hn::Set(d, r)));
    });
    const double mean = product / columns;
    map_lines<double>(to(line_of(call.grad_x, n)), in, call.H, [=](auto d, auto grad, auto x, auto w) HWY_ATTR {
      const auto along = hn::Mul(hn::Mul(x, hn::Set(d, r)), hn::Set(d, mean));
      return hn::Mul(hn::Set(d, r), hn::Sub(hn::Mul(grad, w), along));
    });
  });
  if (call.grad_weight.present()) weight_gradient(call, context, rstd);
}

}  // namespace rlk::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

namespace rlk::cpu {

RLK_CPU_VECTOR_KERNEL(RmsNorm, rms_norm, .operations = per_element<15>);
RLK_CPU_VECTOR_KERNEL(
    RmsNormBackward, rms_norm_backward, .operations = per_element<60>,
    .workspace_bytes = [](const CallOf<sdk::ops::RmsNormBackward>& call) {
      return call.N * static_cast<int64_t>(sizeof(double));
    });

}  // namespace rlk::cpu
