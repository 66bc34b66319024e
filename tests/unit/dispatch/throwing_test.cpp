// A plugin without the SDK's guards, whose functions throw, each in turn: a status each time, and the process goes on.
#include <cstdio>
#include <type_traits>

#include "core/declaration/error.hpp"
#include "core/dispatch/device/copy.hpp"
#include "unit/dispatch/world.hpp"

namespace rlk::test {
namespace {

// Stands in a table for the function that was there. Where it throws depends on what it is for: what makes something
// throws before it is made, what ends something after it has ended, so that nothing is left behind.
template <auto Member, bool kEnds = false>
struct Thrower;
template <class Table, class Result, class... Arguments, Result (*Table::*Member)(Arguments...), bool kEnds>
struct Thrower<Member, kEnds> {
  static inline Result (*original)(Arguments...) = nullptr;
  static inline std::atomic<bool> throws{false};
  static inline std::atomic<int> calls{0};

  static Result stand_in(Arguments... arguments) {
    ++calls;
    if (throws && !kEnds) throw 7;  // of no type that rlk catches by name
    const Result result = original(arguments...);
    if (throws) throw 7;
    return result;
  }
  static void put_into(Table& table) {
    if (table.*Member == nullptr) return;
    original = table.*Member;
    table.*Member = &stand_in;
  }
};

struct Slot {
  const char* name;
  std::atomic<bool>* throws;
  std::atomic<int>* calls;
};
template <auto Member, bool kEnds = false>
Slot slot_of(const char* name) {
  return {name, &Thrower<Member, kEnds>::throws, &Thrower<Member, kEnds>::calls};
}

// clang-format off
#define FOR_EACH_SLOT(X, ENDS)                                                                                        \
  X(rlk_plugin, device_open)                                                                                          \
  ENDS(rlk_plugin, device_close)                                                                                      \
  X(rlk_plugin, get_extension)                                                                                        \
  X(rlk_device_api, allocate)                                                                                         \
  ENDS(rlk_device_api, deallocate)                                                                                    \
  X(rlk_device_api, memory_info)                                                                                      \
  X(rlk_device_api, pointer_kind) X(rlk_stream_api, create) X(rlk_stream_api, wrap) ENDS(rlk_stream_api, destroy)     \
      X(rlk_stream_api, native) X(rlk_stream_api, query) X(rlk_stream_api, synchronize) X(rlk_stream_api, wait_event) \
          X(rlk_stream_api, copy) X(rlk_stream_api, fill) X(rlk_stream_api, enqueue_host_function)                    \
              X(rlk_stream_api, copy_peer) X(rlk_stream_api, capture_id) X(rlk_stream_api, capture_retain)            \
                  X(rlk_event_api, create) ENDS(rlk_event_api, destroy) X(rlk_event_api, record)                      \
                      X(rlk_event_api, query) X(rlk_event_api, synchronize) X(rlk_implementation, query)              \
                          X(rlk_implementation, plan_create) X(rlk_implementation, plan_prepare)                      \
                              X(rlk_implementation, plan_enqueue) ENDS(rlk_implementation, plan_destroy)              \
                                  X(rlk_graph_api, begin_capture) X(rlk_graph_api, end_capture)                       \
                                      X(rlk_graph_api, launch) ENDS(rlk_graph_api, destroy)
// clang-format on

const std::vector<Slot>& slots() {
#define MAKES(table, member) slot_of<&table::member>(#table "." #member),
#define ENDS(table, member) slot_of<&table::member, true>(#table "." #member),
  static const std::vector<Slot> all = {FOR_EACH_SLOT(MAKES, ENDS)};
#undef MAKES
#undef ENDS
  return all;
}

template <class Given, class Table, auto Member, bool kEnds>
void put_if_of(Given& table) {
  if constexpr (std::is_same_v<Given, Table>) Thrower<Member, kEnds>::put_into(table);
}
template <class Table>
Table with_throwers(const Table& good) {
  Table table = good;
#define MAKES(type, member) put_if_of<Table, type, &type::member, false>(table);
#define ENDS(type, member) put_if_of<Table, type, &type::member, true>(table);
  FOR_EACH_SLOT(MAKES, ENDS)
#undef MAKES
#undef ENDS
  return table;
}

const rlk_graph_api& graph_table() {
  static const rlk_graph_api table = with_throwers(kFakeGraphs);
  return table;
}

// The scripted plugin's tables, with throwers in every place.
const rlk_plugin& raw_plugin(const rlk_plugin& good) {
  static rlk_plugin table;
  static rlk_device_api device;
  static rlk_stream_api stream;
  static rlk_event_api event;
  static std::vector<rlk_implementation> implementations;
  static std::vector<const rlk_implementation*> pointers;
  if (!pointers.empty()) return table;
  table = good;
  table.get_extension = [](rlk_plugin_instance*, const char* id) -> const void* {
    return std::string_view(id) == RLK_EXT_GRAPH ? &graph_table() : nullptr;
  };
  table = with_throwers(table);
  device = with_throwers(*good.device);
  stream = with_throwers(*good.stream);
  event = with_throwers(*good.event);
  implementations.reserve(good.n_implementations);
  for (uint32_t i = 0; i < good.n_implementations; ++i) {
    // One thrower stands for the function of one implementation.
    if (std::string_view(good.implementations[i]->op) != "logp" || !pointers.empty()) continue;
    pointers.push_back(&implementations.emplace_back(with_throwers(*good.implementations[i])));
  }
  table.device = &device;
  table.stream = &stream;
  table.event = &event;
  table.implementations = pointers.data();
  table.n_implementations = static_cast<uint32_t>(pointers.size());
  return table;
}

class EverySlot : public ::testing::TestWithParam<size_t> {
protected:
  EverySlot() : world(World::kCpu) {
    world.last = core::fresh_error();
    for (const Slot& slot : slots()) *slot.calls = 0;
    bound = World::unopened(2)[1];
    bound.api = &raw_plugin(*bound.api);
    for (uint32_t i = 0; i < bound.devices.size(); ++i) {
      bound.devices[i] =
          std::make_shared<core::PluginDevice>(bound.api, bound.instance, i, bound.devices[i]->properties());
    }
    world.plugins.push_back(bound);
    fake_script<sdk::ops::Logp>().workspace = 256;
    fake_script<sdk::ops::Logp>().persistent = 256;
    fake_script<sdk::ops::Logp>().prepared = [](int64_t) { return uint64_t{256}; };
  }
  ~EverySlot() override {
    for (const Slot& slot : slots()) *slot.throws = false;
  }

