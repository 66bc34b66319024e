// What norms of rows share: the root of a row's mean square, the gradient of a row, and sums over rows for weights.
#if defined(RLK_CPU_NORM_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef RLK_CPU_NORM_INL
#undef RLK_CPU_NORM_INL
#else
#define RLK_CPU_NORM_INL
#endif

#include <algorithm>
#include <cmath>

#include "core/cpu/simd/formulas-inl.hpp"
#include "core/cpu/simd/skeleton-inl.hpp"

// After the words that they are written in.
#include <rlk/formula/norm.hpp>

#ifndef RLK_CPU_NORM_ONCE
#define RLK_CPU_NORM_ONCE
namespace rlk::cpu {

// Of a row whose mean is subtracted.
struct RowMoments {
  double mean, rstd;
};

}  // namespace rlk::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace rlk::cpu::HWY_NAMESPACE {

// 1 / sqrt(mean of squares + eps) of x scaled by a power of two, which keeps squares and root within the range of TC.
// The power is within that range as well: a row of the smallest numbers is scaled as far as it goes.
struct RowRoot {
  double scale, of_scaled;

  double root() const { return of_scaled * scale; }
};
// x is number(d, the lines' elements...).
template <class TC, size_t kIn, class Number>
HWY_INLINE RowRoot root_of_row(const std::array<Line, kIn>& in, int64_t columns, double eps, const Number& number) {
  const auto mean_square = [&](double scale) HWY_ATTR {
    return sum_of_lines<double>(in, columns,
                                [&number, scale](auto d, auto... v) HWY_ATTR {
                                  const auto scaled = hn::Mul(number(d, v...), hn::Set(d, scale));
                                  return hn::Mul(scaled, scaled);
                                }) /
           static_cast<double>(columns);
  };
  constexpr double kLow = sizeof(TC) == 8 ? 0x1p-900 : 0x1p-100, kHigh = sizeof(TC) == 8 ? 0x1p900 : 0x1p100;
  const double plain = mean_square(1.0) + eps;
  if ((plain > kLow && plain < kHigh) || std::isnan(plain)) return {1.0, 1 / std::sqrt(plain)};
  const auto largest = static_cast<double>(
      largest_of_lines<TC>(in, columns, [&number](auto d, auto... v) HWY_ATTR { return hn::Abs(number(d, v...)); }));
  if (!(largest > 0) || std::isinf(largest)) return {1.0, 1 / std::sqrt(plain)};
  constexpr int kFarthest = sizeof(TC) == 8 ? 1000 : 126;
  const double scale = std::ldexp(1.0, -std::clamp(std::ilogb(largest), -kFarthest, kFarthest));
  return {scale, 1 / std::sqrt(mean_square(scale) + eps * scale * scale)};
}
template <class TC>
HWY_INLINE RowRoot root_of_row(const Line& x, int64_t columns, double eps) {
  return root_of_row<TC>(from(x), columns, eps, [](auto, auto v) HWY_ATTR { return v; });
}

// out[h] = sum over rows n of term(n)(d, a[n, h], b[n, h]): columns in parallel, each a compensated sum over the rows
// in their order.
template <class Term>
HWY_INLINE void sum_of_rows(const Context& context, int64_t rows, int64_t columns, const Array& a, const Array& b,
                            const Array& out, const Term& term) {
  constexpr int64_t kColumns = 256;
  for_each_row(context, (columns + kColumns - 1) / kColumns, kColumns * rows, [&](int64_t block) HWY_ATTR {
    const int64_t begin = block * kColumns, count = std::min(kColumns, columns - begin);
    double sums[kColumns] = {}, rests[kColumns] = {};
    const Line sum = line_of(Array::of(sums)), rest = line_of(Array::of(rests));
    for (int64_t n = 0; n < rows; ++n) {
      const auto of_row = term(n);
      map_lines<double>(to(sum, rest), from(sum, rest, line_of(a, n).from(begin), line_of(b, n).from(begin)), count,
                        [of_row](auto d, auto total, auto lost, auto v, auto w, auto& next, auto& next_lost) HWY_ATTR {
                          const auto addend = of_row(d, v, w);
                          next = hn::Add(total, addend);
                          const auto added = hn::Sub(next, total);
                          const auto error = hn::Add(hn::Sub(total, hn::Sub(next, added)), hn::Sub(addend, added));
                          next_lost = hn::Add(lost, error);
                        });
    }
    map_lines<double>(to(line_of(out).from(begin)), from(sum, rest), count, [](auto, auto total, auto lost) HWY_ATTR {
      return hn::IfThenElse(hn::IsFinite(total), hn::Add(total, lost), total);
    });
  });
}

