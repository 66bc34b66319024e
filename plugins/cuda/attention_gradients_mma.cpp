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
  if (call.D % 8 != 0 || call.D > kMostHead) {
    return sdk::Support::no("HEAD_SIZE",
                            sdk::format("head size %lld; the tensor core kernels take multiples of 8 up to %lld",
                                        static_cast<long long>(call.D), static_cast<long long>(kMostHead)));
  }
  bool wide = true;
  const auto look = [&](const rlk_tensor* tensor) { wide = wide && is_wide(*tensor); };
  for (const rlk_tensor* tensor : {call.q, call.k, call.v, call.grad_out, call.grad_q, call.grad_k, call.grad_v}) {
    look(tensor);
  }
  if constexpr (kHasPrefix<Op>) {
    for (const rlk_tensor* tensor : {call.prefix_k, call.prefix_v, call.grad_prefix_k, call.grad_prefix_v})
      look(tensor);
  }
  if (!wide) {
    return sdk::Support::no("ALIGNMENT",
                            "tensors of keys and queries, and their gradients, must start on 16 bytes, with "
                            "strides of multiples of 8",
                            RLK_SUPPORT_IF_CONTIGUOUS);
  }
  const GradientKernels kernels = kernels_of(sdk::dtype_of(*call.q), call.D);
  if (kernels.shared_bytes > device.shared_limit()) {
    return sdk::Support::no("SHARED_MEMORY",
                            sdk::format("head size %lld needs %d bytes of shared memory; a block of this device has %d",
                                        static_cast<long long>(call.D), kernels.shared_bytes, device.shared_limit()));
  }
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
