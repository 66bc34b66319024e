// The gradients of attention on tensor cores, the implementations that are NVIDIA's own: for 16-bit tensors, weights
// and score gradients rounded to their dtype between the products.
#pragma once

#include <rlk/sdk/ops/attention_backward.hpp>
#include <rlk/sdk/ops/prefix_shared_attention_backward.hpp>

#include "../simt/host/operator.hpp"

namespace rlk::cuda {

// What must be aligned, in the reason that a call is told.
constexpr const char* kGradientTensors = "tensors of keys and queries, and their gradients,";

struct AttentionBackwardMma {
  using Op = sdk::ops::AttentionBackward;
  static constexpr const char* kName = "mma";
  static sdk::Support query(simt::host::Device& device, const sdk::Call<Op>& call);
  static std::unique_ptr<sdk::Plan> plan(simt::host::Device& device, const sdk::Call<Op>& call);
  // The padded head sizes.
  static constexpr rlk_switch kSwitches[] = {{sizeof(rlk_switch), 0, "D", 72}};
};

struct PrefixSharedAttentionBackwardMma {
  using Op = sdk::ops::PrefixSharedAttentionBackward;
  static constexpr const char* kName = "mma";
  static sdk::Support query(simt::host::Device& device, const sdk::Call<Op>& call);
  static std::unique_ptr<sdk::Plan> plan(simt::host::Device& device, const sdk::Call<Op>& call);
  // The padded head sizes, and queries of 3 samples from which on a prefix sums its rows in parts.
  static constexpr rlk_switch kSwitches[] = {{sizeof(rlk_switch), 0, "D", 72}, {sizeof(rlk_switch), 0, "Sq", 22}};
};

}  // namespace rlk::cuda
