// logp, composed of CNNL calls over chunks of rows.
#pragma once

#include <rlk/sdk/ops/logp.hpp>

#include "program.hpp"

namespace rlk::cambricon {

struct Logp {
  using Op = sdk::ops::Logp;
  static constexpr const char* kName = "composed";
  static sdk::Support query(Device&, const sdk::Call<Op>&);
  static std::unique_ptr<sdk::Plan> plan(Device&, const sdk::Call<Op>&);
};

}  // namespace rlk::cambricon
