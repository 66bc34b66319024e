// attention on the warpgroup products and the bulk copy engine of sm_90.
#pragma once

#include "attention_mma.hpp"

namespace rlk::cuda {

struct AttentionWgmma {
  using Op = sdk::ops::Attention;
  static constexpr const char* kName = "wgmma";
  static sdk::Support query(simt::host::Device& device, const sdk::Call<Op>& call);
  static std::unique_ptr<sdk::Plan> plan(simt::host::Device& device, const sdk::Call<Op>& call);
  // The padded head sizes, a second tile of queries, of keys, and rings that have come round.
  static constexpr rlk_switch kSwitches[] = {
      {sizeof(rlk_switch), 0, "D", 72},   {sizeof(rlk_switch), 0, "D", 104},  {sizeof(rlk_switch), 0, "D", 136},
      {sizeof(rlk_switch), 0, "D", 200},  {sizeof(rlk_switch), 0, "Sq", 129}, {sizeof(rlk_switch), 0, "Sk", 129},
      {sizeof(rlk_switch), 0, "Sk", 641}, {sizeof(rlk_switch), 0, "Tq", 385}, {sizeof(rlk_switch), 0, "Tk", 641}};
};

// The same with weights that keep fp32, as two numbers each: half as much matrix work again. Dense sequences without a
// softcap or a mask.
struct AttentionWgmmaAccurate {
  using Op = sdk::ops::Attention;
  static constexpr const char* kName = "wgmma_accurate";
  static sdk::Support query(simt::host::Device& device, const sdk::Call<Op>& call);
  static std::unique_ptr<sdk::Plan> plan(simt::host::Device& device, const sdk::Call<Op>& call);
  static constexpr rlk_switch kSwitches[] = {{sizeof(rlk_switch), 0, "D", 72},   {sizeof(rlk_switch), 0, "D", 104},
                                             {sizeof(rlk_switch), 0, "Sq", 129}, {sizeof(rlk_switch), 0, "Sk", 113},
                                             {sizeof(rlk_switch), 0, "Sk", 129}, {sizeof(rlk_switch), 0, "Sk", 641}};
};

}  // namespace rlk::cuda
