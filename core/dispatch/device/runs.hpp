// A strided tensor as stretches of memory without gaps, in the order of its elements.
#pragma once

#include <rlk/abi.h>

#include <cstdint>

namespace rlk::core {

// Calls visit(byte offset from the first element, bytes) for each stretch until one answer is not RLK_OK; returns the
// last answer. A contiguous tensor is one stretch; an empty one has none.
template <class Visit>
rlk_status for_each_run(const rlk_tensor& tensor, Visit&& visit) {
  const int64_t bits = tensor.dtype.bits;  // below 8, runs are whole rows, which begin at whole bytes
  int64_t run = 1;  // elements of a stretch: the inner dimensions that follow each other without a gap
  int32_t outer = tensor.ndim;
  for (; outer > 0; --outer) {
    const int32_t d = outer - 1;
    if (tensor.shape[d] == 0) return RLK_OK;
    if (tensor.shape[d] != 1 && tensor.strides[d] != run) break;
    run *= tensor.shape[d];
  }
  for (int32_t d = 0; d < outer; ++d) {
    if (tensor.shape[d] == 0) return RLK_OK;
  }
  int64_t index[RLK_MAX_NDIM] = {};
  int64_t offset = 0;
  for (;;) {
    const rlk_status status = visit(offset * bits / 8, static_cast<uint64_t>((run * bits + 7) / 8));
    if (status != RLK_OK) return status;
    int32_t d = outer - 1;
    for (; d >= 0; --d) {
      offset += tensor.strides[d];
      if (++index[d] < tensor.shape[d]) break;
      offset -= tensor.strides[d] * tensor.shape[d];
      index[d] = 0;
    }
    if (d < 0) return RLK_OK;
  }
}

}  // namespace rlk::core
