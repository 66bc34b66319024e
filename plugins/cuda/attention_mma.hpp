// attention on tensor cores, the implementations that are NVIDIA's own.
#pragma once

#include "../simt/host/attention.hpp"

namespace rlk::cuda {

using simt::host::is_wide;
using simt::host::refuse_head_size;
using simt::host::refuse_narrow;

// The padded head sizes, the second block of rows (in large blocks: there are fewer keys), the second tile of keys.
constexpr rlk_switch kAttentionMmaSwitches[] = {{sizeof(rlk_switch), 0, "D", 72},   {sizeof(rlk_switch), 0, "D", 104},
                                                {sizeof(rlk_switch), 0, "D", 136},  {sizeof(rlk_switch), 0, "D", 200},
                                                {sizeof(rlk_switch), 0, "Sq", 129}, {sizeof(rlk_switch), 0, "Tq", 193},
                                                {sizeof(rlk_switch), 0, "Sk", 65},  {sizeof(rlk_switch), 0, "Tk", 65}};

// Tensor cores for 16-bit tensors, the weights rounded to the tensors' dtype before the second product.
struct AttentionMma {
  using Op = sdk::ops::Attention;
  static constexpr const char* kName = "mma";
  static sdk::Support query(simt::host::Device& device, const sdk::Call<Op>& call);
  static std::unique_ptr<sdk::Plan> plan(simt::host::Device& device, const sdk::Call<Op>& call);
  static constexpr const auto& kSwitches = kAttentionMmaSwitches;
};

// The same with weights that keep fp32: half as much matrix work again.
struct AttentionMmaAccurate {
  using Op = sdk::ops::Attention;
  static constexpr const char* kName = "mma_accurate";
  static sdk::Support query(simt::host::Device& device, const sdk::Call<Op>& call);
  static std::unique_ptr<sdk::Plan> plan(simt::host::Device& device, const sdk::Call<Op>& call);
  static constexpr const auto& kSwitches = kAttentionMmaSwitches;
};

}  // namespace rlk::cuda
