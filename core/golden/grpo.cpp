// Advantages of groups and the loss of a token, formula by formula.
#include "core/golden/grpo.hpp"

#include <algorithm>
#include <cmath>

namespace rlk::golden {
namespace {

void normalise(const GrpoCall& call, int64_t begin, int64_t end, std::vector<Tracked>& advantages) {
  const int64_t n = end - begin;
  if (n == 0) return;
  const Tracked first{call.rewards.load(begin), 0}, size{static_cast<double>(n), 0};
  const auto from_first = [&](int64_t b) { return Tracked{call.rewards.load(b), 0} - first; };
  Tracked mean, square;
  for (int64_t b = begin; b < end; ++b) mean = mean + from_first(b);
  mean = mean / size;
  for (int64_t b = begin; b < end; ++b) square = square + (from_first(b) - mean) * (from_first(b) - mean);
  if (n == 1 || square.value == 0) return;
  const bool unbiased = call.params.std == RLK_GRPO_LOSS_STD_UNBIASED;
  const Tracked deviation = sqrt(square / Tracked{static_cast<double>(unbiased ? n - 1 : n), 0});
  const Tracked eps = parameter(call.params.eps);
  const bool additive = call.params.eps_mode == RLK_GRPO_LOSS_EPS_MODE_ADDITIVE;
  const Tracked divisor = additive ? deviation + eps : deviation.value > eps.value ? deviation : eps;
  for (int64_t b = begin; b < end; ++b) advantages[static_cast<size_t>(b)] = (from_first(b) - mean) / divisor;
}

}  // namespace

DataError group_error(const GrpoCall& call) {
  if (!call.group_boundaries.present()) return {};
  const int64_t last = call.group_boundaries.shape[0] - 1;
  for (int64_t g = 0; g <= last; ++g) {
    const int64_t here = call.group_boundaries.load_int(g);
    const bool bad = (g == 0 && here != 0) || (g > 0 && here < call.group_boundaries.load_int(g - 1)) ||
                     (g == last && here != call.sequences());
    if (bad) return {kBadSeqlens, g, here};
  }
  return {};
}

std::vector<Tracked> group_advantages(const GrpoCall& call) {
  std::vector<Tracked> advantages(static_cast<size_t>(call.sequences()));
  if (call.group_boundaries.present()) {
    for (int64_t g = 0; g + 1 < call.group_boundaries.shape[0]; ++g) {
      normalise(call, call.group_boundaries.load_int(g), call.group_boundaries.load_int(g + 1), advantages);
    }
    return advantages;
  }
  const int64_t size = call.params.samples_per_prompt > 0 ? call.params.samples_per_prompt : call.sequences();
  for (int64_t begin = 0; begin < call.sequences(); begin += size) normalise(call, begin, begin + size, advantages);
  return advantages;
}

TokenRows::TokenRows(const GrpoCall& call, const View& logits) : call_(call) {
  const int64_t vocab = logits.shape[2], rows = call.sequences() * call.tokens();
  for (int64_t b = 0; b < call.sequences(); ++b) {
    for (int64_t t = 0; t < call.tokens(); ++t) {
      ids_.push_back(call.ids.load_int(b, t));
      mask_.push_back(call.is_active(b, t) ? 1 : 0);
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

LogpCall TokenRows::logp() const {
  LogpCall call;
  call.logits = {logits_.data(), Dtype::f64, 2, matrix_shape_, matrix_strides_};
  call.ids = {ids_.data(), Dtype::i64, 1, row_shape_, row_strides_};
  call.mask = {mask_.data(), Dtype::u8, 1, row_shape_, row_strides_};
  call.temperature = call_.params.temperature;
  call.ignore_index = call_.params.ignore_index;
  call.want_lse = true;
  return call;
}

LogpBackwardCall TokenRows::logp_backward(const std::vector<double>& lse, const std::vector<double>& grad_logp) const {
  const LogpCall forward = logp();
  LogpBackwardCall call;
  call.logits = forward.logits;
  call.ids = forward.ids;
  call.mask = forward.mask;
  call.temperature = forward.temperature;
  call.ignore_index = forward.ignore_index;
  call.lse = vector(lse);
  call.grad_logp = vector(grad_logp);
  return call;
}

Dual clipped_surrogate(const GrpoCall& call, const Dual& logp, double old_logp, const Tracked& advantage) {
  const Dual ratio = exp(logp - Dual(old_logp)), a(advantage);
  return -min(ratio * a, clamp(ratio, 1 - call.params.clip_low, 1 + call.params.clip_high) * a);
}

}  // namespace rlk::golden
