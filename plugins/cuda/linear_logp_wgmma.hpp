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
  // Sizes that the bulk copy engine can step through: a second slab, a ring that has come round, a second tile of rows.
  static constexpr rlk_switch kSwitches[] = {
      {sizeof(rlk_switch), 0, "D", 72}, {sizeof(rlk_switch), 0, "D", 328}, {sizeof(rlk_switch), 0, "N", 129}};
};

}  // namespace rlk::cuda
