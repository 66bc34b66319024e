// logp, composed of aclnn calls over chunks of rows: logits are read once into fp32, then maximum, exp, sum, gather.
#pragma once

#include <rlk/sdk/ops/logp.hpp>

#include "plan.hpp"

namespace rlk::ascend {

struct Logp {
  using Op = sdk::ops::Logp;
  static constexpr const char* kName = "composed";
  static sdk::Support query(Device&, const sdk::Call<Op>&);
  static std::unique_ptr<sdk::Plan> plan(Device&, const sdk::Call<Op>&);
};

}  // namespace rlk::ascend
