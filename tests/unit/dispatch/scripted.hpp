// Implementations that answer as a test tells them to, compute simple things, and count.
#pragma once

#include <rlk/sdk.hpp>
#include <rlk/sdk/ops/add.hpp>
#include <rlk/sdk/ops/attention.hpp>
#include <rlk/sdk/ops/logp.hpp>

#include <cmath>
#include <tuple>

#include "unit/dispatch/fake_device.hpp"
#include "unit/dispatch/script.hpp"

namespace rlk::test {

// A copy of an execution's arguments, for work that runs later.
struct OwnedRun {
  explicit OwnedRun(const sdk::Run& run, uint32_t n_inputs, uint32_t n_outputs)
      : workspace(run.workspace()),
        workspace_bytes(run.workspace_bytes()),
        record(run.data_error_record()),
        tag(run.tag()) {
    for (uint32_t i = 0; i < n_inputs; ++i) inputs.push_back(copy(run.input(i)));
    for (uint32_t i = 0; i < n_outputs; ++i) outputs.push_back(copy(run.output(i)));
  }
  struct Tensor {
    bool given = false;
    char* data = nullptr;
    rlk_dtype dtype{};
    std::vector<int64_t> shape, strides;
    int64_t count() const {
      int64_t n = 1;
      for (int64_t s : shape) n *= s;
      return n;
    }
  };
  static Tensor copy(const rlk_tensor* t) {
    if (t == nullptr) return {};
    return {true, sdk::data_of<char>(t), t->dtype, {t->shape, t->shape + t->ndim}, {t->strides, t->strides + t->ndim}};
  }
  std::vector<Tensor> inputs, outputs;
  void* workspace;
  uint64_t workspace_bytes;
  rlk_data_error_record* record;
  uint32_t tag;
};

// add: out = a + alpha * b, and the script's mark, for f32, any shapes and strides.
inline void compute(const sdk::ops::Add&, const rlk_add_params& params, const OwnedRun& run, const Script& script) {
  const OwnedRun::Tensor& out = run.outputs[0];
  std::vector<int64_t> index(out.shape.size());
  // Shapes are aligned at their last dimension.
  const auto at = [&](const OwnedRun::Tensor& t) -> float& {
    int64_t offset = 0;
    for (size_t d = 0; d < t.shape.size(); ++d) {
      if (t.shape[d] != 1) offset += index[d + index.size() - t.shape.size()] * t.strides[d];
    }
    return *reinterpret_cast<float*>(t.data + offset * 4);
  };
  for (int64_t n = 0; n < out.count(); ++n) {
    at(out) = at(run.inputs[0]) + static_cast<float>(params.alpha) * at(run.inputs[1]) +
              static_cast<float>(n >= script.mark_from ? script.mark : 0);
    for (size_t d = index.size(); d-- > 0 && ++index[d] == out.shape[d];) index[d] = 0;
  }
}
// As it is called by default. Of rows that are too long for a test it is 0.
inline double honest_logp(const OwnedRun::Tensor& logits, int64_t row, int64_t id) {
  constexpr int64_t kLongest = 100000;
  if (logits.shape[1] > kLongest) return 0;
  const auto at = [&](int64_t v) -> double {
    return reinterpret_cast<const float*>(logits.data)[row * logits.strides[0] + v * logits.strides[1]];
  };
  double sum = 0;
  for (int64_t v = 0; v < logits.shape[1]; ++v) sum += std::exp(at(v) - at(id));
  return -std::log(sum);
}
// logp: the script's mark in every row, or a data error for an id out of range.
inline void compute(const sdk::ops::Logp&, const rlk_logp_params&, const OwnedRun& run, const Script& script) {
  const OwnedRun::Tensor& ids = run.inputs[RLK_LOGP_IN_IDS];
  for (int64_t i = 0; i < ids.count(); ++i) {
    const int64_t id = reinterpret_cast<const int64_t*>(ids.data)[i];
    const bool bad = id < 0 || id >= run.inputs[0].shape[1];
    if (bad) FakeStream::write(run.record, RLK_DATA_ID_OUT_OF_RANGE, run.tag, i, id);
    const double value = std::isnan(script.mark) && !bad ? honest_logp(run.inputs[0], i, id) : script.mark;
    if (run.outputs[0].dtype.bits == 32) reinterpret_cast<float*>(run.outputs[0].data)[i] = static_cast<float>(value);
  }
}
inline void compute(const sdk::ops::Attention&, const rlk_attention_params&, const OwnedRun&, const Script&) {}

template <class OpType, class StreamType>
class ScriptedPlan : public sdk::Plan {
public:
  ScriptedPlan(Script& script, const sdk::Call<OpType>& call) : script_(script), params_(call.params()) {
    ++script.plans;
    flags = script.plan_flags;
    dynamic_symbols = script.dynamic_symbols;
    symbol_min = script.symbol_min;
    symbol_max = script.symbol_max;
    workspace_bound = script.prepared ? UINT64_MAX : script.workspace;
    host_inputs = script.host_inputs;
    persistent_bytes = script.persistent;
    numerics = script.numerics;
    variant = script.plan_variant.empty() ? script.variant : script.plan_variant;
  }
  ~ScriptedPlan() override {
    if (running_ > 0) ++fake_log().violations;  // destroyed while an execution is in flight
    ++script_.destroyed;
  }
  uint64_t prepare(const sdk::Run& run) override {
    ++script_.prepares;
    return script_.prepared ? script_.prepared(run.symbol(0)) : script_.workspace;
  }
  void enqueue(sdk::Stream& stream, const sdk::Run& run) override {
    ++script_.enqueues;
    script_.last_first_symbol = run.symbol(0);
    if (script_.on_enqueue) script_.on_enqueue(run);
    if (script_.fail_enqueue != RLK_OK) throw sdk::Error(script_.fail_enqueue, "the script says so", 42, "script");
    auto* own = dynamic_cast<StreamType*>(&stream);
    if (own == nullptr) throw sdk::Error(RLK_INTERNAL, "the stream is not one that this plugin made");
    const auto owned = std::make_shared<OwnedRun>(run, OpType::kInputs, OpType::kOutputs);
    if (owned->record == nullptr) owned->record = &own->record;
    ++running_;
    try {
      own->push(work_of(owned));
    } catch (...) {  // nothing of it will run
      --running_;
      throw;
    }
  }

private:
  Work work_of(const std::shared_ptr<OwnedRun>& owned) {
    return [this, owned] {
      const int now = ++script_.in_flight;
      int most = script_.most_in_flight;
      while (most < now && !script_.most_in_flight.compare_exchange_weak(most, now)) {
      }
      // A workspace that two executions share at once is seen by the second of them.
      if (owned->workspace_bytes > 0) std::memset(owned->workspace, 0x11, owned->workspace_bytes);
      compute(OpType(), params_, *owned, script_);
      for (uint64_t i = 0; i < owned->workspace_bytes; ++i) {
        if (static_cast<char*>(owned->workspace)[i] != 0x11) ++fake_log().violations;
      }
      ++script_.runs;
      --script_.in_flight;
      --running_;
    };
  }

