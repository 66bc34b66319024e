// out = a + alpha b on cnnlOpTensor.
#pragma once

#include <rlk/sdk/ops/add.hpp>

#include "program.hpp"

namespace rlk::cambricon {

struct Add {
  using Op = sdk::ops::Add;
  static constexpr const char* kName = "cnnl";
  static sdk::Support query(Device&, const sdk::Call<Op>&);
  static std::unique_ptr<sdk::Plan> plan(Device&, const sdk::Call<Op>&);
};

}  // namespace rlk::cambricon
