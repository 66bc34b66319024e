// A plugin of rlk: the device "acme" and the operators it brings. It is complete and passes conformance as it is, with
// host memory as its device; make it yours by replacing memory and streams by your runtime's and the loops by kernels.
#include <rlk/sdk.hpp>
#include <rlk/sdk/ops/add.hpp>
#include <rlk/sdk/ops/logp.hpp>

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <initializer_list>
#include <limits>

namespace acme {

using rlk::sdk::Arguments;
using rlk::sdk::arguments_of;
using rlk::sdk::Call;
using rlk::sdk::data_of;
using rlk::sdk::Run;
using rlk::sdk::Support;

// == the device ==

class Stream : public rlk::sdk::Stream {
public:
  void* native() override { return this; }  // your runtime's stream
  // RLK_NOT_READY while work is unfinished. Data errors are the host's to find: kernels write them to the record that
  // rlk gives to each run.
  rlk_status query(rlk_data_error&) override { return RLK_OK; }
  rlk_status synchronize(uint64_t, rlk_data_error&) override { return RLK_OK; }
  void wait(rlk::sdk::Event&) override {}
  void copy(void* destination, const void* source, uint64_t bytes, int32_t) override {
    if (bytes > 0) std::memcpy(destination, source, bytes);
  }
  void fill(void* memory, uint8_t value, uint64_t bytes) override {
    if (bytes > 0) std::memset(memory, value, bytes);
  }
  void enqueue_host_function(rlk_host_function function, void* user) override { function(user); }
};

class Event : public rlk::sdk::Event {
public:
  void record(rlk::sdk::Stream&) override { time_ = std::chrono::steady_clock::now(); }
  rlk_status query() override { return RLK_OK; }
  rlk_status synchronize(uint64_t) override { return RLK_OK; }
  double elapsed_ms(rlk::sdk::Event& start) override {
    return std::chrono::duration<double, std::milli>(time_ - static_cast<Event&>(start).time_).count();
  }

private:
  std::chrono::steady_clock::time_point time_;
};

class Device : public rlk::sdk::Device {
public:
  // What is known without opening the device. INLINE_STREAMS: work is done when enqueue returns, as on no real device;
  // MAPPED_PINNED: kernels reach pinned memory at the host's address, so data errors go straight to the host's record.
  static void describe(rlk_device_properties& out) {
    out.flags = RLK_DEVICE_INLINE_STREAMS | RLK_DEVICE_MAPPED_PINNED;
    out.memory_bytes = kMemoryBytes;
    out.dlpack_device_type = 12;  // kDLExtDev, torch's PrivateUse1: what a framework's tensors of this device say
    std::snprintf(out.name, sizeof(out.name), "acme 100");
    std::snprintf(out.arch, sizeof(out.arch), "host");
  }
  void* allocate(int32_t, uint64_t bytes) override {
    void* memory = bytes <= kMemoryBytes ? std::aligned_alloc(256, (bytes + 255) / 256 * 256) : nullptr;
    if (memory == nullptr)
      throw rlk::sdk::Error(RLK_OUT_OF_MEMORY, "no memory for " + std::to_string(bytes) + " bytes");
    return memory;
  }
  void deallocate(int32_t, void* memory) override { std::free(memory); }
  void memory_info(uint64_t& free_bytes, uint64_t& total_bytes) override { free_bytes = total_bytes = kMemoryBytes; }
  std::unique_ptr<rlk::sdk::Stream> create_stream(int32_t) override { return std::make_unique<Stream>(); }
  std::unique_ptr<rlk::sdk::Stream> wrap_stream(void*) override {
    throw rlk::sdk::Error(RLK_UNSUPPORTED, "acme has no runtime whose streams could be wrapped");
  }
  std::unique_ptr<rlk::sdk::Event> create_event(bool) override { return std::make_unique<Event>(); }

private:
  static constexpr uint64_t kMemoryBytes = uint64_t{1} << 30;
};

// == operators ==

// What an operator means is in its header, here rlk/ops/add.h and rlk/ops/logp.h, and its arguments have the names
// there. A plugin declines what it does not have, in words: the call then goes elsewhere, and the user is told why.
Support supports(std::initializer_list<const rlk_tensor*> f32_tensors) {
  for (const rlk_tensor* tensor : f32_tensors) {
    if (auto no = rlk::sdk::refuse_dtype(tensor, "a tensor", {rlk::sdk::Dtype::f32})) return *no;
    if (auto no = rlk::sdk::refuse_gaps(tensor, "every tensor")) return *no;
  }
  return Support::yes("serial", RLK_NUMERICS_DETERMINISTIC | RLK_NUMERICS_BATCH_INVARIANT);
}

struct Add {
  using Op = rlk::sdk::ops::Add;
  static constexpr const char* kName = "elementwise";

  static Support query(Device&, const Call<Op>& described) {
    const Arguments<Op> call = arguments_of(described);
    const int64_t count = rlk::sdk::element_count(*call.out);
    if (rlk::sdk::element_count(*call.a) != count || rlk::sdk::element_count(*call.b) != count) {
      return Support::no("BROADCAST", "a and b must have one shape");
    }
    return supports({call.a, call.b, call.out});
  }

  class Plan : public rlk::sdk::Plan {
  public:
    explicit Plan(const Call<Op>& call) : params_(call.params()) {}
    void enqueue(rlk::sdk::Stream&, const Run& run) override {
      const Arguments<Op> call = arguments_of<Op>(run, params_);
      const auto *a = data_of<const float>(call.a), *b = data_of<const float>(call.b);
      auto* out = data_of<float>(call.out);
      const int64_t count = rlk::sdk::element_count(*call.out);
      for (int64_t i = 0; i < count; ++i) {
        out[i] = static_cast<float>(static_cast<double>(a[i]) + call.params.alpha * static_cast<double>(b[i]));
      }
    }

