// Divergence and distance of distributions, element by element and reduced, and the gradients.
//
// Cost model: one pass over memory; a second one where the elements are asked for. Chunks of the sum are added in their
// order, whatever the number of threads.
#include <rlk/sdk/ops/kl_div.hpp>
#include <rlk/sdk/ops/kl_div_backward.hpp>
#include <rlk/sdk/ops/tvd.hpp>
#include <rlk/sdk/ops/tvd_backward.hpp>

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/cpu/loss/kl_div.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <hwy/contrib/math/math-inl.h>

#include "core/cpu/simd/skeleton-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace rlk::cpu::HWY_NAMESPACE {

// A number of each row as a matrix that repeats it.
Array along_rows(const Array& of_rows) {
  Array matrix = of_rows;
  if (!of_rows.given()) return matrix;
  matrix.ndim = 2;
  matrix.shape[1] = 1;
  matrix.strides[1] = 0;
  return matrix;
}

// What the sum is multiplied by.
template <class Call>
double reduction_of(const Call& call) {
  using Reduction = decltype(call.params.reduction);
  if (call.params.reduction == Reduction::none) return 0;
  if (call.params.denominator > 0) return 1 / call.params.denominator;
  if (call.params.reduction == Reduction::sum) return 1;
  double rows = 0;
  for (int64_t n = 0; n < call.N; ++n) rows += call.mask.keeps(n) ? 1 : 0;
  if (call.params.reduction == Reduction::mean) rows *= static_cast<double>(call.V);
  return 1 / std::max(rows, 1.0);
}

template <class Call>
int64_t chunks_bytes(const Call& call) {
  return chunks_of(call.N * call.V) * static_cast<int64_t>(sizeof(double));
}

// The formula of an element where its row counts, 0 elsewhere.
template <class F>
HWY_INLINE auto if_row_kept(const F& f) {
  return [f](auto d, auto input, auto target, auto mask) HWY_ATTR { return if_kept(d, mask, f(d, input, target)); };
}

template <class Call, class F>
void reduce(const Call& call, const Context& context, const F& element) {
  const auto term = if_row_kept(element);
  const auto in = from(call.input, call.target, or_one(along_rows(call.mask)));
  if (call.element_loss.present()) map(context, to(call.element_loss), in, term);
  const double factor = reduction_of(call);
  if (factor == 0) return call.loss.put(0, 0);
  auto* const sums = static_cast<double*>(context.workspace);
  with_compute_type(from(call.input), [&](auto tc) HWY_ATTR {
    using TC = decltype(tc);
    for_each_chunk<TC>(context, in, [&](int64_t chunk, const auto& lines, int64_t count) HWY_ATTR {
      sums[chunk] = sum_of_lines<TC>(lines, count, term);
    });
  });
  LongSum sum;
  for (int64_t chunk = 0; chunk < chunks_of(call.N * call.V); ++chunk) sum.add(sums[chunk]);
  call.loss.put(0, sum.value() * factor);
}

// slope(d, input, target) of an element times the gradient that it has from loss and from itself.
template <class Call, class F>
void gradient(const Call& call, const Context& context, const Array& grad, const F& slope) {
  if (!grad.present()) return;
  const double factor = reduction_of(call), of_loss = factor == 0 ? 0 : factor * call.grad_loss.get(0);
  const auto in = from(call.input, call.target, or_one(along_rows(call.mask)), or_zero(call.grad_element_loss));
  map(context, to(grad), in, [=](auto d, auto input, auto target, auto mask, auto of_element) HWY_ATTR {
    const auto of_term = hn::Add(of_element, hn::Set(d, static_cast<hn::TFromD<decltype(d)>>(of_loss)));
    return if_kept(d, mask, hn::Mul(slope(d, input, target), of_term));
  });
}

// The target, 0 where it is negative; NaN stays NaN.
template <class D>
HWY_INLINE hn::VFromD<D> probability_of(D d, hn::VFromD<D> target) {
  return hn::IfThenZeroElse(hn::Lt(target, hn::Zero(d)), target);
}

// log max(x, eps) for an x of at least 0; of a NaN any number, which is multiplied by that NaN then.
template <class D>
HWY_INLINE hn::VFromD<D> log_at_least(D d, double eps, hn::VFromD<D> x) {
  using T = hn::TFromD<D>;
  return hn::Log(d, hn::Max(x, hn::Set(d, std::max(static_cast<T>(eps), std::numeric_limits<T>::denorm_min()))));
}

