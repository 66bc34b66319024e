// The loss of a token and its slope, and how tokens and sequences become one number.
#include "core/cpu/policy/value_loss.hpp"

#include <algorithm>
#include <cmath>

#include "core/cpu/simd/long_sum.hpp"

namespace rlk::cpu {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

struct SequenceSums {
  double loss, tokens, clipped;
};

struct TokenLoss {
  double loss, slope;
  bool is_clipped;
};
template <class Args>
TokenLoss token_loss(const Args& args, Position at) {
  const double value = args.values.get(at), target = args.returns.get(at);
  double clipped = value;
  if (args.old_values.present()) {
    const double old_value = args.old_values.get(at);
    const double low = old_value - args.clip_eps, high = old_value + args.clip_eps;
    if (!(value >= low && value <= high)) clipped = value < low ? low : high;
  }
  const double error = value - target, clipped_error = clipped - target;
  const double plain = error * error, clip = clipped_error * clipped_error;
  // The gradient of torch.max: all of it to the larger side, half to each at equality.
  const double share = plain > clip ? 1 : clip > plain ? 0 : 0.5;
  double slope = share * error + (clipped == value ? (1 - share) * clipped_error : 0);
  if (std::isnan(clip)) slope = clip;  // torch.max with a NaN gives its gradient to both sides
  return {0.5 * (std::isnan(plain) || plain > clip ? plain : clip), slope, clip > plain};
}

double active_tokens(const Mask& mask, const Sequences& sequences, int64_t b) {
  const int64_t tokens = sequences.tokens(b);
  int64_t count = 0;
  for (int64_t t = 0; t < tokens; ++t) count += mask.keeps(sequences.at(b, t)) ? 1 : 0;
  return static_cast<double>(count);
}

// What a sequence's sum is divided by before the sequences are summed.
double sequence_denominator(const AggregationOptions& options, double tokens) {
  return options.kind == Aggregation::seq_mean_token_mean ? std::max(tokens, options.seq_denominator_floor) : 1.0;
}

double denominator(const AggregationOptions& options, int64_t sequences, double tokens, double nonempty) {
  if (options.denominator > 0) return options.denominator;
  switch (options.kind) {
    case Aggregation::token_mean:
      return std::max(tokens, 1.0);
    case Aggregation::seq_mean_token_mean:
    case Aggregation::seq_mean_token_sum:
      return std::max(options.exclude_empty_sequences ? nonempty : static_cast<double>(sequences), 1.0);
    case Aggregation::token_sum:
    case Aggregation::none:
      break;
  }
  return 1;
}

}  // namespace

int64_t value_loss_workspace_bytes(int64_t sequences) {
  return sequences * static_cast<int64_t>(sizeof(SequenceSums));
}

DataError value_loss(const ValueLossArgs& args, const ParallelFor& hook) {
  if (const DataError error = args.sequences.error(); error.kind != kNoDataError) {
    args.loss.put(0, kNan);
    if (args.clip_fraction.present()) args.clip_fraction.put(0, kNan);
    fill(args.sequences, args.token_loss, kNan);
    return error;
  }
  auto* sums = static_cast<SequenceSums*>(args.workspace);
  for_each_sequence(args.sequences, hook, [&](int64_t b) {
    SequenceSums sum{0, 0, 0};
    LongSum losses;
    const int64_t length = args.sequences.tokens(b);
    for (int64_t t = 0; t < length; ++t) {
      const Position at = args.sequences.at(b, t);
      TokenLoss token{0, 0, false};
      if (args.mask.keeps(at)) {
        token = token_loss(args, at);
        losses.add(token.loss);
        sum.tokens += 1;
        sum.clipped += token.is_clipped ? 1 : 0;
      }
      if (args.token_loss.present()) args.token_loss.put(at, token.loss);
    }
    sum.loss = losses.value();
    sums[b] = sum;
  });
  LongSum loss;
  double tokens = 0, clipped = 0, nonempty = 0;
  for (int64_t b = 0; b < args.sequences.count; ++b) {
    loss.add(sums[b].loss / sequence_denominator(args.aggregation, sums[b].tokens));
    tokens += sums[b].tokens;
    clipped += sums[b].clipped;
    nonempty += sums[b].tokens > 0 ? 1 : 0;
  }
  const bool reduced = args.aggregation.kind != Aggregation::none;
  args.loss.put(0,
                reduced ? loss.value() / denominator(args.aggregation, args.sequences.count, tokens, nonempty) : 0.0);
  if (args.clip_fraction.present()) args.clip_fraction.put(0, clipped / std::max(tokens, 1.0));
  return {};
}

DataError value_loss_backward(const ValueLossBackwardArgs& args, const ParallelFor& hook) {
  if (const DataError error = args.sequences.error(); error.kind != kNoDataError) {
    fill(args.sequences, args.grad_values, kNan);
    return error;
  }
  auto* tokens_of = static_cast<double*>(args.workspace);
  for_each_sequence(args.sequences, hook,
                    [&](int64_t b) { tokens_of[b] = active_tokens(args.mask, args.sequences, b); });
  double tokens = 0, nonempty = 0;
  for (int64_t b = 0; b < args.sequences.count; ++b) {
    tokens += tokens_of[b];
    nonempty += tokens_of[b] > 0 ? 1 : 0;
  }
  const bool reduced = args.aggregation.kind != Aggregation::none;
  const double of_loss =
      reduced ? args.grad_loss.get(0) / denominator(args.aggregation, args.sequences.count, tokens, nonempty) : 0.0;
  for_each_sequence(args.sequences, hook, [&](int64_t b) {
    const double of_sequence = of_loss / sequence_denominator(args.aggregation, tokens_of[b]);
    const int64_t length = args.sequences.tokens(b);
    for (int64_t t = 0; t < length; ++t) {
      const Position at = args.sequences.at(b, t);
      double gradient = 0;
      if (args.mask.keeps(at)) {
        const double of_token = args.grad_token_loss.present() ? args.grad_token_loss.get(at) : 0.0;
        gradient = (of_sequence + of_token) * token_loss(args, at).slope;
      }
      args.grad_values.put(at, gradient);
    }
  });
  return {};
}

}  // namespace rlk::cpu
