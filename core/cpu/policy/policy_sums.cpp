// What passes before the losses find: corrections and terms of whole sequences, sums of the batch, and which tokens are
// taken by covariance.
#include "core/cpu/policy/policy_passes.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/cpu/policy/policy_sums.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "core/cpu/policy/policy_passes-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace rlk::cpu::HWY_NAMESPACE {

// The largest of chunks' numbers of a sequence; a NaN stays it.
double largest_of(const PolicyBatch& batch, const PolicyChunkSums* sums, int64_t b, int i) {
  double largest = 0;
  for (int64_t chunk = batch.chunks[b]; chunk < batch.chunks[b + 1]; ++chunk) {
    const double own = sums[chunk].of[i];
    if (!(largest >= own || std::isnan(largest))) largest = own;
  }
  return largest;
}

using formula::CorrectionSum;
using formula::kLeastLog;
using formula::TermSum;

void corrections(const PolicyBatch& batch, PolicyChunkSums* sums, const ParallelFor& hook) {
  using Sum = CorrectionSum;
  batch.for_each_chunk(hook, [&](int64_t chunk, int64_t b, int64_t begin, int64_t count) HWY_ATTR {
    VectorSums<Sum::kAll> own;
    const auto of_block = [&](int64_t, int64_t n, const PolicyBlock& block) HWY_ATTR {
      for_each_policy_vector(block, n, 0, [&](const PolicyTokens& token, PolicyMask given, int64_t) HWY_ATTR {
        const PolicyDoubles d;
        const auto unmasked = hn::And(given, hn::Ne(token.mask, hn::Zero(d)));
        const RolloutToken<PolicyVector> rollout = rollout_of(d, batch.rules, token);
        own.count(Sum::kTokens, unmasked);
        own.add(Sum::kR, unmasked, rollout.r);
        own.add(Sum::kDivergence, unmasked, rollout.divergence);
        if (!batch.rules.rejects_sequences) return;
        const Three<PolicyVector> k = rollout_estimates(d, batch.rules, rollout.r);
        own.add(Sum::kK1, unmasked, k.first);
        own.add(Sum::kK2, unmasked, k.second);
        own.add(Sum::kK3, unmasked, k.third);
        own.raise(Sum::kLargestK2, unmasked, k.second);
        own.raise(Sum::kLargestK3, unmasked, k.third);
      });
    };
    for_each_policy_block(policy_lines(batch, b, begin, true), begin, count, of_block);
    own.put(sums[chunk]);
    for (const int i : {Sum::kLargestK2, Sum::kLargestK3}) sums[chunk].of[i] = own.largest(i);
  });

  const auto keeps = [](const RejectionBounds& bounds, double k1, double k2, double k3) HWY_ATTR {
    const PolicyDoubles d;
    return hn::AllTrue(d, is_kept(d, bounds, Three<PolicyVector>{hn::Set(d, k1), hn::Set(d, k2), hn::Set(d, k3)}));
  };
  for (int64_t b = 0; b < batch.sequences.count; ++b) {
    double of[Sum::kAll];
    for (int i = 0; i < Sum::kLargestK2; ++i) of[i] = sum_of(batch, sums, b, i);
    for (const int i : {Sum::kLargestK2, Sum::kLargestK3}) of[i] = largest_of(batch, sums, b, i);
    batch.own[b] = formula::corrected_sequence(batch.rules, of, keeps);
  }
}

