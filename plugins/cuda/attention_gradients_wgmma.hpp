// The gradients of attention on the warpgroup products and the bulk copy engine of sm_90.
#pragma once

#include <rlk/sdk/ops/attention_backward.hpp>

#include "../simt/host/operator.hpp"

namespace rlk::cuda {

// Weights and score gradients are rounded to the tensors' dtype between the products. grad_q has no order of summation.
struct AttentionBackwardWgmma {
  using Op = sdk::ops::AttentionBackward;
  static constexpr const char* kName = "wgmma";
  static sdk::Support query(simt::host::Device& device, const sdk::Call<Op>& described);
  static std::unique_ptr<sdk::Plan> plan(simt::host::Device& device, const sdk::Call<Op>& call);
  // The second panel of columns, kernels of wide heads, a second tile of queries, rings that have come round, a second
  // block of keys.
  static constexpr rlk_switch kSwitches[] = {{sizeof(rlk_switch), 0, "D", 72},   {sizeof(rlk_switch), 0, "D", 136},
                                             {sizeof(rlk_switch), 0, "Sq", 65},  {sizeof(rlk_switch), 0, "Sq", 257},
                                             {sizeof(rlk_switch), 0, "Sk", 129}, {sizeof(rlk_switch), 0, "Tq", 385},
                                             {sizeof(rlk_switch), 0, "Tk", 385}};
};

}  // namespace rlk::cuda
