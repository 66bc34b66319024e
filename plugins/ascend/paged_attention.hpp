// paged_attention of one query for each sequence on aclnnFusedInferAttentionScoreV3, with lengths from the host.
#pragma once

#include <rlk/sdk/ops/paged_attention.hpp>

#include "plan.hpp"

namespace rlk::ascend {

struct PagedAttention {
  using Op = sdk::ops::PagedAttention;
  static constexpr const char* kName = "fused_v3";
  static sdk::Support query(Device&, const sdk::Call<Op>&);
  static std::unique_ptr<sdk::Plan> plan(Device&, const sdk::Call<Op>&);
};

}  // namespace rlk::ascend
