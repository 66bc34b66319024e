// The pass that sums the losses, and those of the gradient.
#include "core/cpu/policy/policy_passes.hpp"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/cpu/policy/policy_passes.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "core/cpu/policy/policy_passes-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace rlk::cpu::HWY_NAMESPACE {

// Which tokens of a block are taken by covariance, as numbers that are not 0.
struct TakenTokens {
  HWY_INLINE void read(const PolicyBatch& batch, int64_t b, int64_t begin, int64_t n, const PolicyBlock& block) {
    any_ = batch.terms.covariance.last.place >= 0;
    if (!any_) return;
    std::fill(taken_, taken_ + kLineBlock, 0.0);
    for_each_key(batch, b, begin, n, block, [&](int64_t i, const CovarianceKey& key) {
      if (key <= batch.terms.covariance.last) taken_[i] = 1;
    });
  }
  HWY_INLINE PolicyMask at(int64_t i) const {
    const PolicyDoubles d;
    const PolicyVector zero = hn::Zero(d);
    return hn::Ne(any_ ? hn::LoadU(d, taken_ + i) : zero, zero);
  }

private:
  bool any_ = false;
  HWY_ALIGN double taken_[kLineBlock];
};

template <bool kMetrics, bool kPlain, bool kSingle>
HWY_INLINE void losses_of_chunks(const PolicyBatch& batch, PolicyChunkSums* sums, const ParallelFor& hook) {
  batch.for_each_chunk(hook, [&](int64_t chunk, int64_t b, int64_t begin, int64_t count) HWY_ATTR {
    const PolicySequence& own = batch.own_of(b);
    const double sequence_advantage = batch.sequence_advantage(b);
    const Line per_token = line_of(batch.sequences, batch.call.per_token, b);
    // Two sums that every batch needs stay in registers; the others have no room there.
    PolicyVector loss_sum = hn::Zero(PolicyDoubles()), active_sum = loss_sum;
    VectorSums<kMetrics || !kPlain ? kPolicySums : 1> of;
    TakenTokens taken;
    PolicyRatios ratios;
    const auto of_block = [&](int64_t at, int64_t n, const auto& block) HWY_ATTR {
      HWY_ALIGN double values[kLineBlock];
      if constexpr (!kPlain) taken.read(batch, b, at, n, block);
      ratios.read(batch, own, block, n);
      const PolicyState<kPlain> state(batch, own);
      const bool stores = per_token.present();
      PolicyVector summed = loss_sum, counted = active_sum;
      const auto of_vector = [&](const PolicyTokens& all, PolicyMask given, int64_t i) RLK_CPU_INLINE {
        const PolicyDoubles d;
        const PolicyTokens token = state.token(all);
        const auto counts = state.counts(token, given);
        const auto loss = state.loss(token, counts, ratios.at(i), kPlain ? given : taken.at(i));
        const auto active = counts.active;
        if (stores) hn::StoreU(hn::IfThenElseZero(active, loss.value), d, values + i);
        summed = hn::IfThenElse(active, hn::Add(summed, loss.value), summed);
        counted = hn::IfThenElse(active, hn::Add(counted, hn::Set(d, 1.0)), counted);
        if constexpr (!kPlain) {  // a plain batch selects all, and has no bonus
          of.add(kSumBonus, counts.selected, token.entropy);
          of.count(kSumSelected, counts.selected);
        }
        if constexpr (kMetrics) {
          of.add(kSumKl, active, loss.kl);
          of.add(kSumMinusX, active, hn::Sub(token.old_logp, token.logp));
          of.count(kSumClipped, hn::And(active, loss.term.clipped));
          of.count(kSumClippedLower, hn::And(active, loss.term.clipped_lower));
          of.count(kSumBelow, hn::And(active, loss.term.below));
          of.count(kSumAbove, hn::And(active, loss.term.above));
          of.add(kSumRatio, active, loss.ratio);
          of.add(kSumEntropy, active, token.entropy);
          of.add(kSumPhi, active, loss.term.phi);
          of.add(kSumWeight, active, counts.weight);
          of.count(kSumUnmasked, counts.unmasked);
          of.add(kSumRawWeight, counts.unmasked, counts.raw_weight);
          of.add(kSumRawSquare, counts.unmasked, hn::Mul(counts.raw_weight, counts.raw_weight));
        }
      };
      for_each_policy_vector(block, n, sequence_advantage, of_vector);
      loss_sum = summed;
      active_sum = counted;
      if (stores) write_line(static_cast<const double*>(values), n, per_token.from(at));
    };
    for_each_policy_block<kSingle>(policy_lines(batch, b, begin), begin, count, of_block);
    PolicySums& all = sums[chunk].of;
    all.fill(0);
    of.put(sums[chunk]);
    all[kSumLoss] = sum_of_vector(loss_sum);
    all[kSumActive] = sum_of_vector(active_sum);
    if constexpr (kPlain) all[kSumSelected] = all[kSumActive];
  });
}
template <bool kMetrics>
HWY_INLINE void losses_of_batch(const PolicyBatch& batch, PolicyChunkSums* sums, const ParallelFor& hook) {
  if (!batch.is_plain()) return losses_of_chunks<kMetrics, false, false>(batch, sums, hook);
  fits_float(batch) ? losses_of_chunks<kMetrics, true, true>(batch, sums, hook)
                    : losses_of_chunks<kMetrics, true, false>(batch, sums, hook);
}
void losses(const PolicyBatch& batch, bool metrics, PolicyChunkSums* sums, const ParallelFor& hook) {
  metrics ? losses_of_batch<true>(batch, sums, hook) : losses_of_batch<false>(batch, sums, hook);
}

