// From the ABI's tensors to the arrays of the kernels that have one number per token.
#pragma once

#include "core/cpu/plugin/arguments.hpp"
#include "core/cpu/simd/sequences.hpp"

namespace rlk::cpu {

inline Mask mask_of(const rlk_tensor* tensor) {
  Mask mask;
  if (tensor == nullptr) return mask;
  mask.data = sdk::data_of<const uint8_t>(tensor);
  for (int32_t axis = 0; axis < tensor->ndim; ++axis) mask.strides[axis] = tensor->strides[axis];
  return mask;
}

inline IntArray int_array_of(const rlk_tensor* tensor) {
  if (tensor == nullptr) return {};
  return {sdk::data_of(tensor), is_i64(*tensor), tensor->strides[0]};
}

// Dense or packed by whether there are cu_seqlens.
inline Sequences sequences_of(const rlk_tensor& tokens, const rlk_tensor* cu_seqlens) {
  if (cu_seqlens != nullptr) return {cu_seqlens->shape[0] - 1, true, tokens.shape[0], int_array_of(cu_seqlens)};
  return {tokens.shape[0], false, tokens.shape[1], {}};
}

}  // namespace rlk::cpu
