// A plugin whose device works behind its caller, a thread per stream: what changes against the template
// (`rlk-plugins new`), whose work is done when enqueue returns.
#include <rlk/sdk.hpp>
#include <rlk/sdk/ops/logp.hpp>
#include <rlk/sdk/ops/relu.hpp>

#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <memory>
#include <string>
#include <tuple>

#include "stream.hpp"

namespace queue {

using rlk::sdk::Call;
using rlk::sdk::Run;
using rlk::sdk::Support;

constexpr uint32_t kClasses = RLK_NUMERICS_DETERMINISTIC | RLK_NUMERICS_BATCH_INVARIANT;

class Device : public rlk::sdk::Device {
public:
  // No INLINE_STREAMS: the host waits by events and host functions. MAPPED_PINNED: work writes data errors to the
  // host's record by itself.
  static void describe(rlk_device_properties& out) {
    out.flags = RLK_DEVICE_MAPPED_PINNED;
    out.memory_bytes = kMemoryBytes;
    std::snprintf(out.name, sizeof(out.name), "queue");
    std::snprintf(out.arch, sizeof(out.arch), "threads");
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
    throw rlk::sdk::Error(RLK_UNSUPPORTED, "queue has no runtime whose streams could be wrapped");
  }
  std::unique_ptr<rlk::sdk::Event> create_event(bool) override { return std::make_unique<Event>(); }

private:
  static constexpr uint64_t kMemoryBytes = uint64_t{4} << 30;
};

// Declines in words what is no dense f32 tensor.
rlk::sdk::Refusal refuse_tensor(const rlk_tensor* tensor, const char* which) {
  if (auto no = rlk::sdk::refuse_dtype(tensor, which, {rlk::sdk::Dtype::f32})) return no;
  return rlk::sdk::refuse_gaps(tensor, which);
}

struct Relu {
  using Op = rlk::sdk::ops::Relu;
  static constexpr const char* kName = "loop";

  static Support query(Device&, const Call<Op>& described) {
    const auto call = rlk::sdk::arguments_of(described);
    if (auto no = refuse_tensor(call.x, "x")) return *no;
    if (auto no = refuse_tensor(call.y, "y")) return *no;
    return Support::yes("loop", kClasses);
  }

  class Plan : public rlk::sdk::Plan {
  public:
    void enqueue(rlk::sdk::Stream& stream, const Run& run) override {
      // Read here: `run` and its arrays are the caller's, and gone when the work is done.
      const auto call = rlk::sdk::arguments_of<Op>(run, Op::defaults());
      const auto* x = rlk::sdk::data_of<const float>(call.x);
      auto* y = rlk::sdk::data_of<float>(call.y);
      const int64_t count = rlk::sdk::element_count(*call.y);
      static_cast<Stream&>(stream).enqueue([=] {
        for (int64_t i = 0; i < count; ++i) y[i] = x[i] < 0 ? 0 : x[i];
      });
    }
  };
  static std::unique_ptr<rlk::sdk::Plan> plan(Device&, const Call<Op>&) { return std::make_unique<Plan>(); }
};

// With a workspace: of every row the largest logit.
struct Logp {
  using Op = rlk::sdk::ops::Logp;
  static constexpr const char* kName = "rows";

  static Support query(Device&, const Call<Op>& described) {
    using P = Op::Params;
    if (auto no = rlk::sdk::refuse_other_params(described, &P::temperature, &P::ignore_index)) return *no;
    const auto call = rlk::sdk::arguments_of(described);
    for (const rlk_tensor* absent : {call.bias, call.mask, call.row_indices, call.keep_mask})
      if (auto no = rlk::sdk::refuse_input(absent, "one of bias, mask, row_indices and keep_mask")) return *no;
    for (const rlk_tensor* absent : {call.entropy, call.sum_p2})
      if (auto no = rlk::sdk::refuse_output(absent, "one of entropy and sum_p2")) return *no;
    if (auto no = rlk::sdk::refuse_dtype(call.ids, "ids", {rlk::sdk::Dtype::i64})) return *no;
    if (auto no = rlk::sdk::refuse_gaps(call.ids, "ids")) return *no;
    if (auto no = refuse_tensor(call.logits, "logits")) return *no;
    if (auto no = refuse_tensor(call.logp, "logp")) return *no;
    if (auto no = refuse_tensor(call.lse, "lse")) return *no;
    Support yes = Support::yes("rows", kClasses);
    // Stated here alone. This plan has no dynamic symbols: it is of one size, and so is the workspace.
    yes.workspace_bound = static_cast<uint64_t>(call.N) * sizeof(double);
    return yes;
  }

