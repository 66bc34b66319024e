// The clipped squared error of a value function, per token and reduced, and its gradient. One number per token, in
// fp64.
//
// Every sequence is summed in token order, and the sequences in their order, so that bits do not depend on threads.
#include <rlk/sdk/ops/value_loss.hpp>
#include <rlk/sdk/ops/value_loss_backward.hpp>

#include <algorithm>
#include <cmath>

#include "core/cpu/policy/clamp_gradient.hpp"
#include "core/cpu/simd/long_sum.hpp"
#include "core/cpu/simd/operator.hpp"
#include "core/cpu/simd/sequences.hpp"

namespace rlk::cpu {
using namespace sdk::ops::value_loss;  // NOLINT(google-build-using-namespace): its enumerations

namespace {

using Forward = CallOf<sdk::ops::ValueLoss>;
using Backward = CallOf<sdk::ops::ValueLossBackward>;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

struct SequenceSums {
  double loss, tokens, clipped;
};

struct TokenLoss {
  double loss, slope;
  bool is_clipped;
};
// With what the clip passes of the gradient at its bounds.
template <class Call>
TokenLoss token_loss(const Call& call, Position at, double at_bound = 0) {
  const double value = call.values.get(at), target = call.returns.get(at);
  double clipped = value, passed = 1;
  if (call.old_values.present()) {
    const double old_value = call.old_values.get(at);
    const double low = old_value - call.params.clip_eps, high = old_value + call.params.clip_eps;
    if (!(value >= low && value <= high)) clipped = value < low ? low : high;
    passed = clamp_gradient(value, low, high, at_bound);
  }
  const double error = value - target, clipped_error = clipped - target;
  const double plain = error * error, clip = clipped_error * clipped_error;
  // The gradient of torch.max: all of it to the larger side, half to each at equality.
  const double share = plain > clip ? 1 : clip > plain ? 0 : 0.5;
  double slope = share * error + (passed > 0 ? passed * (1 - share) * clipped_error : 0);
  if (std::isnan(clip)) slope = clip;  // torch.max with a NaN gives its gradient to both sides
  return {0.5 * (std::isnan(plain) || plain > clip ? plain : clip), slope, clip > plain};
}

double active_tokens(const Array& mask, const Sequences& sequences, int64_t b) {
  const int64_t tokens = sequences.tokens(b);
  int64_t count = 0;
  for (int64_t t = 0; t < tokens; ++t) count += mask.keeps(sequences.at(b, t)) ? 1 : 0;
  return static_cast<double>(count);
}

// What a sequence's sum is divided by before the sequences are summed.
template <class Params>
double sequence_denominator(const Params& params, double tokens) {
  return params.aggregation == Aggregation::seq_mean_token_mean ? std::max(tokens, params.seq_denominator_floor) : 1.0;
}

template <class Params>
double denominator(const Params& params, int64_t sequences, double tokens, double nonempty) {
  if (params.denominator > 0) return params.denominator;
  const bool exclude = params.exclude_empty_sequences == ExcludeEmptySequences::on;
  switch (params.aggregation) {
    case Aggregation::token_mean:
      return std::max(tokens, 1.0);
    case Aggregation::seq_mean_token_mean:
    case Aggregation::seq_mean_token_sum:
      return std::max(exclude ? nonempty : static_cast<double>(sequences), 1.0);
    case Aggregation::token_sum:
    case Aggregation::none:
      break;
  }
  return 1;
}

template <class Call>
int64_t workspace_bytes(const Call& call) {
  return call.B * static_cast<int64_t>(sizeof(SequenceSums));
}

template <class Call>
double operations(const Call& call) {
  return static_cast<double>(call.params.layout == Layout::packed ? call.N : call.B * call.L) * 1000;
}

DataError value_loss(const Forward& call, const Context& context) {
  const Sequences sequences = sequences_of(call.values, call.cu_seqlens);
  if (const DataError error = sequences.error(); error.kind != kNoDataError) {
    call.loss.put(0, kNan);
    if (call.clip_fraction.present()) call.clip_fraction.put(0, kNan);
    fill(sequences, call.token_loss, kNan);
    return error;
  }
  auto* sums = static_cast<SequenceSums*>(context.workspace);
  for_each_sequence(sequences, context.parallel, [&](int64_t b) {
    SequenceSums sum{0, 0, 0};
    LongSum losses;
    const int64_t length = sequences.tokens(b);
    for (int64_t t = 0; t < length; ++t) {
      const Position at = sequences.at(b, t);
      TokenLoss token{0, 0, false};
      if (call.mask.keeps(at)) {
        token = token_loss(call, at);
        losses.add(token.loss);
        sum.tokens += 1;
        sum.clipped += token.is_clipped ? 1 : 0;
      }
      if (call.token_loss.present()) call.token_loss.put(at, token.loss);
    }
    sum.loss = losses.value();
    sums[b] = sum;
  });
  LongSum loss;
  double tokens = 0, clipped = 0, nonempty = 0;
  for (int64_t b = 0; b < sequences.count; ++b) {
    loss.add(sums[b].loss / sequence_denominator(call.params, sums[b].tokens));
    tokens += sums[b].tokens;
    clipped += sums[b].clipped;
    nonempty += sums[b].tokens > 0 ? 1 : 0;
  }
  const bool reduced = call.params.aggregation != Aggregation::none;
  call.loss.put(0, reduced ? loss.value() / denominator(call.params, sequences.count, tokens, nonempty) : 0.0);
  if (call.clip_fraction.present()) call.clip_fraction.put(0, clipped / std::max(tokens, 1.0));
  return {};
}

DataError value_loss_backward(const Backward& call, const Context& context) {
  const Sequences sequences = sequences_of(call.values, call.cu_seqlens);
  if (const DataError error = sequences.error(); error.kind != kNoDataError) {
    fill(sequences, call.grad_values, kNan);
    return error;
  }
  auto* tokens_of = static_cast<double*>(context.workspace);
  for_each_sequence(sequences, context.parallel,
                    [&](int64_t b) { tokens_of[b] = active_tokens(call.mask, sequences, b); });
  double tokens = 0, nonempty = 0;
  for (int64_t b = 0; b < sequences.count; ++b) {
    tokens += tokens_of[b];
    nonempty += tokens_of[b] > 0 ? 1 : 0;
  }
  const bool reduced = call.params.aggregation != Aggregation::none;
  const double at_bound = gradient_at_bound(call.params.clamp_gradient);
  const double of_loss =
      reduced ? call.grad_loss.get(0) / denominator(call.params, sequences.count, tokens, nonempty) : 0.0;
  for_each_sequence(sequences, context.parallel, [&](int64_t b) {
    const double of_sequence = of_loss / sequence_denominator(call.params, tokens_of[b]);
    const int64_t length = sequences.tokens(b);
    for (int64_t t = 0; t < length; ++t) {
      const Position at = sequences.at(b, t);
      double gradient = 0;
      if (call.mask.keeps(at)) {
        const double of_token = call.grad_token_loss.present() ? call.grad_token_loss.get(at) : 0.0;
        gradient = (of_sequence + of_token) * token_loss(call, at, at_bound).slope;
      }
      call.grad_values.put(at, gradient);
    }
  });
  return {};
}

}  // namespace

RLK_CPU_KERNEL(ValueLoss, .run = value_loss, .operations = operations<Forward>,
               .workspace_bytes = workspace_bytes<Forward>);
RLK_CPU_KERNEL(ValueLossBackward, .run = value_loss_backward, .operations = operations<Backward>,
               .workspace_bytes = workspace_bytes<Backward>);

}  // namespace rlk::cpu
