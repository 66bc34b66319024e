// The loss of a token and its slope, and how tokens and sequences become one number.
#include "core/cpu/kernels/value_loss.hpp"

#include <algorithm>
#include <cmath>

namespace rlk::cpu {
namespace {

struct SequenceSums {
  double loss, tokens, clipped;
};

struct TokenLoss {
  double loss, slope;
  bool is_clipped;
};
template <class Args>
TokenLoss token_loss(const Args& args, int64_t b, int64_t t) {
  const double value = args.values.get(b, t), target = args.returns.get(b, t);
  double clipped = value;
  if (args.old_values.present()) {
    const double old_value = args.old_values.get(b, t);
    const double low = old_value - args.clip_eps, high = old_value + args.clip_eps;
    if (!(value >= low && value <= high)) clipped = value < low ? low : high;
  }
  const double error = value - target, clipped_error = clipped - target;
  const double plain = error * error, clip = clipped_error * clipped_error;
  // The gradient of torch.max: all of it to the larger side, half to each at equality.
  const double share = plain > clip ? 1 : clip > plain ? 0 : 0.5;
  const double slope = share * error + (clipped == value ? (1 - share) * clipped_error : 0);
  return {0.5 * (std::isnan(plain) || plain > clip ? plain : clip), slope, clip > plain};
}

// Calls function(b) for every sequence.
template <class Args, typename Function>
void for_each_sequence(const Args& args, const ParallelFor& hook, Function&& function) {
  const int64_t grain = std::max<int64_t>(1, kGrainElements / std::max<int64_t>(1, args.length));
  parallel_for(hook, args.sequences, grain, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) function(b);
  });
}

double active_tokens(const Mask& mask, int64_t b, int64_t length) {
  int64_t count = 0;
  for (int64_t t = 0; t < length; ++t) count += mask.keeps(b, t) ? 1 : 0;
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

void value_loss(const ValueLossArgs& args, const ParallelFor& hook) {
  auto* sums = static_cast<SequenceSums*>(args.workspace);
  for_each_sequence(args, hook, [&](int64_t b) {
    SequenceSums sum{0, 0, 0};
    for (int64_t t = 0; t < args.length; ++t) {
      TokenLoss token{0, 0, false};
      if (args.mask.keeps(b, t)) {
        token = token_loss(args, b, t);
        sum.loss += token.loss;
        sum.tokens += 1;
        sum.clipped += token.is_clipped ? 1 : 0;
      }
      if (args.token_loss.present()) args.token_loss.put(b, t, token.loss);
    }
    sums[b] = sum;
  });
  double loss = 0, tokens = 0, clipped = 0, nonempty = 0;
  for (int64_t b = 0; b < args.sequences; ++b) {
    loss += sums[b].loss / sequence_denominator(args.aggregation, sums[b].tokens);
    tokens += sums[b].tokens;
    clipped += sums[b].clipped;
    nonempty += sums[b].tokens > 0 ? 1 : 0;
  }
  const bool reduced = args.aggregation.kind != Aggregation::none;
  args.loss.put(0, reduced ? loss / denominator(args.aggregation, args.sequences, tokens, nonempty) : 0.0);
  if (args.clip_fraction.present()) args.clip_fraction.put(0, clipped / std::max(tokens, 1.0));
}

void value_loss_backward(const ValueLossBackwardArgs& args, const ParallelFor& hook) {
  auto* tokens_of = static_cast<double*>(args.workspace);
  for_each_sequence(args, hook, [&](int64_t b) { tokens_of[b] = active_tokens(args.mask, b, args.length); });
  double tokens = 0, nonempty = 0;
  for (int64_t b = 0; b < args.sequences; ++b) {
    tokens += tokens_of[b];
    nonempty += tokens_of[b] > 0 ? 1 : 0;
  }
  const bool reduced = args.aggregation.kind != Aggregation::none;
  const double of_loss =
      reduced ? args.grad_loss.get(0) / denominator(args.aggregation, args.sequences, tokens, nonempty) : 0.0;
  for_each_sequence(args, hook, [&](int64_t b) {
    const double of_sequence = of_loss / sequence_denominator(args.aggregation, tokens_of[b]);
    for (int64_t t = 0; t < args.length; ++t) {
      double gradient = 0;
      if (args.mask.keeps(b, t)) {
        const double of_token = args.grad_token_loss.present() ? args.grad_token_loss.get(b, t) : 0.0;
        gradient = (of_sequence + of_token) * token_loss(args, b, t).slope;
      }
      args.grad_values.put(b, t, gradient);
    }
  });
}

}  // namespace rlk::cpu
