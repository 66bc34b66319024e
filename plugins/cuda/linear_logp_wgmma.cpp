// linear_logp on warpgroup products (kernels/linear_logp_wgmma.cuh): 16-bit tensors of sm_90. Beside it the chunks of
// plugins/products serve every other call.
#include "linear_logp_wgmma.hpp"

#include "../simt/host/attention.hpp"
#include "../simt/host/logp_common.hpp"
#include "linear_tiles.hpp"

namespace rlk::cuda {
namespace {

using namespace simt::host;

using Op = sdk::ops::LinearLogp;
using Named = sdk::Arguments<Op>;

constexpr const char* kImage = "linear_logp_wgmma";
// Of tiles' statistics. Rows beyond what these hold are another launch's: to it the weights pass once more.
constexpr uint64_t kMostStatistics = uint64_t{64} << 20;
// Statistics of one row.
uint64_t row_bytes(const Named& call) {
  return static_cast<uint64_t>(linear_column_tiles(call.V)) * sizeof(float) * (call.entropy != nullptr ? 3 : 2);
}
// Of a launch: all rows, or as many whole tiles as the statistics have room for.
int64_t launch_rows_of(const Named& call) {
  constexpr int64_t kWhole = kLinearRows;
  const auto fit = static_cast<int64_t>(kMostStatistics / std::max<uint64_t>(row_bytes(call), 1)) / kWhole * kWhole;
  const int64_t launches = ceil_divide(call.N, std::max(fit, kWhole));
  return launches < 2 ? call.N : ceil_divide(ceil_divide(call.N, launches), kWhole) * kWhole;
}
uint64_t workspace_of(const Named& call) {
  const auto rows = static_cast<uint64_t>(launch_rows_of(call));
  const uint64_t one = align_256(rows * static_cast<uint64_t>(linear_column_tiles(call.V)) * sizeof(float));
  return one * (call.entropy != nullptr ? 3 : 2) + align_256(rows * sizeof(float)) + align_256(sizeof(int32_t));
}

class LinearLogpWgmmaPlan final : public OperatorPlan<Op> {
public:
  LinearLogpWgmmaPlan(Device& device, const sdk::Call<Op>& described)
      : OperatorPlan(device, described), multiprocessors_(device.multiprocessors()) {
    const Named call = sdk::arguments_of(described);
    dtype_ = sdk::dtype_of(*call.hidden);
    const char* const form = call.bias != nullptr || params_.softcap > 0 ? "transform"
                             : call.entropy != nullptr                   ? "entropy"
                                                                         : "plain";
    tiles_ = device.kernel(kImage, sdk::format("%s_%s_%s", kImage, sdk::name_of(dtype_), form), kLinearSharedBytes);
    merge_ = device.kernel(kImage, sdk::format("%s_merge_%s", kImage, sdk::name_of(dtype_)));
    dynamic_symbols = sdk::bits_of(&Named::N);
    workspace_bound = UINT64_MAX;
  }

  uint64_t prepare(const sdk::Run& run) override { return workspace_of(arguments_of(run)); }

  void enqueue(sdk::Stream& stream, const sdk::Run& run) override {
    const Named call = arguments_of(run);
    const PlaceScope scope(place_);  // the driver makes tensor maps of a current context
    const int64_t step = launch_rows_of(call);
    for (int64_t first = 0; first < call.N; first += step) {
      launch_rows(call, run, first, std::min(step, call.N - first), own(stream).handle());
    }
  }

private:
  void launch_rows(const Named& call, const sdk::Run& run, int64_t first, int64_t rows, StreamHandle handle) const {
    LinearLogpWgmmaArgs args{};
    const int64_t column_tiles = linear_column_tiles(call.V);
    const auto of_tiles = static_cast<uint64_t>(rows * column_tiles) * sizeof(float);
    Workspace workspace(run.workspace());
    args.top = workspace.take<float>(of_tiles);
    args.sum = workspace.take<float>(of_tiles);
    if (call.entropy != nullptr) args.weighted = workspace.take<float>(of_tiles);
    args.target = workspace.take<float>(static_cast<uint64_t>(rows) * sizeof(float));
    args.taken = workspace.take<int32_t>(sizeof(int32_t));
    set_tokens(args, call, first, rows);
    args.transform = {sdk::data_of(call.bias), params_.temperature, params_.softcap,
                      static_cast<float>(kLog2e / params_.temperature), 0};
    args.errors = error_sink(run);
    args.first_row = first;
    args.column_tiles = static_cast<int32_t>(column_tiles);
    if (column_tiles > 0) launch_tiles(args, call, first, rows, handle);
    launch_grid(merge_, ceil_divide(rows, kLinearMergeRows), kLinearMergeThreads, 0, handle, args);
  }