// Of rms_norm: grad_x = r (grad_y w - x r mean of (grad_y w x r)) + more, with r = rstd[n], and the gradient of w. In
// fp64: products of three numbers and a cube leave the range of fp32 where the gradient does not.
template <class Call>
HWY_INLINE void rms_gradients(const Call& call, const Context& context, const Array& x, const Array& more) {
  auto* rstd = static_cast<double*>(context.workspace);
  const Array weight = or_one(call.weight);
  const auto columns = static_cast<double>(call.H);
  for_each_row(context, call.N, call.H, [&](int64_t n) HWY_ATTR {
    const auto in = from(line_of(call.grad_y, n), line_of(x, n), line_of(weight));
    const double r = rstd[n] = root_of_row<double>(in[1], call.H, call.params.eps).root();
    const double product = sum_of_lines<double>(
        in, call.H, [r](auto d, auto grad, auto v, auto w) HWY_ATTR { return rms_gradient_along(d, grad, v, w, r); });
    const double mean = product / columns;
    map_lines<double>(to(line_of(call.grad_x, n)), from(in[0], in[1], in[2], line_of(more, n)), call.H,
                      [=](auto d, auto grad, auto v, auto w, auto added)
                          HWY_ATTR { return rms_gradient(d, grad, v, w, r, mean, added); });
  });
  if (!call.grad_weight.present()) return;
  sum_of_rows(context, call.N, call.H, call.grad_y, x, call.grad_weight, [rstd](int64_t n) HWY_ATTR {
    return [r = rstd[n]](auto d, auto grad, auto v) HWY_ATTR { return hn::Mul(hn::Mul(grad, v), hn::Set(d, r)); };
  });
}

// (x - mean) rstd, the mean in one part: rows in which fp32 has too few digits of it are computed in fp64.
template <class D>
HWY_INLINE hn::VFromD<D> normal(D d, const RowMoments& m, hn::VFromD<D> x) {
  using T = hn::TFromD<D>;
  return hn::Mul(hn::Sub(x, hn::Set(d, static_cast<T>(m.mean))), hn::Set(d, static_cast<T>(m.rstd)));
}
// Of line_at(0), ..., line_at(lines - 1), of so many columns each. In two passes: the variance as a difference of
// squares loses all digits where the mean is large.
template <class LineAt>
HWY_INLINE RowMoments moments_of_lines(const LineAt& line_at, int64_t lines, int64_t columns, double eps) {
  const auto mean_of = [&](const auto& number) HWY_ATTR {
    LongSum sum;
    for (int64_t i = 0; i < lines; ++i) sum.add(sum_of_lines<double>(from(line_at(i)), columns, number));
    return sum.value() / static_cast<double>(lines * columns);
  };
  const double mean = mean_of([](auto, auto v) HWY_ATTR { return v; });
  const double variance = mean_of([mean](auto d, auto v) HWY_ATTR {
    const auto difference = hn::Sub(v, hn::Set(d, mean));
    return hn::Mul(difference, difference);
  });
  return {mean, 1 / std::sqrt(variance + eps)};
}
HWY_INLINE RowMoments moments_of_row(const Line& x, int64_t columns, double eps) {
  return moments_of_lines([&x](int64_t) { return x; }, 1, columns, eps);
}
// y = (x - mean) rstd weight + bias
template <class TC>
HWY_INLINE void normalise_row(const RowMoments& m, const Line& y, const Line& x, const Line& weight, const Line& bias,
                              int64_t columns) {
  const auto formula = [m](auto d, auto v, auto w, auto b) HWY_ATTR { return hn::MulAdd(normal(d, m, v), w, b); };
  // Elsewhere fp32 has no such root, an infinite difference, or too few digits of the mean.
  const bool fits_f32 = m.rstd > 0x1p-100 && m.rstd < 0x1p100 && std::fabs(m.mean) * m.rstd < 8;
  if (fits_f32) return map_lines<TC>(to(y), from(x, weight, bias), columns, formula);
  map_lines<double>(to(y), from(x, weight, bias), columns, formula);
}
// Of a row of grad_y, x and weight: the sums of grad_y w and of grad_y w (x - mean) rstd.
template <class TC>
HWY_INLINE std::array<double, 2> gradient_sums(const RowMoments& m, const std::array<Line, 3>& in, int64_t columns) {
  return sums_of_lines<TC>(
      in, columns, [](auto, auto grad, auto, auto w) HWY_ATTR { return hn::Mul(grad, w); },
      [m](auto d, auto grad, auto x, auto w) HWY_ATTR { return hn::Mul(hn::Mul(grad, w), normal(d, m, x)); });
}
// grad_x = rstd (grad_y w - mean of it - x' mean of (grad_y w x')), x' the normalised x
HWY_INLINE void gradient_of_row(const RowMoments& m, double mean, double mean_along, const Line& grad_x,
                                const std::array<Line, 3>& in, int64_t columns) {
  map_lines<double>(to(grad_x), in, columns, [=](auto d, auto grad, auto x, auto w) HWY_ATTR {
    return normal_gradient(d, grad, normal(d, m, x), w, m.rstd, mean, mean_along);
  });
}

}  // namespace rlk::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // per target
