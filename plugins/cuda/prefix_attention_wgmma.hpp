// prefix_shared_attention on the warpgroup products and the bulk copy engine of sm_90: for samples of many queries.
#pragma once

#include <rlk/sdk/ops/prefix_shared_attention.hpp>

#include "../simt/host/attention.hpp"

namespace rlk::cuda {

struct PrefixSharedAttentionWgmma {
  using Op = sdk::ops::PrefixSharedAttention;
  static constexpr const char* kName = "wgmma";
  static sdk::Support query(simt::host::Device& device, const sdk::Call<Op>& described);
  static std::unique_ptr<sdk::Plan> plan(simt::host::Device& device, const sdk::Call<Op>& call);
  // The padded head sizes, a second tile of queries and of keys, and rings that have come round.
  static constexpr rlk_switch kSwitches[] = {{sizeof(rlk_switch), 0, "D", 72},   {sizeof(rlk_switch), 0, "Sq", 129},
                                             {sizeof(rlk_switch), 0, "Sp", 129}, {sizeof(rlk_switch), 0, "Sp", 641},
                                             {sizeof(rlk_switch), 0, "Sk", 129}, {sizeof(rlk_switch), 0, "Sk", 641}};
};

}  // namespace rlk::cuda
