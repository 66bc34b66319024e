// linear_logp on warpgroup products (kernels/linear_logp_wgmma.cuh): 16-bit tensors of sm_90. Beside it the chunks of
// plugins/products serve every other call.
#include "linear_logp_wgmma.hpp"

#include "../simt/host/attention.hpp"
#include "../simt/host/logp_common.hpp"
#include "hopper.hpp"
#include "kernels/linear_logp_wgmma.h"

namespace rlk::cuda {
namespace {

using namespace simt::host;

using Op = sdk::ops::LinearLogp;
using Named = sdk::Arguments<Op>;

constexpr const char* kImage = "linear_logp_wgmma";
// Of tiles' statistics. Rows beyond what these hold are another launch's: to it the weights pass once more.
constexpr uint64_t kMostStatistics = uint64_t{64} << 20;
// Rows whose hidden states stay in the cache while the weights pass.
constexpr int64_t kBandRows = 2048;
// The kernels count tiles and elements of a row in 32 bits.
constexpr int64_t kMostColumns = int64_t{1} << 30;

int64_t column_tiles_of(const Named& call) {
  return ceil_divide(call.V, kLinearColumns);
}
// Statistics of one row.
uint64_t row_bytes(const Named& call) {
  return static_cast<uint64_t>(column_tiles_of(call)) * sizeof(float) * (call.entropy != nullptr ? 3 : 2);
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
  const uint64_t one = align_256(rows * static_cast<uint64_t>(column_tiles_of(call)) * sizeof(float));
  return one * (call.entropy != nullptr ? 3 : 2) + align_256(rows * sizeof(float)) + align_256(sizeof(int32_t));
}

// A matrix as a tensor of one head.
TensorMap matrix_map(const void* data, int64_t row_stride, sdk::Dtype dtype, int64_t columns, int64_t rows, int box) {
  return tensor_map({const_cast<void*>(data), 0, row_stride, 0}, dtype, columns, 1, rows, 1, box);
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
    const int64_t column_tiles = column_tiles_of(call);
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
    args.slabs = static_cast<int32_t>(ceil_divide(call.D, kLinearInner));
    args.column_tiles = static_cast<int32_t>(column_tiles);
    if (column_tiles > 0) launch_tiles(args, call, first, rows, handle);
    launch_grid(merge_, ceil_divide(rows, kLinearMergeRows), kLinearMergeThreads, 0, handle, args);
  }

  // Rows from `first` on, of whatever has one number a row.
  void set_tokens(LinearLogpWgmmaArgs& args, const Named& call, int64_t first, int64_t rows) const {
    const auto from_first = [first](const rlk_tensor* tensor) -> void* {
      if (tensor == nullptr) return nullptr;
      return const_cast<char*>(sdk::data_of<const char>(tensor)) + first * sdk::bytes_of(sdk::dtype_of(*tensor));
    };
    simt::TokenRows& tokens = args.tokens;
    tokens.ids = from_first(call.ids);
    tokens.mask = static_cast<const uint8_t*>(from_first(call.mask));
    tokens.rows = tokens.logits_rows = rows;
    tokens.ignore_index = params_.ignore_index;
    tokens.vocab = call.V;
    tokens.vocab_start = params_.vocab_start;
    tokens.id_limit = params_.global_vocab > 0 ? params_.global_vocab : call.V;
    tokens.sharded = tokens.id_limit > tokens.vocab ? 1 : 0;
    tokens.ids_are_i64 = sdk::dtype_of(*call.ids) == sdk::Dtype::i64 ? 1 : 0;
    args.logp = from_first(call.logp);
    args.logp_is_accumulator = is_accumulator(*call.logp, dtype_);
    args.lse = static_cast<float*>(from_first(call.lse));
    args.entropy = static_cast<float*>(from_first(call.entropy));
  }

  void launch_tiles(LinearLogpWgmmaArgs& args, const Named& call, int64_t first, int64_t rows,
                    StreamHandle handle) const {
    const int64_t hidden_stride = call.hidden->strides[0];
    args.hidden = matrix_map(sdk::data_of<const char>(call.hidden) + 2 * first * hidden_stride, hidden_stride, dtype_,
                             call.D, rows, kLinearRows);
    args.weight =
        matrix_map(sdk::data_of(call.weight), call.weight->strides[0], dtype_, call.D, call.V, kLinearColumns);
    args.row_tiles = static_cast<int32_t>(ceil_divide(rows, kLinearRows));
    args.band_tiles = static_cast<int32_t>(kBandRows / kLinearRows);
    fill(args.taken, 0, sizeof(int32_t), handle);
    launch_grid(tiles_, std::min(int64_t{args.row_tiles} * args.column_tiles, multiprocessors_), kLinearThreads,
                kLinearSharedBytes, handle, args);
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
  if (call.D % 8 != 0) {
    return sdk::Support::no("SIZES",
                            sdk::format("D is %lld; the bulk copy engine takes rows of multiples of 8 elements",
                                        static_cast<long long>(call.D)));
  }
  if (call.V > kMostColumns || call.D > kMostColumns) {
    return sdk::Support::no("SIZES", "these kernels take up to 2^30 entries of the vocabulary and elements of a row");
  }
  if (auto refused = refuse_tensors({{call.hidden, "hidden"}, {call.weight, "weight"}}, "hidden and weight")) {
    return *refused;
  }
  if (auto refused = refuse_without(kImage)) return *refused;
  if (kLinearSharedBytes > device.shared_limit()) {
    return sdk::Support::no("SHARED_MEMORY", sdk::format("a block needs %d bytes of shared memory; this device has %d",
                                                         kLinearSharedBytes, device.shared_limit()));
  }
  sdk::Support answer =
      sdk::Support::yes(kName, RLK_NUMERICS_DETERMINISTIC | RLK_NUMERICS_BATCH_INVARIANT, RLK_SUPPORT_PREFERRED);
  answer.workspace_bound = workspace_of(call);
  // Whole tiles are computed. Measured against the rate of mma.sync instructions.
  constexpr double kMatrixWork = 0.47;
  const auto row_tiles = static_cast<double>(ceil_divide(call.N, kLinearRows));
  const auto column_tiles = static_cast<double>(column_tiles_of(call));
  const double products = row_tiles * kLinearRows * column_tiles * kLinearColumns * static_cast<double>(call.D);
  const auto launches = static_cast<double>(ceil_divide(call.N, std::max<int64_t>(launch_rows_of(call), 1)));
  const double idle = idle_factor(device, row_tiles * column_tiles);
  const double bytes = 2.0 * static_cast<double>(call.D) * static_cast<double>(call.N + call.V);
  answer.cost_us =
      2 * kLaunchUs * launches + std::max(idle * device.matrix_us(2 * products * kMatrixWork), device.bytes_us(bytes));
  return answer;
}
std::unique_ptr<sdk::Plan> LinearLogpWgmma::plan(Device& device, const sdk::Call<Op>& call) {
  return std::make_unique<LinearLogpWgmmaPlan>(device, call);
}

}  // namespace rlk::cuda
