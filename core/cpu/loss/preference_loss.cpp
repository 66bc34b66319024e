// Losses of preferred and rejected sequences and their gradients, in fp64: there are as many numbers as sequences.
#include <rlk/sdk/ops/preference_loss.hpp>
#include <rlk/sdk/ops/preference_loss_backward.hpp>

#include <algorithm>
#include <cmath>

#include "core/cpu/simd/long_sum.hpp"
#include "core/cpu/simd/registration.hpp"

namespace rlk::cpu {
using sdk::ops::preference_loss::Kind, sdk::ops::preference_loss::Reduction;

namespace {

using Forward = CallOf<sdk::ops::PreferenceLoss>;
using Backward = CallOf<sdk::ops::PreferenceLossBackward>;

double sigmoid(double x) {
  return 1 / (1 + std::exp(-x));
}
double log_sigmoid(double x) {
  const double rest = std::log1p(std::exp(-std::fabs(x)));
  return x < 0 ? x - rest : -rest;
}

// The part of one outcome in KL(x || y), x log(x / y), plus y - x, which is 0 over all outcomes: never negative.
double divergence_term(double x, double log_x, double y, double log_y) {
  const double d = log_y - log_x;
  if (x == 0) return y;
  if (std::fabs(d) < 0x1p-7) {
    return x * d * d * (1.0 / 2 + d * (1.0 / 6 + d * (1.0 / 24 + d * (1.0 / 120 + d * (1.0 / 720 + d / 5040)))));
  }
  return std::max(y - x - x * d, 0.0);  // whose first operand a NaN stays
}

// What a weight of 0 takes out is not looked at: the logarithm may be -inf.
double weighted(double weight, double x) {
  return weight == 0 ? 0 : weight * x;
}

// A loss and its slopes along the log-probabilities of the preferred and of the rejected sequence.
struct Loss {
  double value, chosen, rejected;
};
// Of a loss of z = beta (hc - hr) - margin alone.
Loss of_difference(double value, double slope, double beta) {
  return {value, beta * slope, -beta * slope};
}

struct Pair {
  double c, r, hc, hr;
};

template <class Params>
Loss pair_loss(const Params& p, const Pair& pair) {
  const double beta = p.beta, s = p.label_smoothing, e = p.exo_epsilon;
  const double difference = pair.hc - pair.hr, a = beta * pair.hc, b = beta * pair.hr, z = beta * difference - p.margin;
  switch (p.kind) {
    case Kind::sigmoid:
      return of_difference(-weighted(1 - s, log_sigmoid(z)) - weighted(s, log_sigmoid(-z)),
                           s * sigmoid(z) - (1 - s) * sigmoid(-z), beta);
    case Kind::hinge:
      return z >= 1 ? Loss{0, 0, 0} : of_difference(1 - z, std::isnan(z) ? z : -1, beta);
    case Kind::ipo: {
      const double off = difference - 1 / (2 * beta);
      return {off * off, 2 * off, -2 * off};
    }
    case Kind::exo_pair: {
      const double win = sigmoid(z), lose = sigmoid(-z);
      const double log_win = log_sigmoid(z), log_lose = log_sigmoid(-z), log_rest = std::log1p(-e), log_e = std::log(e);
      const double value = divergence_term(win, log_win, 1 - e, log_rest) + divergence_term(lose, log_lose, e, log_e);
      const double slope = weighted(win * lose, (log_win - log_rest) - (log_lose - log_e));
      return of_difference(value, slope, beta);
    }
    case Kind::nca_pair:
      return {-log_sigmoid(a) - (log_sigmoid(-a) + log_sigmoid(-b)) / 2, beta * (sigmoid(a) / 2 - sigmoid(-a)),
              beta * sigmoid(b) / 2};
    case Kind::robust: {
      const double slope = -(1 - s) * sigmoid(-z) - s * sigmoid(z);
      return of_difference((weighted(s, log_sigmoid(-z)) - (1 - s) * log_sigmoid(z)) / (1 - 2 * s), slope / (1 - 2 * s),
                           beta);
    }
    case Kind::bco_pair:
      return {-log_sigmoid(a) - log_sigmoid(-b), -beta * sigmoid(-a), beta * sigmoid(b)};
    case Kind::sppo_hard: {
      const double win = pair.hc - 1 / (2 * beta), lose = pair.hr + 1 / (2 * beta);
      return {win * win + lose * lose, 2 * win, 2 * lose};
    }
    case Kind::apo_zero:
      return {sigmoid(-a) + sigmoid(b), -beta * sigmoid(a) * sigmoid(-a), beta * sigmoid(b) * sigmoid(-b)};
    case Kind::apo_down: {
      const double of_z = sigmoid(z) * sigmoid(-z);
      return {sigmoid(a) + sigmoid(-z), beta * (sigmoid(a) * sigmoid(-a) - of_z), beta * of_z};
    }
    case Kind::discopop: {
      const double scaled = z / p.discopop_tau, share = sigmoid(scaled), rest = sigmoid(-scaled);
      const double power = std::exp(log_sigmoid(scaled) - z);  // exp(-z) share: one factor alone may be beyond fp64
      const double of_share = rest / p.discopop_tau * (power + share * log_sigmoid(z));
      return of_difference(power - log_sigmoid(z) * rest, of_share - sigmoid(-z) * rest - power, beta);
    }
    case Kind::orpo: {
      const double rest_c = -std::expm1(pair.c), rest_r = -std::expm1(pair.r);
      const double odds = (pair.c - pair.r) - (std::log(rest_c) - std::log(rest_r));
      const double lost = sigmoid(-odds);
      // Where c is certain, lost is 0 and its share in rest_c has a limit.
      const double of_c = rest_c == 0 && rest_r > 0 ? std::exp(pair.r) / rest_r : lost / rest_c;
      return {-beta * log_sigmoid(odds), -beta * of_c, beta * lost / rest_r};
    }
    case Kind::kto:
      break;
  }
  return {0, 0, 0};
}

// Of a sequence by itself: weight (1 - S(beta h)), its slope along h.
struct KtoLoss {
  double value, slope;
};
KtoLoss kto_loss(double beta, double weight, double h) {
  const double rest = sigmoid(-beta * h);
  return {weight * rest, -weight * beta * rest * sigmoid(beta * h)};
}

double get_or_zero(const Array& array, int64_t n) {
  return array.present() ? array.get(n) : 0;
}

template <class Call>
Loss loss_of_chosen(const Call& call, int64_t n) {
  const double c = call.chosen_logp.get(n), hc = c - get_or_zero(call.ref_chosen_logp, n);
  if (call.params.kind == Kind::kto) {
    const KtoLoss loss = kto_loss(call.params.beta, call.params.desirable_weight, hc - get_or_zero(call.kl, 0));
    return {loss.value, loss.slope, 0};
  }
  const double r = call.rejected_logp.get(n);
  return pair_loss(call.params, {c, r, hc, r - get_or_zero(call.ref_rejected_logp, n)});
}
template <class Call>
KtoLoss loss_of_rejected(const Call& call, int64_t m) {
  const double hr = call.rejected_logp.get(m) - get_or_zero(call.ref_rejected_logp, m);
  const KtoLoss loss = kto_loss(call.params.beta, call.params.undesirable_weight, get_or_zero(call.kl, 0) - hr);
  return {loss.value, -loss.slope};
}

// 1 / D of the declaration.
template <class Call>
double reduction_of(const Call& call) {
  if (call.params.reduction == Reduction::none) return 0;
  if (call.params.denominator > 0) return 1 / call.params.denominator;
  if (call.params.reduction == Reduction::sum) return 1;
  const int64_t count = call.params.kind == Kind::kto ? call.N + call.M : call.N;
  return 1 / static_cast<double>(std::max<int64_t>(count, 1));
}

void put(const Array& array, int64_t n, double value) {
  if (array.present()) array.put(n, value);
}

constexpr int64_t kStretch = 128;  // sequences of a task, and of a sum: some ten microseconds

int64_t stretches_of(int64_t sequences) {
  return (sequences + kStretch - 1) / kStretch;
}

// Calls function(n) for every sequence and adds what it returns, by stretches into sums.
template <class Function>
void sum_over(const Context& context, int64_t sequences, double* sums, const Function& function) {
  parallel_for(context.parallel, stretches_of(sequences), 1, [&](int64_t first, int64_t last) {
    for (int64_t stretch = first; stretch < last; ++stretch) {
      LongSum sum;
      const int64_t end = std::min(sequences, (stretch + 1) * kStretch);
      for (int64_t n = stretch * kStretch; n < end; ++n) sum.add(function(n));
      sums[stretch] = sum.value();
    }
  });
}

int64_t workspace_bytes(const Forward& call) {
  return (stretches_of(call.N) + stretches_of(call.M)) * static_cast<int64_t>(sizeof(double));
}

DataError preference_loss(const Forward& call, const Context& context) {
  auto* const sums = static_cast<double*>(context.workspace);
  sum_over(context, call.N, sums, [&](int64_t n) {
    const double loss = loss_of_chosen(call, n).value;
    put(call.pair_loss, n, loss);
    put(call.chosen_reward, n, call.params.beta * (call.chosen_logp.get(n) - get_or_zero(call.ref_chosen_logp, n)));
    return loss;
  });
  sum_over(context, call.M, sums + stretches_of(call.N), [&](int64_t m) {
    const double loss = call.params.kind == Kind::kto ? loss_of_rejected(call, m).value : 0;
    put(call.rejected_loss, m, loss);
    put(call.rejected_reward, m,
        call.params.beta * (call.rejected_logp.get(m) - get_or_zero(call.ref_rejected_logp, m)));
    return loss;
  });
  LongSum sum;
  for (int64_t i = 0; i < stretches_of(call.N) + stretches_of(call.M); ++i) sum.add(sums[i]);
  const double factor = reduction_of(call);
  call.loss.put(0, factor == 0 ? 0 : sum.value() * factor);
  return {};
}

DataError preference_loss_backward(const Backward& call, const Context& context) {
  const double factor = reduction_of(call), of_loss = factor == 0 ? 0 : factor * call.grad_loss.get(0);
  const bool is_kto = call.params.kind == Kind::kto;
  parallel_for(context.parallel, call.N, kStretch, [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      const Loss loss = loss_of_chosen(call, n);
      const double of_pair = of_loss + get_or_zero(call.grad_pair_loss, n);
      call.grad_chosen_logp.put(n, weighted(of_pair, loss.chosen));
      if (!is_kto) call.grad_rejected_logp.put(n, weighted(of_pair, loss.rejected));
    }
  });
  parallel_for(context.parallel, is_kto ? call.M : 0, kStretch, [&](int64_t begin, int64_t end) {
    for (int64_t m = begin; m < end; ++m) {
      const double of_sequence = of_loss + get_or_zero(call.grad_rejected_loss, m);
      call.grad_rejected_logp.put(m, weighted(of_sequence, loss_of_rejected(call, m).slope));
    }
  });
  return {};
}

template <class Call>
double operations(const Call& call) {
  return static_cast<double>(call.N + call.M) * 3000;
}

}  // namespace

RLK_CPU_KERNEL(PreferenceLoss, .run = preference_loss, .operations = operations<Forward>,
               .workspace_bytes = workspace_bytes);
RLK_CPU_KERNEL(PreferenceLossBackward, .run = preference_loss_backward, .operations = operations<Backward>);

}  // namespace rlk::cpu
