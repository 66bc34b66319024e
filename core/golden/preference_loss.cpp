// Losses of preferred and rejected sequences and their gradients: the declarations' formulas over numbers that know
// their derivative, fp64.
#include <rlk/sdk/ops/preference_loss.hpp>
#include <rlk/sdk/ops/preference_loss_backward.hpp>

#include <cmath>

#include "core/golden/factors.hpp"
#include "core/golden/operator.hpp"
#include "core/golden/optional.hpp"

namespace rlk::golden {
using sdk::ops::preference_loss::Kind, sdk::ops::preference_loss::Reduction;

namespace {

Dual sigmoid(const Dual& x) {
  const double y = 1 / (1 + std::exp(-x.value.value)), rest = 1 / (1 + std::exp(x.value.value));
  const Tracked slope = rounded(y * rest, y * rest * (2 + x.value.error));
  return {rounded(y, y * rest * x.value.error), slope_times(x.slope, slope)};
}
Dual log_sigmoid(const Dual& x) {
  const double z = x.value.value, rest = 1 / (1 + std::exp(z));
  const double y = std::isnan(z) ? z : std::min(z, 0.0) - std::log1p(std::exp(-std::fabs(z)));
  const Tracked slope = rounded(rest, rest * (1 + x.value.error));
  return {rounded(y, rest * x.value.error), slope_times(x.slope, slope)};
}
// log(1 - exp(x))
Dual log_rest(const Dual& x) {
  const double rest = -std::expm1(x.value.value), slope = std::exp(x.value.value) / -rest;
  const Tracked factor = rounded(slope, std::fabs(slope) * (2 + x.value.error / std::fabs(rest)));
  return {rounded(std::log(rest), std::fabs(slope) * x.value.error + 1), slope_times(x.slope, factor)};
}
Dual square(const Dual& x) {
  return x * x;
}
Dual operator+(double a, const Dual& b) {
  return Dual(a) + b;
}

// pair_loss of the declaration, but for kto.
template <class Params>
Dual pair_loss(const Params& p, const Dual& c, const Dual& r, const Dual& hc, const Dual& hr) {
  const Tracked beta = parameter(p.beta), s = parameter(p.label_smoothing), e = parameter(p.exo_epsilon), one = 1.0;
  const Dual a = beta * hc, b = beta * hr, z = beta * (hc - hr) - Dual(parameter(p.margin));
  const Dual half_inverse = one / (Tracked(2.0) * beta);
  switch (p.kind) {
    case Kind::sigmoid:
      return -weighted(one - s, log_sigmoid(z)) - weighted(s, log_sigmoid(-z));
    case Kind::hinge: {
      const Dual rest = 1.0 + -z;
      if (std::isnan(rest.value.value)) return {rest.value, rest.value};
      return rest.value.value <= 0 ? Dual(Tracked(0.0, rest.value.error)) : rest;
    }
    case Kind::ipo:
      return square(hc - hr - half_inverse);
    case Kind::exo_pair: {
      const Tracked log_rest_of_e = rounded(std::log1p(-e.value), 1), log_e = log(e);
      const Dual win = sigmoid(z), lose = sigmoid(-z), log_win = log_sigmoid(z), log_lose = log_sigmoid(-z);
      Dual loss = win * (log_win - Dual(log_rest_of_e)) + lose * (log_lose - Dual(log_e));
      if (std::isinf(z.value.value)) loss.slope = {};  // flat, which 0 times infinity is not
      loss.value.value = divergence_term(win.value.value, log_win.value.value, 1 - e.value, log_rest_of_e.value) +
                         divergence_term(lose.value.value, log_lose.value.value, e.value, log_e.value);
      return loss;
    }
    case Kind::nca_pair:
      return -log_sigmoid(a) - Tracked(0.5) * log_sigmoid(-a) - Tracked(0.5) * log_sigmoid(-b);
    case Kind::robust:
      return (one / (one - Tracked(2.0) * s)) * (-((one - s) * log_sigmoid(z)) + weighted(s, log_sigmoid(-z)));
    case Kind::bco_pair:
      return -log_sigmoid(a) - log_sigmoid(-b);
    case Kind::sppo_hard:
      return square(hc - half_inverse) + square(hr + half_inverse);
    case Kind::apo_zero:
      return sigmoid(-a) + sigmoid(b);
    case Kind::apo_down:
      return sigmoid(a) + sigmoid(-z);
    case Kind::discopop: {
      const Tracked inverse = one / parameter(p.discopop_tau);
      return -(log_sigmoid(z) * sigmoid(-(inverse * z))) + exp(log_sigmoid(inverse * z) - z);
    }
    case Kind::orpo:
      if (c.value.value == 0 && r.value.value < 0) {  // certain: the limit of both factors, of which one is infinite
        const Tracked power = exp(r.value), rest = rounded(-std::expm1(r.value.value), power.error);
        return {Tracked(0.0), -(beta * (c.slope * (power / rest)))};
      }
      return -(beta * log_sigmoid((c - r) - (log_rest(c) - log_rest(r))));
    case Kind::kto:
      break;
  }
  return {};
}

// Of a sequence that is not compared with another; h is its log ratio, less kl, towards what is wanted.
Dual kto_loss(Tracked beta, double weight, const Dual& h) {
  return parameter(weight) * sigmoid(-(beta * h));
}

template <class Call>
Tracked reduction_of(const Call& call) {
  if (call.params.reduction == Reduction::none) return 0.0;
  if (call.params.denominator > 0) return Tracked(1.0) / parameter(call.params.denominator);
  if (call.params.reduction == Reduction::sum) return 1.0;
  const int64_t count = call.params.kind == Kind::kto ? call.N + call.M : call.N;
  return Tracked(1.0) / Tracked(static_cast<double>(std::max<int64_t>(count, 1)));
}

// The log ratio of a sequence to the reference.
Dual ratio(const Dual& logp, const View& reference, int64_t n) {
  return reference.present() ? logp - Dual(reference.load(n)) : logp;
}
Dual number(const View& view, int64_t n, bool moves) {
  return {Tracked(view.load(n)), Tracked(moves ? 1.0 : 0.0)};
}

// The loss of preferred sequence n (and of its pair), whose slope is that of the chosen or the rejected one.
template <class Call>
Dual chosen_loss(const Call& call, int64_t n, bool of_chosen) {
  const Dual c = number(call.chosen_logp, n, of_chosen), hc = ratio(c, call.ref_chosen_logp, n);
  if (call.params.kind == Kind::kto) {
    return kto_loss(parameter(call.params.beta), call.params.desirable_weight, hc - Dual(or_zero(call.kl, 0)));
  }
  const Dual r = number(call.rejected_logp, n, !of_chosen);
  return pair_loss(call.params, c, r, hc, ratio(r, call.ref_rejected_logp, n));
}
template <class Call>
Dual rejected_loss(const Call& call, int64_t m) {
  if (call.params.kind != Kind::kto) return {};
  const Dual hr = ratio(number(call.rejected_logp, m, true), call.ref_rejected_logp, m);
  return kto_loss(parameter(call.params.beta), call.params.undesirable_weight, Dual(or_zero(call.kl, 0)) - hr);
}

}  // namespace

DataError preference_loss(CallOf<sdk::ops::PreferenceLoss>& call) {
  const Tracked factor = reduction_of(call), beta = parameter(call.params.beta);
  TrackedSum sum;
  for (int64_t n = 0; n < call.N; ++n) {
    const Tracked loss = chosen_loss(call, n, true).value;
    sum.add(loss);
    put(call.pair_loss, loss);
    put(call.chosen_reward, beta * ratio(number(call.chosen_logp, n, false), call.ref_chosen_logp, n).value);
  }
  for (int64_t m = 0; m < call.M; ++m) {
    const Tracked loss = rejected_loss(call, m).value;
    sum.add(loss);
    put(call.rejected_loss, loss);
    put(call.rejected_reward, beta * ratio(number(call.rejected_logp, m, false), call.ref_rejected_logp, m).value);
  }
  put(call.loss, factor.value == 0 ? Tracked(0.0) : sum.total() * factor);
  return {};
}

DataError preference_loss_backward(CallOf<sdk::ops::PreferenceLossBackward>& call) {
  const Tracked factor = reduction_of(call);
  const Tracked of_loss = factor.value == 0 ? Tracked(0.0) : Tracked(call.grad_loss.load(0)) * factor;
  const bool is_kto = call.params.kind == Kind::kto;
  for (int64_t n = 0; n < call.N; ++n) {
    const Tracked of_pair = of_loss + Tracked(or_zero(call.grad_pair_loss, n));
    put(call.grad_chosen_logp, weighted(of_pair, chosen_loss(call, n, true).slope));
    if (!is_kto) put(call.grad_rejected_logp, weighted(of_pair, chosen_loss(call, n, false).slope));
  }
  for (int64_t m = 0; m < call.M && is_kto; ++m) {
    const Tracked of_sequence = of_loss + Tracked(or_zero(call.grad_rejected_loss, m));
    put(call.grad_rejected_logp, weighted(of_sequence, rejected_loss(call, m).slope));
  }
  return {};
}

}  // namespace rlk::golden
