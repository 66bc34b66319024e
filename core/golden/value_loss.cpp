// The clipped squared error of a value function and its gradient: the declarations' formulas, fp64.
#include <rlk/sdk/ops/value_loss.hpp>
#include <rlk/sdk/ops/value_loss_backward.hpp>

#include <vector>

#include "core/golden/loss_weights.hpp"
#include "core/golden/operator.hpp"
#include "core/golden/sequences.hpp"

namespace rlk::golden {
namespace {

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

// The weight of a token of each sequence in the loss.
template <class Call>
std::vector<Tracked> weights_of(const Call& call, const Sequences& sequences) {
  std::vector<int64_t> active;
  for (int64_t b = 0; b < sequences.count(); ++b) active.push_back(sequences.count_kept(call.mask, b));
  return loss_weights(call.params, active);
}

}  // namespace

DataError value_loss(CallOf<sdk::ops::ValueLoss>& call) {
  const Sequences sequences(call.values, call.cu_seqlens);
  if (const DataError error = sequences.error(); error.kind != kNoDataError) {
    fill(call.token_loss, sequences.elements(), kNan);
    fill(call.loss, 1, kNan);
    fill(call.clip_fraction, 1, kNan);
    return error;
  }
  const std::vector<Tracked> weights = weights_of(call, sequences);
  TrackedSum loss;
  double n_active = 0, n_clipped = 0;
  sequences.for_each_token([&](int64_t b, int64_t t) {
    Tracked token = 0.0;
    if (sequences.kept(call.mask, b, t)) {
      const Token of(call, sequences, b, t);
      const Tracked plain = of.error * of.error, clip = of.clipped_error * of.clipped_error;
      token = Tracked(0.5) * (std::isnan(plain.value) || plain.value > clip.value ? plain : clip);
      n_active += 1;
      n_clipped += clip.value > plain.value ? 1 : 0;
      const Tracked weight = weights[static_cast<size_t>(b)];
      if (weight.value != 0) loss.add(weight * token);
    }
    put(call.token_loss, token);
  });
  put(call.loss, loss.total());
  put(call.clip_fraction, Tracked(n_clipped) / Tracked(std::max(n_active, 1.0)));
  return {};
}

DataError value_loss_backward(CallOf<sdk::ops::ValueLossBackward>& call) {
  const Sequences sequences(call.values, call.cu_seqlens);
  if (const DataError error = sequences.error(); error.kind != kNoDataError) {
    fill(call.grad_values, sequences.elements(), kNan);
    return error;
  }
  const std::vector<Tracked> weights = weights_of(call, sequences);
  sequences.for_each_token([&](int64_t b, int64_t t) {
    Tracked gradient = 0.0;
    if (sequences.kept(call.mask, b, t)) {
      const Token token(call, sequences, b, t);
      const double plain = token.error.value * token.error.value;
      const double clip = token.clipped_error.value * token.clipped_error.value;
      // At equality torch.max gives half to each side.
      const Tracked share_plain = plain > clip ? 1.0 : clip > plain ? 0.0 : 0.5;
      const Tracked passes = passed(token.value, token.low.value, token.high.value, call.params.clamp_gradient);
      const Tracked slope = share_plain * token.error + (Tracked(1.0) - share_plain) * passes * token.clipped_error;
      const Tracked weight = weights[static_cast<size_t>(b)];
      if (weight.value != 0) gradient = Tracked(call.grad_loss.load(0)) * weight;
      if (call.grad_token_loss.present()) gradient = gradient + Tracked(sequences.load(call.grad_token_loss, b, t));
      gradient = gradient * slope;
    }
    put(call.grad_values, gradient);
  });
  return {};
}

}  // namespace rlk::golden
