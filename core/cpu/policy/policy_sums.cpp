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

enum CorrectionSum { kTokens, kR, kDivergence, kK1, kK2, kK3, kCorrectionSums };

void corrections(const PolicyBatch& batch, PolicyChunkSums* sums, const ParallelFor& hook) {
  constexpr int kLargestK2 = kCorrectionSums, kLargestK3 = kLargestK2 + 1;
  batch.for_each_chunk(hook, [&](int64_t chunk, int64_t b, int64_t begin, int64_t count) HWY_ATTR {
    VectorSums<kLargestK3 + 1> own;
    const auto of_block = [&](int64_t, int64_t n, const PolicyBlock& block) HWY_ATTR {
      for_each_policy_vector(block, n, 0, [&](const PolicyTokens& token, PolicyMask given, int64_t) HWY_ATTR {
        const auto unmasked = hn::And(given, hn::Ne(token.mask, hn::Zero(PolicyDoubles())));
        const RolloutTokens rollout = rollout_of(batch, token);
        own.count(kTokens, unmasked);
        own.add(kR, unmasked, rollout.r);
        own.add(kDivergence, unmasked, rollout.divergence);
        if (!batch.rules.rejects_sequences) return;
        const RolloutEstimates k = estimates_of(batch, rollout.r);
        own.add(kK1, unmasked, k.k1);
        own.add(kK2, unmasked, k.k2);
        own.add(kK3, unmasked, k.k3);
        own.raise(kLargestK2, unmasked, k.k2);
        own.raise(kLargestK3, unmasked, k.k3);
      });
    };
    for_each_policy_block(policy_lines(batch, b, begin, true), begin, count, of_block);
    own.put(sums[chunk]);
    sums[chunk].of[kLargestK2] = own.largest(kLargestK2);
    sums[chunk].of[kLargestK3] = own.largest(kLargestK3);
  });

  const PolicyParams& params = batch.params;
  const PolicyDoubles d;
  const double bound = batch.rules.r_bound;
  const auto clamped_exp = [bound](double r) { return std::exp(std::min(std::max(r, -bound), bound)); };
  for (int64_t b = 0; b < batch.sequences.count; ++b) {
    PolicySequence& own = batch.own[b];
    double of[kLargestK3 + 1];
    for (int i = 0; i < kCorrectionSums; ++i) of[i] = sum_of(batch, sums, b, i);
    for (const int i : {kLargestK2, kLargestK3}) of[i] = largest_of(batch, sums, b, i);
    const double tokens = of[kTokens];
    if (tokens == 0) continue;
    const auto keeps = [&](const RejectionBounds& bounds, double k1, double k2, double k3) HWY_ATTR {
      return hn::AllTrue(d, is_kept(bounds, {hn::Set(d, k1), hn::Set(d, k2), hn::Set(d, k3)}));
    };
    own.rejected = batch.rules.rejects_sequences &&
                   !(keeps(batch.rules.sequence_sum, of[kK1], of[kK2], of[kK3]) &&
                     keeps(batch.rules.sequence_mean, of[kK1] / tokens, of[kK2] / tokens, of[kK3] / tokens) &&
                     keeps(batch.rules.sequence_max, 0, of[kLargestK2], of[kLargestK3]));
    const bool by_mean = params.rollout_sequence == RolloutSequence::mean;
    const double low = params.rollout_is_min, high = params.rollout_is_max;
    const double ratio = clamped_exp(by_mean ? of[kR] / tokens : of[kR]);
    if (params.rollout_is == RolloutIs::sequence_truncate) own.weight = std::min(std::max(ratio, low), high);
    if (params.rollout_is == RolloutIs::sequence_mask) own.weight = ratio >= low && ratio <= high ? ratio : 0.0;
    const bool by_ratio = params.rollout_gate == RolloutGate::ratio;
    const double gate = by_ratio ? clamped_exp(of[kR] / tokens) : of[kDivergence] / tokens;
    own.keeps_weights = gate >= low && gate <= high;
  }
}

constexpr double kLeastLog = -18.420680743952367;  // log(1e-8), of vespo: of log w and of their sum

enum SequenceSum { kActive, kSelected, kX, kOff, kL, kMeant, kAdvantage, kLogWeight, kU, kSequenceSums };

