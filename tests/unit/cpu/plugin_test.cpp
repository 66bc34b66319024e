// The built-in plugin through the ABI alone: identity, memory, streams, events, plans, data errors. The operators'
// mathematics is tested at the kernels and by the conformance suite.
#include <gtest/gtest.h>
#include <rlk/abi.h>
#include <rlk/ops/add.h>
#include <rlk/ops/logp.h>
#include <rlk/ops/policy_loss.h>
#include <rlk/ops/sample.h>
#include <rlk/ops/whiten.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "core/cpu/simd/target.hpp"
#include "core/declaration/declaration.hpp"
#include "core/declaration/error.hpp"

extern "C" const rlk_plugin* rlk_cpu_entry_v1(const rlk_host*, rlk_error*);

namespace {

const void* no_service(void*, const char*) {
  return nullptr;
}  // the plugin then works on the calling thread

rlk_host make_host() {
  rlk_host host{};
  host.struct_size = sizeof(host);
  host.abi_major = RLK_ABI_MAJOR;
  host.abi_minor = RLK_ABI_MINOR;
  host.abi_draft = RLK_ABI_DRAFT;
  host.name = "test";
  host.version = "0";
  host.get_service = no_service;
  return host;
}

constexpr rlk_dtype kF32 = {RLK_DTYPE_FLOAT, 32, 1};
constexpr rlk_dtype kI64 = {RLK_DTYPE_INT, 64, 1};

// A contiguous tensor over a caller's vector.
struct Bound {
  template <typename T>
  Bound(std::vector<T>& values, rlk_dtype dtype, std::vector<int64_t> dims) : shape(std::move(dims)), strides(shape) {
    int64_t next = 1;
    for (size_t axis = shape.size(); axis-- > 0;) {
      strides[axis] = next;
      next *= shape[axis];
    }
    tensor = {sizeof(rlk_tensor),
              4,
              values.data(),
              0,
              shape.data(),
              strides.data(),
              static_cast<int32_t>(shape.size()),
              dtype};
  }
  std::vector<int64_t> shape, strides;
  rlk_tensor tensor;
};

// A call as plugins are asked about it.
struct Described {
  std::vector<const rlk_tensor*> inputs, outputs;
  std::vector<int64_t> symbols;
  std::vector<int32_t> aliases = std::vector<int32_t>(outputs.size(), -1);

  rlk_call_desc desc(const char* op, const void* params, uint32_t numerics) const {
    rlk_call_desc desc{};
    desc.struct_size = sizeof(desc);
    desc.op_revision = 1;
    desc.op = op;
    desc.params = params;
    desc.n_inputs = static_cast<uint32_t>(inputs.size());
    desc.n_outputs = static_cast<uint32_t>(outputs.size());
    desc.inputs = inputs.data();
    desc.outputs = outputs.data();
    desc.output_alias = aliases.data();
    desc.symbols = symbols.data();
    desc.n_symbols = static_cast<uint32_t>(symbols.size());
    desc.numerics = numerics;
    return desc;
  }
};

Described whitening_of(const Bound& x) {
  return {{&x.tensor, nullptr, nullptr, nullptr}, {&x.tensor}, x.shape};
}
Described loss_of(const Bound& logp, const Bound& loss) {
  std::vector<const rlk_tensor*> inputs(RLK_POLICY_LOSS_N_INPUTS), outputs(RLK_POLICY_LOSS_N_OUTPUTS);
  inputs[RLK_POLICY_LOSS_IN_LOGP] = &logp.tensor;
  outputs[RLK_POLICY_LOSS_OUT_LOSS] = &loss.tensor;
  return {inputs, outputs, {logp.shape[0], logp.shape[1], -1}};
}

// What Linux calls the processor; empty where it has no name for it.
std::string model_name() {
  std::ifstream file("/proc/cpuinfo");
  const std::string text{std::istreambuf_iterator<char>(file), {}}, label = "\nmodel name\t: ";
  const size_t at = text.find(label);
  if (at == std::string::npos) return "";
  return text.substr(at + label.size(), text.find('\n', at + 1) - at - label.size());
}

class CpuPlugin : public ::testing::Test {
protected:
  void SetUp() override {
    plugin_ = rlk_cpu_entry_v1(&host_, &error_);
    ASSERT_NE(plugin_, nullptr) << error_.text;
    ASSERT_EQ(plugin_->create(&host_, &instance_, &error_), RLK_OK) << error_.text;
    ASSERT_EQ(plugin_->device_open(instance_, 0, &device_, &error_), RLK_OK) << error_.text;
    ASSERT_EQ(plugin_->stream->create(device_, 0, &stream_, &error_), RLK_OK) << error_.text;
  }
  void TearDown() override {
    EXPECT_EQ(plugin_->stream->destroy(stream_, &error_), RLK_OK);
    EXPECT_EQ(plugin_->device_close(device_, &error_), RLK_OK);
    EXPECT_EQ(plugin_->destroy(instance_, &error_), RLK_OK);
  }

