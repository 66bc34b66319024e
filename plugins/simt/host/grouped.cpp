// grouped_gemm and its gradients without matrix units.
#include "grouped.hpp"

#include "../grouped.h"

namespace rlk::simt::host {
namespace {

// rows times a matrix [inner, columns] of each group, whose strides are those of groups, inner and columns.
void launch_rows(FunctionHandle kernel, simt::GroupedArgs args, const rlk_tensor& a, const rlk_tensor& b,
                 const int64_t (&b_stride)[3], const rlk_tensor& y, StreamHandle stream) {
  set_row_products(args, a, b, y);
  std::copy(b_stride, b_stride + 3, args.b_stride);
  std::copy(a.strides, a.strides + 2, args.a_stride);
  std::copy(y.strides, y.strides + 2, args.y_stride);
  const int64_t row_tiles = ceil_divide(args.rows, simt::kGroupedTile) + args.groups;
  // Of results without columns one block tells bad groups.
  const int64_t column_tiles = std::max<int64_t>(ceil_divide(args.columns, simt::kGroupedTile), 1);
  launch(kernel, args.columns > 0 ? row_tiles * column_tiles : 1, simt::kGroupedThreads, 0, stream, args);
}

template <class Op>
class GroupedPlan : public OperatorPlan<Op> {
public:
  GroupedPlan(Device& device, const sdk::Call<Op>& call) : OperatorPlan<Op>(device, call) {
    const std::string dtype = sdk::name_of(sdk::dtype_of(*sdk::arguments_of(call).x));
    rows_ = device.kernel("grouped", "grouped_rows_" + dtype);
    sums_ = device.kernel("grouped", "grouped_sums_" + dtype);
    this->dynamic_symbols = sdk::bits_of(&sdk::Arguments<Op>::R);
  }

protected:
  FunctionHandle rows_ = nullptr, sums_ = nullptr;
};

class ForwardPlan final : public GroupedPlan<sdk::ops::GroupedGemm> {
public:
  using GroupedPlan::GroupedPlan;
  void enqueue(sdk::Stream& stream, const sdk::Run& run) override {
    const auto call = arguments_of(run);
    const int64_t* const strides = call.weight->strides;
    const PlaceScope scope(place_);
    launch_rows(rows_, grouped_arguments<simt::GroupedArgs>(*call.cu_seqlens, run), *call.x, *call.weight,
                {strides[0], strides[2], strides[1]}, *call.y, own(stream).handle());
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
    auto args = grouped_arguments<simt::GroupedArgs>(*call.cu_seqlens, run);
    launch_rows(rows_, args, *call.grad_y, *call.weight, {strides[0], strides[1], strides[2]}, *call.grad_x, handle);
    if (call.grad_weight == nullptr) return;
    set_group_sums(args, call);
    args.left = call.M;
    std::copy(call.grad_y->strides, call.grad_y->strides + 2, args.a_stride);
    std::copy(call.x->strides, call.x->strides + 2, args.b_stride);
    const int64_t tiles = ceil_divide(call.M, simt::kGroupedTile) * ceil_divide(call.K, simt::kGroupedTile);
    launch(sums_, call.E * tiles, simt::kGroupedThreads, 0, handle, args);
  }
};

template <class Op>
sdk::Support support_of(Device& device, const sdk::Arguments<Op>& call, int products, uint32_t numerics) {
  constexpr double kSlower = 32;  // plain multiplications than the matrix units
  if (auto refused = device.refusal()) return *refused;
  if (auto refused = refuse_dtype(call.x, "x")) return *refused;
  if (auto refused = sdk::refuse_gaps(call.cu_seqlens, "cu_seqlens")) return *refused;
  sdk::Support answer = sdk::Support::yes("tiles", numerics, RLK_SUPPORT_OK);
  answer.cost_us = kLaunchUs + device.matrix_us(2 * products * static_cast<double>(call.R * call.K * call.M) * kSlower);
  return answer;
}

}  // namespace

sdk::Support GroupedGemmSimt::query(Device& device, const sdk::Call<Op>& call) {
  return support_of<Op>(device, sdk::arguments_of(call), 1, kGroupedRowNumerics);
}
std::unique_ptr<sdk::Plan> GroupedGemmSimt::plan(Device& device, const sdk::Call<Op>& call) {
  return std::make_unique<ForwardPlan>(device, call);
}

sdk::Support GroupedGemmBackwardSimt::query(Device& device, const sdk::Call<Op>& described) {
  const auto call = sdk::arguments_of(described);
  const bool sums = call.grad_weight != nullptr;
  return support_of<Op>(device, call, sums ? 2 : 1, sums ? kGroupedSumNumerics : kGroupedRowNumerics);
}
std::unique_ptr<sdk::Plan> GroupedGemmBackwardSimt::plan(Device& device, const sdk::Call<Op>& call) {
  return std::make_unique<BackwardPlan>(device, call);
}

}  // namespace rlk::simt::host
