// attention over fixed shares of keys on tensor cores, NVIDIA's own: 16-bit tensors, and a row's bits are the same in a
// step of decoding and in prefill.
#pragma once

#include <rlk/sdk/ops/attention.hpp>

#include "../simt/host/operator.hpp"

namespace rlk::cuda {

// Weights that keep fp32. Shares begin at the same keys in each call.
struct AttentionFixed {
  using Op = sdk::ops::Attention;
  static constexpr const char* kName = "mma_fixed";
  static sdk::Support query(simt::host::Device& device, const sdk::Call<Op>& described);
  static std::unique_ptr<sdk::Plan> plan(simt::host::Device& device, const sdk::Call<Op>& call);
  // The padded head sizes, more queries than few, a second block of rows, a second quarter of a share, a second share.
  static constexpr rlk_switch kSwitches[] = {{sizeof(rlk_switch), 0, "D", 72},
                                             {sizeof(rlk_switch), 0, "Sq", 5},
                                             {sizeof(rlk_switch), 0, "Sq", 65},
                                             {sizeof(rlk_switch), 0, "Sk", 257},
                                             {sizeof(rlk_switch), 0, "Sk", 1025}};
};

}  // namespace rlk::cuda