template <bool kPlain>
HWY_INLINE void gradients_of_chunks(const PolicyBatch& batch, const PolicyGradients& out, PolicyChunkSums* sums,
                                    const ParallelFor& hook) {
  const auto gradient_of = [&](int64_t b) {
    return out.weights.weighted(out.grad_loss, out.weights.needs_counts() ? batch.own_of(b).active : 1);
  };
  // What flows through the quantity of the sequence is collected from all tokens before it is shared out.
  const bool shares = !kPlain && batch.rules.shares;
  if (shares) {
    batch.for_each_chunk(hook, [&](int64_t chunk, int64_t b, int64_t begin, int64_t count) HWY_ATTR {
      const PolicySequence& own = batch.own_of(b);
      const double of_loss = gradient_of(b), sequence_advantage = batch.sequence_advantage(b);
      VectorSums<1> through;
      PolicyRatios ratios;
      const auto of_block = [&](int64_t, int64_t n, const auto& block) HWY_ATTR {
        ratios.read(batch, own, block, n);
        const PolicyState<false> state(batch, own);
        const auto of_vector = [&](const PolicyTokens& token, PolicyMask given, int64_t i) HWY_ATTR {
          const auto counts = state.counts(token, given);
          const PolicyVector g = hn::Add(hn::Set(PolicyDoubles(), of_loss), token.grad_per_token);
          // No kind that takes tokens by covariance shares.
          const auto loss = state.loss(token, counts, ratios.at(i), given);
          through.add(0, counts.active, weighted(PolicyDoubles(), g, loss.d_sequence));
        };
        for_each_policy_vector(block, n, sequence_advantage, of_vector);
      };
      for_each_policy_block(policy_lines(batch, b, begin), begin, count, of_block);
      sums[chunk].of[0] = through.sum(0);
    });
  }
  batch.for_each_chunk(hook, [&](int64_t, int64_t b, int64_t begin, int64_t count) HWY_ATTR {
    const PolicySequence& own = batch.own_of(b);
    const double of_loss = gradient_of(b), sequence_advantage = batch.sequence_advantage(b);
    const double through = shares ? sum_of(batch, sums, b, 0) : 0.0;
    const auto lines = policy_lines(batch, b, begin);
    const auto grad_logp = to(line_of(batch.sequences, out.grad_logp, b).from(begin));
    Outputs<double, 1> output(grad_logp, lines);
    const Line grad_entropy = line_of(batch.sequences, out.grad_entropy, b);
    TakenTokens taken;
    PolicyRatios ratios;
    const auto of_block = [&](int64_t at, int64_t n, const auto& block) HWY_ATTR {
      HWY_ALIGN double entropy[kLineBlock];
      if constexpr (!kPlain) taken.read(batch, b, at, n, block);
      ratios.read(batch, own, block, n);
      const PolicyState<kPlain> state(batch, own);
      output.begin(at - begin, n);
      const auto of_vector = [&](const PolicyTokens& all, PolicyMask given, int64_t i) RLK_CPU_INLINE {
        const PolicyDoubles d;
        const PolicyTokens token = state.token(all);
        const auto counts = state.counts(token, given);
        const PolicyVector g = hn::Add(hn::Set(d, of_loss), token.grad_per_token);
        const auto loss = state.loss(token, counts, ratios.at(i), kPlain ? given : taken.at(i));
        PolicyVector grad = weighted(d, g, loss.d_own);
        if (shares) {
          const PolicyVector share = share_of(d, batch.rules, own, token, counts);
          grad = hn::Add(times(d, hn::Set(d, through), share), grad);
        }
        const PolicyVector of_bonus =
            hn::Mul(hn::Set(d, -batch.rules.entropy_coefficient), out.own_bonus ? hn::Set(d, out.of_bonus) : g);
        output.put(d, i, hn::IfThenElseZero(counts.active, grad));
        if (grad_entropy.present()) hn::StoreU(hn::IfThenElseZero(counts.selected, of_bonus), d, entropy + i);
      };
      for_each_policy_vector(block, n, sequence_advantage, of_vector);
      output.end(at - begin, n);
      if (grad_entropy.present()) write_line(static_cast<const double*>(entropy), n, grad_entropy.from(at));
    };
    for_each_policy_block<kPlain>(lines, begin, count, of_block);
  });
}

void gradients(const PolicyBatch& batch, const PolicyGradients& out, PolicyChunkSums* sums, const ParallelFor& hook) {
  if (batch.is_plain() && fits_float(batch)) return gradients_of_chunks<true>(batch, out, sums, hook);
  gradients_of_chunks<false>(batch, out, sums, hook);
}

}  // namespace rlk::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rlk::cpu {

HWY_EXPORT(losses);
HWY_EXPORT(gradients);

void policy_losses(const PolicyBatch& batch, bool metrics, PolicyChunkSums* sums, const ParallelFor& hook) {
  HWY_DYNAMIC_DISPATCH(losses)(batch, metrics, sums, hook);
}
void policy_gradients(const PolicyBatch& batch, const PolicyGradients& out, PolicyChunkSums* sums,
                      const ParallelFor& hook) {
  HWY_DYNAMIC_DISPATCH(gradients)(batch, out, sums, hook);
}

}  // namespace rlk::cpu
#endif  // HWY_ONCE