template <bool kOnlyCounts>
HWY_INLINE void sum_sequence_terms(const PolicyBatch& batch, PolicyChunkSums* sums, const ParallelFor& hook) {
  const PolicyParams& params = batch.params;
  batch.for_each_chunk(hook, [&](int64_t chunk, int64_t b, int64_t begin, int64_t count) HWY_ATTR {
    const PolicySequence& own = batch.own_of(b);
    const double sequence_advantage = batch.sequence_advantage(b);
    using Sums = VectorSums<kOnlyCounts ? kSelected + 1 : kSequenceSums>;
    Sums all;
    const auto of_block = [&](int64_t, int64_t n, const PolicyBlock& block) HWY_ATTR {
      Sums of = all;  // where they are two they stay in registers
      for_each_policy_vector(
          block, n, sequence_advantage, [&](const PolicyTokens& token, PolicyMask given, int64_t) RLK_CPU_INLINE {
            const PolicyDoubles d;
            const PolicyCounts counts = count_tokens(batch, own, token, given);
            of.count(kActive, counts.active);
            of.count(kSelected, counts.selected);
            if constexpr (kOnlyCounts) return;
            const PolicyVector x = hn::Sub(token.logp, token.old_logp);
            of.add(kX, counts.active, x);
            if (params.opsm == Opsm::old) of.add(kOff, counts.active, hn::Sub(token.old_logp, token.logp));
            if (params.opsm == Opsm::rollout) {
              auto counted = counts.active;
              if (params.rollout_missing == RolloutMissing::one) {
                counted = hn::AndNot(hn::IsNaN(token.rollout_logp), counted);
              }
              of.add(kOff, counted, hn::Sub(token.rollout_logp, token.logp));
            }
            if (params.kind == Kind::gmpo) {
              const auto is_meant = params.gmpo_mean == GmpoMean::active ? counts.active : counts.selected;
              const PolicyVector log_ratio = clamped(d, x, batch.rules.x_low, batch.rules.x_high);
              of.add(kL, is_meant, geometric_term(d, batch.rules, token.advantage, log_ratio).value);
              of.count(kMeant, is_meant);
              of.add(kAdvantage, counts.active, token.advantage);
              if (batch.rules.has_rollout) {
                of.add(kLogWeight, counts.active, log_of(d, hn::Add(counts.weight, hn::Set(d, 1e-10))));
              }
            }
            if (params.kind == Kind::vespo) {
              of.add(kU, counts.active, clamped(d, x, -20, 20));
              if (batch.rules.has_rollout)
                of.add(kU, counts.active, clamped(d, log_of(d, counts.weight), kLeastLog, 20));
            }
          });
      all = of;
    };
    for_each_policy_block(policy_lines(batch, b, begin, kOnlyCounts), begin, count, of_block);
    all.put(sums[chunk]);
  });
}

void sequence_terms(const PolicyBatch& batch, PolicyChunkSums* sums, const ParallelFor& hook) {
  const PolicyParams& params = batch.params;
  const bool only_counts = !batch.rules.has_terms;
  // Nothing masks, rejects or selects: every token counts.
  if (only_counts && !batch.call.mask.present() && !batch.rules.has_rollout && !batch.terms.selects) {
    for (int64_t b = 0; b < batch.sequences.count; ++b) {
      batch.own[b].active = batch.own[b].selected = static_cast<double>(batch.sequences.tokens(b));
    }
    return;
  }
  only_counts ? sum_sequence_terms<true>(batch, sums, hook) : sum_sequence_terms<false>(batch, sums, hook);
  for (int64_t b = 0; b < batch.sequences.count; ++b) {
    PolicySequence& own = batch.own[b];
    own.active = sum_of(batch, sums, b, kActive);
    own.selected = sum_of(batch, sums, b, kSelected);
    if (only_counts || own.active == 0) continue;
    const auto sum = [&](int i) { return sum_of(batch, sums, b, i); };
    const double n = own.active, low = batch.rules.x_low, high = batch.rules.x_high;
    const double x = params.importance_ratio == ImportanceRatio::sequence_sum ? sum(kX) : sum(kX) / n;
    own.log_ratio = std::min(std::max(x, low), high);
    own.log_ratio_slope = cpu::clamp_gradient(x, low, high, batch.rules.at_bound);
    own.off_policy = sum(kOff) / n;
    own.meant = std::max(sum(kMeant), 1.0);
    const double power = std::exp(sum(kL) / own.meant), advantage = sum(kAdvantage) / n;
    own.geometric = advantage == 0 && std::isinf(power) ? 0 : -advantage * power;
    own.geometric_weight = std::exp(sum(kLogWeight) / n);
    const double u = std::min(std::max(sum(kU), kLeastLog), 20.0);
    const auto phi_of = [u](double k, double given) {
      const double lambda = std::max(given, 1e-4), phi = std::exp(lambda + k * u - lambda * std::exp(u));
      return std::isfinite(phi) ? phi : 0.0;
    };
    own.phi_positive = phi_of(params.vespo_k_positive, params.vespo_lambda_positive);
    own.phi_negative = phi_of(params.vespo_k_negative, params.vespo_lambda_negative);
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
                               const PolicyCounts counts = count_tokens(batch, own, token, given);
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
