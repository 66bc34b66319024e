// grouped_gemm and its gradients on tensor cores, for 16-bit tensors.
#pragma once

#include "../simt/host/grouped.hpp"

namespace rlk::cuda {

// Sizes that 16-byte accesses can address: more than one piece of the sum; two tiles of columns, and of rows of a sum
// an odd number. More than one tile of rows: beside other sizes that are too narrow for 16-byte accesses.
constexpr rlk_switch kGroupedSwitches[] = {{sizeof(rlk_switch), 0, "K", 72},
                                           {sizeof(rlk_switch), 0, "K", 264},
                                           {sizeof(rlk_switch), 0, "M", 264},
                                           {sizeof(rlk_switch), 0, "R", 129}};

// By mma.sync, which every device since sm_80 has.
struct GroupedGemmMma {
  using Op = sdk::ops::GroupedGemm;
  static constexpr const char* kName = "mma";
  static sdk::Support query(simt::host::Device& device, const sdk::Call<Op>& call);
  static std::unique_ptr<sdk::Plan> plan(simt::host::Device& device, const sdk::Call<Op>& call);
  static constexpr const auto& kSwitches = kGroupedSwitches;
};
struct GroupedGemmBackwardMma {
  using Op = sdk::ops::GroupedGemmBackward;
  static constexpr const char* kName = "mma";
  static sdk::Support query(simt::host::Device& device, const sdk::Call<Op>& call);
  static std::unique_ptr<sdk::Plan> plan(simt::host::Device& device, const sdk::Call<Op>& call);
  static constexpr const auto& kSwitches = kGroupedSwitches;
};

// By Hopper's own instructions, which no other architecture executes.
struct GroupedGemmWgmma {
  using Op = sdk::ops::GroupedGemm;
  static constexpr const char* kName = "wgmma";
  static sdk::Support query(simt::host::Device& device, const sdk::Call<Op>& call);
  static std::unique_ptr<sdk::Plan> plan(simt::host::Device& device, const sdk::Call<Op>& call);
  static constexpr const auto& kSwitches = kGroupedSwitches;
};
struct GroupedGemmBackwardWgmma {
  using Op = sdk::ops::GroupedGemmBackward;
  static constexpr const char* kName = "wgmma";
  static sdk::Support query(simt::host::Device& device, const sdk::Call<Op>& call);
  static std::unique_ptr<sdk::Plan> plan(simt::host::Device& device, const sdk::Call<Op>& call);
  static constexpr const auto& kSwitches = kGroupedSwitches;
};

}  // namespace rlk::cuda