  // What a call's work needs of it.
  struct Work {
    const float* logits;
    const int64_t* ids;
    float *logp, *lse;
    double* largest;
    int64_t rows, vocab, ignore_index;
    double temperature;
    rlk_data_error_record* record;  // valid until the stream has passed the call
    uint32_t tag;

    void operator()() const {
      constexpr double kInfinity = std::numeric_limits<double>::infinity();
      for (int64_t n = 0; n < rows; ++n) {
        double max = -kInfinity;
        for (int64_t v = 0; v < vocab; ++v) max = std::fmax(max, static_cast<double>(logits[n * vocab + v]));
        largest[n] = max;
      }
      for (int64_t n = 0; n < rows; ++n) row(n);
    }
    void row(int64_t n) const {
      const int64_t id = ids[n];
      if (id == ignore_index) return answer(n, 0, 0);
      if (id < 0 || id >= vocab) return data_error(RLK_DATA_ID_OUT_OF_RANGE, n, id);
      const float* x = logits + n * vocab;
      bool is_all_minus_inf = true;
      double sum = 0;
      for (int64_t v = 0; v < vocab; ++v) {
        is_all_minus_inf = is_all_minus_inf && std::isinf(x[v]) && x[v] < 0;
        sum += std::exp((static_cast<double>(x[v]) - largest[n]) / temperature);
      }
      if (is_all_minus_inf) return data_error(RLK_DATA_NO_FINITE_LOGIT, n, 0);
      const double log_sum = std::log(sum);
      answer(n, (static_cast<double>(x[id]) - largest[n]) / temperature - log_sum, largest[n] / temperature + log_sum);
    }
    void answer(int64_t n, double value, double row_lse) const {
      logp[n] = static_cast<float>(value);
      if (lse != nullptr) lse[n] = static_cast<float>(row_lse);
    }
    // Other calls write the record at the same time: the first keeps it.
    void data_error(int32_t kind, int64_t n, int64_t value) const {
      const double nan = std::numeric_limits<double>::quiet_NaN();
      answer(n, nan, nan);
      int32_t none = 0;
      if (!__atomic_compare_exchange_n(&record->state, &none, 1, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) return;
      record->kind = kind;
      record->tag = tag;
      record->row = n;
      record->value = value;
    }
  };

  class Plan : public rlk::sdk::Plan {
  public:
    explicit Plan(const Call<Op>& call) : params_(call.params()) {}
    void enqueue(rlk::sdk::Stream& stream, const Run& run) override {
      const auto call = rlk::sdk::arguments_of<Op>(run, params_);
      static_cast<Stream&>(stream).enqueue(
          Work{rlk::sdk::data_of<const float>(call.logits), rlk::sdk::data_of<const int64_t>(call.ids),
               rlk::sdk::data_of<float>(call.logp), rlk::sdk::data_of<float>(call.lse),
               static_cast<double*>(run.workspace()), call.N, call.V, params_.ignore_index, params_.temperature,
               run.data_error_record(), run.tag()});
    }

  private:
    const rlk_logp_params params_;
  };
  static std::unique_ptr<rlk::sdk::Plan> plan(Device&, const Call<Op>& call) { return std::make_unique<Plan>(call); }
};

class Plugin : public rlk::sdk::Plugin {
public:
  using Device = queue::Device;
  using Stream = queue::Stream;
  using Event = queue::Event;
  using Implementations = std::tuple<Relu, Logp>;

  explicit Plugin(const rlk::sdk::Host&) {}
  rlk::sdk::Verdict probe(rlk::sdk::Evidence& evidence) override {
    evidence.supports("device_name", "threads");
    return rlk::sdk::Verdict::mine("runtime 1.0");
  }
  uint32_t device_count() override { return 1; }
  void describe_device(uint32_t, rlk_device_properties& out) override { Device::describe(out); }
  std::unique_ptr<rlk::sdk::Device> open_device(uint32_t) override { return std::make_unique<Device>(); }
};

}  // namespace queue

RLK_PLUGIN(queue::Plugin, "queue", "queue", "0.1.0", "A device that works behind its caller")