  const rlk_implementation& implementation(const std::string& op) const {
    for (uint32_t i = 0; i < plugin_->n_implementations; ++i) {
      if (plugin_->implementations[i]->op == op) return *plugin_->implementations[i];
    }
    ADD_FAILURE() << "no implementation of " << op;
    return *plugin_->implementations[0];
  }

  rlk_support query(const std::string& op, const void* params, const Described& call, uint32_t numerics) {
    const rlk_implementation& row = implementation(op);
    const rlk_call_desc desc = call.desc(row.op, params, numerics);
    rlk_support support{};
    support.struct_size = sizeof(support);
    EXPECT_EQ(row.query(&row, device_, &desc, &support, &error_), RLK_OK) << error_.text;
    return support;
  }

  // Query, plan, prepare, enqueue. Returns the status of enqueue.
  rlk_status run(const std::string& op, const void* params, std::vector<const rlk_tensor*> inputs,
                 std::vector<const rlk_tensor*> outputs, std::vector<int64_t> symbols, uint32_t numerics,
                 rlk_support* support) {
    const rlk_implementation& row = implementation(op);
    const Described call{std::move(inputs), std::move(outputs), std::move(symbols)};
    const rlk_call_desc desc = call.desc(row.op, params, numerics);
    *support = query(op, params, call, numerics);
    if (support->level == RLK_SUPPORT_NO) return RLK_UNSUPPORTED;

    rlk_plugin_plan* plan = nullptr;
    rlk_plan_info& info = info_;
    info = {};
    info.struct_size = sizeof(info);
    EXPECT_EQ(row.plan_create(&row, device_, &desc, &plan, &info, &error_), RLK_OK) << error_.text;
    EXPECT_EQ(info.numerics, support->numerics);
    EXPECT_STREQ(info.variant, support->variant);
    EXPECT_EQ(info.dynamic_symbols, (uint64_t{1} << desc.n_symbols) - 1) << "one plan serves all sizes";
    rlk_run run{};
    run.struct_size = sizeof(run);
    run.tag = 77;
    run.n_inputs = desc.n_inputs;
    run.n_outputs = desc.n_outputs;
    run.inputs = desc.inputs;
    run.outputs = desc.outputs;
    run.symbols = desc.symbols;
    run.n_symbols = desc.n_symbols;
    run.data_error_record = &record_;
    EXPECT_EQ(row.plan_prepare(plan, &run, &run.workspace_bytes, &error_), RLK_OK) << error_.text;
    EXPECT_LE(run.workspace_bytes, std::min(support->workspace_bound, info.workspace_bound));
    std::vector<uint64_t> workspace(run.workspace_bytes / 8 + 1);
    run.workspace = workspace.data();
    const rlk_status status = row.plan_enqueue(plan, stream_, &run, &error_);
    EXPECT_EQ(row.plan_destroy(plan, &error_), RLK_OK);
    return status;
  }

