// Every pass keeps its sums in vectors, a chain per lane and chunk, and adds chunks in their order.
#include "core/cpu/policy/policy_passes.hpp"

#include <cmath>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/cpu/policy/policy_passes.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "core/cpu/policy/policy_tokens-inl.hpp"

// Of a lambda that is called for every vector: its arguments and sums are to stay in registers.
#undef RLK_CPU_INLINE
#define RLK_CPU_INLINE HWY_ATTR __attribute__((always_inline))

HWY_BEFORE_NAMESPACE();
namespace rlk::cpu::HWY_NAMESPACE {

HWY_INLINE double sum_of_vector(PolicyVector v) {
  const PolicyDoubles d;
  return hn::GetLane(hn::SumOfLanes(d, v));
}

// Sums of vectors under names of an enumeration.
template <int kSums>
class VectorSums {
public:
  VectorSums() {
    for (int i = 0; i < kSums; ++i) sums_[i] = hn::Zero(PolicyDoubles());
  }
  HWY_INLINE void add(int i, PolicyMask where, PolicyVector v) {
    sums_[i] = hn::IfThenElse(where, hn::Add(sums_[i], v), sums_[i]);  // one instruction where lanes have masks
  }
  HWY_INLINE void count(int i, PolicyMask where) { add(i, where, hn::Set(PolicyDoubles(), 1.0)); }
  HWY_INLINE void raise(int i, PolicyMask where, PolicyVector v) {  // a NaN stays the largest
    const auto stays = hn::Or(hn::Not(where), hn::Or(hn::Ge(sums_[i], v), hn::IsNaN(sums_[i])));
    sums_[i] = hn::IfThenElse(stays, sums_[i], v);
  }
  HWY_INLINE double sum(int i) const { return sum_of_vector(sums_[i]); }
  double largest(int i) const {
    double lanes[hn::MaxLanes(PolicyDoubles())];
    hn::StoreU(sums_[i], PolicyDoubles(), lanes);
    double all = lanes[0];
    for (size_t k = 1; k < hn::Lanes(PolicyDoubles()); ++k) {
      if (!(all >= lanes[k] || std::isnan(all))) all = lanes[k];
    }
    return all;
  }
  void put(PolicyChunkSums& chunk) const {
    for (int i = 0; i < kSums; ++i) chunk.of[i] = sum(i);
  }

private:
  PolicyVector sums_[kSums];
};

// Calls function(tokens, which are there, place in the block) for the vectors of a block.
template <class B, class Function>
HWY_INLINE void for_each_policy_vector(const B& block, int64_t n, double sequence_advantage, const Function& function) {
  const PolicyDoubles d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const PolicyVector advantage = hn::Set(d, sequence_advantage);
  int64_t i = 0;
  if constexpr (std::is_same_v<B, SinglePolicyBlock>) {  // a second instance, without the question which are there
    for (; i + lanes <= n; i += lanes) {
      function(tokens_at(block, i, advantage), hn::FirstN(d, hn::Lanes(d)), i);
    }
  }
  for (; i < n; i += lanes) {
    function(tokens_at(block, i, advantage), hn::FirstN(d, static_cast<size_t>(n - i)), i);
  }
}

// The sum of chunks' numbers of a sequence, and the largest.
double sum_of(const PolicyBatch& batch, const PolicyChunkSums* sums, int64_t b, int i) {
  double sum = 0;
  for (int64_t chunk = batch.chunks[b]; chunk < batch.chunks[b + 1]; ++chunk) sum += sums[chunk].of[i];
  return sum;
}
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
    const double low = params.rollout_is_min, high = params.rollout_is_max, ratio = clamped_exp(of[kR]);
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
      Sums of = all;  // two stay in registers
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
              of.add(kL, is_meant, geometric_term(d, batch, token.advantage, log_ratio).value);
              of.count(kMeant, is_meant);
              of.add(kAdvantage, counts.active, token.advantage);
              if (batch.has_rollout) {
                of.add(kLogWeight, counts.active, log_of(d, hn::Add(counts.weight, hn::Set(d, 1e-10))));
              }
            }
            if (params.kind == Kind::vespo) {
              of.add(kU, counts.active, clamped(d, x, -20, 20));
              if (batch.has_rollout) of.add(kU, counts.active, clamped(d, log_of(d, counts.weight), kLeastLog, 20));
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
  const bool only_counts = !batch.has_sequence_terms();
  if (only_counts && !batch.call.mask.present() && !batch.has_rollout && !batch.terms.selects) {
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
    own.geometric = -(sum(kAdvantage) / n) * std::exp(sum(kL) / own.meant);
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
        // Added in the order that the declaration has: what is taken hangs on their last bits.
        of.advantage += advantage[i];
        of.logp += logp[i];
      }
    };
    for_each_policy_block(policy_lines(batch, b, 0), 0, batch.sequences.tokens(b), of_block);
    of.weight = weights.sum(0);
    of.weights = weights.sum(1);
    if (batch.has_sequence_weights() && of.weights > 0) {
      of.weight = own.weight;
      of.weights = 1;
    }
    of_batch[b] = of;
  });
}

