// linear_logp_backward on warpgroup products (kernels/linear_slopes_wgmma.cuh): bf16 tensors of sm_90. Chunks of rows
// as in plugins/products, which serve every other call; but the slopes come from a kernel that makes them where it
// makes the scores, so that no piece of these is in memory, and the products that follow are the library's.
#include "linear_logp_backward_wgmma.hpp"

#include "../products/plan.hpp"
#include "../products/scores.hpp"
#include "../simt/host/logp_common.hpp"
#include "kernels/linear_slopes_wgmma.h"
#include "linear_tiles.hpp"

namespace rlk::cuda {
namespace {

using namespace simt::host;

using Op = sdk::ops::LinearLogpBackward;
using Named = sdk::Arguments<Op>;

constexpr const char* kImage = "linear_slopes_wgmma";

// Of a row of slopes, which begins where 16 bytes are written at once.
int64_t slopes_stride_of(const Named& call) {
  return ceil_divide(call.V, kLinearSlopePack) * kLinearSlopePack;
}

products::Scores chunks_of(const Named& call) {
  products::Scores of(call);
  const int64_t row_bytes = slopes_stride_of(call) * sdk::bytes_of(of.dtype);
  of.rows = of.piece = products::slope_rows_of(call.N, row_bytes, products::weight_sum_bytes(call, 0));
  return of;
}

// What a chunk has in the workspace. Without a base only the bytes count.
struct Parts {
  Parts(void* base, const products::Scores& of, const Named& call, uint64_t algorithm_bytes)
      : stride(slopes_stride_of(call)), arena(base) {
    algorithm = arena.take(algorithm_bytes);
    rounded = arena.take(of.bytes(of.rows * stride));
    hidden = arena.take(of.bytes(of.rows * of.D));
    row = arena.take<LinearSlopeRow>(static_cast<uint64_t>(of.rows) * sizeof(LinearSlopeRow));
    taken = arena.take<int32_t>(sizeof(int32_t));
  }
  products::Matrix slopes(const products::Scores& of, int64_t rows) const {
    products::Matrix all = products::dense(rounded, of.dtype, rows, stride);
    all.columns = of.V;
    return all;
  }

  int64_t stride;
  products::Arena arena;
  void *algorithm, *rounded, *hidden;
  LinearSlopeRow* row;
  int32_t* taken;
  static constexpr const simt::ProductsScale* scale = nullptr;  // bf16 has fp32's exponents
  static constexpr const float* alphas = nullptr;
};

class LinearLogpBackwardWgmmaPlan final : public OperatorPlan<Op> {
public:
  LinearLogpBackwardWgmmaPlan(Device& device, const sdk::Call<Op>& described)
      : OperatorPlan(device, described),
        multiprocessors_(device.multiprocessors()),
        multiplier_(device),
        kernels_(device, sdk::Dtype::bf16) {
    const Named call = sdk::arguments_of(described);
    const char* const form = call.bias != nullptr || params_.softcap > 0 ? "transform"
                             : call.grad_entropy != nullptr              ? "entropy"
                                                                         : "plain";
    rows_ = device.kernel(kImage, sdk::format("%s_rows_bf16", kImage));
    tiles_ = device.kernel(kImage, sdk::format("%s_bf16_%s", kImage, form), kLinearSharedBytes);
    dynamic_symbols = sdk::bits_of(&Named::N);
    workspace_bound = UINT64_MAX;
  }

  uint64_t prepare(const sdk::Run& run) override {
    const Named call = arguments_of(run);
    const products::Scores of = chunks_of(call);
    return Parts(nullptr, of, call, algorithm_bytes(call, of)).arena.bytes();
  }

  void enqueue(sdk::Stream& stream, const sdk::Run& run) override {
    const Named call = arguments_of(run);
    const products::Scores of = chunks_of(call);
    const Parts parts(run.workspace(), of, call, algorithm_bytes(call, of));
    const PlaceScope scope(place_);
    const StreamHandle handle = own(stream).handle();
    if (call.N == 0) products::clear_sums(multiplier_, call, handle);
    for (int64_t first = 0; first < call.N; first += of.rows) {
      const int64_t rows = std::min(of.rows, call.N - first);
      const products::ChunkKernels::Active active{products::from_row(call.ids, first),
                                                  sdk::dtype_of(*call.ids) == sdk::Dtype::i64, params_.ignore_index,
                                                  products::from_row(call.mask, first)};
      kernels_.copy_active(products::matrix_of(*call.hidden).rows_from(first, rows),
                           products::dense(parts.hidden, of.dtype, rows, of.D), active, handle);
      launch_slopes(call, run, parts, first, rows, handle);
      for (const products::Product& product : products::chunk_products(call, of, parts, first, rows)) {
        multiplier_.run(product, handle, parts.algorithm);
      }
      kernels_.clear_ignored(products::matrix_of(*call.grad_hidden).rows_from(first, rows), active, handle);
    }
  }

private:
  uint64_t algorithm_bytes(const Named& call, const products::Scores& of) {
    return products::slopes_bytes(multiplier_, call, of, Parts(nullptr, of, call, 0));
  }