void kl_div(const CallOf<sdk::ops::KlDiv>& call, const Context& context) {
  const double eps = call.params.eps;
  if (call.params.log_target == sdk::ops::kl_div::LogTarget::on) {
    return reduce(call, context, [](auto d, auto input, auto target) HWY_ATTR {
      const auto t = exp(d, target);
      return hn::IfThenZeroElse(hn::Eq(t, hn::Zero(d)), hn::Mul(t, hn::Sub(target, input)));
    });
  }
  reduce(call, context, [eps](auto d, auto input, auto target) HWY_ATTR {
    const auto t = probability_of(d, target);
    const auto term = hn::Mul(t, hn::Sub(log_at_least(d, eps, t), input));
    return hn::IfThenZeroElse(hn::Eq(t, hn::Zero(d)), term);
  });
}

void kl_div_backward(const CallOf<sdk::ops::KlDivBackward>& call, const Context& context) {
  const double eps = call.params.eps;
  if (call.params.log_target == sdk::ops::kl_div_backward::LogTarget::on) {
    gradient(call, context, call.grad_input,
             [](auto d, auto, auto target) HWY_ATTR { return hn::Neg(exp(d, target)); });
    return gradient(call, context, call.grad_target, [](auto d, auto input, auto target) HWY_ATTR {
      const auto t = exp(d, target), one = hn::Set(d, hn::TFromD<decltype(d)>{1});
      return hn::IfThenZeroElse(hn::Eq(t, hn::Zero(d)), hn::Mul(t, hn::Sub(hn::Add(target, one), input)));
    });
  }
  gradient(call, context, call.grad_input,
           [](auto d, auto, auto target) HWY_ATTR { return hn::Neg(probability_of(d, target)); });
  gradient(call, context, call.grad_target, [eps](auto d, auto input, auto target) HWY_ATTR {
    using T = hn::TFromD<decltype(d)>;
    const auto t = probability_of(d, target);
    const auto below = hn::Le(t, hn::Set(d, static_cast<T>(eps)));
    const auto slope = hn::Sub(hn::Add(log_at_least(d, eps, t), hn::IfThenZeroElse(below, hn::Set(d, T{1}))), input);
    const auto kept = hn::IfThenElse(hn::IsNaN(t), t, slope);
    return hn::IfThenZeroElse(hn::Eq(t, hn::Zero(d)), kept);
  });
}

void tvd(const CallOf<sdk::ops::Tvd>& call, const Context& context) {
  reduce(call, context, [](auto d, auto input, auto target) HWY_ATTR {
    const auto half = hn::Set(d, static_cast<hn::TFromD<decltype(d)>>(0.5));
    return hn::Mul(half, hn::Abs(hn::Sub(input, target)));
  });
}

void tvd_backward(const CallOf<sdk::ops::TvdBackward>& call, const Context& context) {
  const auto slope_of = [](double size) {
    return [size](auto d, auto input, auto target) HWY_ATTR {
      const auto half = hn::Set(d, static_cast<hn::TFromD<decltype(d)>>(size));
      const auto difference = hn::Sub(input, target);
      const auto slope = hn::IfThenElse(hn::Gt(input, target), half, hn::Neg(half));
      const auto kept = hn::IfThenElse(hn::IsNaN(difference), difference, slope);
      return hn::IfThenZeroElse(hn::Eq(input, target), kept);
    };
  };
  gradient(call, context, call.grad_input, slope_of(0.5));
  gradient(call, context, call.grad_target, slope_of(-0.5));
}

}  // namespace rlk::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

namespace rlk::cpu {

RLK_CPU_VECTOR_KERNEL(KlDiv, kl_div, .operations = per_input_element<60>,
                      .workspace_bytes = HWY_NAMESPACE::chunks_bytes);
RLK_CPU_VECTOR_KERNEL(KlDivBackward, kl_div_backward, .operations = per_element<40>);
RLK_CPU_VECTOR_KERNEL(Tvd, tvd, .operations = per_input_element<10>, .workspace_bytes = HWY_NAMESPACE::chunks_bytes);
RLK_CPU_VECTOR_KERNEL(TvdBackward, tvd_backward, .operations = per_element<15>);

}  // namespace rlk::cpu