// Calls function(place in the block, key) for the tokens of a block that may be taken by covariance.
template <class Function>
HWY_INLINE void for_each_key(const PolicyBatch& batch, int64_t b, int64_t begin, int64_t n, const PolicyBlock& block,
                             const Function& function) {
  HWY_ALIGN double active[kLineBlock], clipped[kLineBlock], advantage[kLineBlock], logp[kLineBlock];
  const PolicyDoubles d;
  const PolicyVector one = hn::Set(d, 1.0);
  const PolicySequence& own = batch.own_of(b);
  PolicyRatios ratios;
  ratios.read(batch, own, block, n);
  const auto of_vector = [&](const PolicyTokens& token, PolicyMask given, int64_t i) HWY_ATTR {
    const PolicyInput<PolicyDoubles> input = input_of(batch, own, token, ratios.at(i), given);
    const auto is_clipped = hn::Or(ppo(d, batch, input).clipped, hn::IsNaN(input.log_ratio));
    hn::StoreU(hn::IfThenElseZero(count_tokens(batch, own, token, given).active, one), d, active + i);
    hn::StoreU(hn::IfThenElseZero(is_clipped, one), d, clipped + i);
    hn::StoreU(token.advantage, d, advantage + i);
    hn::StoreU(token.logp, d, logp + i);
  };
  for_each_policy_vector(block, n, batch.sequence_advantage(b), of_vector);
  for (int64_t i = 0; i < n; ++i) {
    CovarianceKey key;
    key.place = batch.first_token(b) + begin + i;
    const CovarianceToken token = {logp[i], advantage[i], clipped[i] != 0};
    if (active[i] == 0 || !covariance_key(batch.params, token, batch.terms.covariance, b, begin + i, &key.key))
      continue;
    function(i, key);
  }
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

// Tells the compiler, at every vector, what a plain batch of fp32 has not got: it makes a pass of its own without all
// that.
template <bool kPlain>
HWY_INLINE PolicyTokens assume_plain(const PolicyBatch& batch, const PolicySequence& own, PolicyTokens token) {
  if constexpr (kPlain) {
    if (!batch.is_plain() || own.rejected) __builtin_unreachable();
    token.weight = hn::Set(PolicyDoubles(), 1.0);
  }
  return token;
}

template <bool kMetrics, bool kPlain>
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
      const bool stores = per_token.present();
      PolicyVector losses = loss_sum, actives = active_sum;
      const auto of_vector = [&](const PolicyTokens& all, PolicyMask given, int64_t i) RLK_CPU_INLINE {
        const PolicyTokens token = assume_plain<kPlain>(batch, own, all);
        const PolicyDoubles d;
        const PolicyCounts counts = count_tokens(batch, own, token, given);
        const PolicyLosses loss = losses_of(batch, own, token, counts, ratios.at(i), kPlain ? given : taken.at(i));
        const auto active = counts.active;
        if (stores) hn::StoreU(hn::IfThenElseZero(active, loss.value), d, values + i);
        losses = hn::IfThenElse(active, hn::Add(losses, loss.value), losses);
        actives = hn::IfThenElse(active, hn::Add(actives, hn::Set(d, 1.0)), actives);
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
      loss_sum = losses;
      active_sum = actives;
      if (stores) write_line(static_cast<const double*>(values), n, per_token.from(at));
    };
    for_each_policy_block<kPlain>(policy_lines(batch, b, begin), begin, count, of_block);
    PolicySums& all = sums[chunk].of;
    all.fill(0);
    of.put(sums[chunk]);
    all[kSumLoss] = sum_of_vector(loss_sum);
    all[kSumActive] = sum_of_vector(active_sum);
    if constexpr (kPlain) all[kSumSelected] = all[kSumActive];
  });
}
void losses(const PolicyBatch& batch, bool metrics, PolicyChunkSums* sums, const ParallelFor& hook) {
  if (batch.is_plain() && is_single(batch)) {
    if (metrics) return losses_of_chunks<true, true>(batch, sums, hook);
    return losses_of_chunks<false, true>(batch, sums, hook);
  }
  if (metrics) return losses_of_chunks<true, false>(batch, sums, hook);
  losses_of_chunks<false, false>(batch, sums, hook);
}

