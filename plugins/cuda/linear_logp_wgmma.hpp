// linear_logp on the warpgroup products and the bulk copy engine of sm_90, without the scores in memory.
#pragma once

#include <rlk/sdk/ops/linear_logp.hpp>

#include "../simt/host/operator.hpp"

namespace rlk::cuda {

struct LinearLogpWgmma {
  using Op = sdk::ops::LinearLogp;
  static constexpr const char* kName = "wgmma";
  static sdk::Support query(simt::host::Device& device, const sdk::Call<Op>& described);
  static std::unique_ptr<sdk::Plan> plan(simt::host::Device& device, const sdk::Call<Op>& call);
  // Rows of the bulk copy engine's strides, a second slab, a ring that has come round; a cluster's first and second
  // rows.
  static constexpr rlk_switch kSwitches[] = {{sizeof(rlk_switch), 0, "D", 72},
                                             {sizeof(rlk_switch), 0, "D", 328},
                                             {sizeof(rlk_switch), 0, "N", 129},
                                             {sizeof(rlk_switch), 0, "N", 257}};
};

}  // namespace rlk::cuda