  // A failure says why.
  void expect_told(rlk_status status, const char* what) {
    if (status < 0) {
      EXPECT_NE(world.last.text[0], '\0') << what << " answered " << core::name_of_status(status);
    }
    if (status < 0 && told.empty()) told = std::string(what) + ": " + world.text();
    world.last = {sizeof(rlk_error), 0, 0, {}, {}};
  }

  // Everything that a program does with a device, and then the end of it all.
  void use(bool with_canaries) {
    world.publish();
    world.make_dispatcher({{"RLK_WATCH", with_canaries ? "first" : "off"}}, {});
    core::DeviceState *device = nullptr, *peer = nullptr;
    expect_told(world.dispatcher->device("fake", 0, &device, &world.last), "opening the device");
    expect_told(world.dispatcher->device("fake", 1, &peer, &world.last), "opening another");
    if (device != nullptr) use(*device, peer);
    world.dispatcher = nullptr;
    for (const auto& one : bound.devices) one->close();
  }

  void use(core::DeviceState& device, core::DeviceState* peer) {
    std::unique_ptr<Stream> stream, wrapped;
    expect_told(Stream::create(device, world.dispatcher->counters(), 0, &stream, &world.last), "creating a stream");
    if (stream == nullptr) return;
    if (void* native = stream->clock()->native) {
      expect_told(Stream::wrap(device, world.dispatcher->counters(), native, &wrapped, &world.last), "wrapping it");
    }
    char host[64] = {};
    void* memory = nullptr;
    expect_told(device.memory.allocate(*stream->clock(), 64, &memory, &world.last), "allocating");
    if (memory != nullptr) {
      expect_told(core::copy(*stream, memory, host, 64, RLK_COPY_HOST_TO_DEVICE, &world.last), "copying");
      if (peer != nullptr) {
        expect_told(core::copy_peer(*stream, {memory, peer}, {memory, &device}, 64, &world.last), "copying to a peer");
      }
      expect_told(device.memory.deallocate(memory, stream->fence(true), &world.last), "deallocating");
    }
    OpCall &call = world.make("logp"), &other = world.make("logp"), &staged = world.make("logp");
    core::CallOptions by_cpu;
    by_cpu.pin = "cpu";
    for (int i = 0; i < 2; ++i) {
      expect_told(world.call(*stream, call), "a call");
      expect_told(world.call(*stream, staged, by_cpu), "a staged call");
      expect_told(world.dispatcher->query(*stream, &world.last), "a query");
      if (wrapped != nullptr) expect_told(world.call(*wrapped, other), "a call on a wrapped stream");
      expect_told(world.synchronize(*stream), "synchronizing");
    }
    wait_for_a_fence(*stream);
    capture(*stream, call);
    if (wrapped != nullptr) capture_by_vendor(*wrapped, other);
    for (auto* one : {&wrapped, &stream}) {
      if (*one == nullptr) continue;
      expect_told((*one)->finish(&world.last), "finishing a stream");
      *one = nullptr;
    }
  }

