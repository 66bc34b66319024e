// From the losses of tokens to the loss of the batch, its metrics, and back.
#include "core/cpu/policy/policy_loss.hpp"

#include <algorithm>
#include <cmath>

namespace rlk::cpu {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
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

bool has_own_bonus(const PolicyOptions& options) {
  return options.entropy_coefficient != 0 && options.entropy_aggregation == EntropyAggregation::token_mean;
}

bool counts(const PolicyBatch& batch, double active) {
  return active > 0 || !batch.options.exclude_empty_sequences;
}

void fill(const PolicyBatch& batch, const TokenOutput& output, double value) {
  for (int64_t b = 0; b < (batch.packed() ? 1 : batch.sequences); ++b) {
    for (int64_t place = 0; place < batch.tokens; ++place) output.put(b, place, value);
  }
}

void put_metrics(const PolicyLossArgs& args, const double* values) {
  for (int i = 0; i < kPolicyMetrics && args.metrics != nullptr; ++i) {
    store_element(args.metrics, args.scalar_dtype, i * args.metrics_stride, values[i]);
  }
}

}  // namespace

int64_t policy_loss_workspace_bytes(const PolicyOptions& options, int64_t sequences, int64_t tokens) {
  return sequences * static_cast<int64_t>(sizeof(SequenceSums)) +
         policy_terms_workspace_bytes(options, sequences, tokens);
}

DataError policy_loss(const PolicyLossArgs& args, const ParallelFor& hook) {
  PolicyBatch batch = args.batch;
  double metrics[kPolicyMetrics] = {};
  if (const DataError error = batch.error(); error.kind != kNoDataError) {
    std::fill(metrics, metrics + kPolicyMetrics, kNan);
    store_element(args.loss, args.scalar_dtype, 0, kNan);
    put_metrics(args, metrics);
    fill(batch, args.per_token, kNan);
    return error;
  }

  auto* sums = static_cast<SequenceSums*>(args.workspace);
  batch.terms = policy_terms(batch, {args.metrics != nullptr, false}, sums + batch.sequences, hook);
  parallel_for(hook, batch.sequences, policy_grain(batch), [&](int64_t first, int64_t last) {
    for (int64_t b = first; b < last; ++b) {
      const PolicySequence sequence(batch, b);
      sums[b] = {};
      sums[b].unmasked = static_cast<double>(sequence.unmasked());
      for (int64_t place = batch.begin(b); place < batch.end(b); ++place) {
        if (!sequence.is_active(place)) {
          args.per_token.put(b, place, 0);
          continue;
        }
        const TokenLoss token = sequence.token(place);
        args.per_token.put(b, place, token.value);
        add(token, sums[b]);
      }
    }
  });

  double counted = 0, unmasked = 0;
  for (int64_t b = 0; b < batch.sequences; ++b) {
    counted += counts(batch, sums[b].metrics[0]) ? 1 : 0;
    unmasked += sums[b].unmasked;
    for (int i = 0; i < kMeans; ++i) metrics[i] += sums[b].metrics[i];
  }
  const double active = metrics[0];
  const PolicyDivisor divisor(batch.options, active, counted);
  double loss = 0;
  for (int64_t b = 0; b < batch.sequences; ++b) {
    const auto own = static_cast<int64_t>(sums[b].metrics[0]);
    if (own > 0 && batch.options.aggregation != PolicyAggregation::none)
      loss += sums[b].loss * divisor.token_weight(own);
  }
  if (has_own_bonus(batch.options)) {
    double bonus = 0;
    for (int64_t b = 0; b < batch.sequences; ++b) bonus += sums[b].bonus;
    loss -= batch.options.entropy_coefficient * bonus / entropy_divisor(batch.options, metrics[kMeans - 1]);
  }
  for (int i = 1; i < kMeans && active > 0; ++i) metrics[i] /= active;
  metrics[kMeans] = unmasked > 0 ? (unmasked - active) / unmasked : 0;
  metrics[kMeans + 1] = batch.terms.mean_weight;
  store_element(args.loss, args.scalar_dtype, 0, loss);
  put_metrics(args, metrics);
  return {};
}

int64_t policy_loss_backward_workspace_bytes(const PolicyOptions& options, int64_t sequences, int64_t tokens) {
  return sequences * static_cast<int64_t>(sizeof(int64_t)) + policy_terms_workspace_bytes(options, sequences, tokens);
}

DataError policy_loss_backward(const PolicyLossBackwardArgs& args, const ParallelFor& hook) {
  PolicyBatch batch = args.batch;
  if (const DataError error = batch.error(); error.kind != kNoDataError) {
    fill(batch, args.grad_logp, kNan);
    fill(batch, args.grad_entropy, kNan);
    return error;
  }
  auto* active = static_cast<int64_t*>(args.workspace);
  const bool own_bonus = has_own_bonus(batch.options) && args.grad_entropy.present();
  batch.terms = policy_terms(batch, {false, own_bonus}, active + batch.sequences, hook);
  const double of_bonus = own_bonus ? args.grad_loss / entropy_divisor(batch.options, batch.terms.selected) : 0.0;
  double tokens = 0, counted = 0;
  if (PolicyDivisor::needs_counts(batch.options)) {
    parallel_for(hook, batch.sequences, policy_grain(batch), [&](int64_t first, int64_t last) {
      for (int64_t b = first; b < last; ++b) active[b] = PolicySequence(batch, b).active();
    });
    for (int64_t b = 0; b < batch.sequences; ++b) {
      const auto own = static_cast<double>(active[b]);
      tokens += own;
      counted += counts(batch, own) ? 1 : 0;
    }
  }

  const PolicyDivisor divisor(batch.options, tokens, counted);
  parallel_for(hook, batch.sequences, policy_grain(batch), [&](int64_t first, int64_t last) {
    for (int64_t b = first; b < last; ++b) {
      const PolicySequence sequence(batch, b);
      const double weight = divisor.token_weight(sequence.active());
      const double of_loss = weight != 0 ? args.grad_loss * weight : 0;  // aggregation none never asks
      const auto gradient = [&](int64_t place) {
        return of_loss + (args.grad_per_token.present() ? args.grad_per_token.at(b, place) : 0.0);
      };
      // What flows through the quantity of the sequence is collected from all tokens before it is shared out.
      double through_sequence = 0;
      const bool shares =
          batch.options.importance_ratio == RatioLevel::sequence || batch.options.kind == PolicyKind::gmpo;
      for (int64_t place = batch.begin(b); shares && place < batch.end(b); ++place) {
        if (sequence.is_active(place)) through_sequence += gradient(place) * sequence.token(place).d_sequence;
      }
      for (int64_t place = batch.begin(b); place < batch.end(b); ++place) {
        if (!sequence.is_active(place)) {
          args.grad_logp.put(b, place, 0);
          args.grad_entropy.put(b, place, 0);
          continue;
        }
        const double g = gradient(place);
        double grad = g * sequence.token(place).d_own;
        if (shares) grad += through_sequence * sequence.share(place);
        args.grad_logp.put(b, place, grad);
        const double of_entropy = -batch.options.entropy_coefficient * (own_bonus ? of_bonus : g);
        args.grad_entropy.put(b, place, sequence.is_selected(place) ? of_entropy : 0.0);
      }
    }
  });
  return {};
}

}  // namespace rlk::cpu
