// The gradient of value_loss with respect to the values: the declaration's formula, fp64.
#include <rlk/ops/value_loss_backward.h>

#include "core/golden/value_loss.hpp"

namespace rlk::golden {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

}  // namespace

static_assert(RLK_VALUE_LOSS_BACKWARD_AGGREGATION_NONE == RLK_VALUE_LOSS_AGGREGATION_NONE);

Answer answer_value_loss_backward(const Call& call) {
  const auto& params = call.params_as<rlk_value_loss_backward_params>();
  const View &values = call[RLK_VALUE_LOSS_BACKWARD_IN_VALUES], &returns = call[RLK_VALUE_LOSS_BACKWARD_IN_RETURNS];
  const View& old_values = call[RLK_VALUE_LOSS_BACKWARD_IN_OLD_VALUES];
  const View& mask = call[RLK_VALUE_LOSS_BACKWARD_IN_MASK];
  const View& grad_token_loss = call[RLK_VALUE_LOSS_BACKWARD_IN_GRAD_TOKEN_LOSS];
  const Sequences sequences(values, call[RLK_VALUE_LOSS_BACKWARD_IN_CU_SEQLENS]);
  const bool reduced = params.aggregation != RLK_VALUE_LOSS_BACKWARD_AGGREGATION_NONE;
  Answer answer;
  answer.outputs.resize(RLK_VALUE_LOSS_BACKWARD_N_OUTPUTS);
  if (answer.error = sequences.error(); answer.error.kind != kNoDataError) {
    for (int64_t i = 0; i < sequences.elements(); ++i) {
      put(answer.outputs[RLK_VALUE_LOSS_BACKWARD_OUT_GRAD_VALUES], kNan);
    }
    return answer;
  }
  const TokenCounts counts = count_tokens(sequences, mask);
  for (int64_t b = 0; b < sequences.count(); ++b) {
    for (int64_t t = 0; t < sequences.tokens(b); ++t) {
      Tracked gradient = 0.0;
      if (sequences.kept(mask, b, t)) {
        const double value = sequences.load(values, b, t);
        const Tracked target = sequences.load(returns, b, t);
        const Tracked c = clipped(value, maybe(sequences, old_values, b, t), params.clip_eps);
        const Tracked error = Tracked(value) - target, clipped_error = c - target;
        const double plain = error.value * error.value, clip = clipped_error.value * clipped_error.value;
        // At equality torch.max gives half to each side.
        const Tracked share_plain = plain > clip ? 1.0 : clip > plain ? 0.0 : 0.5;
        const Tracked share_clip = c.value == value ? Tracked(1.0) - share_plain : Tracked(0.0);
        const Tracked slope = share_plain * error + share_clip * clipped_error;
        if (reduced) {
          gradient = Tracked(call[RLK_VALUE_LOSS_BACKWARD_IN_GRAD_LOSS].load(0)) *
                     token_weight(params, counts, static_cast<size_t>(b));
        }
        if (grad_token_loss.present()) gradient = gradient + Tracked(sequences.load(grad_token_loss, b, t));
        gradient = gradient * slope;
      }
      put(answer.outputs[RLK_VALUE_LOSS_BACKWARD_OUT_GRAD_VALUES], gradient);
    }
  }
  return answer;
}

}  // namespace rlk::golden