  rlk_host host_ = make_host();
  rlk_error error_ = rlk::core::fresh_error();
  const rlk_plugin* plugin_ = nullptr;
  rlk_plugin_instance* instance_ = nullptr;
  rlk_plugin_device* device_ = nullptr;
  rlk_plugin_stream* stream_ = nullptr;
  rlk_plan_info info_{};
  rlk_data_error_record record_{};
};

TEST_F(CpuPlugin, SaysWhoItIsAndThatTheMachineIsItsOwn) {
  EXPECT_STREQ(plugin_->id, "cpu");
  EXPECT_STREQ(plugin_->backend, "cpu");
  EXPECT_EQ(plugin_->n_implementations, rlk::core::declarations().size());
  std::vector<std::string> kinds;
  const auto add = [](void* context, const rlk_evidence* item) {
    static_cast<std::vector<std::string>*>(context)->push_back(item->kind);
  };
  const rlk_evidence_sink sink = {sizeof(sink), 0, &kinds, add};
  rlk_probe_result result{};
  result.struct_size = sizeof(result);
  ASSERT_EQ(plugin_->probe(instance_, &sink, &result, &error_), RLK_OK);
  EXPECT_EQ(result.verdict, RLK_PROBE_MINE);
  EXPECT_NE(result.runtime_fingerprint[0], 0);
  EXPECT_EQ(kinds, (std::vector<std::string>{"device_name", "instruction_set"}));
  rlk_device_properties properties{};
  properties.struct_size = sizeof(properties);
  ASSERT_EQ(plugin_->device_describe(instance_, 0, &properties, &error_), RLK_OK);
  EXPECT_EQ(properties.flags, RLK_DEVICE_UNIFIED_MEMORY | RLK_DEVICE_INLINE_STREAMS | RLK_DEVICE_MAPPED_PINNED);
  EXPECT_GT(properties.memory_bytes, 0u);
  EXPECT_EQ(properties.numa_node, -1);
  EXPECT_EQ(plugin_->device_describe(instance_, 1, &properties, &error_), RLK_INVALID_ARGUMENT);
}

TEST_F(CpuPlugin, DescribesTheMachine) {
  uint32_t count = 0;
  EXPECT_EQ(plugin_->device_count(instance_, &count, &error_), RLK_OK);
  EXPECT_EQ(count, 1u);
  rlk_device_properties properties{};
  properties.struct_size = sizeof(properties);
  ASSERT_EQ(plugin_->device_describe(instance_, 0, &properties, &error_), RLK_OK);
  const std::string model = model_name(), arch = properties.arch;
  EXPECT_TRUE(arch.size() > 4 && arch.ends_with(std::string(" ") + rlk::cpu::variant_name())) << arch;
  EXPECT_EQ(properties.name, model.empty() ? arch.substr(0, arch.find(' ')) : model.substr(0, 63));
  EXPECT_EQ(properties.simt_width, 0u);
  EXPECT_EQ(properties.compute_units, 1u) << "the host has no pool";
  EXPECT_EQ(properties.l2_bytes, static_cast<uint64_t>(std::max(sysconf(_SC_LEVEL2_CACHE_SIZE), 0L)));
  uint64_t free_bytes = 0, total_bytes = 0;
  ASSERT_EQ(plugin_->device->memory_info(device_, &free_bytes, &total_bytes, &error_), RLK_OK);
  EXPECT_EQ(total_bytes, properties.memory_bytes);
  EXPECT_TRUE(free_bytes > 0 && free_bytes <= total_bytes) << free_bytes;
}

TEST_F(CpuPlugin, NamesTheSizesAtWhichAKernelChangesItsAlgorithm) {
  ASSERT_GE(implementation("logp").n_switches, 1u);
  EXPECT_STREQ(implementation("logp").switches[0]->symbol, "V");
  EXPECT_EQ(implementation("add").n_switches, 0u);
}

TEST_F(CpuPlugin, OpensOneDeviceOnly) {
  rlk_plugin_device* second = nullptr;
  EXPECT_EQ(plugin_->device_open(instance_, 1, &second, &error_), RLK_INVALID_ARGUMENT);
  EXPECT_NE(std::string(error_.text).find("device 1"), std::string::npos) << error_.text;
}

TEST_F(CpuPlugin, AllocatesAlignedMemoryAndRefusesWhatDoesNotFit) {
  for (uint64_t bytes : {uint64_t{1}, uint64_t{257}, uint64_t{5} << 20}) {
    void* memory = nullptr;
    ASSERT_EQ(plugin_->device->allocate(device_, RLK_MEMORY_DEVICE, bytes, &memory, &error_), RLK_OK);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(memory) % 256, 0u);
    EXPECT_EQ(plugin_->stream->fill(stream_, memory, 7, bytes, &error_), RLK_OK);
    EXPECT_EQ(static_cast<unsigned char*>(memory)[bytes - 1], 7);
    EXPECT_EQ(plugin_->device->deallocate(device_, RLK_MEMORY_DEVICE, memory, &error_), RLK_OK);
  }
  void* memory = nullptr;
  for (uint64_t bytes : {uint64_t{1} << 62, UINT64_MAX}) {
    EXPECT_EQ(plugin_->device->allocate(device_, RLK_MEMORY_DEVICE, bytes, &memory, &error_), RLK_OUT_OF_MEMORY);
  }
}

TEST_F(CpuPlugin, WrapsNoStreamButTheDefaultOne) {
  rlk_plugin_stream* wrapped = nullptr;
  int native = 0;
  EXPECT_EQ(plugin_->stream->wrap(device_, &native, &wrapped, &error_), RLK_UNSUPPORTED);
  ASSERT_EQ(plugin_->stream->wrap(device_, nullptr, &wrapped, &error_), RLK_OK);
  EXPECT_EQ(plugin_->stream->destroy(wrapped, &error_), RLK_OK);
}

