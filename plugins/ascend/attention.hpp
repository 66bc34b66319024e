// attention on aclnnFusedInferAttentionScoreV3, with sequence lengths from the host.
#pragma once

#include <rlk/sdk/ops/attention.hpp>

#include "plan.hpp"

namespace rlk::ascend {

struct Attention {
  using Op = sdk::ops::Attention;
  static constexpr const char* kName = "fused_v3";
  static sdk::Support query(Device&, const sdk::Call<Op>&);
  static std::unique_ptr<sdk::Plan> plan(Device&, const sdk::Call<Op>&);
};

}  // namespace rlk::ascend
