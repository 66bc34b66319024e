// Do two tensors, or two elements of one tensor, share memory?
#pragma once

#include <rlk/abi/tensor.h>

#include <cstdint>

namespace rlk::core {

// A tensor's address, for tensors that were found well-formed. [all: thread-safe, no allocation]
inline uintptr_t address_of(const rlk_tensor& tensor) {
  return reinterpret_cast<uintptr_t>(tensor.data) + tensor.byte_offset;
}
int64_t element_count(const rlk_tensor& tensor);
bool is_contiguous(const rlk_tensor& tensor);  // row-major without gaps; sizes of 1 and empty tensors have any stride

// The bytes from the lowest to the highest element, relative to the first: [low, high).
struct ByteRange {
  int64_t low = 0;
  int64_t high = 0;
};
ByteRange byte_range_of(const rlk_tensor& tensor);

// Two indices may name the same element: false is a proof. Layouts whose dimensions interleave count as overlapping.
bool overlaps_itself(const rlk_tensor& tensor);
// The two share a byte, or cannot be shown not to: false is a proof. Column slices of one buffer are told apart.
bool may_overlap(const rlk_tensor& a, const rlk_tensor& b);
// Same dtype and shape, and strides that differ at most where they say nothing.
bool has_same_layout(const rlk_tensor& a, const rlk_tensor& b);
// The same address too: element i of one is element i of the other.
bool is_same_memory(const rlk_tensor& a, const rlk_tensor& b);

}  // namespace rlk::core
