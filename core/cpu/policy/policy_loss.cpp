// The policy loss of a batch, its metrics, and its gradient. One number per token: plain fp64, sequences in parallel.
//
// A sequence is one task's, summed in its order, and the sums of sequences are added in their order: the bits do not
// depend on the number of threads, and those of per_token on the own sequence alone, unless combines_sequences().
#include <rlk/sdk/forward.hpp>
#include <rlk/sdk/ops/policy_loss_backward.hpp>

#include <algorithm>
#include <cmath>

#include "core/cpu/policy/clamp_gradient.hpp"
#include "core/cpu/policy/policy_terms.hpp"
#include "core/cpu/simd/registration.hpp"

namespace rlk::cpu {
using namespace sdk::ops::policy_loss;  // NOLINT(google-build-using-namespace): its enumerations

namespace {

using Forward = PolicyCall;
using Backward = CallOf<sdk::ops::PolicyLossBackward>;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr int kMetrics = RLK_POLICY_LOSS_N_METRICS;
constexpr int kMeans = 12;  // metrics that are sums or means over active tokens; those after them are not

struct SequenceSums {
  double loss = 0;
  double bonus = 0;  // entropies of selected tokens
  double unmasked = 0;
  double metrics[kMeans] = {};  // the first is the number of active tokens
};

void add(const TokenLoss& token, SequenceSums& sums) {
  const auto flag = [](bool on) { return on ? 1.0 : 0.0; };
  sums.loss += token.value;
  sums.bonus += token.selected ? token.entropy : 0.0;
  const double terms[kMeans] = {1,
                                token.kl,
                                -token.x,
                                flag(token.term.clipped),
                                flag(token.term.clipped_lower),
                                flag(token.term.below),
                                flag(token.term.above),
                                token.ratio,
                                token.entropy,
                                token.term.phi,
                                token.weight,
                                flag(token.selected)};
  for (int i = 0; i < kMeans; ++i) sums.metrics[i] += terms[i];
}

bool has_own_bonus(const PolicyParams& params) {
  return params.entropy_coefficient != 0 && params.entropy_aggregation == EntropyAggregation::token_mean;
}

bool counts(const PolicyBatch& batch, double active) {
  return active > 0 || batch.call.params.exclude_empty_sequences == ExcludeEmptySequences::off;
}

void put_metrics(const Array& output, const double* values) {
  for (int i = 0; i < kMetrics && output.present(); ++i) output.put(i, values[i]);
}

// Means over the sequence's active tokens, and the share of tokens that were rejected.
void put_sequence_metrics(const Array& output, int64_t b, const SequenceSums& sums) {
  if (!output.present()) return;
  const double active = sums.metrics[0];
  output.put(b, 0, active);
  for (int i = 1; i < kMeans; ++i) output.put(b, i, active > 0 ? sums.metrics[i] / active : 0.0);
  output.put(b, kMeans, sums.unmasked > 0 ? (sums.unmasked - active) / sums.unmasked : 0.0);
}

const PolicyParams& params_of(const Forward& call) {
  return call.params;
}
PolicyParams params_of(const Backward& call) {
  return sdk::forward_of<Forward>(call).params;
}

template <class Call, class OfSequence>
int64_t workspace_bytes(const Call& call) {
  const Sequences sequences = sequences_of(call.logp, call.cu_seqlens);
  return sequences.count * static_cast<int64_t>(sizeof(OfSequence)) +
         policy_terms_workspace_bytes(params_of(call), sequences.count, sequences.elements());
}

template <class Call, int64_t of_token>
double operations(const Call& call) {
  return static_cast<double>(sequences_of(call.logp, call.cu_seqlens).elements()) * of_token;
}

bool combines_rows(const Forward& call) {
  return combines_sequences(call.params);
}

// A data error makes every output NaN.
DataError policy_loss(const Forward& call, const Context& context) {
  PolicyBatch batch(call);
  double metrics[kMetrics] = {};
  if (const DataError error = batch.sequences.error(); error.kind != kNoDataError) {
    std::fill(metrics, metrics + kMetrics, kNan);
    call.loss.put(0, kNan);
    put_metrics(call.metrics, metrics);
    for (int64_t b = 0; b < batch.sequences.count && call.sequence_metrics.present(); ++b) {
      for (int i = 0; i <= kMeans; ++i) call.sequence_metrics.put(b, i, kNan);
    }
    fill(batch.sequences, call.per_token, kNan);
    return error;
  }

  auto* sums = static_cast<SequenceSums*>(context.workspace);
  batch.terms = policy_terms(batch, {call.metrics.present(), false}, sums + batch.sequences.count, context.parallel);
  for_each_policy_sequence(batch, context.parallel, [&](int64_t b) {
    const PolicySequence sequence(batch, b);
    sums[b] = {};
    sums[b].unmasked = static_cast<double>(sequence.unmasked());
    for (int64_t t = 0; t < sequence.tokens(); ++t) {
      TokenLoss token;
      const bool active = sequence.is_active(t);
      if (active) token = sequence.token(t);
      if (call.per_token.present()) call.per_token.put(batch.sequences.at(b, t), token.value);
      if (active) add(token, sums[b]);
    }
    put_sequence_metrics(call.sequence_metrics, b, sums[b]);
  });

  double counted = 0, unmasked = 0;
  for (int64_t b = 0; b < batch.sequences.count; ++b) {
    counted += counts(batch, sums[b].metrics[0]) ? 1 : 0;
    unmasked += sums[b].unmasked;
    for (int i = 0; i < kMeans; ++i) metrics[i] += sums[b].metrics[i];
  }
  const double active = metrics[0];
  const PolicyDivisor divisor(call.params, active, counted);
  double loss = 0;
  for (int64_t b = 0; b < batch.sequences.count; ++b) {
    const auto own = static_cast<int64_t>(sums[b].metrics[0]);
    if (own > 0 && call.params.aggregation != Aggregation::none) {
      loss += sums[b].loss * divisor.token_weight(own);
    }
  }
  if (has_own_bonus(call.params)) {
    double bonus = 0;
    for (int64_t b = 0; b < batch.sequences.count; ++b) bonus += sums[b].bonus;
    loss -= call.params.entropy_coefficient * bonus / entropy_divisor(call.params, metrics[kMeans - 1]);
  }
  for (int i = 1; i < kMeans && active > 0; ++i) metrics[i] /= active;
  metrics[kMeans] = unmasked > 0 ? (unmasked - active) / unmasked : 0;
  metrics[kMeans + 1] = batch.terms.mean_weight;
  metrics[kMeans + 2] = batch.terms.effective;
  call.loss.put(0, loss);
  put_metrics(call.metrics, metrics);
  return {};
}

DataError policy_loss_backward(const Backward& call, const Context& context) {
  const Forward forward = sdk::forward_of<Forward>(call);
  const PolicyParams& params = forward.params;
  PolicyBatch batch(forward);
  batch.at_bound = gradient_at_bound(call.params.clamp_gradient);
  if (const DataError error = batch.sequences.error(); error.kind != kNoDataError) {
    fill(batch.sequences, call.grad_logp, kNan);
    fill(batch.sequences, call.grad_entropy, kNan);
    return error;
  }
  auto* active = static_cast<int64_t*>(context.workspace);
  const bool own_bonus = has_own_bonus(params) && call.grad_entropy.present();
  batch.terms = policy_terms(batch, {false, own_bonus}, active + batch.sequences.count, context.parallel);
  const double grad_loss = call.grad_loss.get(0);
  const double of_bonus = own_bonus ? grad_loss / entropy_divisor(params, batch.terms.selected) : 0.0;
  double tokens = 0, counted = 0;
  if (PolicyDivisor::needs_counts(params)) {
    for_each_policy_sequence(batch, context.parallel,
                             [&](int64_t b) { active[b] = PolicySequence(batch, b).active(); });
    for (int64_t b = 0; b < batch.sequences.count; ++b) {
      const auto own = static_cast<double>(active[b]);
      tokens += own;
      counted += counts(batch, own) ? 1 : 0;
    }
  }

  const PolicyDivisor divisor(params, tokens, counted);
  for_each_policy_sequence(batch, context.parallel, [&](int64_t b) {
    const PolicySequence sequence(batch, b);
    const double weight = divisor.token_weight(sequence.active());
    const double of_loss = weight != 0 ? grad_loss * weight : 0;  // aggregation none never asks
    const auto gradient = [&](int64_t t) {
      return of_loss + (call.grad_per_token.present() ? call.grad_per_token.get(batch.sequences.at(b, t)) : 0.0);
    };
    // What flows through the quantity of the sequence is collected from all tokens before it is shared out.
    double through_sequence = 0;
    const bool shares = has_shared_ratio(params) || params.kind == Kind::gmpo;
    for (int64_t t = 0; shares && t < sequence.tokens(); ++t) {
      if (sequence.is_active(t)) through_sequence += gradient(t) * sequence.token(t).d_sequence;
    }
    for (int64_t t = 0; t < sequence.tokens(); ++t) {
      double grad = 0, of_entropy = 0;
      if (sequence.is_active(t)) {
        const double g = gradient(t);
        grad = g * sequence.token(t).d_own;
        if (shares) grad += through_sequence * sequence.share(t);
        if (sequence.is_selected(t)) of_entropy = -params.entropy_coefficient * (own_bonus ? of_bonus : g);
      }
      call.grad_logp.put(batch.sequences.at(b, t), grad);
      if (call.grad_entropy.present()) call.grad_entropy.put(batch.sequences.at(b, t), of_entropy);
    }
  });
  return {};
}

}  // namespace

RLK_CPU_KERNEL(PolicyLoss, .run = policy_loss, .operations = operations<Forward, 2000>,
               .workspace_bytes = workspace_bytes<Forward, SequenceSums>, .combines_rows = combines_rows);
RLK_CPU_KERNEL(PolicyLossBackward, .run = policy_loss_backward, .operations = operations<Backward, 3000>,
               .workspace_bytes = workspace_bytes<Backward, int64_t>);

}  // namespace rlk::cpu
