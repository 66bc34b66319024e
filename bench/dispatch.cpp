// What does a call cost beyond its kernel? Dispatcher::call of operators whose implementation does nothing, on a stream
// that runs inline, beside the same enqueue called directly and beside validation alone. Time per call on the host.
#include <benchmark/benchmark.h>
#include <rlk/sdk.hpp>
#include <rlk/sdk/ops/add.hpp>
#include <rlk/sdk/ops/attention.hpp>
#include <rlk/sdk/ops/logp.hpp>

#include <cstdlib>
#include <tuple>

#include "core/dispatch/call/dispatcher.hpp"
#include "loader/host/services.hpp"
#include "tests/framework/op_call.hpp"

namespace {

using rlk::core::Dispatcher;
using rlk::core::Stream;
using rlk::test::OpCall;
namespace sdk = rlk::sdk;

class NullStream : public sdk::Stream {
public:
  void* native() override { return nullptr; }
  rlk_status query(rlk_data_error&) override { return RLK_OK; }
  rlk_status synchronize(uint64_t, rlk_data_error&) override { return RLK_OK; }
  void wait(sdk::Event&) override {}
  void copy(void*, const void*, uint64_t, int32_t) override {}
  void fill(void*, uint8_t, uint64_t) override {}
};
class NullEvent : public sdk::Event {
public:
  void record(sdk::Stream&) override {}
  rlk_status query() override { return RLK_OK; }
  rlk_status synchronize(uint64_t) override { return RLK_OK; }
};
class NullDevice : public sdk::Device {
public:
  void* allocate(int32_t, uint64_t bytes) override { return std::aligned_alloc(256, (bytes + 255) / 256 * 256); }
  void deallocate(int32_t, void* memory) override { std::free(memory); }
  void memory_info(uint64_t&, uint64_t&) override {}
  std::unique_ptr<sdk::Stream> create_stream(int32_t) override { return std::make_unique<NullStream>(); }
  std::unique_ptr<sdk::Stream> wrap_stream(void*) override { return std::make_unique<NullStream>(); }
  std::unique_ptr<sdk::Event> create_event(bool) override { return std::make_unique<NullEvent>(); }
};

class NullPlan : public sdk::Plan {
public:
  NullPlan() { dynamic_symbols = ~uint64_t{0}; }
  void enqueue(sdk::Stream&, const sdk::Run& run) override { benchmark::DoNotOptimize(run.symbol(0)); }
};

template <class OpType>
struct Null {
  using Op = OpType;
  static constexpr const char* kName = "null";
  static sdk::Support query(NullDevice&, const sdk::Call<Op>&) { return sdk::Support::yes("", RLK_NUMERICS_TOLERANCE); }
  static std::unique_ptr<sdk::Plan> plan(NullDevice&, const sdk::Call<Op>&) { return std::make_unique<NullPlan>(); }
};

class NullPlugin : public sdk::Plugin {
public:
  using Device = NullDevice;
  using Stream = NullStream;
  using Event = NullEvent;
  using Implementations = std::tuple<Null<sdk::ops::Add>, Null<sdk::ops::Logp>, Null<sdk::ops::Attention>>;
  explicit NullPlugin(const sdk::Host&) {}
  sdk::Verdict probe(sdk::Evidence&) override { return sdk::Verdict::mine(""); }
  uint32_t device_count() override { return 1; }
  void describe_device(uint32_t, rlk_device_properties& out) override {
    out.flags = RLK_DEVICE_UNIFIED_MEMORY | RLK_DEVICE_INLINE_STREAMS | RLK_DEVICE_MAPPED_PINNED;
  }
  std::unique_ptr<sdk::Device> open_device(uint32_t) override { return std::make_unique<NullDevice>(); }
};

// Lives as long as the program: several threads use it.
struct World {
  World() {
    rlk::core::PluginBinding plugin;
    plugin.id = plugin.backend = "cpu";
    plugin.built_in = true;
    plugin.api =
        sdk::detail::PluginThunks<NullPlugin>::entry(rlk::loader::host_services(), nullptr, "cpu", "cpu", "1", "");
    plugin.api->create(rlk::loader::host_services(), &plugin.instance, nullptr);
    rlk_device_properties properties{};
    properties.struct_size = sizeof(properties);
    plugin.api->device_describe(plugin.instance, 0, &properties, nullptr);
    plugin.devices.push_back(std::make_shared<rlk::core::PluginDevice>(plugin.api, plugin.instance, 0, properties));
    registry.publish({plugin}, {});
    dispatcher = std::make_unique<Dispatcher>(registry);
  }
  std::unique_ptr<Stream> stream() {
    rlk::core::DeviceState* device = nullptr;
    std::unique_ptr<Stream> made;
    if (dispatcher->device("cpu", 0, &device, nullptr) == RLK_OK) {
      Stream::create(*device, dispatcher->counters(), 0, &made, nullptr);
    }
    return made;
  }
  rlk::core::Registry registry;
  std::unique_ptr<Dispatcher> dispatcher;
};
World& world() {
  static auto* instance = new World;
  return *instance;
}

enum Shape { kAdd, kLogp, kLogpFull, kAttention, kShapes };
constexpr const char* kNames[kShapes] = {"add: 3 tensors", "logp: 3 tensors", "logp: 8 tensors",
                                         "attention: 7 tensors"};

OpCall make_call(int64_t shape) {
  const char* names[] = {"add", "logp", "logp", "attention"};
  OpCall call(*rlk::core::find_declaration(names[shape]), shape == kAttention ? 1 : 0);
  if (shape == kLogpFull || shape == kAttention) {
    // All that this form has: what belongs to another form must be absent.
    const rlk::core::OpDecl& decl = *call.decl;
    for (size_t i = 0; i < call.inputs.size(); ++i) call.inputs[i].given = call.of_form(decl.inputs[i]);
    for (size_t i = 0; i < call.outputs.size(); ++i) call.outputs[i].given = call.of_form(decl.outputs[i]);
    call.rebuild();
  }
  return call;
}

// A call that is refused costs something else than one that is served: such a row must fail.
struct Checked {
  explicit Checked(benchmark::State& now) : state(now) { error.struct_size = sizeof(error); }
  bool operator()(rlk_status status) {
    if (status == RLK_OK) return true;
    state.SkipWithError(error.text);
    return false;
  }
  benchmark::State& state;
  rlk_error error = {};
};

void direct(benchmark::State& state) {
  const rlk_plugin& api = *world().registry.current()->plugins[0]->api;
  rlk_plugin_device* device = nullptr;
  world().registry.current()->devices[0]->device->open(&device, nullptr);
  OpCall call = make_call(kAdd);
  rlk::core::BoundCall bound;
  rlk_error error;
  call.validate(error, bound);
  const rlk::core::CallDescription description(bound, call.input_pointers, call.output_pointers, 0);
  const rlk_call_desc desc = description.desc();
  const rlk_implementation& implementation = *api.implementations[0];
  rlk_plugin_plan* plan = nullptr;
  rlk_plan_info info = {};
  info.struct_size = sizeof(info);
  implementation.plan_create(&implementation, device, &desc, &plan, &info, nullptr);
  rlk_plugin_stream* stream = nullptr;
  api.stream->create(device, 0, &stream, nullptr);
  rlk_run run = {};
  run.struct_size = sizeof(run);
  Checked ok(state);
  for (auto _ : state) {
    if (!ok(implementation.plan_enqueue(plan, stream, &run, &ok.error))) break;
  }
}
BENCHMARK(direct);

void validation(benchmark::State& state) {
  OpCall call = make_call(state.range(0));
  state.SetLabel(kNames[state.range(0)]);
  rlk::core::BoundCall bound;
  Checked ok(state);
  for (auto _ : state) {
    if (!ok(rlk::core::validate(*call.decl, call.params.data(), call.input_pointers, call.output_pointers, true, {},
                                bound, &ok.error))) {
      break;
    }
  }
}
BENCHMARK(validation)->DenseRange(0, kShapes - 1);

void dispatched(benchmark::State& state) {
  OpCall call = make_call(state.range(0));
  state.SetLabel(kNames[state.range(0)]);
  const auto stream = world().stream();
  Checked ok(state);
  for (auto _ : state) {
    if (!ok(world().dispatcher->call(*stream, *call.decl, call.params.data(), call.input_pointers, call.output_pointers,
                                     {}, &ok.error))) {
      break;
    }
  }
}
BENCHMARK(dispatched)->DenseRange(0, kShapes - 1);
BENCHMARK(dispatched)->Arg(kLogp)->Threads(2)->UseRealTime();

// A token count that changes with every call: the plan is the same.
void changing_tokens(benchmark::State& state) {
  std::vector<OpCall> calls;
  for (int64_t rows = 256; rows < 320; ++rows) {
    calls.push_back(make_call(kLogp));
    calls.back().symbols = {rows, rows, 37};
    calls.back().rebuild();
  }
  const auto stream = world().stream();
  size_t i = 0;
  Checked ok(state);
  for (auto _ : state) {
    OpCall& call = calls[i++ % calls.size()];
    if (!ok(world().dispatcher->call(*stream, *call.decl, call.params.data(), call.input_pointers, call.output_pointers,
                                     {}, &ok.error))) {
      break;
    }
  }
}
BENCHMARK(changing_tokens);

}  // namespace

BENCHMARK_MAIN();
