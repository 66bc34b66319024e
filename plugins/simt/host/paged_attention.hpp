// Attention over a cache of blocks (../paged_attention.cuh): decoding and prefill, from ids that stay on the device.
#pragma once

#include <rlk/sdk/ops/paged_attention.hpp>

#include "operator.hpp"

namespace rlk::simt::host {

// The keys of a row are shared out to as many blocks as keep the device busy: a number of the call's sizes and the
// device alone.
struct PagedAttentionSplit {
  using Op = sdk::ops::PagedAttention;
  static constexpr const char* kName = "split";
  static sdk::Support query(Device& device, const sdk::Call<Op>& call);
  static std::unique_ptr<sdk::Plan> plan(Device& device, const sdk::Call<Op>& call);
};

// One block reads all keys of a row, in an order that depends on the row's own sequence alone: batch invariant.
struct PagedAttentionWhole {
  using Op = sdk::ops::PagedAttention;
  static constexpr const char* kName = "whole";
  static sdk::Support query(Device& device, const sdk::Call<Op>& call);
  static std::unique_ptr<sdk::Plan> plan(Device& device, const sdk::Call<Op>& call);
};

}  // namespace rlk::simt::host
