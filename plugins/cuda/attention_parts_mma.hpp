// attention in parts on tensor cores, NVIDIA's own: 16-bit tensors, keys shared out to several blocks. For steps of
// decoding, and for samples that share a prefix.
#pragma once

#include <rlk/sdk/ops/attention.hpp>
#include <rlk/sdk/ops/prefix_shared_attention.hpp>

#include "../simt/host/operator.hpp"

namespace rlk::cuda {

// The padded head sizes, the rows of a block, own keys that the merge does not take in, the second tile of keys.
constexpr rlk_switch kAttentionPartsSwitches[] = {{sizeof(rlk_switch), 0, "D", 72},
                                                  {sizeof(rlk_switch), 0, "Sq", 17},
                                                  {sizeof(rlk_switch), 0, "Sq", 129},
                                                  {sizeof(rlk_switch), 0, "Sk", 33},
                                                  {sizeof(rlk_switch), 0, "Sk", 65}};

// To how many blocks the keys of `blocks` tiles of rows are shared out, each: the fewest steps of all blocks, of which
// the device holds at_once.
int64_t shares_of_keys(int64_t keys, int64_t blocks, int64_t at_once, int64_t most);

// Weights that keep fp32. How many blocks share a row's keys depends on the sizes of the call.
struct AttentionSplit {
  using Op = sdk::ops::Attention;
  static constexpr const char* kName = "mma_split";
  static sdk::Support query(simt::host::Device& device, const sdk::Call<Op>& call);
  static std::unique_ptr<sdk::Plan> plan(simt::host::Device& device, const sdk::Call<Op>& call);
  static constexpr const auto& kSwitches = kAttentionPartsSwitches;
};

// Weights rounded to the tensors' dtype before the second product.
struct PrefixSharedAttentionMma {
  using Op = sdk::ops::PrefixSharedAttention;
  static constexpr const char* kName = "mma";
  static sdk::Support query(simt::host::Device& device, const sdk::Call<Op>& call);
  static std::unique_ptr<sdk::Plan> plan(simt::host::Device& device, const sdk::Call<Op>& call);
  static constexpr const auto& kSwitches = kAttentionPartsSwitches;
};

// Weights that keep fp32.
struct PrefixSharedAttentionMmaAccurate {
  using Op = sdk::ops::PrefixSharedAttention;
  static constexpr const char* kName = "mma_accurate";
  static sdk::Support query(simt::host::Device& device, const sdk::Call<Op>& call);
  static std::unique_ptr<sdk::Plan> plan(simt::host::Device& device, const sdk::Call<Op>& call);
  static constexpr const auto& kSwitches = kAttentionPartsSwitches;
};

}  // namespace rlk::cuda