template <bool kOnlyCounts>
HWY_INLINE void sum_sequence_terms(const PolicyBatch& batch, PolicyChunkSums* sums, const ParallelFor& hook) {
  const PolicyRules& rules = batch.rules;
  using Sum = TermSum;
  batch.for_each_chunk(hook, [&](int64_t chunk, int64_t b, int64_t begin, int64_t count) HWY_ATTR {
    const PolicySequence& own = batch.own_of(b);
    const double sequence_advantage = batch.sequence_advantage(b);
    using Sums = VectorSums<kOnlyCounts ? Sum::kSelected + 1 : Sum::kAll>;
    Sums all;
    const auto of_block = [&](int64_t, int64_t n, const PolicyBlock& block) HWY_ATTR {
      Sums of = all;  // where they are two they stay in registers
      for_each_policy_vector(
          block, n, sequence_advantage, [&](const PolicyTokens& token, PolicyMask given, int64_t) RLK_CPU_INLINE {
            const PolicyDoubles d;
            const auto counts = count_token(d, rules, batch.terms.weight_divisor, own, token, given);
            of.count(Sum::kActive, counts.active);
            of.count(Sum::kSelected, counts.selected);
            if constexpr (kOnlyCounts) return;
            const PolicyVector x = hn::Sub(token.logp, token.old_logp);
            of.add(Sum::kX, counts.active, x);
            if (rules.opsm == PolicyRules::Opsm::old) {
              of.add(Sum::kOff, counts.active, hn::Sub(token.old_logp, token.logp));
            }
            if (rules.opsm == PolicyRules::Opsm::rollout) {
              auto counted = counts.active;
              if (rules.missing_is_one) counted = hn::AndNot(hn::IsNaN(token.rollout_logp), counted);
              of.add(Sum::kOff, counted, hn::Sub(token.rollout_logp, token.logp));
            }
            if (rules.kind == PolicyRules::Kind::gmpo) {
              const auto is_meant = rules.means_selected ? counts.selected : counts.active;
              const PolicyVector log_ratio = clamped(d, x, rules.x_low, rules.x_high);
              of.add(Sum::kL, is_meant, geometric_term(d, rules, token.advantage, log_ratio).value);
              of.count(Sum::kMeant, is_meant);
              of.add(Sum::kAdvantage, counts.active, token.advantage);
              if (rules.has_rollout) {
                of.add(Sum::kLogWeight, counts.active, log_of(d, hn::Add(counts.weight, hn::Set(d, 1e-10))));
              }
            }
            if (rules.kind == PolicyRules::Kind::vespo) {
              of.add(Sum::kU, counts.active, clamped(d, x, -20, 20));
              if (rules.has_rollout) {
                of.add(Sum::kU, counts.active, clamped(d, log_of(d, counts.weight), kLeastLog, 20));
              }
            }
          });
      all = of;
    };
    for_each_policy_block(policy_lines(batch, b, begin, kOnlyCounts), begin, count, of_block);
    all.put(sums[chunk]);
  });
}

void sequence_terms(const PolicyBatch& batch, PolicyChunkSums* sums, const ParallelFor& hook) {
  using Sum = TermSum;
  const bool only_counts = !batch.rules.has_terms;
  // Nothing masks, rejects or selects: every token counts.
  if (only_counts && !batch.call.mask.present() && !batch.rules.has_rollout && !batch.rules.selects) {
    for (int64_t b = 0; b < batch.sequences.count; ++b) {
      batch.own[b].active = batch.own[b].selected = static_cast<double>(batch.sequences.tokens(b));
    }
    return;
  }
  only_counts ? sum_sequence_terms<true>(batch, sums, hook) : sum_sequence_terms<false>(batch, sums, hook);
  for (int64_t b = 0; b < batch.sequences.count; ++b) {
    double of[Sum::kAll] = {};
    for (int i = 0; i < (only_counts ? Sum::kSelected + 1 : Sum::kAll); ++i) of[i] = sum_of(batch, sums, b, i);
    if (only_counts) {
      batch.own[b].active = of[Sum::kActive];
      batch.own[b].selected = of[Sum::kSelected];
    } else {
      formula::put_terms(batch.rules, of, batch.own[b]);
    }
  }
}

