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

#include "core/cpu/simd/formulas-inl.hpp"
#include "core/cpu/simd/skeleton-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace rlk::cpu::HWY_NAMESPACE {

template <class V>
HWY_INLINE V natural_log(V x) {
  return hn::Log(hn::DFromV<V>(), x);
}

}  // namespace rlk::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

// After the words that they are written in.
#include <rlk/formula/kl_div.hpp>

HWY_BEFORE_NAMESPACE();
namespace rlk::cpu::HWY_NAMESPACE {
using formula::DivergenceTerms;

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
  double rows = static_cast<double>(call.N);
  if (call.mask.present()) {
    rows = 0;
    for (int64_t n = 0; n < call.N; ++n) rows += call.mask.keeps(n) ? 1 : 0;
  }
  return formula::reduction_factor(formula::distance_terms(call.params), rows, static_cast<double>(call.V));
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

// Those of a call, of which the compiler knows is_log: it makes a pass of its own for each.
template <bool kIsLog>
HWY_INLINE DivergenceTerms terms_with(double eps) {
  DivergenceTerms terms{};
  terms.eps = eps;
  terms.is_log = kIsLog;
  return terms;
}
// Calls function(std::bool_constant<is_log>()).
template <class Call, class Function>
void with_target(const Call& call, const Function& function) {
  using LogTarget = decltype(call.params.log_target);
  call.params.log_target == LogTarget::on ? function(std::true_type()) : function(std::false_type());
}

void kl_div(const CallOf<sdk::ops::KlDiv>& call, const Context& context) {
  with_target(call, [&](auto is_log) {
    reduce(call, context, [eps = call.params.eps](auto d, auto input, auto target) HWY_ATTR {
      return kl_div_term(d, terms_with<decltype(is_log)::value>(eps), input, target);
    });
  });
}

void kl_div_backward(const CallOf<sdk::ops::KlDivBackward>& call, const Context& context) {
  with_target(call, [&](auto is_log) {
    const auto slopes = [eps = call.params.eps](auto d, auto input, auto target) HWY_ATTR {
      return kl_div_slopes(d, terms_with<decltype(is_log)::value>(eps), input, target);
    };
    gradient(call, context, call.grad_input,
             [slopes](auto d, auto input, auto target) HWY_ATTR { return slopes(d, input, target).first; });
    gradient(call, context, call.grad_target,
             [slopes](auto d, auto input, auto target) HWY_ATTR { return slopes(d, input, target).second; });
  });
}

void tvd(const CallOf<sdk::ops::Tvd>& call, const Context& context) {
  reduce(call, context, [](auto d, auto input, auto target) HWY_ATTR { return distance_term(d, input, target); });
}

void tvd_backward(const CallOf<sdk::ops::TvdBackward>& call, const Context& context) {
  gradient(call, context, call.grad_input,
           [](auto d, auto input, auto target) HWY_ATTR { return distance_slopes(d, input, target).first; });
  gradient(call, context, call.grad_target,
           [](auto d, auto input, auto target) HWY_ATTR { return distance_slopes(d, input, target).second; });
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