  // The stream is held until the event is waited for, or cannot be.
  static void wait_for_a_fence(Stream& stream) {
    Worker& worker = *fake(stream.handle()).worker;
    const std::atomic<int>& waits = Thrower<&rlk_event_api::synchronize>::calls;
    worker.hold(true);
    worker.push([] {});
    core::Fence fence = stream.fence(/*with_event=*/true);
    static_cast<void>(fence.hold_back(stream.device().api, stream.handle()));  // the event has not passed for certain
    std::atomic<bool> over{false};
    std::thread release([&, before = waits.load()] {
      while (!over && waits == before) std::this_thread::yield();
      worker.hold(false);
    });
    fence.wait();
    over = true;
    release.join();
  }

  void capture(Stream& stream, OpCall& call) {
    const rlk_status begun = stream.begin_capture(&world.last);
    expect_told(begun, "beginning a capture");
    if (begun != RLK_OK) return;
    expect_told(world.call(stream, call), "a captured call");
    std::unique_ptr<Graph> graph;
    expect_told(Graph::end_capture(stream, &graph, &world.last), "ending a capture");
    if (graph == nullptr) {
      fake(stream.handle()).end_capture();  // the fake would refuse every question from now on
      return;
    }
    expect_told(graph->launch(stream, &world.last), "launching a graph");
    expect_told(world.synchronize(stream), "waiting for a graph");
  }

  void capture_by_vendor(Stream& stream, OpCall& call) {
    fake(stream.handle()).begin_capture();
    expect_told(world.call(stream, call), "a call that the vendor captures");
    const VendorGraph graph = fake(stream.handle()).end_capture();
  }

  using Graph = core::Graph;
  World world;
  PluginBinding bound;
  std::string told;  // the first failure
};

// Without a fault the story calls every function in the list, with canaries or without.
class NoSlot : public EverySlot {};
TEST_P(NoSlot, Throws) {
  static std::vector<int> calls(slots().size());
  use(GetParam() % 2 != 0);
  EXPECT_TRUE(told.empty() || GetParam() != 0) << told;  // a canary finds that scripts compute nothing
  for (size_t i = 0; i < slots().size(); ++i) calls[i] += slots()[i].calls->exchange(0);
  for (size_t i = 0; i < slots().size() && GetParam() != 0; ++i) EXPECT_GT(calls[i], 0) << slots()[i].name;
}
INSTANTIATE_TEST_SUITE_P(OfAnyTable, NoSlot, ::testing::Values(size_t{0}, size_t{1}));

TEST_P(EverySlot, ThatThrowsIsAStatus) {
  const Slot& slot = slots()[GetParam() / 2];
  *slot.throws = true;
  use(GetParam() % 2 != 0);
  *slot.throws = false;
  std::string off;
  for (const auto& entry : world.registry.current()->quarantined) off += entry->reason + "; ";
  std::printf("| %-36s | %-60.60s | %.60s |\n", slot.name, told.c_str(), off.c_str());
}
INSTANTIATE_TEST_SUITE_P(OfEveryTable, EverySlot, ::testing::Range(size_t{0}, 2 * slots().size()),
                         [](const auto& instance) {
                           std::string name = slots()[instance.param / 2].name;
                           name[name.find('.')] = '_';
                           return name + (instance.param % 2 != 0 ? "_with_canaries" : "");
                         });

}  // namespace
}  // namespace rlk::test
