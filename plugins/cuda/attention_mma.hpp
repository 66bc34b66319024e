// attention on tensor cores, the implementation that is NVIDIA's own.
#pragma once

#include <rlk/sdk/ops/attention.hpp>

#include "../simt/host/attention.hpp"

namespace rlk::cuda {

// Tensor cores for 16-bit tensors.
struct AttentionMma {
  using Op = sdk::ops::Attention;
  static constexpr const char* kName = "mma";
  static sdk::Support query(simt::host::Device& device, const sdk::Call<Op>& call);
  static std::unique_ptr<sdk::Plan> plan(simt::host::Device& device, const sdk::Call<Op>& call);
  static constexpr rlk_switch kSwitches[] = {{sizeof(rlk_switch), 0, "D", 72},   {sizeof(rlk_switch), 0, "D", 104},
                                             {sizeof(rlk_switch), 0, "D", 136},  {sizeof(rlk_switch), 0, "D", 200},
                                             {sizeof(rlk_switch), 0, "Sq", 129}, {sizeof(rlk_switch), 0, "Tq", 129}};
};

}  // namespace rlk::cuda