  // Rows from `first` on, of whatever has one number a row.
  void set_tokens(LinearLogpWgmmaArgs& args, const Named& call, int64_t first, int64_t rows) const {
    args.tokens = linear_tokens(call, first, rows);
    args.logp = const_cast<void*>(products::from_row(call.logp, first));
    args.logp_is_accumulator = is_accumulator(*call.logp, dtype_);
    args.lse = static_cast<float*>(const_cast<void*>(products::from_row(call.lse, first)));
    args.entropy = static_cast<float*>(const_cast<void*>(products::from_row(call.entropy, first)));
  }

  void launch_tiles(LinearLogpWgmmaArgs& args, const Named& call, int64_t first, int64_t rows,
                    StreamHandle handle) const {
    const int64_t hidden_stride = call.hidden->strides[0];
    const char* const hidden = sdk::data_of<const char>(call.hidden) + 2 * first * hidden_stride;
    set_linear_tiles(args, hidden, hidden_stride, *call.weight, rows);
    launch_linear_tiles(tiles_, args, multiprocessors_, handle);
  }

  const int64_t multiprocessors_;
  sdk::Dtype dtype_;
  FunctionHandle tiles_ = nullptr, merge_ = nullptr;
};

}  // namespace

sdk::Support LinearLogpWgmma::query(Device& device, const sdk::Call<Op>& described) {
  if (auto refused = device.refusal()) return *refused;
  if (auto refused = refuse_other_than_hopper(device)) return *refused;
  const Named call = sdk::arguments_of(described);
  const sdk::Dtype dtype = sdk::dtype_of(*call.hidden);
  if (auto refused = sdk::refuse_dtype(call.hidden, "hidden", {sdk::Dtype::bf16, sdk::Dtype::f16})) return *refused;
  if (auto refused = refuse_scaling(call.params, dtype)) return *refused;
  if (auto refused = sdk::refuse_input(call.keep_mask, "keep_mask")) return *refused;
  if (auto refused = sdk::refuse_output(call.sum_p2, "sum_p2")) return *refused;
  for (const auto& [tensor, name] :
       {NamedTensor{call.ids, "ids"}, NamedTensor{call.bias, "bias"}, NamedTensor{call.mask, "mask"},
        NamedTensor{call.logp, "logp"}, NamedTensor{call.lse, "lse"}, NamedTensor{call.entropy, "entropy"}}) {
    if (auto refused = sdk::refuse_gaps(tensor, name)) return *refused;
  }
  // Matrix units cut the sums of f16 products, which have 22 bits, at every step (seen on an H200): a logp of fp32
  // would be off by more than 2e-5. Products of bf16 have 16 bits.
  if (dtype == sdk::Dtype::f16 && sdk::dtype_of(*call.logp) == sdk::Dtype::f32) {
    return sdk::Support::no("PRECISION",
                            "matrix units' sums of f16 products are not exact enough for a logp of f32; "
                            "ask for it in f16, or pass bf16");
  }
  if (auto refused = refuse_linear_sizes(call.V, call.D)) return *refused;
  if (auto refused = refuse_tensors({{call.hidden, "hidden"}, {call.weight, "weight"}}, "hidden and weight")) {
    return *refused;
  }
  if (auto refused = refuse_linear_kernels(device, kImage)) return *refused;
  sdk::Support answer =
      sdk::Support::yes(kName, RLK_NUMERICS_DETERMINISTIC | RLK_NUMERICS_BATCH_INVARIANT, RLK_SUPPORT_PREFERRED);
  answer.workspace_bound = workspace_of(call);
  const auto launches = static_cast<double>(ceil_divide(call.N, std::max<int64_t>(launch_rows_of(call), 1)));
  answer.cost_us = 2 * kLaunchUs * launches + linear_tiles_us(device, call.N, call.V, call.D);
  return answer;
}
std::unique_ptr<sdk::Plan> LinearLogpWgmma::plan(Device& device, const sdk::Call<Op>& call) {
  return std::make_unique<LinearLogpWgmmaPlan>(device, call);
}

}  // namespace rlk::cuda
