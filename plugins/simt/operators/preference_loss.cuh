// Losses of preferred and rejected sequences, and their gradients: a thread has a pair, in fp64.
#include "../skeleton/move.cuh"

#include <rlk/formula/preference.hpp>

#if defined(RLK_SIMT_MOVES_ON_DEVICE)
namespace rlk::simt {

using formula::PreferenceRules;

// Tensors of both operators: five outputs, or gradients, or none; then what is read.
struct PreferencePlaces {
  enum { kLoss, kPairLoss, kRejectedLoss, kChosenReward, kRejectedReward };
  enum { kGradChosen, kGradRejected, kGradLoss, kGradPair, kGradRejectedLoss };
  enum { kChosen = 5, kRejected, kRefChosen, kRefRejected, kKl };
};

__device__ __forceinline__ double preference_number(const MoveArgs& args, int t, int64_t n) {
  return args.tensor[t].data == nullptr ? 0 : move_number(args.tensor[t], n * args.tensor[t].stride[0]);
}
__device__ __forceinline__ void preference_put(const MoveArgs& args, int t, int64_t n, double number) {
  move_put(args.tensor[t], n * args.tensor[t].stride[0], number);
}

// Of chosen sequence n and of rejected sequence n, those that there are.
struct PreferenceLosses {
  bool has_chosen, has_rejected, is_kto;
  double hc, hr;
  formula::PairLoss<double> pair;  // of kto: of the chosen one alone
  formula::KtoLoss<double> rejected;
};
__device__ __forceinline__ PreferenceLosses preference_losses(const MoveArgs& args, int64_t n) {
  using At = PreferencePlaces;
  const formula::Lane<double> d;
  const auto& rules = move_rules<PreferenceRules>(args);
  PreferenceLosses out{n < args.size[0], n < args.size[1], rules.kind == PreferenceRules::Kind::kto, 0, 0, {}, {}};
  const double c = out.has_chosen ? preference_number(args, At::kChosen, n) : 0;
  const double r = out.has_rejected ? preference_number(args, At::kRejected, n) : 0;
  if (out.has_chosen) out.hc = c - preference_number(args, At::kRefChosen, n);
  if (out.has_rejected) out.hr = r - preference_number(args, At::kRefRejected, n);
  if (!out.is_kto) {
    if (out.has_chosen)
      out.pair = formula::pair_loss_of(d, rules, formula::PreferencePair<double>{c, r, out.hc, out.hr});
    return out;
  }
  const double kl = preference_number(args, At::kKl, 0);
  if (out.has_chosen) {
    const auto loss = formula::kto_loss_of(d, rules.beta, rules.desirable, out.hc - kl);
    out.pair = {loss.value, loss.slope, 0};
  }
  if (out.has_rejected) {
    const auto loss = formula::kto_loss_of(d, rules.beta, rules.undesirable, kl - out.hr);
    out.rejected = {loss.value, -loss.slope};
  }
  return out;
}

__device__ __forceinline__ void put_preference_loss(const MoveArgs& args, double sum) {
  const double factor = move_rules<PreferenceRules>(args).factor;
  preference_put(args, PreferencePlaces::kLoss, 0, factor == 0 ? 0 : sum * factor);
}

__device__ __forceinline__ double preference_pair(const MoveArgs& args, int64_t n) {
  using At = PreferencePlaces;
  const double beta = move_rules<PreferenceRules>(args).beta;
  const auto losses = preference_losses(args, n);
  if (losses.has_chosen) {
    preference_put(args, At::kPairLoss, n, losses.pair.value);
    preference_put(args, At::kChosenReward, n, beta * losses.hc);
  }
  if (losses.has_rejected) {
    preference_put(args, At::kRejectedLoss, n, losses.rejected.value);
    preference_put(args, At::kRejectedReward, n, beta * losses.hr);
  }
  return losses.pair.value + losses.rejected.value;
}

__device__ __forceinline__ void preference_gradients(const MoveArgs& args, int64_t n) {
  using At = PreferencePlaces;
  using formula::unless_weightless;
  const double factor = move_rules<PreferenceRules>(args).factor;
  const double of_loss = factor == 0 ? 0 : factor * preference_number(args, At::kGradLoss, 0);
  const auto losses = preference_losses(args, n);
  const double of_pair = of_loss + (losses.has_chosen ? preference_number(args, At::kGradPair, n) : 0);
  double of_rejected = unless_weightless(of_pair, losses.pair.rejected);
  if (losses.is_kto && losses.has_rejected) {
    const double own = of_loss + preference_number(args, At::kGradRejectedLoss, n);
    of_rejected = unless_weightless(own, losses.rejected.slope);
  }
  if (losses.has_chosen) {
    preference_put(args, At::kGradChosen, n, unless_weightless(of_pair, losses.pair.chosen));
  }
  if (losses.has_rejected) preference_put(args, At::kGradRejected, n, of_rejected);
}

}  // namespace rlk::simt
#endif

RLK_SIMT_MOVES_KERNEL(pairs, move_summed(
                                 args, [&](int64_t n) { return preference_pair(args, n); },
                                 [&](double sum) { put_preference_loss(args, sum); });)
RLK_SIMT_MOVES_KERNEL(total, move_total(args, [&](double sum) { put_preference_loss(args, sum); });)
RLK_SIMT_MOVES_UNITS(gradients, preference_gradients(args, unit);)

RLK_SIMT_MOVES(PreferenceLoss, ("pairs", "total"),
               with_rules(summed_by_blocks(std::max(call.N, call.M),
                                           {call.loss, call.pair_loss, call.rejected_loss, call.chosen_reward,
                                            call.rejected_reward, call.chosen_logp, call.rejected_logp,
                                            call.ref_chosen_logp, call.ref_rejected_logp, call.kl},
                                           {call.N, call.M}),
                          formula::preference_rules(call.params, static_cast<double>(call.N),
                                                    static_cast<double>(call.M))))
RLK_SIMT_MOVES(PreferenceLossBackward, ("gradients"),
               with_rules(of_batch(by_units(std::max(call.N, call.M),
                                            {call.grad_chosen_logp, call.grad_rejected_logp, call.grad_loss,
                                             call.grad_pair_loss, call.grad_rejected_loss, call.chosen_logp,
                                             call.rejected_logp, call.ref_chosen_logp, call.ref_rejected_logp, call.kl},
                                            {call.N, call.M})),
                          formula::preference_rules(call.params, static_cast<double>(call.N),
                                                    static_cast<double>(call.M))))