template <bool kPlain>
HWY_INLINE void gradients_of_chunks(const PolicyBatch& batch, const PolicyGradients& out, PolicyChunkSums* sums,
                                    const ParallelFor& hook) {
  const PolicyParams& params = batch.params;
  const auto gradient_of = [&](int64_t b) {
    return out.weights.weighted(out.grad_loss, out.weights.needs_counts() ? batch.own_of(b).active : 1);
  };
  // What flows through the quantity of the sequence is collected from all tokens before it is shared out.
  const bool shares = !kPlain && (has_shared_ratio(params) || params.kind == Kind::gmpo);
  if (shares) {
    batch.for_each_chunk(hook, [&](int64_t chunk, int64_t b, int64_t begin, int64_t count) HWY_ATTR {
      const PolicySequence& own = batch.own_of(b);
      const double of_loss = gradient_of(b), sequence_advantage = batch.sequence_advantage(b);
      VectorSums<1> through;
      PolicyRatios ratios;
      const auto of_block = [&](int64_t, int64_t n, const auto& block) HWY_ATTR {
        ratios.read(batch, own, block, n);
        const auto of_vector = [&](const PolicyTokens& token, PolicyMask given, int64_t i) HWY_ATTR {
          const PolicyCounts counts = count_tokens(batch, own, token, given);
          const PolicyVector g = hn::Add(hn::Set(PolicyDoubles(), of_loss), token.grad_per_token);
          // No kind that takes tokens by covariance shares.
          const PolicyLosses loss = losses_of(batch, own, token, counts, ratios.at(i), given);
          through.add(0, counts.active, hn::Mul(g, loss.d_sequence));
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
    Outputs<double, 1> gradients(grad_logp, lines);
    const Line grad_entropy = line_of(batch.sequences, out.grad_entropy, b);
    TakenTokens taken;
    PolicyRatios ratios;
    const auto of_block = [&](int64_t at, int64_t n, const auto& block) HWY_ATTR {
      HWY_ALIGN double entropy[kLineBlock];
      if constexpr (!kPlain) taken.read(batch, b, at, n, block);
      ratios.read(batch, own, block, n);
      gradients.begin(at - begin, n);
      const auto of_vector = [&](const PolicyTokens& all, PolicyMask given, int64_t i) RLK_CPU_INLINE {
        const PolicyTokens token = assume_plain<kPlain>(batch, own, all);
        const PolicyDoubles d;
        const PolicyCounts counts = count_tokens(batch, own, token, given);
        const PolicyVector g = hn::Add(hn::Set(d, of_loss), token.grad_per_token);
        PolicyVector grad =
            hn::Mul(g, losses_of(batch, own, token, counts, ratios.at(i), kPlain ? given : taken.at(i)).d_own);
        if (shares) grad = hn::MulAdd(hn::Set(d, through), share_of(batch, own, token, counts), grad);
        const PolicyVector of_bonus =
            hn::Mul(hn::Set(d, -params.entropy_coefficient), out.own_bonus ? hn::Set(d, out.of_bonus) : g);
        gradients.put(d, i, hn::IfThenElseZero(counts.active, grad));
        if (grad_entropy.present()) hn::StoreU(hn::IfThenElseZero(counts.selected, of_bonus), d, entropy + i);
      };
      for_each_policy_vector(block, n, sequence_advantage, of_vector);
      gradients.end(at - begin, n);
      if (grad_entropy.present()) write_line(static_cast<const double*>(entropy), n, grad_entropy.from(at));
    };
    for_each_policy_block<kPlain>(lines, begin, count, of_block);
  });
}

void gradients(const PolicyBatch& batch, const PolicyGradients& out, PolicyChunkSums* sums, const ParallelFor& hook) {
  if (batch.is_plain() && is_single(batch)) return gradients_of_chunks<true>(batch, out, sums, hook);
  gradients_of_chunks<false>(batch, out, sums, hook);
}

}  // namespace rlk::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rlk::cpu {

HWY_EXPORT(corrections);
HWY_EXPORT(sequence_terms);
HWY_EXPORT(batch_sums);
HWY_EXPORT(covariance_keys);
HWY_EXPORT(losses);
HWY_EXPORT(gradients);

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
void policy_losses(const PolicyBatch& batch, bool metrics, PolicyChunkSums* sums, const ParallelFor& hook) {
  HWY_DYNAMIC_DISPATCH(losses)(batch, metrics, sums, hook);
}
void policy_gradients(const PolicyBatch& batch, const PolicyGradients& out, PolicyChunkSums* sums,
                      const ParallelFor& hook) {
  HWY_DYNAMIC_DISPATCH(gradients)(batch, out, sums, hook);
}

}  // namespace rlk::cpu
#endif  // HWY_ONCE
