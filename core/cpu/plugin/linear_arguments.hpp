// The arguments that linear_logp and linear_logp_backward share.
#pragma once

#include "core/cpu/linear/linear_logp.hpp"
#include "core/cpu/plugin/logp_rows.hpp"

namespace rlk::cpu {

template <class Params>
LogpRows linear_rows(const Params& params, const rlk_tensor& hidden, const rlk_tensor& weight, const rlk_tensor& ids,
                     const rlk_tensor* mask) {
  LogpRows rows = make_rows(params, hidden, ids, mask, nullptr);
  rows.vocab = weight.shape[0];
  return rows;
}

inline LinearMatrix linear_matrix(const rlk_tensor& tensor) {
  return {sdk::data_of(&tensor), tensor.strides[0], tensor.strides[1]};
}

template <class Params>
LinearSizes linear_sizes(const Params& params, const rlk_tensor& hidden, const rlk_tensor& weight) {
  return {kernel_dtype(hidden), hidden.shape[0], weight.shape[0], hidden.shape[1], params.temperature, params.softcap};
}

// For estimates of time: bytes read, and multiplications of the scores.
inline double linear_bytes(const LinearSizes& sizes) {
  return static_cast<double>(sizes.n + sizes.vocab) * static_cast<double>(sizes.depth * size_of(sizes.dtype));
}
inline double linear_products(const LinearSizes& sizes) {
  return static_cast<double>(sizes.n) * static_cast<double>(sizes.vocab) * static_cast<double>(sizes.depth);
}

inline void check(LinearStatus status) {
  if (status == LinearStatus::ok) return;
  throw sdk::Error(RLK_OUT_OF_MEMORY,
                   "no host memory for the scratch of a thread (below 1 MiB); the outputs are "
                   "incomplete");
}

}  // namespace rlk::cpu