void batch_sums(const PolicyBatch& batch, PolicyBatchSums* of_batch, double* entropies, const ParallelFor& hook) {
  const bool by_covariance = takes_by_covariance(batch.params.kind);
  for_each_sequence(batch.sequences, hook, [&](int64_t b) HWY_ATTR {
    const PolicySequence& own = batch.own_of(b);
    const double sequence_advantage = batch.sequence_advantage(b);
    PolicyBatchSums of;
    VectorSums<2> weights;
    double* next = entropies != nullptr ? entropies + batch.first_token(b) : nullptr;
    const auto of_block = [&](int64_t, int64_t n, const PolicyBlock& block) HWY_ATTR {
      const PolicyDoubles d;
      HWY_ALIGN double active[kLineBlock], entropy[kLineBlock], advantage[kLineBlock], logp[kLineBlock];
      for_each_policy_vector(block, n, sequence_advantage,
                             [&](const PolicyTokens& token, PolicyMask given, int64_t i) HWY_ATTR {
                               const auto counts = count_token(d, batch.rules, 1, own, token, given);
                               weights.add(0, counts.unmasked, counts.raw_weight);
                               weights.count(1, counts.unmasked);
                               hn::StoreU(hn::IfThenElseZero(counts.active, hn::Set(d, 1.0)), d, active + i);
                               hn::StoreU(token.entropy, d, entropy + i);
                               hn::StoreU(token.advantage, d, advantage + i);
                               hn::StoreU(token.logp, d, logp + i);
                             });
      for (int64_t i = 0; i < n; ++i) {
        if (active[i] == 0) continue;
        of.active += 1;
        if (next != nullptr) *next++ = entropy[i];
        if (!by_covariance) continue;
        // Added in the order that the declaration has: what is taken depends on their last bits.
        of.advantage += advantage[i];
        of.logp += logp[i];
      }
    };
    for_each_policy_block(policy_lines(batch, b, 0), 0, batch.sequences.tokens(b), of_block);
    of.weight = weights.sum(0);
    of.weights = weights.sum(1);
    if (batch.rules.has_sequence_weights() && of.weights > 0) {
      of.weight = own.weight;
      of.weights = 1;
    }
    of_batch[b] = of;
  });
}

void covariance_keys(const PolicyBatch& batch, PolicyBatchSums* own, CovarianceKey* keys, const ParallelFor& hook) {
  for_each_sequence(batch.sequences, hook, [&](int64_t b) HWY_ATTR {
    CovarianceKey* const first = keys + batch.first_token(b);
    const auto of_block = [&](int64_t at, int64_t n, const PolicyBlock& block) HWY_ATTR {
      for_each_key(batch, b, at, n, block, [&](int64_t, const CovarianceKey& key) { first[own[b].keys++] = key; });
    };
    for_each_policy_block(policy_lines(batch, b, 0), 0, batch.sequences.tokens(b), of_block);
  });
}

}  // namespace rlk::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rlk::cpu {

HWY_EXPORT(corrections);
HWY_EXPORT(sequence_terms);
HWY_EXPORT(batch_sums);
HWY_EXPORT(covariance_keys);

void policy_corrections(const PolicyBatch& batch, PolicyChunkSums* sums, const ParallelFor& hook) {
  HWY_DYNAMIC_DISPATCH(corrections)(batch, sums, hook);
}
void policy_sequence_terms(const PolicyBatch& batch, PolicyChunkSums* sums, const ParallelFor& hook) {
  HWY_DYNAMIC_DISPATCH(sequence_terms)(batch, sums, hook);
}
void policy_batch_sums(const PolicyBatch& batch, PolicyBatchSums* own, double* entropies, const ParallelFor& hook) {
  HWY_DYNAMIC_DISPATCH(batch_sums)(batch, own, entropies, hook);
}
void policy_keys(const PolicyBatch& batch, PolicyBatchSums* own, CovarianceKey* keys, const ParallelFor& hook) {
  HWY_DYNAMIC_DISPATCH(covariance_keys)(batch, own, keys, hook);
}

}  // namespace rlk::cpu
#endif  // HWY_ONCE
