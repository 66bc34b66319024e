// Operators for the devices of another plugin: attention by cuDNN on what the CUDA plugin calls "cuda".
#include "graph.hpp"

#include <rlk/sdk/ops/attention.hpp>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <map>
#include <mutex>

namespace cudnn_attention {
namespace {

// What every plugin of this kind has: the owner's stream, borrowed. The owner answers for its work.
class Stream final : public sdk::Stream {
public:
  explicit Stream(void* native) : native_(native) {}
  void* native() override { return native_; }
  rlk_status query(rlk_data_error&) override { return refuse(); }
  rlk_status synchronize(uint64_t, rlk_data_error&) override { return refuse(); }
  void wait(sdk::Event&) override { refuse(); }
  void copy(void*, const void*, uint64_t, int32_t) override { refuse(); }
  void fill(void*, uint8_t, uint64_t) override { refuse(); }

private:
  [[noreturn]] static rlk_status refuse() {
    throw sdk::Error(RLK_UNSUPPORTED, "the stream belongs to the plugin of the device; ask that one");
  }
  void* native_;
};

class Event final : public sdk::Event {
public:
  void record(sdk::Stream&) override {}
  rlk_status query() override { return RLK_OK; }
  rlk_status synchronize(uint64_t) override { return RLK_OK; }
};

class Device final : public sdk::Device {
public:
  explicit Device(const rlk_attach_info& info) : context_(info.native->context), arch_(arch_of(*info.properties)) {
    const ContextScope scope(context_);
    check(libraries().create(&handle_), "opening cuDNN on the device");
  }
  ~Device() override {
    try {
      const ContextScope scope(context_);
      graphs_.clear();
      libraries().destroy(handle_);
    } catch (...) {
      // A lost device has lost the handle too.
    }
  }
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  void* allocate(int32_t, uint64_t) override { refuse(); }
  void deallocate(int32_t, void*) override { refuse(); }
  void memory_info(uint64_t&, uint64_t&) override { refuse(); }
  std::unique_ptr<sdk::Stream> create_stream(int32_t) override { refuse(); }
  std::unique_ptr<sdk::Stream> wrap_stream(void* native) override { return std::make_unique<Stream>(native); }
  std::unique_ptr<sdk::Event> create_event(bool) override { refuse(); }

  void* context() const noexcept { return context_; }
  int arch() const noexcept { return arch_; }  // 90 for sm_90
  cudnnHandle_t handle() const noexcept { return handle_; }
  // A handle has one stream and one user at a time.
  std::mutex& mutex() noexcept { return mutex_; }

  // With the context current and the mutex held. The same for query and plan of a shape: asking cuDNN takes
  // milliseconds, and the kernel that a plan compiles about a second. Throws RLK_UNSUPPORTED with cuDNN's reason.
  std::shared_ptr<AttentionGraph> graph(const Shape& shape) {
    const auto known = graphs_.find(shape);
    if (known != graphs_.end()) return known->second;
    if (graphs_.size() >= kMostGraphs) graphs_.clear();  // plans keep theirs
    auto made = std::make_shared<AttentionGraph>(Target{handle_, nullptr}, shape);
    graphs_.emplace(shape, made);
    return made;
  }

private:
  [[noreturn]] static void refuse() {
    throw sdk::Error(RLK_UNSUPPORTED, "this plugin brings operators only; the device belongs to another one");
  }
  static int arch_of(const rlk_device_properties& properties) {
    const bool is_nvidia = std::strncmp(properties.arch, "sm_", 3) == 0;
    return is_nvidia ? std::atoi(properties.arch + 3) : 0;
  }
  static constexpr size_t kMostGraphs = 1024;
  void* const context_;
  const int arch_;
  cudnnHandle_t handle_ = nullptr;
  std::mutex mutex_;
  std::map<Shape, std::shared_ptr<AttentionGraph>> graphs_;
};

constexpr sdk::DtypeMap<cudnnDataType_t, 2> kTypes = {
    {{{sdk::Dtype::bf16, CUDNN_DATA_BFLOAT16}, {sdk::Dtype::f16, CUDNN_DATA_HALF}}}};

// [batch, token, head, element] as cuDNN counts dimensions; of a size below 2 any stride is legal, so what a dense
// tensor would have.
Dims strides_of(const rlk_tensor& tensor) {
  Dims dense = {0, 0, 0, 1};
  dense[2] = tensor.shape[3];
  dense[1] = dense[2] * tensor.shape[2];
  dense[0] = dense[1] * tensor.shape[1];
  for (size_t i = 0; i < 4; ++i) {
    if (tensor.shape[i] > 1) dense[i] = tensor.strides[i];
  }
  return {dense[0], dense[2], dense[1], dense[3]};
}

sdk::Refusal refuse_layout(const rlk_tensor& tensor, const char* which) {
  if (auto no = sdk::refuse_strided_rows(&tensor, which, "head size")) return no;
  for (int32_t i = 0; i < 3; ++i) {
    if (tensor.shape[i] > 1 && (tensor.strides[i] % 8 != 0 || tensor.strides[i] <= 0)) {
      return sdk::refuse_strides(which, "laid out forward, each row of heads on 16 bytes");
    }
  }
  if (tensor.alignment % 16 != 0) return sdk::refuse_strides(which, "aligned to 16 bytes");
  return std::nullopt;
}

// RLK_CUDNN_CLAIMS=accurate claims a class that rounded weights cannot hold, to see it refused.
uint32_t claims() {
  const char* text = std::getenv("RLK_CUDNN_CLAIMS");
  const bool too_much = text != nullptr && std::strcmp(text, "accurate") == 0;
  return RLK_NUMERICS_DETERMINISTIC | (too_much ? RLK_NUMERICS_ACCURATE : 0u);
}

struct Attention {
  using Op = sdk::ops::Attention;
  static constexpr const char* kName = "cudnn";

