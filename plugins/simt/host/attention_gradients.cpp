// attention_backward and prefix_shared_attention_backward without matrix units.
#include "attention_gradients.hpp"

#include "operators.hpp"

namespace rlk::simt::host {
namespace {

GradientKernels kernels_of(sdk::Dtype dtype) {
  return {"tiles",
          "attention_gradients",
          sdk::name_of(dtype),
          0,
          simt::gradient_columns(accumulator_bytes(dtype)),
          kAttentionNumerics};
}

template <class Op>
sdk::Support support_of(Device& device, const sdk::Call<Op>& described) {
  const auto call = sdk::arguments_of(described);
  if (auto refused = refuse_gradients<Op>(device, call)) return *refused;
  const sdk::Dtype dtype = sdk::dtype_of(*call.q);
  // Not measured: the rate of the forward without matrix units.
  return gradients_support<Op>(device, call, kernels_of(dtype), RLK_SUPPORT_OK, slower_than_matrix_units(dtype));
}

template <class Op>
std::unique_ptr<sdk::Plan> plan_of(Device& device, const sdk::Call<Op>& call) {
  return std::make_unique<GradientsPlan<Op>>(device, call, kernels_of(sdk::dtype_of(*sdk::arguments_of(call).q)));
}

}  // namespace

sdk::Support AttentionBackwardSimt::query(Device& device, const sdk::Call<Op>& call) {
  return support_of(device, call);
}
std::unique_ptr<sdk::Plan> AttentionBackwardSimt::plan(Device& device, const sdk::Call<Op>& call) {
  return plan_of(device, call);
}

sdk::Support PrefixSharedAttentionBackwardSimt::query(Device& device, const sdk::Call<Op>& call) {
  return support_of(device, call);
}
std::unique_ptr<sdk::Plan> PrefixSharedAttentionBackwardSimt::plan(Device& device, const sdk::Call<Op>& call) {
  return plan_of(device, call);
}

}  // namespace rlk::simt::host