  void launch_slopes(const Named& call, const sdk::Run& run, const Parts& parts, int64_t first, int64_t rows,
                     StreamHandle handle) const {
    LinearSlopesWgmmaArgs args{};
    set_linear_tiles(args, parts.hidden, call.D, *call.weight, rows);
    args.tokens = linear_tokens(call, first, rows);
    args.transform = {sdk::data_of(call.bias), params_.temperature, params_.softcap,
                      static_cast<float>(kLog2e / params_.temperature), 0};
    if (params_.softcap > 0) {
      args.softcap = static_cast<float>(params_.softcap);
      args.inverse_softcap = static_cast<float>(1.0 / params_.softcap);
    }
    args.hidden_rows = parts.hidden;
    args.weight_rows = sdk::data_of(call.weight);
    args.weight_stride = call.weight->strides[0];
    args.inner = call.D;
    args.lse = static_cast<const float*>(products::from_row(call.lse, first));
    args.grad_logp = products::from_row(call.grad_logp, first);
    args.grad_logp_is_accumulator = is_accumulator(*call.grad_logp, sdk::Dtype::bf16);
    args.grad_lse = static_cast<const float*>(products::from_row(call.grad_lse, first));
    args.grad_entropy = static_cast<const float*>(products::from_row(call.grad_entropy, first));
    args.entropy = static_cast<const float*>(products::from_row(call.entropy, first));
    args.row = parts.row;
    args.taken = parts.taken;
    args.slopes = parts.rounded;
    args.slopes_stride = parts.stride;
    args.first_row = first;
    args.errors = error_sink(run);
    launch_grid(rows_, rows, kLinearSlopeRowThreads, 0, handle, args);
    launch_linear_tiles(tiles_, args, multiprocessors_, handle);
  }

  const int64_t multiprocessors_;
  products::Multiplier multiplier_;
  const products::ChunkKernels kernels_;
  FunctionHandle rows_ = nullptr, tiles_ = nullptr;
};

}  // namespace

sdk::Support LinearLogpBackwardWgmma::query(Device& device, const sdk::Call<Op>& described) {
  if (auto refused = products::refuse_library(device)) return *refused;
  if (auto refused = refuse_other_than_hopper(device)) return *refused;
  const Named call = sdk::arguments_of(described);
  if (sdk::dtype_of(*call.hidden) == sdk::Dtype::f16) {
    return sdk::Support::no("PRECISION",
                            "small gradients of the scores are lost in f16 without a scale, which only all of them "
                            "tell; pass bf16");
  }
  if (auto refused = sdk::refuse_dtype(call.hidden, "hidden", {sdk::Dtype::bf16})) return *refused;
  if (auto refused = refuse_scaling(call.params, sdk::Dtype::bf16)) return *refused;
  if (auto refused = sdk::refuse_input(call.keep_mask, "keep_mask")) return *refused;
  if (auto refused = sdk::refuse_output(call.grad_bias, "grad_bias")) return *refused;
  for (const auto& [tensor, name] :
       {NamedTensor{call.ids, "ids"}, NamedTensor{call.lse, "lse"}, NamedTensor{call.grad_logp, "grad_logp"},
        NamedTensor{call.grad_lse, "grad_lse"}, NamedTensor{call.grad_entropy, "grad_entropy"},
        NamedTensor{call.entropy, "entropy"}, NamedTensor{call.bias, "bias"}, NamedTensor{call.mask, "mask"}}) {
    if (auto refused = sdk::refuse_gaps(tensor, name)) return *refused;
  }
  if (call.V < 1) return sdk::Support::no("SIZES", "no tensor map can be made of no entries");
  if (auto refused = refuse_linear_sizes(call.V, call.D)) return *refused;
  if (auto refused = refuse_tensors({{call.weight, "weight"}}, "weight")) return *refused;
  const products::Scores of = chunks_of(call);
  const Parts parts(nullptr, of, call, 0);
  const std::vector<products::Product> products = products::chunk_products(call, of, parts, 0, of.rows);
  if (auto refused = products::refuse_layout(products[0], "scores", "weight", "", "grad_hidden")) return *refused;
  if (call.grad_weight != nullptr) {
    if (auto refused = products::refuse_layout(products[1], "scores", "hidden", "", "grad_weight")) return *refused;
  }
  if (auto refused = refuse_linear_kernels(device, kImage)) return *refused;
  // The library chooses an algorithm by the size of a chunk: a row's sums may depend on how many there are.
  const products::Product all =
      products::scores_product(products::matrix_of(*call.hidden), products::matrix_of(*call.weight),
                               products::dense(nullptr, of.dtype, of.N, of.V), nullptr, nullptr);
  const double of_products = 2 * products::product_us(device, all);
  sdk::Support answer =
      products::supported(kLaunchUs + linear_tiles_us(device, call.N, call.V, call.D) + of_products,
                          parts.arena.bytes() + products::kWorkspaceLimit, RLK_NUMERICS_DETERMINISTIC);
  answer.variant = kName;
  return answer;
}
std::unique_ptr<sdk::Plan> LinearLogpBackwardWgmma::plan(Device& device, const sdk::Call<Op>& call) {
  return std::make_unique<LinearLogpBackwardWgmmaPlan>(device, call);
}

}  // namespace rlk::cuda
