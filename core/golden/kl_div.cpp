// Divergence and distance of distributions, element by element and reduced, and the gradients: the declarations'
// formulas, fp64.
#include <rlk/sdk/ops/kl_div.hpp>
#include <rlk/sdk/ops/kl_div_backward.hpp>
#include <rlk/sdk/ops/tvd.hpp>
#include <rlk/sdk/ops/tvd_backward.hpp>

#include <cmath>

#include "core/golden/operator.hpp"
#include "core/golden/optional.hpp"

namespace rlk::golden {
namespace {

// What the sum is multiplied by.
template <class Call>
Tracked reduction_of(const Call& call) {
  using Reduction = decltype(call.params.reduction);
  if (call.params.reduction == Reduction::none) return 0.0;
  if (call.params.denominator > 0) return Tracked(1.0) / Tracked(call.params.denominator, call.params.denominator);
  double divisor = 1;
  if (call.params.reduction != Reduction::sum) {
    double rows = 0;
    for (int64_t n = 0; n < call.N; ++n) rows += is_kept(call.mask, n) ? 1 : 0;
    if (call.params.reduction == Reduction::mean) rows *= static_cast<double>(call.V);
    divisor = std::max(rows, 1.0);
  }
  return Tracked(1.0) / Tracked(divisor);
}

// element(n, v): the term of an element of a row that counts.
template <class Call, class Element>
DataError reduce(Call& call, const Element& element) {
  const Tracked factor = reduction_of(call);
  TrackedSum sum;
  for (int64_t n = 0; n < call.N; ++n) {
    for (int64_t v = 0; v < call.V; ++v) {
      const Tracked term = is_kept(call.mask, n) ? element(n, v) : Tracked(0.0);
      if (factor.value != 0) sum.add(term);
      put(call.element_loss, term);
    }
  }
  put(call.loss, factor.value != 0 ? sum.total() * factor : Tracked(0.0));
  return {};
}

struct Slopes {
  Tracked input, target;
};
// slopes(n, v): the derivatives of the term of an element of a row that counts.
template <class Call, class Function>
DataError gradients(Call& call, const Function& slopes) {
  const Tracked factor = reduction_of(call);
  for (int64_t n = 0; n < call.N; ++n) {
    for (int64_t v = 0; v < call.V; ++v) {
      if (!is_kept(call.mask, n)) {
        put(call.grad_input, 0.0);
        put(call.grad_target, 0.0);
        continue;
      }
      Tracked of_term = factor.value != 0 ? Tracked(call.grad_loss.load(0)) * factor : Tracked(0.0);
      if (call.grad_element_loss.present()) of_term = of_term + Tracked(call.grad_element_loss.load(n, v));
      const Slopes slope = slopes(n, v);
      put(call.grad_input, slope.input * of_term);
      put(call.grad_target, slope.target * of_term);
    }
  }
  return {};
}

// Of one element of kl_div.
template <class Call>
struct Term {
  Term(const Call& call, int64_t n, int64_t v) : input(call.input.load(n, v)) {
    const Tracked given = call.target.load(n, v);
    const bool is_log = call.params.log_target == decltype(call.params.log_target)::on;
    above_eps = is_log || std::isnan(given.value) || given.value > call.params.eps;
    t = is_log ? exp(given) : given.value < 0 ? Tracked(0.0) : given;
    log_t = is_log ? given : above_eps ? log(given) : log(Tracked(call.params.eps, call.params.eps));
    is_logarithm = is_log;
  }
  Tracked input, t, log_t;
  bool above_eps = true, is_logarithm = false;
};

double sign(double x, double y) {
  return std::isnan(x) || std::isnan(y) ? x + y : x > y ? 1 : x < y ? -1 : 0;
}

}  // namespace

DataError kl_div(CallOf<sdk::ops::KlDiv>& call) {
  return reduce(call, [&](int64_t n, int64_t v) {
    const Term term(call, n, v);
    return term.t.value == 0 ? Tracked(0.0, term.t.error) : term.t * (term.log_t - term.input);
  });
}

DataError kl_div_backward(CallOf<sdk::ops::KlDivBackward>& call) {
  return gradients(call, [&](int64_t n, int64_t v) {
    const Term term(call, n, v);
    Slopes slopes{-term.t, 0.0};
    if (term.t.value != 0) {
      slopes.target = term.above_eps ? term.log_t + Tracked(1.0) - term.input : term.log_t - term.input;
      if (term.is_logarithm) slopes.target = term.t * slopes.target;
    }
    return slopes;
  });
}

DataError tvd(CallOf<sdk::ops::Tvd>& call) {
  return reduce(call, [&](int64_t n, int64_t v) {
    return Tracked(0.5) * abs(Tracked(call.input.load(n, v)) - Tracked(call.target.load(n, v)));
  });
}

DataError tvd_backward(CallOf<sdk::ops::TvdBackward>& call) {
  return gradients(call, [&](int64_t n, int64_t v) {
    const Tracked half = 0.5 * sign(call.input.load(n, v), call.target.load(n, v));
    return Slopes{half, -half};
  });
}

}  // namespace rlk::golden
