// The clipped squared error of a value function: the declaration's formula, fp64.
#include "core/golden/value_loss.hpp"

namespace rlk::golden {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

}  // namespace

Answer answer_value_loss(const Call& call) {
  const auto& params = call.params_as<rlk_value_loss_params>();
  const View &values = call[RLK_VALUE_LOSS_IN_VALUES], &returns = call[RLK_VALUE_LOSS_IN_RETURNS];
  const View &old_values = call[RLK_VALUE_LOSS_IN_OLD_VALUES], &mask = call[RLK_VALUE_LOSS_IN_MASK];
  const Sequences sequences(values, call[RLK_VALUE_LOSS_IN_CU_SEQLENS]);
  Answer answer;
  answer.outputs.resize(RLK_VALUE_LOSS_N_OUTPUTS);
  if (answer.error = sequences.error(); answer.error.kind != kNoDataError) {
    for (int64_t i = 0; i < sequences.elements(); ++i) {
      put(answer.outputs[RLK_VALUE_LOSS_OUT_TOKEN_LOSS], call.wants(RLK_VALUE_LOSS_OUT_TOKEN_LOSS), kNan);
    }
    put(answer.outputs[RLK_VALUE_LOSS_OUT_LOSS], kNan);
    put(answer.outputs[RLK_VALUE_LOSS_OUT_CLIP_FRACTION], call.wants(RLK_VALUE_LOSS_OUT_CLIP_FRACTION), kNan);
    return answer;
  }
  const TokenCounts counts = count_tokens(sequences, mask);
  TrackedSum loss;
  double n_clipped = 0;
  for (int64_t b = 0; b < sequences.count(); ++b) {
    for (int64_t t = 0; t < sequences.tokens(b); ++t) {
      Tracked token = 0.0;
      if (sequences.kept(mask, b, t)) {
        const double value = sequences.load(values, b, t);
        const Tracked target = sequences.load(returns, b, t);
        const Tracked error = Tracked(value) - target;
        const Tracked clipped_error = clipped(value, maybe(sequences, old_values, b, t), params.clip_eps) - target;
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
