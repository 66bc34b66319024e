// reshape_and_cache on aclnnInplaceIndexCopy (slots.hpp).
#pragma once

#include <rlk/sdk/ops/reshape_and_cache.hpp>

#include "plan.hpp"

namespace rlk::ascend {

struct ReshapeAndCache {
  using Op = sdk::ops::ReshapeAndCache;
  static constexpr const char* kName = "index_copy";
  static sdk::Support query(Device&, const sdk::Call<Op>&);
  static std::unique_ptr<sdk::Plan> plan(Device&, const sdk::Call<Op>&);
};

}  // namespace rlk::ascend
