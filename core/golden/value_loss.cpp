// The clipped squared error of a value function and its gradient: the declarations' formulas, fp64.
#include <rlk/sdk/ops/value_loss.hpp>
#include <rlk/sdk/ops/value_loss_backward.hpp>

#include <vector>

#include "core/golden/operator.hpp"
#include "core/golden/sequences.hpp"
#include "core/golden/tracked.hpp"

namespace rlk::golden {
using namespace sdk::ops::value_loss;  // NOLINT(google-build-using-namespace): its enumerations

namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// A token's value with the bounds of its clip, its error, and that of the clipped value (c of the declaration).
struct Token {
  double value;
  Tracked low = -kInfinity, high = kInfinity, error, clipped_error;

  template <class Call>
  Token(const Call& call, const Sequences& sequences, int64_t b, int64_t t) : value(sequences.load(call.values, b, t)) {
    const Tracked target = sequences.load(call.returns, b, t);
    Tracked c = value;
    if (call.old_values.present()) {
      const Tracked old_value = sequences.load(call.old_values, b, t), eps = call.params.clip_eps;
      low = old_value - eps;
      high = old_value + eps;
      const bool inside = value >= low.value && value <= high.value;
      if (!inside) c = value < low.value ? low : high;
    }
    error = Tracked(value) - target;
    clipped_error = c - target;
  }
};

struct TokenCounts {
  std::vector<double> of_sequence;
  double all = 0, nonempty = 0;
};
TokenCounts count_tokens(const Sequences& sequences, const View& mask) {
  TokenCounts counts;
  for (int64_t b = 0; b < sequences.count(); ++b) {
    double count = 0;
    for (int64_t t = 0; t < sequences.tokens(b); ++t) count += sequences.kept(mask, b, t) ? 1 : 0;
    counts.of_sequence.push_back(count);
    counts.all += count;
    counts.nonempty += count > 0 ? 1 : 0;
  }
  return counts;
}

// The weight of a token of sequence b in the reduced loss.
template <typename Params>
Tracked token_weight(const Params& params, const TokenCounts& counts, size_t b) {
  const bool of_means = params.aggregation == Aggregation::seq_mean_token_mean;
  const bool exclude = params.exclude_empty_sequences == ExcludeEmptySequences::on;
  const double n_sequences = exclude ? counts.nonempty : static_cast<double>(counts.of_sequence.size());
  double denominator = 1;
  if (params.aggregation == Aggregation::none) return 0.0;
  if (params.aggregation == Aggregation::token_mean) denominator = std::max(counts.all, 1.0);
  if (of_means || params.aggregation == Aggregation::seq_mean_token_sum) denominator = std::max(n_sequences, 1.0);
  if (params.denominator > 0) denominator = params.denominator;
  const Tracked weight = Tracked(1.0) / Tracked(denominator);
  return of_means ? weight / Tracked(std::max(counts.of_sequence[b], params.seq_denominator_floor)) : weight;
}

}  // namespace

DataError value_loss(CallOf<sdk::ops::ValueLoss>& call) {
  const Sequences sequences(call.values, call.cu_seqlens);
  if (const DataError error = sequences.error(); error.kind != kNoDataError) {
    for (int64_t i = 0; i < sequences.elements(); ++i) put(call.token_loss, kNan);
    put(call.loss, kNan);
    put(call.clip_fraction, kNan);
    return error;
  }
  const TokenCounts counts = count_tokens(sequences, call.mask);
  TrackedSum loss;
  double n_clipped = 0;
  for (int64_t b = 0; b < sequences.count(); ++b) {
    for (int64_t t = 0; t < sequences.tokens(b); ++t) {
      Tracked token = 0.0;
      if (sequences.kept(call.mask, b, t)) {
        const Token of(call, sequences, b, t);
        const Tracked plain = of.error * of.error, clip = of.clipped_error * of.clipped_error;
        token = Tracked(0.5) * (std::isnan(plain.value) || plain.value > clip.value ? plain : clip);
        n_clipped += clip.value > plain.value ? 1 : 0;
        const Tracked weight = token_weight(call.params, counts, static_cast<size_t>(b));
        if (call.params.aggregation != Aggregation::none) loss.add(weight * token);
      }
      put(call.token_loss, token);
    }
  }
  put(call.loss, loss.total());
  put(call.clip_fraction, Tracked(n_clipped) / Tracked(std::max(counts.all, 1.0)));
  return {};
}

DataError value_loss_backward(CallOf<sdk::ops::ValueLossBackward>& call) {
  const Sequences sequences(call.values, call.cu_seqlens);
  if (const DataError error = sequences.error(); error.kind != kNoDataError) {
    for (int64_t i = 0; i < sequences.elements(); ++i) put(call.grad_values, kNan);
    return error;
  }
  const TokenCounts counts = count_tokens(sequences, call.mask);
  for (int64_t b = 0; b < sequences.count(); ++b) {
    for (int64_t t = 0; t < sequences.tokens(b); ++t) {
      Tracked gradient = 0.0;
      if (sequences.kept(call.mask, b, t)) {
        const Token token(call, sequences, b, t);
        const double plain = token.error.value * token.error.value;
        const double clip = token.clipped_error.value * token.clipped_error.value;
        // At equality torch.max gives half to each side.
        const Tracked share_plain = plain > clip ? 1.0 : clip > plain ? 0.0 : 0.5;
        const Tracked passes = passed(token.value, token.low.value, token.high.value, call.params.clamp_gradient);
        const Tracked slope = share_plain * token.error + (Tracked(1.0) - share_plain) * passes * token.clipped_error;
        if (call.params.aggregation != Aggregation::none) {
          gradient = Tracked(call.grad_loss.load(0)) * token_weight(call.params, counts, static_cast<size_t>(b));
        }
        if (call.grad_token_loss.present()) {
          gradient = gradient + Tracked(sequences.load(call.grad_token_loss, b, t));
        }
        gradient = gradient * slope;
      }
      put(call.grad_values, gradient);
    }
  }
  return {};
}

}  // namespace rlk::golden
