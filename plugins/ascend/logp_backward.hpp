// logp_backward, composed of aclnn calls over chunks of logits rows. With row_indices every logits row first learns its
// token, so that logits are read and gradients written in place, in one order of summation.
#pragma once

#include <rlk/sdk/ops/logp_backward.hpp>

#include "plan.hpp"

namespace rlk::ascend {

struct LogpBackward {
  using Op = sdk::ops::LogpBackward;
  static constexpr const char* kName = "composed";
  static sdk::Support query(Device&, const sdk::Call<Op>&);
  static std::unique_ptr<sdk::Plan> plan(Device&, const sdk::Call<Op>&);
};

}  // namespace rlk::ascend
