// paged_attention on tensor cores, NVIDIA's own: 16-bit caches whose blocks 16-byte accesses can fetch.
#pragma once

#include "../simt/host/paged_attention.hpp"

namespace rlk::cuda {

// The padded head sizes, a block of many rows, a second fixed share (in blocks of 8).
constexpr rlk_switch kPagedAttentionSwitches[] = {
    {sizeof(rlk_switch), 0, "D", 72}, {sizeof(rlk_switch), 0, "Tq", 129}, {sizeof(rlk_switch), 0, "MB", 129}};

// How many blocks share a row's keys depends on the sizes of the call.
struct PagedAttentionMmaSplit {
  using Op = sdk::ops::PagedAttention;
  static constexpr const char* kName = "mma_split";
  static sdk::Support query(simt::host::Device& device, const sdk::Call<Op>& call);
  static std::unique_ptr<sdk::Plan> plan(simt::host::Device& device, const sdk::Call<Op>& call);
  static constexpr const auto& kSwitches = kPagedAttentionSwitches;
};

// Shares begin at the same keys in each call, and rows take small blocks alone: the bits of a row are its own keys' and
// query's, in a step of decoding and in prefill.
struct PagedAttentionMmaFixed {
  using Op = sdk::ops::PagedAttention;
  static constexpr const char* kName = "mma_fixed";
  static sdk::Support query(simt::host::Device& device, const sdk::Call<Op>& call);
  static std::unique_ptr<sdk::Plan> plan(simt::host::Device& device, const sdk::Call<Op>& call);
  static constexpr const auto& kSwitches = kPagedAttentionSwitches;
};

}  // namespace rlk::cuda
