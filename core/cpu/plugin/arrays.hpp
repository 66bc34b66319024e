// From the ABI's tensors to the arrays of the kernels that have one number per token.
#pragma once

#include "core/cpu/kernels/sequences.hpp"
#include "core/cpu/plugin/arguments.hpp"

namespace rlk::cpu {

inline Array array_of(const rlk_tensor* tensor) {
  Array array;
  if (tensor == nullptr) return array;
  array.data = sdk::data_of(tensor);
  array.dtype = kernel_dtype(*tensor);
  for (int32_t axis = 0; axis < tensor->ndim; ++axis) array.strides[axis] = tensor->strides[axis];
  return array;
}

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

// Bytes that a call reads and writes: what its time is estimated from.
template <class Op>
double bytes_of(const sdk::Call<Op>& call) {
  double bytes = 0;
  const auto add = [&bytes](const rlk_tensor* tensor) {
    if (tensor != nullptr) bytes += static_cast<double>(sdk::element_count(*tensor)) * tensor->dtype.bits / 8;
  };
  for (uint32_t i = 0; i < Op::kInputs; ++i) add(call.input(i));
  for (uint32_t i = 0; i < Op::kOutputs; ++i) add(call.output(i));
  return bytes;
}

}  // namespace rlk::cpu
