// linear_logp_backward on the warpgroup products of sm_90: the scores' slopes without the scores in memory.
#pragma once

#include <rlk/sdk/ops/linear_logp_backward.hpp>

#include "../simt/host/operator.hpp"
#include "linear_logp_wgmma.hpp"

namespace rlk::cuda {

struct LinearLogpBackwardWgmma {
  using Op = sdk::ops::LinearLogpBackward;
  static constexpr const char* kName = "wgmma";
  static sdk::Support query(simt::host::Device& device, const sdk::Call<Op>& described);
  static std::unique_ptr<sdk::Plan> plan(simt::host::Device& device, const sdk::Call<Op>& call);
  static constexpr const auto& kSwitches = LinearLogpWgmma::kSwitches;
};

}  // namespace rlk::cuda
