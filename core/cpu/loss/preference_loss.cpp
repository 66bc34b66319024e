// Losses of preferred and rejected sequences and their gradients, in fp64: there are as many numbers as sequences.
#include <rlk/sdk/ops/preference_loss.hpp>
#include <rlk/sdk/ops/preference_loss_backward.hpp>

#include <rlk/formula/preference.hpp>

#include <algorithm>

#include "core/cpu/simd/long_sum.hpp"
#include "core/cpu/simd/registration.hpp"

namespace rlk::cpu {
using formula::PreferenceRules, formula::unless_weightless;
using KtoLoss = formula::KtoLoss<double>;
using PairLoss = formula::PairLoss<double>;
constexpr formula::Lane<double> kWide{};
using Kind = PreferenceRules::Kind;

namespace {

using Forward = CallOf<sdk::ops::PreferenceLoss>;
using Backward = CallOf<sdk::ops::PreferenceLossBackward>;

double get_or_zero(const Array& array, int64_t n) {
  return array.present() ? array.get(n) : 0;
}

template <class Call>
PreferenceRules rules_of(const Call& call) {
  return formula::preference_rules(call.params, static_cast<double>(call.N), static_cast<double>(call.M));
}

template <class Call>
PairLoss loss_of_chosen(const Call& call, const PreferenceRules& rules, int64_t n) {
  const double c = call.chosen_logp.get(n), hc = c - get_or_zero(call.ref_chosen_logp, n);
  if (rules.kind == Kind::kto) {
    const KtoLoss loss = formula::kto_loss_of(kWide, rules.beta, rules.desirable, hc - get_or_zero(call.kl, 0));
    return {loss.value, loss.slope, 0};
  }
  const double r = call.rejected_logp.get(n);
  return formula::pair_loss_of(kWide, rules,
                               formula::PreferencePair<double>{c, r, hc, r - get_or_zero(call.ref_rejected_logp, n)});
}
template <class Call>
KtoLoss loss_of_rejected(const Call& call, const PreferenceRules& rules, int64_t m) {
  const double hr = call.rejected_logp.get(m) - get_or_zero(call.ref_rejected_logp, m);
  const KtoLoss loss = formula::kto_loss_of(kWide, rules.beta, rules.undesirable, get_or_zero(call.kl, 0) - hr);
  return {loss.value, -loss.slope};
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
  const PreferenceRules rules = rules_of(call);
  auto* const sums = static_cast<double*>(context.workspace);
  sum_over(context, call.N, sums, [&](int64_t n) {
    const double loss = loss_of_chosen(call, rules, n).value;
    put(call.pair_loss, n, loss);
    put(call.chosen_reward, n, call.params.beta * (call.chosen_logp.get(n) - get_or_zero(call.ref_chosen_logp, n)));
    return loss;
  });
  sum_over(context, call.M, sums + stretches_of(call.N), [&](int64_t m) {
    const double loss = rules.kind == Kind::kto ? loss_of_rejected(call, rules, m).value : 0;
    put(call.rejected_loss, m, loss);
    put(call.rejected_reward, m,
        call.params.beta * (call.rejected_logp.get(m) - get_or_zero(call.ref_rejected_logp, m)));
    return loss;
  });
  LongSum sum;
  for (int64_t i = 0; i < stretches_of(call.N) + stretches_of(call.M); ++i) sum.add(sums[i]);
  call.loss.put(0, rules.factor == 0 ? 0 : sum.value() * rules.factor);
  return {};
}

DataError preference_loss_backward(const Backward& call, const Context& context) {
  const PreferenceRules rules = rules_of(call);
  const double of_loss = rules.factor == 0 ? 0 : rules.factor * call.grad_loss.get(0);
  const bool is_kto = rules.kind == Kind::kto;
  parallel_for(context.parallel, call.N, kStretch, [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      const PairLoss loss = loss_of_chosen(call, rules, n);
      const double of_pair = of_loss + get_or_zero(call.grad_pair_loss, n);
      call.grad_chosen_logp.put(n, unless_weightless(of_pair, loss.chosen));
      if (!is_kto) call.grad_rejected_logp.put(n, unless_weightless(of_pair, loss.rejected));
    }
  });
  parallel_for(context.parallel, is_kto ? call.M : 0, kStretch, [&](int64_t begin, int64_t end) {
    for (int64_t m = begin; m < end; ++m) {
      const double of_sequence = of_loss + get_or_zero(call.grad_rejected_loss, m);
      call.grad_rejected_logp.put(m, unless_weightless(of_sequence, loss_of_rejected(call, rules, m).slope));
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
