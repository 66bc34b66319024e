// The clipped squared error of a value function: the declaration's formula, fp64.
#include "core/golden/value_loss.hpp"

namespace rlk::golden {

Answer answer_value_loss(const Call& call) {
  const auto& params = call.params_as<rlk_value_loss_params>();
  const View &values = call[RLK_VALUE_LOSS_IN_VALUES], &returns = call[RLK_VALUE_LOSS_IN_RETURNS];
  const View &old_values = call[RLK_VALUE_LOSS_IN_OLD_VALUES], &mask = call[RLK_VALUE_LOSS_IN_MASK];
  const int64_t sequences = values.shape[0], length = values.shape[1];
  const TokenCounts counts = count_tokens(mask, sequences, length);
  Answer answer;
  answer.outputs.resize(RLK_VALUE_LOSS_N_OUTPUTS);
  TrackedSum loss;
  double n_clipped = 0;
  for (int64_t b = 0; b < sequences; ++b) {
    for (int64_t t = 0; t < length; ++t) {
      Tracked token = 0.0;
      if (!mask.present() || mask.load_int(b, t) != 0) {
        const double value = values.load(b, t);
        const Tracked target = returns.load(b, t);
        const Tracked error = Tracked(value) - target;
        const Tracked clipped_error = clipped(value, old_values, params.clip_eps, b, t) - target;
        const Tracked plain = error * error, clip = clipped_error * clipped_error;
        token = Tracked(0.5) * (std::isnan(plain.value) || plain.value > clip.value ? plain : clip);
        n_clipped += clip.value > plain.value ? 1 : 0;
        const Tracked weight = token_weight(params, counts, static_cast<size_t>(b));
        if (params.aggregation != RLK_VALUE_LOSS_AGGREGATION_NONE) loss.add(weight * token);
      }
      put(answer.outputs[RLK_VALUE_LOSS_OUT_TOKEN_LOSS], call.wants(RLK_VALUE_LOSS_OUT_TOKEN_LOSS), token);
    }
  }
  put(answer.outputs[RLK_VALUE_LOSS_OUT_LOSS], loss.total());
  put(answer.outputs[RLK_VALUE_LOSS_OUT_CLIP_FRACTION], call.wants(RLK_VALUE_LOSS_OUT_CLIP_FRACTION),
      Tracked(n_clipped) / Tracked(std::max(counts.all, 1.0)));
  return answer;
}

}  // namespace rlk::golden