  private:
    rlk_add_params params_;
  };
  static std::unique_ptr<rlk::sdk::Plan> plan(Device&, const Call<Op>& call) { return std::make_unique<Plan>(call); }
};

struct Logp {
  using Op = rlk::sdk::ops::Logp;
  static constexpr const char* kName = "rows";

  static Support query(Device&, const Call<Op>& described) {
    const Arguments<Op> call = arguments_of(described);
    if (auto no = rlk::sdk::refuse_input(call.bias, "bias")) return *no;
    if (auto no = rlk::sdk::refuse_input(call.mask, "mask")) return *no;
    if (auto no = rlk::sdk::refuse_input(call.row_indices, "row_indices")) return *no;
    if (auto no = rlk::sdk::refuse_input(call.keep_mask, "keep_mask")) return *no;
    if (auto no = rlk::sdk::refuse_output(call.entropy, "entropy")) return *no;
    if (auto no = rlk::sdk::refuse_output(call.sum_p2, "sum_p2")) return *no;
    using Params = Op::Params;
    if (auto no = rlk::sdk::refuse_other_params(described, &Params::temperature, &Params::ignore_index)) return *no;
    if (auto no = rlk::sdk::refuse_dtype(call.ids, "ids", {rlk::sdk::Dtype::i64})) return *no;
    if (auto no = rlk::sdk::refuse_gaps(call.ids, "ids")) return *no;
    return supports({call.logits, call.logp, call.lse});
  }

  class Plan : public rlk::sdk::Plan {
  public:
    explicit Plan(const Call<Op>& call) : params_(call.params()) {
      // One plan for every number of tokens.
      dynamic_symbols = rlk::sdk::bits_of(&Arguments<Op>::N, &Arguments<Op>::R);
    }
    void enqueue(rlk::sdk::Stream&, const Run& run) override {
      const Arguments<Op> call = arguments_of<Op>(run, params_);
      const auto* logits = data_of<const float>(call.logits);
      const auto* ids = data_of<const int64_t>(call.ids);
      auto *logp = data_of<float>(call.logp), *lse = data_of<float>(call.lse);
      for (int64_t n = 0; n < call.N; ++n) {
        const Row row = compute(run, logits + n * call.V, call.V, n, ids[n]);
        logp[n] = static_cast<float>(row.logp);
        if (lse != nullptr) lse[n] = static_cast<float>(row.lse);
      }
    }

  private:
    struct Row {
      double logp, lse;
    };
    Row compute(const Run& run, const float* x, int64_t vocab, int64_t n, int64_t id) const {
      if (id == params_.ignore_index) return {0, 0};
      if (id < 0 || id >= vocab) return data_error(run, RLK_DATA_ID_OUT_OF_RANGE, n, id);
      double max = -std::numeric_limits<double>::infinity();
      bool finite_or_nan = false;
      for (int64_t v = 0; v < vocab; ++v) {
        max = std::fmax(max, static_cast<double>(x[v]));
        finite_or_nan = finite_or_nan || !std::isinf(x[v]) || x[v] > 0;
      }
      if (!finite_or_nan) return data_error(run, RLK_DATA_NO_FINITE_LOGIT, n, 0);
      double sum = 0;
      for (int64_t v = 0; v < vocab; ++v) sum += std::exp((static_cast<double>(x[v]) - max) / params_.temperature);
      // The maximum first: where scores are large, lse has no digits left for the sum, and a certain token's
      // log-probability would come out above 0.
      const double log_sum = std::log(sum);
      return {(static_cast<double>(x[id]) - max) / params_.temperature - log_sum, max / params_.temperature + log_sum};
    }
    // A kernel does the same with an atomic compare-and-swap on state.
    static Row data_error(const Run& run, int32_t kind, int64_t row, int64_t value) {
      rlk_data_error_record* record = run.data_error_record();
      if (record->state == 0) *record = {1, kind, run.tag(), 0, row, value};
      const double nan = std::numeric_limits<double>::quiet_NaN();
      return {nan, nan};
    }
    rlk_logp_params params_;
  };
  static std::unique_ptr<rlk::sdk::Plan> plan(Device&, const Call<Op>& call) { return std::make_unique<Plan>(call); }
};

// == the plugin ==

class Plugin : public rlk::sdk::Plugin {
public:
  using Device = acme::Device;
  using Stream = acme::Stream;
  using Event = acme::Event;
  using Implementations = std::tuple<Add, Logp>;

  explicit Plugin(const rlk::sdk::Host&) {}  // open your runtime here, never before
  // Is this machine's hardware yours? Say what was seen and why. No hardware is an answer, not an error:
  // Verdict::absent("NO_DEVICE", "/dev/acme0 does not exist", "load the acme driver").
  rlk::sdk::Verdict probe(rlk::sdk::Evidence& evidence) override {
    evidence.supports("device_name", "acme 100");
    return rlk::sdk::Verdict::mine("runtime 1.0");
  }
  uint32_t device_count() override { return 1; }
  void describe_device(uint32_t, rlk_device_properties& out) override { Device::describe(out); }
  std::unique_ptr<rlk::sdk::Device> open_device(uint32_t) override { return std::make_unique<Device>(); }
};

}  // namespace acme

RLK_PLUGIN(acme::Plugin, "acme", "acme", "0.1.0", "The acme device and its operators")
