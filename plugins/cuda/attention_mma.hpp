// attention on tensor cores, the implementations that are NVIDIA's own.
#pragma once

#include "../simt/host/attention.hpp"

namespace rlk::cuda {

// Rows of D elements that 16-byte accesses can fetch.
inline bool is_wide(const rlk_tensor& tensor) {
  if (tensor.alignment % 16 != 0) return false;
  if (sdk::is_contiguous(tensor)) return true;  // D, which both forms want to be a multiple of 8, makes every stride
  if (tensor.strides[tensor.ndim - 1] != 1) return false;
  for (int32_t d = 0; d + 1 < tensor.ndim; ++d) {
    if (tensor.strides[d] % 8 != 0) return false;  // of a single one too: a plan serves other sizes, not other strides
  }
  return true;
}

inline sdk::Refusal refuse_narrow(std::initializer_list<const rlk_tensor*> tensors, const char* which) {
  for (const rlk_tensor* tensor : tensors) {
    if (tensor == nullptr || is_wide(*tensor)) continue;
    return sdk::Support::no("ALIGNMENT",
                            sdk::format("%s must start on 16 bytes, with strides of multiples of 8", which),
                            RLK_SUPPORT_IF_CONTIGUOUS);
  }
  return std::nullopt;
}
inline sdk::Refusal refuse_head_size(int64_t head, int64_t most, const char* kernels = "these kernels") {
  if (head % 8 == 0 && head <= most) return std::nullopt;
  return sdk::Support::no("HEAD_SIZE",
                          sdk::format("head size %lld; %s take multiples of 8 up to %lld", static_cast<long long>(head),
                                      kernels, static_cast<long long>(most)));
}

// The padded head sizes, the second block of rows (in large blocks: there are fewer keys), the second tile of keys.
constexpr rlk_switch kAttentionMmaSwitches[] = {{sizeof(rlk_switch), 0, "D", 72},   {sizeof(rlk_switch), 0, "D", 104},
                                                {sizeof(rlk_switch), 0, "D", 136},  {sizeof(rlk_switch), 0, "D", 200},
                                                {sizeof(rlk_switch), 0, "Sq", 129}, {sizeof(rlk_switch), 0, "Tq", 193},
                                                {sizeof(rlk_switch), 0, "Sk", 65},  {sizeof(rlk_switch), 0, "Tk", 65}};

// Tensor cores for 16-bit tensors, the weights rounded to the tensors' dtype before the second product.
struct AttentionMma {
  using Op = sdk::ops::Attention;
  static constexpr const char* kName = "mma";
  static sdk::Support query(simt::host::Device& device, const sdk::Call<Op>& call);
  static std::unique_ptr<sdk::Plan> plan(simt::host::Device& device, const sdk::Call<Op>& call);
  static constexpr const auto& kSwitches = kAttentionMmaSwitches;
};

// The same with weights that keep fp32: half as much matrix work again.
struct AttentionMmaAccurate {
  using Op = sdk::ops::Attention;
  static constexpr const char* kName = "mma_accurate";
  static sdk::Support query(simt::host::Device& device, const sdk::Call<Op>& call);
  static std::unique_ptr<sdk::Plan> plan(simt::host::Device& device, const sdk::Call<Op>& call);
  static constexpr const auto& kSwitches = kAttentionMmaSwitches;
};

}  // namespace rlk::cuda