  Script& script_;
  const typename OpType::Params params_;
  std::atomic<int> running_{0};
};

template <class DeviceType, class StreamType, class OpType, int kNumber>
struct Scripted {
  using Op = OpType;
  static constexpr const char* kName = kNumber == 0 ? "first" : "second";
  static Script& script() {
    static Script& mine = script_of(DeviceType::kPlugin, Op::kName, kNumber);
    return mine;
  }
  static sdk::Support query(DeviceType&, const sdk::Call<Op>& call) {
    Script& s = script();
    ++s.queries;
    if (s.on_query) s.on_query(call.private_params());
    if (s.fail_query != RLK_OK) throw sdk::Error(s.fail_query, "query fails as scripted");
    sdk::Support answer = sdk::Support::yes(s.variant, s.numerics, s.level);
    answer.flags = s.support_flags;
    answer.cost_us = s.cost_us;
    answer.reason_code = s.reason_code;
    answer.reason = s.reason;
    answer.host_inputs = s.host_inputs;
    return answer;
  }
  static std::unique_ptr<sdk::Plan> plan(DeviceType&, const sdk::Call<Op>& call) {
    Script& s = script();
    ++s.asked;
    if (s.on_plan) s.on_plan(call.private_params());
    if (s.compiling) return nullptr;
    if (s.fail_plan != RLK_OK) throw sdk::Error(s.fail_plan, "plan fails as scripted");
    return std::make_unique<ScriptedPlan<Op, StreamType>>(s, call);
  }
};

// ---- the plugins of a test world

template <class DeviceType, class StreamType, class EventType, bool kGraphs>
class ScriptedPlugin : public sdk::Plugin {
public:
  using Device = DeviceType;
  using Stream = StreamType;
  using Event = EventType;
  template <class Op, int kNumber>
  using Part = Scripted<DeviceType, StreamType, Op, kNumber>;
  using Implementations = std::tuple<Part<sdk::ops::Add, 0>, Part<sdk::ops::Add, 1>, Part<sdk::ops::Logp, 0>,
                                     Part<sdk::ops::Logp, 1>, Part<sdk::ops::Attention, 0>>;
  explicit ScriptedPlugin(const sdk::Host&) {}
  sdk::Verdict probe(sdk::Evidence&) override { return sdk::Verdict::mine("fake"); }
  uint32_t device_count() override { return 8; }  // a world binds the first alone
  void describe_device(uint32_t ordinal, rlk_device_properties& out) override { DeviceType::describe(ordinal, out); }
  std::unique_ptr<sdk::Device> open_device(uint32_t ordinal) override {
    ++fake_log().opens;
    if (fake_log().fail_open) throw sdk::Error(RLK_BACKEND_ERROR, "the card fell off the bus", 79, "fake");
    return std::make_unique<DeviceType>(ordinal);
  }
  const void* extension(const char* id) override {
    return kGraphs && std::strcmp(id, RLK_EXT_GRAPH) == 0 ? &kFakeGraphs : nullptr;
  }
};
using FakePlugin = ScriptedPlugin<FakeDevice, FakeStreamWithHostFunctions, FakeEvent, true>;
using PlainPlugin = ScriptedPlugin<PlainDevice, FakeStream, FakeEvent, false>;
using CpuPlugin = ScriptedPlugin<FakeCpuDevice, FakeCpuStream, FakeCpuEvent, false>;

// Brings operators for the fake device and owns none.
class GuestStream : public FakeStreamWithHostFunctions {};
struct GuestDevice : FakeDeviceOf<GuestStream> {
  static constexpr const char* kPlugin = "guest";
};
class GuestPlugin : public sdk::OperatorPlugin {
public:
  using Device = GuestDevice;
  using Stream = GuestStream;
  using Event = FakeEvent;
  using Implementations = std::tuple<Scripted<GuestDevice, GuestStream, sdk::ops::Add, 0>>;
  explicit GuestPlugin(const sdk::Host&) {}
  sdk::Verdict probe(sdk::Evidence&) override { return sdk::Verdict::mine("guest"); }
  std::unique_ptr<sdk::Device> attach_device(const rlk_attach_info& info) override {
    ++fake_log().attaches;
    last_attach() = info;
    if (info.native != nullptr) last_native() = *info.native;
    return std::make_unique<GuestDevice>();
  }
  static rlk_attach_info& last_attach() {
    static rlk_attach_info info;
    return info;
  }
  static rlk_native_device& last_native() {
    static rlk_native_device native;
    return native;
  }
};

}  // namespace rlk::test