TEST_F(CpuPlugin, EventsAreReachedWhenRecordedAndMeasureTime) {
  rlk_plugin_event *start = nullptr, *end = nullptr;
  ASSERT_EQ(plugin_->event->create(device_, RLK_EVENT_TIMING, &start, &error_), RLK_OK);
  ASSERT_EQ(plugin_->event->create(device_, RLK_EVENT_TIMING, &end, &error_), RLK_OK);
  EXPECT_EQ(plugin_->event->query(start, &error_), RLK_OK);  // nothing recorded
  EXPECT_EQ(plugin_->event->record(start, stream_, &error_), RLK_OK);
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
  EXPECT_EQ(plugin_->event->record(end, stream_, &error_), RLK_OK);
  EXPECT_EQ(plugin_->stream->wait_event(stream_, end, &error_), RLK_OK);
  double elapsed_ms = -1;
  ASSERT_EQ(plugin_->event->elapsed_ms(start, end, &elapsed_ms, &error_), RLK_OK);
  EXPECT_GE(elapsed_ms, 2.0);
  plugin_->event->destroy(start, &error_);
  plugin_->event->destroy(end, &error_);
}

TEST_F(CpuPlugin, RunsACallFromQueryToOutput) {
  std::vector<float> a = {1, 2, 3, 4, 5, 6}, b = {10, 20, 30}, out(6, -1);
  Bound a_tensor(a, kF32, {2, 3}), b_tensor(b, kF32, {3}), out_tensor(out, kF32, {2, 3});
  rlk_add_params params = RLK_ADD_PARAMS_INIT;
  params.alpha = 0.5;
  rlk_support support{};
  ASSERT_EQ(run("add", &params, {&a_tensor.tensor, &b_tensor.tensor}, {&out_tensor.tensor}, {},
                RLK_NUMERICS_BATCH_INVARIANT, &support),
            RLK_OK)
      << error_.text;
  EXPECT_EQ(out, (std::vector<float>{6, 12, 18, 9, 15, 21}));
  EXPECT_GE(support.level, RLK_SUPPORT_OK);
  EXPECT_EQ(info_.workspace_bound, 0u) << "prepare is asked for nothing";
}