  class Plan final : public sdk::Plan {
  public:
    Plan(Device& device, const sdk::Call<Op>& call) : device_(device) {
      const double scale = call.params().scale;
      const auto head_size = static_cast<double>(call.symbol(RLK_ATTENTION_SYM_D));
      scale_ = static_cast<float>(scale > 0 ? scale : 1 / std::sqrt(head_size));
      const ContextScope scope(device.context());
      const std::lock_guard<std::mutex> lock(device.mutex());
      graph_ = device.graph(shape_of(call));
      graph_->compile();
      flags = RLK_PLAN_CAPTURABLE;
      numerics = claims();
      workspace_bound = graph_->workspace_bytes();
      variant = kName;
    }
    ~Plan() override {
      try {
        const ContextScope scope(device_.context());
        const std::lock_guard<std::mutex> lock(device_.mutex());
        graph_.reset();
      } catch (...) {
        // A lost device has lost the kernel too.
      }
    }
    Plan(const Plan&) = delete;
    Plan& operator=(const Plan&) = delete;

    void enqueue(sdk::Stream& stream, const sdk::Run& run) override {
      Arguments arguments;
      arguments.q = sdk::data_of(run.input(RLK_ATTENTION_IN_Q));
      arguments.k = sdk::data_of(run.input(RLK_ATTENTION_IN_K));
      arguments.v = sdk::data_of(run.input(RLK_ATTENTION_IN_V));
      arguments.out = sdk::data_of(run.output(RLK_ATTENTION_OUT_OUT));
      arguments.workspace = run.workspace();
      arguments.scale = scale_;
      const ContextScope scope(device_.context());
      const std::lock_guard<std::mutex> lock(device_.mutex());
      check(libraries().set_stream(device_.handle(), static_cast<cudaStream_t>(stream.native())), "naming the stream");
      graph_->execute(device_.handle(), arguments);
    }

  private:
    Device& device_;
    float scale_ = 1;
    std::shared_ptr<AttentionGraph> graph_;
  };

  static Shape shape_of(const sdk::Call<Op>& call) {
    const rlk_tensor& q = *call.input(RLK_ATTENTION_IN_Q);
    Shape shape;
    shape.type = kTypes.at(sdk::dtype_of(q));
    shape.batch = call.symbol(RLK_ATTENTION_SYM_B);
    shape.queries = call.symbol(RLK_ATTENTION_SYM_SQ);
    shape.keys = call.symbol(RLK_ATTENTION_SYM_SK);
    shape.q_heads = call.symbol(RLK_ATTENTION_SYM_HQ);
    shape.kv_heads = call.symbol(RLK_ATTENTION_SYM_HKV);
    shape.head_size = call.symbol(RLK_ATTENTION_SYM_D);
    shape.q_strides = strides_of(q);
    shape.k_strides = strides_of(*call.input(RLK_ATTENTION_IN_K));
    shape.v_strides = strides_of(*call.input(RLK_ATTENTION_IN_V));
    shape.out_strides = strides_of(*call.output(RLK_ATTENTION_OUT_OUT));
    shape.causal = call.params().causal == RLK_ATTENTION_CAUSAL_ON;
    return shape;
  }

