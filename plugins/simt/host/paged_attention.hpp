// Attention over a cache of blocks (../paged_attention.cuh): decoding and prefill, from ids that stay on the device.
#pragma once

#include <rlk/sdk/arguments.hpp>
#include <rlk/sdk/ops/paged_attention.hpp>

#include "../paged_attention.h"
#include "operator.hpp"

namespace rlk::simt::host {

// What every kernel asks of a call.
sdk::Refusal refuse_paged_attention(const Device& device, const sdk::Call<sdk::ops::PagedAttention>& described);
// All but how the work is cut, where parts lie and the sink of errors.
simt::PagedAttentionArgs paged_arguments(const sdk::Arguments<sdk::ops::PagedAttention>& call);
// Throws where a run is larger than what the kernels count.
void expect_paged_sizes(const sdk::Arguments<sdk::ops::PagedAttention>& call);
// Blocks of so many rows: exact without cu_seqlens_q, else a bound (paged_work).
int64_t paged_tiles(const sdk::Arguments<sdk::ops::PagedAttention>& call, int64_t rows);
// The parts of a call whose keys are shared out.
uint64_t paged_workspace(const sdk::Arguments<sdk::ops::PagedAttention>& call, int64_t splits);
void place_paged_parts(simt::PagedAttentionArgs& args, const sdk::Arguments<sdk::ops::PagedAttention>& call,
                       void* workspace);

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
