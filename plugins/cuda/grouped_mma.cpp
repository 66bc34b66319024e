// grouped_gemm and its gradients on tensor cores: how tensors become the kernels' arguments
// (kernels/grouped_tiles.cuh, kernels/grouped_pairs.cuh), and which kernel serves how they lie.
#include "grouped_mma.hpp"

#include "hopper.hpp"
#include "kernels/grouped_pairs.h"

namespace rlk::cuda {
namespace {

using namespace simt::host;

// The kernels of one instruction.
struct Kernels {
  const char* name;   // of the implementation
  const char* image;  // of the kernels, and what their names begin with
  int stages;
  bool has_pairs;      // for wide tensors, and small blocks for sums of few rows
  double matrix_work;  // time of a product over the device's estimate for it, as measured on an H200
};
constexpr Kernels kMma{GroupedGemmMma::kName, "grouped_mma", kGroupedMmaStages, false, 0.9};
constexpr Kernels kWgmma{GroupedGemmWgmma::kName, "grouped_wgmma", kGroupedWgmmaStages, true, 0.44};

// One kernel and its blocks.
struct Kernel {
  FunctionHandle function = nullptr;
  int threads = 256, columns = kGroupedMmaColumns, shared_bytes = 0;
  int64_t blocks = 0;   // that the device runs at once
  bool pairs = false;   // blocks come in twos, and tensor maps describe the operands
  bool b_inner = true;  // of pairs: b's lines are of the sum
};

Kernel kernel_of(Device& device, const Kernels& kernels, const std::string& form, sdk::Dtype dtype) {
  Kernel kernel;
  kernel.shared_bytes = grouped_shared_bytes(kGroupedMmaColumns, kernels.stages);
  kernel.blocks = device.multiprocessors();
  kernel.function = device.kernel(
      kernels.image, sdk::format("%s_%s_%s", kernels.image, form.c_str(), sdk::name_of(dtype)), kernel.shared_bytes);
  return kernel;
}
// form: inner or outer, of b; sums.
Kernel pairs_of(Device& device, const Kernels& kernels, const std::string& form, sdk::Dtype dtype) {
  Kernel kernel;
  kernel.pairs = true;
  kernel.b_inner = form == "inner";
  kernel.threads = kGroupedPairThreads;
  kernel.shared_bytes = kGroupedPairSharedBytes;
  kernel.blocks = std::max(device.multiprocessors() / kGroupedPair, int64_t{1}) * kGroupedPair;
  kernel.function =
      device.kernel(kernels.image, sdk::format("%s_pairs_%s_%s", kernels.image, form.c_str(), sdk::name_of(dtype)),
                    kernel.shared_bytes);
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

// Which way the weight's lines lie; any: accesses of 16 bytes do not do.
enum class Rows { inner, outer, any };
constexpr const char* kRowsNames[] = {"inner", "outer", "any"};
// inner, columns: the weight's dimensions of the sum and of y.
Rows rows_form(const rlk_tensor& a, const rlk_tensor& weight, int inner, int columns, const rlk_tensor& y) {
  if (!is_wide(a, 1) || !is_wide(y, 1)) return Rows::any;
  return is_wide(weight, inner) ? Rows::inner : is_wide(weight, columns) ? Rows::outer : Rows::any;
}
bool has_wide_sums(const rlk_tensor& grad_y, const rlk_tensor& x, const rlk_tensor& grad_weight) {
  return is_wide(grad_y, 1) && is_wide(x, 1) && is_wide(grad_weight, 2);
}
Kernel rows_kernel(Device& device, const Kernels& kernels, Rows form, sdk::Dtype dtype) {
  const std::string name = kRowsNames[static_cast<int>(form)];
  return kernels.has_pairs && form != Rows::any ? pairs_of(device, kernels, name, dtype)
                                                : kernel_of(device, kernels, "rows_" + name, dtype);
}

// The bulk copy engine's coordinates have 32 bits.
constexpr int64_t kMostElements = int64_t{1} << 30;

// An operand of pairs, whose lines are one of its last two dimensions.
struct Operand {
  const rlk_tensor& tensor;
  int line;
};
bool has_elements(const rlk_tensor& tensor) {
  return std::all_of(tensor.shape, tensor.shape + tensor.ndim, [](int64_t size) { return size > 0; });
}
// Boxes of 64 elements of `box` lines. A dimension before the last two is that of matrices. No map can be made of
// nothing, and none is read.
TensorMap map_of(const Operand& operand, int box) {
  const auto& [tensor, line] = operand;
  if (!has_elements(tensor)) return {};
  const int first = tensor.ndim - 2, element = line == first ? first + 1 : first;
  const bool has_matrices = tensor.ndim > 2;
  return tensor_map(
      {const_cast<void*>(sdk::data_of(&tensor)), has_matrices ? tensor.strides[0] : 0, tensor.strides[line], 0},
      sdk::dtype_of(tensor), tensor.shape[element], 1, tensor.shape[line], has_matrices ? tensor.shape[0] : 1, box);
}

// One block at least: it reports bad groups.
void launch_tiles(const Kernel& kernel, int64_t row_tiles, const GroupedMmaArgs& args, const Operand& a,
                  const Operand& b, StreamHandle stream) {
  const int64_t tiles = std::max<int64_t>(row_tiles * ceil_divide(args.columns, kernel.columns), 1);
  const int64_t blocks = std::min(tiles, kernel.blocks);
  if (!kernel.pairs) return launch_walking(kernel.function, blocks, kernel.threads, kernel.shared_bytes, stream, args);
  if (args.rows > kMostElements) {
    throw sdk::Error(RLK_UNSUPPORTED,
                     sdk::format("%lld rows; these kernels take up to 2^30", static_cast<long long>(args.rows)));
  }
  // Initialized in place: the compiler has put temporary maps where the driver does not take them.
  const GroupedPairArgs pairs{map_of(a, kGroupedPairBox),
                              map_of(b, kernel.b_inner ? kGroupedPairColumnsBox : kGroupedPairBox),
                              args,
                              ceil_divide(args.height, kGroupedMmaRows),
                              ceil_divide(args.columns, kGroupedMmaColumns),
                              0};
  launch_grid(kernel.function, ceil_divide(blocks, kGroupedPair) * kGroupedPair, kernel.threads, kernel.shared_bytes,
              stream, pairs);
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
  launch_tiles(kernel, ceil_divide(args.rows, kGroupedMmaRows) + args.groups, args, {a, 0},
               {weight, kernel.b_inner ? columns : inner}, stream);
}

constexpr int kWeightM = 1, kWeightK = 2;  // dimensions of weight

class ForwardPlan final : public OperatorPlan<sdk::ops::GroupedGemm> {
public:
  ForwardPlan(Device& device, const sdk::Call<sdk::ops::GroupedGemm>& call, const Kernels& kernels)
      : OperatorPlan(device, call) {
    const auto tensors = sdk::arguments_of(call);
    rows_ = rows_kernel(device, kernels, rows_form(*tensors.x, *tensors.weight, kWeightK, kWeightM, *tensors.y),
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
    rows_ = rows_kernel(device, kernels,
                        rows_form(*tensors.grad_y, *tensors.weight, kWeightM, kWeightK, *tensors.grad_x), dtype);
    const bool sums = tensors.grad_weight != nullptr;
    if (sums) {
      const bool wide = has_wide_sums(*tensors.grad_y, *tensors.x, *tensors.grad_weight);
      sums_ = wide && kernels.has_pairs ? pairs_of(device, kernels, "sums", dtype)
                                        : kernel_of(device, kernels, wide ? "sums_outer" : "sums_any", dtype);
      if (wide && kernels.has_pairs) small_sums_ = small_sums_of(device, kernels, dtype);
    }
    dynamic_symbols = sdk::bits_of(&sdk::Arguments<sdk::ops::GroupedGemmBackward>::R);
  }
  void enqueue(sdk::Stream& stream, const sdk::Run& run) override {
    const auto call = arguments_of(run);
    const StreamHandle handle = own(stream).handle();
    const PlaceScope scope(place_);
    auto args = grouped_arguments<GroupedMmaArgs>(*call.cu_seqlens, run);
    launch_rows(rows_, args, *call.grad_y, *call.weight, kWeightM, kWeightK, *call.grad_x, handle);
    if (call.grad_weight == nullptr || call.M == 0 || call.K == 0) return;  // tiles of nothing have no number
    set_group_sums(args, call);
    args.height = call.M;
    for (int d = 0; d < 2; ++d) {
      args.a_stride[d] = call.grad_y->strides[1 - d];
      args.b_stride[1 + d] = call.x->strides[1 - d];
    }
    // With few rows the time is that of writing the sums. The order of a sum is the same in both.
    const bool is_small = small_sums_.function != nullptr && call.R <= kFewRows * call.E;
    launch_tiles(is_small ? small_sums_ : sums_, call.E * ceil_divide(call.M, kGroupedMmaRows), args, {*call.grad_y, 0},
                 {*call.x, 0}, handle);
  }

private:
  static constexpr int64_t kFewRows = 64;  // of a group
  Kernel rows_, sums_, small_sums_;
};

// Why tensors of pairs cannot have maps, or nothing.
sdk::Refusal refuse_maps(std::initializer_list<NamedTensor> mapped) {
  constexpr int64_t kStrides = int64_t{1} << 39;  // 2^40 bytes
  for (const auto& [tensor, name] : mapped) {
    if (tensor == nullptr) continue;
    if (auto refused = refuse_tensor_maps()) return refused;
    for (int d = 0; d < tensor->ndim; ++d) {
      const auto size = static_cast<long long>(tensor->shape[d]), stride = static_cast<long long>(tensor->strides[d]);
      if (size > kMostElements) {
        return sdk::Support::no(
            "SIZES", sdk::format("%s has %lld elements along a dimension; these kernels take up to 2^30", name, size));
      }
      if (size < 2 || (stride >= 0 && stride < kStrides)) continue;
      return sdk::Support::no(
          "STRIDES",
          sdk::format("%s has the stride %lld; the bulk copy engine takes strides of 0 to 2^39 - 1", name, stride),
          RLK_SUPPORT_IF_CONTIGUOUS);
    }
  }
  return std::nullopt;
}

// mapped: what pairs have maps of, where they serve the call.
template <class Arguments>
sdk::Support support_of(Device& device, const Arguments& call, const Kernels& kernels, int products, uint32_t numerics,
                        std::initializer_list<NamedTensor> mapped) {
  if (auto refused = device.refusal()) return *refused;
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
  if (kernels.has_pairs) {
    if (auto refused = refuse_maps(mapped)) return *refused;
  }
  const int shared =
      kernels.has_pairs ? kGroupedPairSharedBytes : grouped_shared_bytes(kGroupedMmaColumns, kernels.stages);
  if (shared > device.shared_limit()) {
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

sdk::Support forward_support(Device& device, const sdk::Call<sdk::ops::GroupedGemm>& described,
                             const Kernels& kernels) {
  const auto call = sdk::arguments_of(described);
  const bool rows = rows_form(*call.x, *call.weight, kWeightK, kWeightM, *call.y) != Rows::any;
  return support_of(device, call, kernels, 1, kGroupedRowNumerics,
                    {{rows ? call.x : nullptr, "x"}, {rows ? call.weight : nullptr, "weight"}});
}
sdk::Support backward_support(Device& device, const sdk::Call<sdk::ops::GroupedGemmBackward>& described,
                              const Kernels& kernels) {
  const auto call = sdk::arguments_of(described);
  const bool has_sums = call.grad_weight != nullptr;
  const bool rows = rows_form(*call.grad_y, *call.weight, kWeightM, kWeightK, *call.grad_x) != Rows::any;
  const bool sums = has_sums && has_wide_sums(*call.grad_y, *call.x, *call.grad_weight);
  return support_of(device, call, kernels, has_sums ? 2 : 1, has_sums ? kGroupedSumNumerics : kGroupedRowNumerics,
                    {{rows || sums ? call.grad_y : nullptr, "grad_y"},
                     {sums ? call.x : nullptr, "x"},
                     {rows ? call.weight : nullptr, "weight"}});
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
