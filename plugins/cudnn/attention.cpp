// Which calls cuDNN serves, what the plugin tells it of them, and their plans.
#include "attention.hpp"

#include <rlk/sdk/arguments.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

namespace rlk::cudnn {
namespace {

constexpr int64_t kMostHead = 256;
constexpr double kLaunchUs = 6;  // what an execution costs beside its kernels' work

// One of the implementations.
struct Form {
  const char* name;
  Direction direction;
  uint32_t numerics;
  double products;  // of pairs of a query and a key, per element of the head size
  double slower;    // than the forward direction's rate of products
};
constexpr Form kForward = {Attention::kName, Direction::forward, RLK_NUMERICS_DETERMINISTIC, 2, 1};
constexpr Form kBackward = {AttentionBackward::kName, Direction::backward, 0, 5, 1.15};
constexpr Form kBackwardDeterministic = {AttentionBackwardDeterministic::kName, Direction::backward_deterministic,
                                         RLK_NUMERICS_DETERMINISTIC, 5, 1.45};

template <class Op>
constexpr bool kIsBackward = std::is_same_v<Op, sdk::ops::AttentionBackward>;

constexpr const char* kNames[kTensors] = {"q", "k", "v", "out", "lse", "grad_out", "grad_q", "grad_k", "grad_v"};

template <class Op>
std::array<const rlk_tensor*, kTensors> tensors_of(const sdk::Arguments<Op>& call) {
  if constexpr (kIsBackward<Op>) {
    return {call.q, call.k, call.v, call.out, call.lse, call.grad_out, call.grad_q, call.grad_k, call.grad_v};
  } else {
    return {call.q, call.k, call.v, call.out, call.lse, nullptr, nullptr, nullptr, nullptr};
  }
}

// [batch, token, head, element] as cuDNN counts dimensions; of a size below 2 any stride is legal, so what a dense
// tensor would have.
Dims strides_of(const rlk_tensor& tensor) {
  Dims dense = {0, 0, 0, 1};
  dense[2] = tensor.ndim == 4 ? tensor.shape[3] : 1;
  dense[1] = dense[2] * tensor.shape[2];
  dense[0] = dense[1] * tensor.shape[1];
  for (int32_t i = 0; i < tensor.ndim; ++i) {
    if (tensor.shape[i] > 1) dense[static_cast<size_t>(i)] = tensor.strides[i];
  }
  return {dense[0], dense[2], dense[1], dense[3]};
}

template <class Op>
Shape shape_of(const sdk::Arguments<Op>& call, Direction direction) {
  Shape shape;
  shape.direction = direction;
  shape.type = sdk::dtype_of(*call.q) == sdk::Dtype::bf16 ? data::kBfloat16 : data::kHalf;
  shape.batch = call.B;
  shape.queries = call.Sq;
  shape.keys = call.Sk;
  shape.q_heads = call.Hq;
  shape.kv_heads = call.Hkv;
  shape.head_size = call.D;
  shape.has_lse = call.lse != nullptr;
  const auto tensors = tensors_of<Op>(call);
  for (size_t i = 0; i < kTensors; ++i) {
    if (tensors[i] != nullptr) shape.strides[i] = strides_of(*tensors[i]);
  }
  const bool is_causal = call.params.causal == decltype(call.params.causal)::on;
  const bool is_top_left = call.params.causal_alignment == decltype(call.params.causal_alignment)::top_left;
  const int64_t first = is_top_left ? 0 : call.Sk - call.Sq;  // where query 0 stands among the keys
  shape.right = is_causal ? 0 : call.params.window_right;
  shape.left = call.params.window_left;
  // Bounds that hide nothing are none.
  if (shape.right >= call.Sk - 1 - first) shape.right = kUnbounded;
  if (shape.left >= call.Sq - 1 + first) shape.left = kUnbounded;
  shape.is_bottom_right = first != 0 && (shape.right != kUnbounded || shape.left != kUnbounded);
  return shape;
}

sdk::Refusal refuse_layout(const rlk_tensor& tensor, const char* which) {
  if (tensor.alignment % 16 != 0) return sdk::refuse_strides(which, "aligned to 16 bytes");
  const bool has_heads_elements = tensor.ndim == 4;
  if (has_heads_elements) {
    if (auto no = sdk::refuse_strided_rows(&tensor, which, "head size")) return no;
  }
  const int64_t multiple = has_heads_elements ? 8 : 1;
  for (int32_t i = 0; i < 3; ++i) {
    if (tensor.shape[i] > 1 && (tensor.strides[i] % multiple != 0 || tensor.strides[i] <= 0)) {
      return sdk::refuse_strides(which, "laid out forward, each row of heads on 16 bytes");
    }
  }
  return std::nullopt;
}

// Engines of 9.10.2 and newer take no mask that hides a whole row, and what they do not take beside.
sdk::Refusal refuse_mask(const Shape& shape) {
  const size_t version = library().version();
  if (shape.is_bottom_right && shape.queries > shape.keys) {
    return sdk::Support::no("CAUSAL_ALIGNMENT",
                            "aligned bottom_right, more queries than keys: some query may see no key");
  }
  if (shape.left != kUnbounded && shape.queries > shape.keys) {
    return sdk::Support::no("WINDOW", "window_left with more queries than keys: some query may see no key");
  }
  if (version == 91400 && shape.left != kUnbounded && shape.right == kUnbounded && shape.keys > 1024) {
    return sdk::Support::no("WINDOW", "cuDNN 9.14.0 is wrong here: window_left alone, with more than 1024 keys");
  }
  return std::nullopt;
}

template <class Op>
sdk::Refusal refuse(const Device& device, const sdk::Arguments<Op>& call, const Form& form, uint32_t demanded) {
  if (call.params.layout != decltype(call.params.layout)::dense) {
    return sdk::Support::no("LAYOUT", "dense batches only");
  }
  if (kIsBackward<Op> && library().version() < kOldestGradients) {
    return sdk::Support::no(
        "RUNTIME_TOO_OLD",
        sdk::format("cuDNN %s computes gradients for whole tiles of keys; %s and newer "
                    "do for every number",
                    version_text(library().version()).c_str(), version_text(kOldestGradients).c_str()));
  }
  if (auto no = sdk::refuse_dtype(call.q, "q", {sdk::Dtype::bf16, sdk::Dtype::f16})) return no;
  if (kIsBackward<Op> && sdk::dtype_of(*call.q) == sdk::Dtype::f16) {
    return sdk::Support::no(
        "DTYPE",
        "q is f16; cuDNN rounds the gradients of scores after they are scaled, and small ones become 0 "
        "in f16; supported: bf16");
  }
  if (device.arch() < 80) {
    return sdk::Support::no("ARCH", sdk::format("the device is sm_%d; cuDNN's engines begin at sm_80", device.arch()));
  }
  if (auto no = sdk::refuse_input(call.key_mask, "key_mask")) return no;
  if constexpr (kIsBackward<Op>) {
    if (auto no = sdk::refuse_input(call.grad_lse, "grad_lse")) return no;
  }
  if (call.params.softcap != 0) return sdk::Support::no("SOFTCAP", "softcap is not supported");
  if (call.params.scale > 0x1p60 || (call.params.scale != 0 && call.params.scale < 0x1p-60)) {
    return sdk::Support::no("SCALE", "the engines' arithmetic takes scales between 2^-60 and 2^60");
  }
  if (call.B == 0 || call.Sq == 0 || call.Sk == 0 || call.Hq == 0) {
    return sdk::Support::no("SIZE", "empty tensors are not supported");
  }
  if (kIsBackward<Op> && call.Sq == 1 && call.Sk == 1) {
    return sdk::Support::no("SIZE", "one query and one key have no engine for their gradients");
  }
  if (std::max(call.Sq, call.Sk) > std::numeric_limits<int32_t>::max() / 2) {
    return sdk::Support::no("SIZE", "more tokens than cuDNN's indices of 32 bits count");
  }
  if (call.D % 8 != 0 || call.D > kMostHead) {
    return sdk::Support::no(
        "HEAD_SIZE", sdk::format("head size %lld; supported: multiples of 8 up to %lld", static_cast<long long>(call.D),
                                 static_cast<long long>(kMostHead)));
  }
  const auto tensors = tensors_of<Op>(call);
  for (size_t i = 0; i < kTensors; ++i) {
    if (tensors[i] == nullptr) continue;
    if (auto no = refuse_layout(*tensors[i], kNames[i])) return no;
  }
  return sdk::refuse_numerics(demanded, form.numerics);
}

// The rates that an H200 reached at large sizes; heads of up to 64 elements reach two thirds of the products' rate.
template <class Op>
double cost_us(const Device& device, const sdk::Arguments<Op>& call, const Form& form) {
  const double pairs = static_cast<double>(call.B * call.Hq) * static_cast<double>(call.Sq) *
                       static_cast<double>(call.Sk) *
                       (call.params.causal != decltype(call.params.causal)::off && call.Sq > 1 ? 0.5 : 1.0);
  const double operations = 2 * form.products * pairs * static_cast<double>(call.D);
  const double tokens = static_cast<double>(call.B) * static_cast<double>(call.Sq * call.Hq + call.Sk * call.Hkv);
  const double bytes = form.products * 2 * tokens * static_cast<double>(call.D);
  const double slower = form.slower * (call.D <= 64 ? 1.5 : 1.0);
  return kLaunchUs + std::max(slower * operations / device.matrix_rate(), bytes / device.memory_rate());
}

template <class Op>
sdk::Support support_of(Device& device, const sdk::Call<Op>& described, const Form& form) {
  const sdk::Arguments<Op> call = sdk::arguments_of(described);
  if (auto no = refuse<Op>(device, call, form, described.numerics())) return *no;
  const Shape shape = shape_of<Op>(call, form.direction);
  if (auto no = refuse_mask(shape)) return *no;
  // Which shapes have an engine only cuDNN knows.
  try {
    const ContextScope scope(device.context());
    device.graph(shape);
  } catch (const sdk::Error& error) {
    if (error.status() != RLK_UNSUPPORTED) throw;
    return sdk::Support::no("NO_ENGINE", error.what());
  }
  sdk::Support yes = sdk::Support::yes(form.name, form.numerics, RLK_SUPPORT_PREFERRED);
  yes.workspace_bound = std::numeric_limits<uint64_t>::max();  // cuDNN tells it of a plan
  yes.cost_us = cost_us<Op>(device, call, form);
  return yes;
}

template <class Op>
class Plan final : public sdk::Plan {
public:
  Plan(Device& device, const sdk::Call<Op>& described, const Form& form)
      : device_(device), params_(described.params()) {
    const sdk::Arguments<Op> call = sdk::arguments_of(described);
    scale_ = static_cast<float>(params_.scale > 0 ? params_.scale : 1 / std::sqrt(static_cast<double>(call.D)));
    const ContextScope scope(device.context());
    graph_ = device.graph(shape_of<Op>(call, form.direction));
    graph_->compile();
    flags = RLK_PLAN_SHAREABLE | RLK_PLAN_CAPTURABLE;  // an execution has its own handle and names its own arguments
    workspace_bound = graph_->workspace_bytes();
  }
  ~Plan() override {
    try {
      const ContextScope scope(device_.context());
      graph_.reset();
    } catch (...) {
      // A lost device has lost the kernel too.
    }
  }
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;

