// What grpo_loss and its backward agree on: advantages of groups, tokens as rows of logits, the loss of a token.
#pragma once

#include <rlk/sdk/ops/grpo_loss.hpp>
#include <rlk/sdk/ops/grpo_loss_backward.hpp>

#include <vector>

#include "core/golden/dual.hpp"
#include "core/golden/logp_rows.hpp"

namespace rlk::golden {

// A call of grpo_loss, or what its backward has of one.
using GrpoCall = CallOf<sdk::ops::GrpoLoss>;

inline bool is_active(const GrpoCall& call, int64_t b, int64_t t) {
  return (!call.mask.present() || call.mask.load_int(b, t) != 0) && call.ids.load_int(b, t) != call.params.ignore_index;
}
// The numbers of another operator's answer become those of this one's.
inline void take(Output& to, Output& from) {
  from.wanted = to.wanted;
  to = std::move(from);
}
DataError group_error(const GrpoCall& call);
std::vector<Tracked> group_advantages(const GrpoCall& call);

// The tokens of a batch as rows of a two-dimensional tensor, copied.
class TokenRows {
public:
  TokenRows(const GrpoCall& call, const View& logits);
  // The arguments of logp over these rows.
  CallOf<sdk::ops::Logp> logp() const;
  CallOf<sdk::ops::LogpBackward> logp_backward(const std::vector<double>& lse,
                                               const std::vector<double>& grad_logp) const;
  View vector(const std::vector<double>& values) const;

private:
  const GrpoCall& call_;
  std::vector<double> logits_;
  std::vector<int64_t> ids_;
  std::vector<uint8_t> mask_;
  int64_t matrix_shape_[2], matrix_strides_[2];
  int64_t row_shape_[1], row_strides_[1];
};

using ClampRule = sdk::ops::grpo_loss_backward::ClampGradient;
Dual clipped_surrogate(const GrpoCall& call, const Dual& logp, double old_logp, const Tracked& advantage,
                       ClampRule rule = ClampRule::zero);

}  // namespace rlk::golden
