// What grpo_loss and its backward agree on: advantages of groups, tokens as rows of logits, the loss of a token.
#pragma once

#include <rlk/ops/grpo_loss.h>

#include <vector>

#include "core/golden/dual.hpp"
#include "core/golden/golden.hpp"

namespace rlk::golden {

struct GrpoCall {
  View logits, ids, old_logp, rewards, mask, group_boundaries;
  rlk_grpo_loss_params params = RLK_GRPO_LOSS_PARAMS_INIT;

  int64_t sequences() const { return ids.shape[0]; }
  int64_t tokens() const { return ids.shape[1]; }
  bool is_active(int64_t b, int64_t t) const {
    return (!mask.present() || mask.load_int(b, t) != 0) && ids.load_int(b, t) != params.ignore_index;
  }
};

DataError group_error(const GrpoCall& call);
std::vector<Tracked> group_advantages(const GrpoCall& call);

// The tokens of a batch as rows of a two-dimensional tensor, copied.
class TokenRows {
public:
  TokenRows(const GrpoCall& call, const View& logits);
  // The arguments of logp over these rows.
  LogpCall logp() const;
  LogpBackwardCall logp_backward(const std::vector<double>& lse, const std::vector<double>& grad_logp) const;
  View vector(const std::vector<double>& values) const;

private:
  const GrpoCall& call_;
  std::vector<double> logits_;
  std::vector<int64_t> ids_;
  std::vector<uint8_t> mask_;
  int64_t matrix_shape_[2], matrix_strides_[2];
  int64_t row_shape_[1], row_strides_[1];
};

Dual clipped_surrogate(const GrpoCall& call, const Dual& logp, double old_logp, const Tracked& advantage);

}  // namespace rlk::golden