// At 30 GB/s or 100 operations per nanosecond: implementations are chosen by it.
TEST_F(CpuPlugin, EstimatesTheTimeOfACallFromItsSize) {
  std::vector<float> data(1);
  Bound x(data, kF32, {1, 300'000}), one(data, kF32, {1});
  const rlk_add_params add = RLK_ADD_PARAMS_INIT;
  const rlk_whiten_params whiten = RLK_WHITEN_PARAMS_INIT;
  const rlk_policy_loss_params loss = RLK_POLICY_LOSS_PARAMS_INIT;
  const Described sum{{&x.tensor, &x.tensor}, {&x.tensor}, {}};
  EXPECT_NEAR(query("add", &add, sum, 0).cost_us, 121, 1);                    // by its bytes
  EXPECT_NEAR(query("whiten", &whiten, whitening_of(x), 0).cost_us, 301, 1);  // by its operations
  EXPECT_NEAR(query("policy_loss", &loss, loss_of(x, one), 0).cost_us, 601, 1);
}

TEST_F(CpuPlugin, DeclinesTheSameBitsOnEveryBackend) {
  std::vector<float> a = {1}, out = {0};
  Bound a_tensor(a, kF32, {1}), out_tensor(out, kF32, {1});
  const rlk_add_params params = RLK_ADD_PARAMS_INIT;
  rlk_support support{};
  EXPECT_EQ(run("add", &params, {&a_tensor.tensor, &a_tensor.tensor}, {&out_tensor.tensor}, {}, RLK_NUMERICS_PORTABLE,
                &support),
            RLK_UNSUPPORTED);
  EXPECT_STREQ(support.reason_code, "NUMERICS");
  EXPECT_STREQ(support.reason, "demanded: the same bits on every backend; offered: batch_invariant");
}

TEST_F(CpuPlugin, DeclinesRowsAloneWhereTheOperatorOrASettingCombinesThem) {
  std::vector<float> data(6);
  Bound x(data, kF32, {2, 3}), one(data, kF32, {1});
  const auto expect_declined = [](const rlk_support& support) {
    EXPECT_EQ(support.level, RLK_SUPPORT_NO);
    EXPECT_STREQ(support.reason, "demanded: more than deterministic; the call combines rows");
  };
  const rlk_whiten_params whiten = RLK_WHITEN_PARAMS_INIT;
  expect_declined(query("whiten", &whiten, whitening_of(x), RLK_NUMERICS_BATCH_INVARIANT));
  rlk_policy_loss_params loss = RLK_POLICY_LOSS_PARAMS_INIT;
  const Described call = loss_of(x, one);
  EXPECT_NE(query("policy_loss", &loss, call, RLK_NUMERICS_BATCH_INVARIANT).level, RLK_SUPPORT_NO);
  loss.kind = RLK_POLICY_LOSS_KIND_CLIP_COV;
  expect_declined(query("policy_loss", &loss, call, RLK_NUMERICS_BATCH_INVARIANT));
}

// Integers that are specified to the bit are offered as portable, a log-probability beside them is not.
TEST_F(CpuPlugin, OffersTheSameBitsOnEveryBackendWhereTheDeclarationSpecifiesThem) {
  std::vector<float> logits = {0, 5, 1}, logp = {7};
  std::vector<int64_t> row_ids = {3}, ids = {-7};
  Bound logits_tensor(logits, kF32, {1, 3}), row_ids_tensor(row_ids, kI64, {1}), ids_tensor(ids, kI64, {1}),
      logp_tensor(logp, kF32, {1});
  rlk_sample_params params = RLK_SAMPLE_PARAMS_INIT;
  params.temperature = 0;
  std::vector<const rlk_tensor*> inputs(RLK_SAMPLE_N_INPUTS, nullptr), outputs(RLK_SAMPLE_N_OUTPUTS, nullptr);
  inputs[RLK_SAMPLE_IN_LOGITS] = &logits_tensor.tensor;
  inputs[RLK_SAMPLE_IN_ROW_IDS] = &row_ids_tensor.tensor;
  outputs[RLK_SAMPLE_OUT_IDS] = &ids_tensor.tensor;
  rlk_support support{};
  ASSERT_EQ(run("sample", &params, inputs, outputs, {1, 3, -1}, RLK_NUMERICS_PORTABLE, &support), RLK_OK)
      << error_.text;
  EXPECT_NE(support.numerics & RLK_NUMERICS_PORTABLE, 0u);
  EXPECT_EQ(ids[0], 1);

  outputs[RLK_SAMPLE_OUT_LOGP] = &logp_tensor.tensor;
  EXPECT_EQ(run("sample", &params, inputs, outputs, {1, 3, -1}, RLK_NUMERICS_PORTABLE, &support), RLK_UNSUPPORTED);
  EXPECT_STREQ(support.reason_code, "NUMERICS");
  EXPECT_STREQ(support.reason, "demanded: portable; offered without floating outputs only");
  ASSERT_EQ(run("sample", &params, inputs, outputs, {1, 3, -1}, 0, &support), RLK_OK) << error_.text;
  EXPECT_EQ(support.numerics & RLK_NUMERICS_PORTABLE, 0u);
  EXPECT_NEAR(logp[0], -std::log(1 + std::exp(-5.0) + std::exp(-4.0)), 1e-6);
}

TEST_F(CpuPlugin, KeepsTheFirstDataErrorInTheRecordOfTheHost) {
  std::vector<float> logits(32, 0.0f), logp(4);
  std::vector<int64_t> ids = {1, 9, 2, -3};
  Bound logits_tensor(logits, kF32, {4, 8}), ids_tensor(ids, kI64, {4}), logp_tensor(logp, kF32, {4});
  const rlk_logp_params params = RLK_LOGP_PARAMS_INIT;
  const auto call = [&] {
    rlk_support support{};
    return run("logp", &params, {&logits_tensor.tensor, &ids_tensor.tensor, nullptr, nullptr, nullptr},
               {&logp_tensor.tensor, nullptr, nullptr}, {4, 4, 8}, 0, &support);
  };
  ASSERT_EQ(call(), RLK_OK) << error_.text;
  EXPECT_FLOAT_EQ(logp[0], -std::log(8.0f));
  EXPECT_TRUE(std::isnan(logp[1]));
  ids[0] = -1;  // a later error on a lower row does not replace the first
  ASSERT_EQ(call(), RLK_OK);

  EXPECT_EQ(record_.state, 1);
  EXPECT_EQ(record_.kind, RLK_DATA_ID_OUT_OF_RANGE);
  EXPECT_EQ(record_.tag, 77u);
  EXPECT_EQ(record_.row, 1);
  EXPECT_EQ(record_.value, 9);
  EXPECT_EQ(plugin_->stream->query(stream_, nullptr, &error_), RLK_OK);  // it is the host that looks

  record_ = rlk_data_error_record();  // the host has told it
  ASSERT_EQ(call(), RLK_OK);
  EXPECT_EQ(record_.row, 0);
  EXPECT_EQ(record_.value, -1);
}

}  // namespace
