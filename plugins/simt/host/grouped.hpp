// Products of rows with the matrix of their group, by kernels that read on the device where the groups begin
// (../grouped.cuh).
#pragma once

#include <rlk/sdk/ops/grouped_gemm.hpp>
#include <rlk/sdk/ops/grouped_gemm_backward.hpp>

#include "operator.hpp"

namespace rlk::simt::host {

// Batch invariant: a row's sums have one order, wherever its tile begins.
constexpr uint32_t kGroupedRowNumerics =
    RLK_NUMERICS_ACCURATE | RLK_NUMERICS_DETERMINISTIC | RLK_NUMERICS_BATCH_INVARIANT;
constexpr uint32_t kGroupedSumNumerics = RLK_NUMERICS_ACCURATE | RLK_NUMERICS_DETERMINISTIC;

// Where the groups begin. Args: of the kernels here, or of a vendor's own.
template <class Args>
Args grouped_arguments(const rlk_tensor& cu_seqlens, const sdk::Run& run) {
  Args args{};
  args.cu_seqlens = sdk::data_of(&cu_seqlens);
  args.cu_are_i64 = sdk::dtype_of(cu_seqlens) == sdk::Dtype::i64 ? 1 : 0;
  args.groups = cu_seqlens.shape[0] - 1;
  args.errors = error_sink(run);
  return args;
}
// y = rows of a times the matrix of their group, but for the strides.
template <class Args>
void set_row_products(Args& args, const rlk_tensor& a, const rlk_tensor& b, const rlk_tensor& y) {
  args.a = sdk::data_of(&a);
  args.b = sdk::data_of(&b);
  args.y = sdk::data_of(&y);
  args.rows = a.shape[0];
  args.inner = a.shape[1];
  args.columns = y.shape[1];
}
// grad_weight of each group, likewise.
template <class Args, class Arguments>
void set_group_sums(Args& args, const Arguments& call) {
  args.a = sdk::data_of(call.grad_y);
  args.b = sdk::data_of(call.x);
  args.y = sdk::data_of(call.grad_weight);
  args.rows = call.R;
  args.columns = call.K;
  std::copy_n(call.grad_weight->strides, 3, args.y_stride);
}

struct GroupedGemmSimt {
  using Op = sdk::ops::GroupedGemm;
  static constexpr const char* kName = "simt";
  static sdk::Support query(Device& device, const sdk::Call<Op>& call);
  static std::unique_ptr<sdk::Plan> plan(Device& device, const sdk::Call<Op>& call);
};

struct GroupedGemmBackwardSimt {
  using Op = sdk::ops::GroupedGemmBackward;
  static constexpr const char* kName = "simt";
  static sdk::Support query(Device& device, const sdk::Call<Op>& described);
  static std::unique_ptr<sdk::Plan> plan(Device& device, const sdk::Call<Op>& call);
};

}  // namespace rlk::simt::host
