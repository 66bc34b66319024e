// The gradients of attention on tensor cores (kernels/attention_gradients_mma.cuh): for 16-bit tensors that 16-byte
// accesses can address, and heads of which whole tiles fit in shared memory.
#include "attention_gradients_mma.hpp"

#include "../simt/host/attention_gradients.hpp"
#include "attention_mma.hpp"

namespace rlk::cuda {
namespace {

using namespace simt::host;

constexpr int64_t kMostHead = 128;

GradientKernels kernels_of(sdk::Dtype dtype, int64_t head) {
  const int padded = head <= 64 ? 64 : 128;
  return {"mma",
          "attention_gradients_mma",
          sdk::format("%s_%d", sdk::name_of(dtype), padded),
          simt::gradient_mma_shared_bytes(padded),
          padded,
          kAttentionNumerics & ~RLK_NUMERICS_ACCURATE};
}

template <class Op>
sdk::Support support_of(Device& device, const sdk::Call<Op>& described) {
  const auto call = sdk::arguments_of(described);
  if (auto refused = refuse_gradients<Op>(device, call)) return *refused;
  if (auto refused = sdk::refuse_dtype(call.q, "q", {sdk::Dtype::bf16, sdk::Dtype::f16})) return *refused;
  if (auto refused = refuse_head_size(call.D, kMostHead, "the tensor core kernels")) return *refused;
  if (auto refused = refuse_narrow({call.q, call.k, call.v, call.grad_out, call.grad_q, call.grad_k, call.grad_v},
                                   kGradientTensors)) {
    return *refused;
  }
  if constexpr (kHasPrefix<Op>) {
    if (auto refused =
            refuse_narrow({call.prefix_k, call.prefix_v, call.grad_prefix_k, call.grad_prefix_v}, kGradientTensors)) {
      return *refused;
    }
  }
  const GradientKernels kernels = kernels_of(sdk::dtype_of(*call.q), call.D);
  if (auto refused = refuse_shared_memory(call.D, kernels.shared_bytes, device.shared_limit())) return *refused;
  // Not measured: a half of the tensor cores' rate.
  return gradients_support<Op>(device, call, kernels, RLK_SUPPORT_PREFERRED, 2.0);
}

template <class Op>
std::unique_ptr<sdk::Plan> plan_of(Device& device, const sdk::Call<Op>& call) {
  const rlk_tensor& q = *sdk::arguments_of(call).q;
  return std::make_unique<GradientsPlan<Op>>(device, call, kernels_of(sdk::dtype_of(q), q.shape[q.ndim - 1]));
}

}  // namespace

sdk::Support AttentionBackwardMma::query(Device& device, const sdk::Call<Op>& call) {
  return support_of(device, call);
}
std::unique_ptr<sdk::Plan> AttentionBackwardMma::plan(Device& device, const sdk::Call<Op>& call) {
  return plan_of(device, call);
}

sdk::Support PrefixSharedAttentionBackwardMma::query(Device& device, const sdk::Call<Op>& call) {
  return support_of(device, call);
}
std::unique_ptr<sdk::Plan> PrefixSharedAttentionBackwardMma::plan(Device& device, const sdk::Call<Op>& call) {
  return plan_of(device, call);
}

}  // namespace rlk::cuda
