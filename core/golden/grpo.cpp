// Advantages of groups and the loss of a token, formula by formula.
#include "core/golden/grpo.hpp"

#include <rlk/sdk/forward.hpp>

#include "core/golden/groups.hpp"
#include "core/golden/sequences.hpp"

namespace rlk::golden {

DataError group_error(const GrpoCall& call) {
  return call.group_boundaries.present() ? check_seqlens(call.group_boundaries, call.B) : DataError{};
}

std::vector<Tracked> group_advantages(const GrpoCall& call) {
  GroupingCall grouping;
  grouping.grouping = call.group_boundaries.present() ? Grouping::boundaries : Grouping::fixed;
  grouping.rows = call.B;
  grouping.samples_per_prompt = call.params.samples_per_prompt;
  grouping.boundaries = call.group_boundaries;
  grouping.kept.assign(static_cast<size_t>(call.B), true);
  Normalisation how;
  how.params.std = call.params.std;
  how.params.eps_mode = call.params.eps_mode;
  how.params.eps = call.params.eps;
  std::vector<Tracked> rewards;
  for (int64_t b = 0; b < call.B; ++b) rewards.emplace_back(call.rewards.load(b));
  DataError error;  // group_error has told
  return normalised(how, grouping, groups_of(grouping, error), rewards);
}

TokenRows::TokenRows(const GrpoCall& call, const View& logits) : call_(call) {
  const int64_t vocab = logits.shape[2], rows = call.B * call.T;
  for (int64_t b = 0; b < call.B; ++b) {
    for (int64_t t = 0; t < call.T; ++t) {
      ids_.push_back(call.ids.load_int(b, t));
      mask_.push_back(is_active(call, b, t) ? 1 : 0);
      for (int64_t v = 0; v < vocab; ++v) logits_.push_back(logits.load(b, t, v));
    }
  }
  matrix_shape_[0] = row_shape_[0] = rows;
  matrix_shape_[1] = matrix_strides_[0] = vocab;
  matrix_strides_[1] = row_strides_[0] = 1;
}

View TokenRows::vector(const std::vector<double>& values) const {
  return {values.data(), Dtype::f64, 1, row_shape_, row_strides_};
}

CallOf<sdk::ops::Logp> TokenRows::logp() const {
  CallOf<sdk::ops::Logp> call;
  call.logits = {logits_.data(), Dtype::f64, 2, matrix_shape_, matrix_strides_};
  call.ids = {ids_.data(), Dtype::i64, 1, row_shape_, row_strides_};
  call.mask = {mask_.data(), Dtype::u8, 1, row_shape_, row_strides_};
  call.N = call.R = matrix_shape_[0];
  call.V = matrix_shape_[1];
  call.params.temperature = call_.params.temperature;
  call.params.ignore_index = call_.params.ignore_index;
  call.epsilon = call_.epsilon;
  return call;
}

CallOf<sdk::ops::LogpBackward> TokenRows::logp_backward(const std::vector<double>& lse,
                                                        const std::vector<double>& grad_logp) const {
  auto call = sdk::backward_of<CallOf<sdk::ops::LogpBackward>>(logp());
  call.lse = vector(lse);
  call.grad_logp = vector(grad_logp);
  call.epsilon = call_.epsilon;
  return call;
}

Dual clipped_surrogate(const GrpoCall& call, const Dual& logp, double old_logp, const Tracked& advantage,
                       ClampRule rule) {
  const Dual ratio = exp(logp - Dual(old_logp)), a(advantage);
  return -min(ratio * a, clamp(ratio, 1 - call.params.clip_low, 1 + call.params.clip_high, rule) * a);
}

}  // namespace rlk::golden