  static sdk::Support query(Device& device, const sdk::Call<Op>& call) {
    const rlk_attention_params& params = call.params();
    if (params.layout != RLK_ATTENTION_LAYOUT_DENSE) return sdk::Support::no("LAYOUT", "dense batches only");
    if (auto no = sdk::refuse_dtype(call.input(RLK_ATTENTION_IN_Q), "q", {sdk::Dtype::bf16, sdk::Dtype::f16})) {
      return *no;
    }
    if (device.arch() < 80) {
      return sdk::Support::no("ARCH",
                              sdk::format("the device is sm_%d; cuDNN's engines begin at sm_80", device.arch()));
    }
    if (auto no = sdk::refuse_input(call.input(RLK_ATTENTION_IN_KEY_MASK), "key_mask")) return *no;
    if (auto no = sdk::refuse_output(call.output(RLK_ATTENTION_OUT_LSE), "lse")) return *no;
    if (params.softcap != 0) return sdk::Support::no("SOFTCAP", "softcap is not supported");
    if (params.window_left >= 0 || params.window_right >= 0) {
      return sdk::Support::no("WINDOW", "windows are not supported");
    }
    const int64_t queries = call.symbol(RLK_ATTENTION_SYM_SQ), keys = call.symbol(RLK_ATTENTION_SYM_SK);
    const bool is_causal = params.causal == RLK_ATTENTION_CAUSAL_ON;
    if (is_causal && queries != keys && params.causal_alignment != RLK_ATTENTION_CAUSAL_ALIGNMENT_TOP_LEFT) {
      return sdk::Support::no("CAUSAL_ALIGNMENT",
                              "causality is served aligned top_left, or for as many queries as keys");
    }
    if (call.symbol(RLK_ATTENTION_SYM_B) == 0 || queries == 0 || keys == 0 || call.symbol(RLK_ATTENTION_SYM_HQ) == 0) {
      return sdk::Support::no("SIZE", "empty tensors are not supported");
    }
    const int64_t head_size = call.symbol(RLK_ATTENTION_SYM_D);
    if (head_size % 8 != 0 || head_size > 128) {
      return sdk::Support::no("HEAD_SIZE", sdk::format("head size %lld; supported: multiples of 8 up to 128",
                                                       static_cast<long long>(head_size)));
    }
    constexpr const char* kNames[] = {"q", "k", "v"};
    for (uint32_t i = RLK_ATTENTION_IN_Q; i <= RLK_ATTENTION_IN_V; ++i) {
      if (auto no = refuse_layout(*call.input(i), kNames[i])) return *no;
    }
    if (auto no = refuse_layout(*call.output(RLK_ATTENTION_OUT_OUT), "out")) return *no;
    if (auto no = sdk::refuse_numerics(call.numerics(), claims())) return *no;
    // Which shapes have an engine only cuDNN knows.
    try {
      const ContextScope scope(device.context());
      const std::lock_guard<std::mutex> lock(device.mutex());
      device.graph(shape_of(call));
    } catch (const sdk::Error& e) {
      if (e.status() != RLK_UNSUPPORTED) throw;
      return sdk::Support::no("NO_ENGINE", e.what());
    }
    sdk::Support yes = sdk::Support::yes(kName, claims(), RLK_SUPPORT_PREFERRED);
    yes.workspace_bound = std::numeric_limits<uint64_t>::max();  // cuDNN tells it of a plan
    return yes;
  }
  static std::unique_ptr<sdk::Plan> plan(Device& device, const sdk::Call<Op>& call) {
    return std::make_unique<Plan>(device, call);
  }
};

class Plugin final : public sdk::OperatorPlugin {
public:
  using Device = cudnn_attention::Device;
  using Stream = cudnn_attention::Stream;
  using Event = cudnn_attention::Event;
  using Implementations = std::tuple<Attention>;

  explicit Plugin(const sdk::Host&) {}
  sdk::Verdict probe(sdk::Evidence& evidence) override {
    const Libraries& bound = libraries();
    if (!bound.symbols.complete()) {
      evidence.contradicts("runtime_library", bound.symbols.problem());
      return sdk::Verdict::absent("RUNTIME_LIBRARY_MISSING", bound.symbols.problem(),
                                  "install cuDNN 9 and the NVIDIA driver, and put libcudnn.so.9 into LD_LIBRARY_PATH");
    }
    evidence.supports("runtime_library", sdk::Symbols::path_of(bound.create));
    const std::string version = std::to_string(bound.version());
    evidence.neutral("runtime_version", version);
    if (bound.version() < kOldestVersion) {
      return sdk::Verdict::absent("RUNTIME_TOO_OLD",
                                  "cuDNN " + version + " is installed; attention is right from 91002 (9.10.2) on",
                                  "install a newer cuDNN and put its libcudnn.so.9 into LD_LIBRARY_PATH");
    }
    return sdk::Verdict::mine("cudnn " + version);
  }
  std::unique_ptr<sdk::Device> attach_device(const rlk_attach_info& info) override {
    if (!libraries().symbols.complete()) throw sdk::Error(RLK_ABSENT, libraries().symbols.problem());
    if (info.native == nullptr || info.native->context == nullptr) {
      throw sdk::Error(RLK_UNSUPPORTED, "the plugin of the device does not tell its context, in which cuDNN must work");
    }
    return std::make_unique<Device>(info);
  }
};

}  // namespace
}  // namespace cudnn_attention

RLK_PLUGIN_WITH_ENVIRONMENT(cudnn_attention::Plugin, "cudnn_attention", "cuda", "0.1.0",
                            "cuDNN's fused attention for the CUDA plugin", "LD_LIBRARY_PATH,RLK_CUDNN_CLAIMS")
