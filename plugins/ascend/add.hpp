// out = a + alpha b on aclnnAdd.
#pragma once

#include <rlk/sdk/ops/add.hpp>

#include "plan.hpp"

namespace rlk::ascend {

struct Add {
  using Op = sdk::ops::Add;
  static constexpr const char* kName = "aclnn";
  static sdk::Support query(Device&, const sdk::Call<Op>&);
  static std::unique_ptr<sdk::Plan> plan(Device&, const sdk::Call<Op>&);
};

}  // namespace rlk::ascend
