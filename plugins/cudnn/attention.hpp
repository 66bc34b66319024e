// attention and attention_backward by cuDNN, for the devices of the cuda plugin.
#pragma once

#include "device.hpp"

#include <rlk/sdk/ops/attention.hpp>
#include <rlk/sdk/ops/attention_backward.hpp>

namespace rlk::cudnn {

struct Attention {
  using Op = sdk::ops::Attention;
  static constexpr const char* kName = "cudnn";
  static sdk::Support query(Device& device, const sdk::Call<Op>& call);
  static std::unique_ptr<sdk::Plan> plan(Device& device, const sdk::Call<Op>& call);
};

// Blocks of keys add to grad_q in any order.
struct AttentionBackward {
  using Op = sdk::ops::AttentionBackward;
  static constexpr const char* kName = "cudnn";
  static sdk::Support query(Device& device, const sdk::Call<Op>& call);
  static std::unique_ptr<sdk::Plan> plan(Device& device, const sdk::Call<Op>& call);
};

// The gradients of all scores stand in the workspace: the same bits every time, for memory of Sq * Sk.
struct AttentionBackwardDeterministic {
  using Op = sdk::ops::AttentionBackward;
  static constexpr const char* kName = "cudnn_deterministic";
  static sdk::Support query(Device& device, const sdk::Call<Op>& call);
  static std::unique_ptr<sdk::Plan> plan(Device& device, const sdk::Call<Op>& call);
};

}  // namespace rlk::cudnn