  void enqueue(sdk::Stream& stream, const sdk::Run& run) override {
    const auto given = tensors_of<Op>(sdk::arguments_of<Op>(run, params_));
    std::array<void*, kTensors> pointers{};
    for (size_t i = 0; i < kTensors; ++i) pointers[i] = sdk::data_of(given[i]);
    const ContextScope scope(device_.context());
    const Device::Lent handle(device_);
    check(library().set_stream(handle.get(), stream.native()), "naming the stream");
    graph_->execute(handle.get(), pointers.data(), scale_, run.workspace());
  }

private:
  Device& device_;
  const typename Op::Params params_;
  float scale_ = 1;
  std::shared_ptr<AttentionGraph> graph_;
};

}  // namespace

sdk::Support Attention::query(Device& device, const sdk::Call<Op>& call) {
  return support_of(device, call, kForward);
}
std::unique_ptr<sdk::Plan> Attention::plan(Device& device, const sdk::Call<Op>& call) {
  return std::make_unique<Plan<Op>>(device, call, kForward);
}

sdk::Support AttentionBackward::query(Device& device, const sdk::Call<Op>& call) {
  return support_of(device, call, kBackward);
}
std::unique_ptr<sdk::Plan> AttentionBackward::plan(Device& device, const sdk::Call<Op>& call) {
  return std::make_unique<Plan<Op>>(device, call, kBackward);
}

sdk::Support AttentionBackwardDeterministic::query(Device& device, const sdk::Call<Op>& call) {
  return support_of(device, call, kBackwardDeterministic);
}
std::unique_ptr<sdk::Plan> AttentionBackwardDeterministic::plan(Device& device, const sdk::Call<Op>& call) {
  return std::make_unique<Plan<Op>>(device, call, kBackwardDeterministic);
}

}  // namespace rlk::cudnn
