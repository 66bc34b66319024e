// Tensor maps: what the bulk copy engine of sm_90 knows of a tensor.
#pragma once

#include "../simt/args.h"
#include "../simt/host/operator.hpp"
#include "kernels/attention_wgmma.h"

#include <array>

namespace rlk::cuda {

// Why this driver makes no tensor maps, or nothing.
sdk::Refusal refuse_tensor_maps();
// Why the engine cannot step through this tensor of 16-bit elements, or nothing. The stride of a single one may be
// anything in a contiguous tensor, and a plan serves all of those.
inline sdk::Refusal refuse_tensor_map(const rlk_tensor& tensor, const char* name) {
  constexpr int64_t kLimit = int64_t{1} << 39;  // 2^40 bytes
  const bool is_contiguous = sdk::is_contiguous(tensor);
  for (int32_t d = 0; d + 1 < tensor.ndim; ++d) {
    if ((tensor.strides[d] >= 0 && tensor.strides[d] < kLimit) || (is_contiguous && tensor.shape[d] < 2)) continue;
    return sdk::Support::no("STRIDES",
                            sdk::format("%s has the stride %lld; the bulk copy engine takes strides of 0 to 2^39 - 1",
                                        name, static_cast<long long>(tensor.strides[d])),
                            RLK_SUPPORT_IF_CONTIGUOUS);
  }
  return std::nullopt;
}

// The strides of heads, tokens and sequences as a map has them, in bytes. The driver wants multiples of 16 of all of
// them, also where a dimension is a single one, whose stride nothing follows.
inline std::array<uint64_t, 3> map_strides(const simt::AttentionTensor& tensor, int64_t columns, int64_t heads,
                                           int64_t tokens, int64_t sequences) {
  const auto bytes = [columns](int64_t stride, int64_t size) {
    return 2 * static_cast<uint64_t>(size > 1 ? stride : columns);
  };
  return {bytes(tensor.head_stride, heads), bytes(tensor.token_stride, tokens), bytes(tensor.batch_stride, sequences)};
}

// Copies of `rows` tokens of one head, a panel of columns at a time; columns and tokens beyond the tensor are zeros on
// the way in and dropped on the way out.
TensorMap tensor_map(const simt::AttentionTensor& tensor, sdk::Dtype dtype, int64_t columns, int64_t heads,
                     int64_t tokens, int64_t sequences, int rows);

}  // namespace rlk::cuda
