// paged_attention on tensor cores, NVIDIA's own: 16-bit caches whose blocks 16-byte accesses can fetch.
#pragma once

#include "../simt/host/paged_attention.hpp"

namespace rlk::cuda {

// The padded head sizes, a block of many rows, a second share of fixed size (in blocks of 8).
constexpr rlk_switch kPagedAttentionSwitches[] = {
    {sizeof(rlk_switch), 0, "D", 72}, {sizeof(rlk_switch), 0, "Tq", 129}, {sizeof(rlk_switch), 0, "MB", 257}};

// How many blocks share a row's keys depends on the sizes of the call.
struct PagedAttentionMmaSplit {
  using Op = sdk::ops::PagedAttention;
  static constexpr const char* kName = "mma_split";
  static sdk::Support query(simt::host::Device& device, const sdk::Call<Op>& call);
  static std::unique_ptr<sdk::Plan> plan(simt::host::Device& device, const sdk::Call<Op>& call);
  static constexpr const auto& kSwitches = kPagedAttentionSwitches;
};

// Every share has as many keys, and blocks of few rows alone: the bits of a row are its own keys' and query's, in a
// step of decoding and in prefill.
struct PagedAttentionMmaFixed {
  using Op = sdk::ops::PagedAttention;
  static constexpr const char* kName = "mma_fixed";
  static sdk::Support query(simt::host::Device& device, const sdk::Call<Op>& call);
  static std::unique_ptr<sdk::Plan> plan(simt::host::Device& device, const sdk::Call<Op>& call);
  static constexpr const auto& kSwitches = kPagedAttentionSwitches;
};

}  // namespace rlk::cuda
