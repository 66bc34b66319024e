// grouped_gemm and its gradients without matrix units.
#include "grouped.hpp"

#include <rlk/sdk/arguments.hpp>

#include "../grouped.h"

#include <algorithm>

namespace rlk::simt::host {
namespace {

// Batch invariant: a row's sums have one order, wherever its tile begins.
constexpr uint32_t kRowNumerics = RLK_NUMERICS_ACCURATE | RLK_NUMERICS_DETERMINISTIC | RLK_NUMERICS_BATCH_INVARIANT;
constexpr uint32_t kSumNumerics = RLK_NUMERICS_ACCURATE | RLK_NUMERICS_DETERMINISTIC;

simt::GroupedArgs groups_of(const rlk_tensor& cu_seqlens, const sdk::Run& run) {
  simt::GroupedArgs args{};
  args.cu_seqlens = sdk::data_of(&cu_seqlens);
  args.cu_are_i64 = sdk::dtype_of(cu_seqlens) == sdk::Dtype::i64 ? 1 : 0;
  args.groups = cu_seqlens.shape[0] - 1;
  args.errors = error_sink(run);
  return args;
}

// rows times a matrix [inner, columns] of each group, whose strides are those of groups, inner and columns.
void launch_rows(FunctionHandle kernel, simt::GroupedArgs args, const rlk_tensor& a, const rlk_tensor& b,
                 const int64_t (&b_stride)[3], const rlk_tensor& y, StreamHandle stream) {
  args.a = sdk::data_of(&a);
  args.b = sdk::data_of(&b);
  args.y = sdk::data_of(&y);
  args.rows = a.shape[0];
  args.inner = a.shape[1];
  args.columns = y.shape[1];
  std::copy(b_stride, b_stride + 3, args.b_stride);
  std::copy(a.strides, a.strides + 2, args.a_stride);
  std::copy(y.strides, y.strides + 2, args.y_stride);
  const int64_t row_tiles = ceil_divide(args.rows, simt::kGroupedTile) + args.groups;
  launch(kernel, row_tiles * ceil_divide(args.columns, simt::kGroupedTile), simt::kGroupedThreads, 0, stream, args);
}

template <class Op>
class GroupedPlan : public sdk::Plan {
public:
  GroupedPlan(Device& device, const sdk::Call<Op>& call) : place_(device.place()), params_(call.params()) {
    const std::string dtype = sdk::name_of(sdk::dtype_of(*sdk::arguments_of(call).x));
    rows_ = device.kernel("grouped", "grouped_rows_" + dtype);
    sums_ = device.kernel("grouped", "grouped_sums_" + dtype);
    flags = RLK_PLAN_SHAREABLE | RLK_PLAN_CAPTURABLE;
    dynamic_symbols = sdk::bits_of(&sdk::Arguments<Op>::R);
  }

protected:
  sdk::Arguments<Op> arguments_of(const sdk::Run& run) const { return sdk::arguments_of<Op>(run, params_); }
  FunctionHandle rows_ = nullptr, sums_ = nullptr;
  Place place_;

private:
  const typename Op::Params params_;
};

class ForwardPlan final : public GroupedPlan<sdk::ops::GroupedGemm> {
public:
  using GroupedPlan::GroupedPlan;
  void enqueue(sdk::Stream& stream, const sdk::Run& run) override {
    const auto call = arguments_of(run);
    const int64_t* const strides = call.weight->strides;
    const PlaceScope scope(place_);
    launch_rows(rows_, groups_of(*call.cu_seqlens, run), *call.x, *call.weight, {strides[0], strides[2], strides[1]},
                *call.y, own(stream).handle());
  }
};

class BackwardPlan final : public GroupedPlan<sdk::ops::GroupedGemmBackward> {
public:
  using GroupedPlan::GroupedPlan;
  void enqueue(sdk::Stream& stream, const sdk::Run& run) override {
    const auto call = arguments_of(run);
    const StreamHandle handle = own(stream).handle();
    const int64_t* const strides = call.weight->strides;
    const PlaceScope scope(place_);
    simt::GroupedArgs args = groups_of(*call.cu_seqlens, run);
    launch_rows(rows_, args, *call.grad_y, *call.weight, {strides[0], strides[1], strides[2]}, *call.grad_x, handle);
    if (call.grad_weight == nullptr) return;
    args.a = sdk::data_of(call.grad_y);
    args.b = sdk::data_of(call.x);
    args.y = sdk::data_of(call.grad_weight);
    args.rows = call.R;
    args.left = call.M;
    args.columns = call.K;
    std::copy(call.grad_y->strides, call.grad_y->strides + 2, args.a_stride);
    std::copy(call.x->strides, call.x->strides + 2, args.b_stride);
    std::copy(call.grad_weight->strides, call.grad_weight->strides + 3, args.y_stride);
    const int64_t tiles = ceil_divide(call.M, simt::kGroupedTile) * ceil_divide(call.K, simt::kGroupedTile);
    launch(sums_, call.E * tiles, simt::kGroupedThreads, 0, handle, args);
  }
};

// Plain multiplications beside the matrix units.
sdk::Support support_of(Device& device, double products, uint32_t numerics) {
  constexpr double kSlower = 32;
  sdk::Support answer = sdk::Support::yes("tiles", numerics, RLK_SUPPORT_OK);
  answer.cost_us = kLaunchUs + device.matrix_us(2 * products * kSlower);
  return answer;
}

}  // namespace

sdk::Support GroupedGemmSimt::query(Device& device, const sdk::Call<Op>& call) {
  if (auto refused = device.refusal()) return *refused;
  const auto arguments = sdk::arguments_of(call);
  if (auto refused = refuse_dtype(arguments.x, "x")) return *refused;
  if (auto refused = sdk::refuse_gaps(arguments.cu_seqlens, "cu_seqlens")) return *refused;
  return support_of(device, static_cast<double>(arguments.R * arguments.K * arguments.M), kRowNumerics);
}
std::unique_ptr<sdk::Plan> GroupedGemmSimt::plan(Device& device, const sdk::Call<Op>& call) {
  return std::make_unique<ForwardPlan>(device, call);
}

sdk::Support GroupedGemmBackwardSimt::query(Device& device, const sdk::Call<Op>& call) {
  if (auto refused = device.refusal()) return *refused;
  const auto arguments = sdk::arguments_of(call);
  if (auto refused = refuse_dtype(arguments.x, "x")) return *refused;
  if (auto refused = sdk::refuse_gaps(arguments.cu_seqlens, "cu_seqlens")) return *refused;
  const bool sums = arguments.grad_weight != nullptr;
  return support_of(device, static_cast<double>(arguments.R * arguments.K * arguments.M) * (sums ? 2 : 1),
                    sums ? kSumNumerics : kRowNumerics);
}
std::unique_ptr<sdk::Plan> GroupedGemmBackwardSimt::plan(Device& device, const sdk::Call<Op>& call) {
  return std::make_unique<BackwardPlan>(device, call);
}

}  // namespace rlk::simt::host
