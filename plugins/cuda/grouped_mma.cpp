// grouped_gemm and its gradients on tensor cores: how tensors become the kernels' arguments
// (kernels/grouped_tiles.cuh), and which kernel serves how they lie.
#include "grouped_mma.hpp"

#include "kernels/grouped_mma.h"

namespace rlk::cuda {
namespace {

using namespace simt::host;

// The kernels of one instruction.
struct Kernels {
  const char* name;   // of the implementation
  const char* image;  // of the kernels, and what their names begin with
  int stages;
  bool has_small_sums;
  double matrix_work;  // time of a product over the device's estimate for it, as measured on an H200
};
constexpr Kernels kMma{GroupedGemmMma::kName, "grouped_mma", kGroupedMmaStages, false, 0.9};
constexpr Kernels kWgmma{GroupedGemmWgmma::kName, "grouped_wgmma", kGroupedWgmmaStages, true, 0.53};

// One kernel and its blocks.
struct Kernel {
  FunctionHandle function = nullptr;
  int threads = 256, columns = kGroupedMmaColumns, shared_bytes = 0;
  int64_t blocks = 0;  // that the device runs at once
};

Kernel kernel_of(Device& device, const Kernels& kernels, const std::string& form, sdk::Dtype dtype) {
  Kernel kernel;
  kernel.shared_bytes = grouped_shared_bytes(kGroupedMmaColumns, kernels.stages);
  kernel.blocks = device.multiprocessors();
  kernel.function = device.kernel(
      kernels.image, sdk::format("%s_%s_%s", kernels.image, form.c_str(), sdk::name_of(dtype)), kernel.shared_bytes);
  return kernel;
}
Kernel small_sums_of(Device& device, const Kernels& kernels, sdk::Dtype dtype) {
  Kernel kernel;
  kernel.threads = 128;
  kernel.columns = kGroupedSmallColumns;
  kernel.shared_bytes = grouped_shared_bytes(kGroupedSmallColumns, kGroupedSmallStages);
  kernel.blocks = 2 * device.multiprocessors();
  kernel.function = device.kernel(
      kernels.image, sdk::format("%s_sums_outer_small_%s", kernels.image, sdk::name_of(dtype)), kernel.shared_bytes);
  return kernel;
}

// 16-byte accesses can address whole lines along this dimension.
bool is_wide(const rlk_tensor& tensor, int along) {
  if (tensor.alignment % 16 != 0 || tensor.shape[along] % 8 != 0) return false;
  if (sdk::is_contiguous(tensor)) return along + 1 == tensor.ndim;
  for (int d = 0; d < tensor.ndim; ++d) {
    if (d == along ? tensor.strides[d] != 1 : tensor.strides[d] % 8 != 0) return false;
  }
  return true;
}

// inner, columns: the weight's dimensions of the sum and of y.
const char* rows_form(const rlk_tensor& a, const rlk_tensor& weight, int inner, int columns, const rlk_tensor& y) {
  if (!is_wide(a, 1) || !is_wide(y, 1)) return "rows_any";
  return is_wide(weight, inner) ? "rows_inner" : is_wide(weight, columns) ? "rows_outer" : "rows_any";
}
bool has_wide_sums(const rlk_tensor& grad_y, const rlk_tensor& x, const rlk_tensor& grad_weight) {
  return is_wide(grad_y, 1) && is_wide(x, 1) && is_wide(grad_weight, 2);
}

// One block at least: it reports bad groups.
void launch_tiles(const Kernel& kernel, int64_t row_tiles, const GroupedMmaArgs& args, StreamHandle stream) {
  const int64_t tiles = std::max<int64_t>(row_tiles * ceil_divide(args.columns, kernel.columns), 1);
  launch_walking(kernel.function, std::min(tiles, kernel.blocks), kernel.threads, kernel.shared_bytes, stream, args);
}

// rows times a matrix of each group; inner, columns: the weight's dimensions of the sum and of y.
void launch_rows(const Kernel& kernel, GroupedMmaArgs args, const rlk_tensor& a, const rlk_tensor& weight, int inner,
                 int columns, const rlk_tensor& y, StreamHandle stream) {
  set_row_products(args, a, weight, y);
  std::copy(a.strides, a.strides + 2, args.a_stride);
  args.b_stride[0] = weight.strides[0];
  args.b_stride[1] = weight.strides[columns];
  args.b_stride[2] = weight.strides[inner];
  std::copy(y.strides, y.strides + 2, args.y_stride + 1);
  launch_tiles(kernel, ceil_divide(args.rows, kGroupedMmaRows) + args.groups, args, stream);
}

constexpr int kWeightM = 1, kWeightK = 2;  // dimensions of weight

class ForwardPlan final : public OperatorPlan<sdk::ops::GroupedGemm> {
public:
  ForwardPlan(Device& device, const sdk::Call<sdk::ops::GroupedGemm>& call, const Kernels& kernels)
      : OperatorPlan(device, call) {
    const auto tensors = sdk::arguments_of(call);
    rows_ = kernel_of(device, kernels, rows_form(*tensors.x, *tensors.weight, kWeightK, kWeightM, *tensors.y),
                      sdk::dtype_of(*tensors.x));
    dynamic_symbols = sdk::bits_of(&sdk::Arguments<sdk::ops::GroupedGemm>::R);
  }
  void enqueue(sdk::Stream& stream, const sdk::Run& run) override {
    const auto call = arguments_of(run);
    const PlaceScope scope(place_);
    launch_rows(rows_, grouped_arguments<GroupedMmaArgs>(*call.cu_seqlens, run), *call.x, *call.weight, kWeightK,
                kWeightM, *call.y, own(stream).handle());
  }

private:
  Kernel rows_;
};

class BackwardPlan final : public OperatorPlan<sdk::ops::GroupedGemmBackward> {
public:
  BackwardPlan(Device& device, const sdk::Call<sdk::ops::GroupedGemmBackward>& call, const Kernels& kernels)
      : OperatorPlan(device, call) {
    const auto tensors = sdk::arguments_of(call);
    const sdk::Dtype dtype = sdk::dtype_of(*tensors.x);
    rows_ = kernel_of(device, kernels, rows_form(*tensors.grad_y, *tensors.weight, kWeightM, kWeightK, *tensors.grad_x),
                      dtype);
    const bool sums = tensors.grad_weight != nullptr;
    if (sums) {
      const bool wide = has_wide_sums(*tensors.grad_y, *tensors.x, *tensors.grad_weight);
      sums_ = kernel_of(device, kernels, wide ? "sums_outer" : "sums_any", dtype);
      if (wide && kernels.has_small_sums) small_sums_ = small_sums_of(device, kernels, dtype);
    }
    dynamic_symbols = sdk::bits_of(&sdk::Arguments<sdk::ops::GroupedGemmBackward>::R);
  }
  void enqueue(sdk::Stream& stream, const sdk::Run& run) override {
    const auto call = arguments_of(run);
    const StreamHandle handle = own(stream).handle();
    const PlaceScope scope(place_);
    auto args = grouped_arguments<GroupedMmaArgs>(*call.cu_seqlens, run);
    launch_rows(rows_, args, *call.grad_y, *call.weight, kWeightM, kWeightK, *call.grad_x, handle);
    if (call.grad_weight == nullptr) return;
    set_group_sums(args, call);
    args.height = call.M;
    for (int d = 0; d < 2; ++d) {
      args.a_stride[d] = call.grad_y->strides[1 - d];
      args.b_stride[1 + d] = call.x->strides[1 - d];
    }
    // With few rows the time is that of writing the sums. The order of a sum is the same in both.
    const bool is_small = small_sums_.function != nullptr && call.R <= kFewRows * call.E;
    launch_tiles(is_small ? small_sums_ : sums_, call.E * ceil_divide(call.M, kGroupedMmaRows), args, handle);
  }

private:
  static constexpr int64_t kFewRows = 64;  // of a group
  Kernel rows_, sums_, small_sums_;
};

template <class Op>
sdk::Support support_of(Device& device, const sdk::Call<Op>& described, const Kernels& kernels, int products,
                        uint32_t numerics) {
  if (auto refused = device.refusal()) return *refused;
  const auto call = sdk::arguments_of(described);
  if (auto refused = sdk::refuse_dtype(call.x, "x", {sdk::Dtype::bf16, sdk::Dtype::f16})) return *refused;
  if (auto refused = sdk::refuse_gaps(call.cu_seqlens, "cu_seqlens")) return *refused;
  if (&kernels == &kWgmma && device.arch() != "sm_90") {
    return sdk::Support::no("ARCH", "the device is " + device.arch() + "; sm_90 alone executes wgmma");
  }
  if (driver().image(kernels.image, 0) == nullptr) {
    return sdk::Support::no("KERNELS_NOT_BUILT",
                            sdk::format("this plugin was built without the kernels of %s; rebuild it with 90 in "
                                        "RLK_CUDA_ARCHITECTURES and nvcc 12 or later",
                                        kernels.image));
  }
  if (const int shared = grouped_shared_bytes(kGroupedMmaColumns, kernels.stages); shared > device.shared_limit()) {
    return sdk::Support::no("SHARED_MEMORY", sdk::format("a block needs %d bytes of shared memory; this device has %d",
                                                         shared, device.shared_limit()));
  }
  const auto e = static_cast<double>(call.E), r = static_cast<double>(call.R);
  const auto k = static_cast<double>(call.K), m = static_cast<double>(call.M);
  // Half of a group's last tile has no rows.
  const double rows = r + e * kGroupedMmaRows / 2;
  const double idle = idle_factor(device, rows * m / (kGroupedMmaRows * kGroupedMmaColumns));
  const double bytes = 2 * (e * k * m + r * (k + m)) * products;
  sdk::Support answer = sdk::Support::yes(kernels.name, numerics, RLK_SUPPORT_PREFERRED);
  answer.cost_us = products * (kLaunchUs + idle * device.matrix_us(2 * rows * k * m * kernels.matrix_work));
  answer.cost_us = std::max(answer.cost_us, products * kLaunchUs + device.bytes_us(bytes));
  return answer;
}

sdk::Support forward_support(Device& device, const sdk::Call<sdk::ops::GroupedGemm>& call, const Kernels& kernels) {
  return support_of(device, call, kernels, 1, kGroupedRowNumerics);
}
sdk::Support backward_support(Device& device, const sdk::Call<sdk::ops::GroupedGemmBackward>& call,
                              const Kernels& kernels) {
  const bool sums = sdk::arguments_of(call).grad_weight != nullptr;
  return support_of(device, call, kernels, sums ? 2 : 1, sums ? kGroupedSumNumerics : kGroupedRowNumerics);
}

}  // namespace

sdk::Support GroupedGemmMma::query(Device& device, const sdk::Call<Op>& call) {
  return forward_support(device, call, kMma);
}
std::unique_ptr<sdk::Plan> GroupedGemmMma::plan(Device& device, const sdk::Call<Op>& call) {
  return std::make_unique<ForwardPlan>(device, call, kMma);
}

sdk::Support GroupedGemmBackwardMma::query(Device& device, const sdk::Call<Op>& call) {
  return backward_support(device, call, kMma);
}
std::unique_ptr<sdk::Plan> GroupedGemmBackwardMma::plan(Device& device, const sdk::Call<Op>& call) {
  return std::make_unique<BackwardPlan>(device, call, kMma);
}

sdk::Support GroupedGemmWgmma::query(Device& device, const sdk::Call<Op>& call) {
  return forward_support(device, call, kWgmma);
}
std::unique_ptr<sdk::Plan> GroupedGemmWgmma::plan(Device& device, const sdk::Call<Op>& call) {
  return std::make_unique<ForwardPlan>(device, call, kWgmma);
}

sdk::Support GroupedGemmBackwardWgmma::query(Device& device, const sdk::Call<Op>& call) {
  return backward_support(device, call, kWgmma);
}
std::unique_ptr<sdk::Plan> GroupedGemmBackwardWgmma::plan(Device& device, const sdk::Call<Op>& call) {
  return std::make_unique<BackwardPlan>(device, call, kWgmma);
}

}  // namespace rlk::cuda
