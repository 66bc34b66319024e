// Streams, devices and the registry: time-outs, unknown names, wrapped streams, snapshots.
#include "unit/dispatch/world.hpp"

namespace rlk::test {
namespace {

using sdk::ops::Logp;

TEST(StreamTest, TimeoutLeavesTheWorkGoing) {
  World world;
  auto stream = world.stream();
  fake(stream->handle()).worker->hold(true);
  OpCall& call = world.make("logp");
  ASSERT_EQ(world.call(*stream, call), RLK_OK);
  EXPECT_EQ(world.dispatcher->query(*stream, nullptr), RLK_NOT_READY);
  world.last = {sizeof(rlk_error), 0, 0, {}, {}};
  EXPECT_EQ(world.dispatcher->synchronize(*stream, 1000, &world.last), RLK_TIMEOUT);
  EXPECT_FALSE(world.text().empty());
  EXPECT_TRUE(world.registry.current()->quarantined.empty());
  fake(stream->handle()).worker->hold(false);
  EXPECT_EQ(world.synchronize(*stream), RLK_OK);
  EXPECT_EQ(fake_script<Logp>().runs, 1);
}

TEST(StreamTest, AnErrorNobodyAskedForIsToldAtTheEnd) {
  World world;
  auto stream = world.stream();
  OpCall& call = world.make("logp");
  static_cast<int64_t*>(call.inputs[RLK_LOGP_IN_IDS].data)[0] = -3;
  ASSERT_EQ(world.call(*stream, call), RLK_OK);
  EXPECT_EQ(stream->finish(&world.last), RLK_DATA_ERROR);
}

TEST(StreamTest, WhoseNativeStreamIsInvalidCanBeDestroyed) {
  World world;
  auto stream = world.stream();
  fake(stream->handle()).broken = true;
  fake(stream->handle()).broken_status = RLK_INVALID_ARGUMENT;
  world.last = {sizeof(rlk_error), 0, 0, {}, {}};
  // INVALID_ARGUMENT would mean that the stream is in use and stays alive.
  EXPECT_EQ(stream->finish(&world.last), RLK_BACKEND_ERROR);
  EXPECT_EQ(world.last.status, RLK_BACKEND_ERROR);
  EXPECT_NE(world.text().find("the fake device failed"), std::string::npos) << world.text();
}

TEST(StreamTest, AWrappedStreamThatIsDestroyedEarlyLeavesItsMemoryAlone) {
  World world;
  fake_script<Logp>().workspace = 5000;
  auto native = std::make_unique<FakeStreamWithHostFunctions>();
  core::DeviceState* device = nullptr;
  ASSERT_EQ(world.dispatcher->device("fake", 0, &device, nullptr), RLK_OK);
  std::unique_ptr<Stream> wrapped;
  ASSERT_EQ(
      Stream::wrap(*device, world.dispatcher->counters(), static_cast<FakeStream*>(native.get()), &wrapped, nullptr),
      RLK_OK);
  OpCall& call = world.make("logp");
  native->worker->hold(true);
  for (int i = 0; i < 3; ++i) ASSERT_EQ(world.call(*wrapped, call), RLK_OK) << world.text();
  EXPECT_EQ(wrapped->finish(nullptr), RLK_OK) << "its work is the vendor's to wait for";
  wrapped.reset();
  // The workspace is not handed out while the work that was left behind may use it.
  auto stream = world.stream();
  for (int i = 0; i < 3; ++i) ASSERT_EQ(world.call(*stream, call), RLK_OK) << world.text();
  ASSERT_EQ(world.synchronize(*stream), RLK_OK);
  native->worker->hold(false);
  native->worker->wait(native->worker->pushed(), UINT64_MAX);
  EXPECT_EQ(fake_log().violations, 0);
  EXPECT_EQ(fake_script<Logp>().runs, 6);
}

TEST(StreamTest, ThatAPluginDidNotMakeAlthoughItAnsweredOkIsAnError) {
  static rlk_stream_api streams = *World::fake().api->stream;
  static rlk_plugin plugin = *World::fake().api;
  streams.create = [](rlk_plugin_device*, int32_t, rlk_plugin_stream** out, rlk_error*) -> rlk_status {
    *out = nullptr;
    return RLK_OK;
  };
  plugin.stream = &streams;
  World world(World::kCpu);
  world.plugins.push_back(World::fake());
  world.plugins.back().api = &plugin;
  world.publish();
  world.make_dispatcher({}, {});
  core::DeviceState* device = nullptr;
  world.last = {sizeof(rlk_error), 0, 0, {}, {}};
  ASSERT_EQ(world.dispatcher->device("fake", 0, &device, &world.last), RLK_OK) << world.text();
  std::unique_ptr<Stream> stream;
  EXPECT_EQ(Stream::create(*device, world.dispatcher->counters(), 0, &stream, &world.last), RLK_INTERNAL);
  EXPECT_NE(world.text().find("stream create answered OK without a handle"), std::string::npos) << world.text();
}

TEST(StreamTest, UnknownDevicesAreNamedWithWhatThereIs) {
  World world;
  world.publish({{"cuda", "cuda", "DRIVER_TOO_OLD", "driver 470 found, 525 needed"}});
  core::DeviceState* device = nullptr;
  rlk_error error = {sizeof(rlk_error), 0, 0, {}, {}};
  const auto text = [&](const char* backend, uint32_t ordinal) {
    EXPECT_EQ(world.dispatcher->device(backend, ordinal, &device, &error), RLK_NOT_FOUND);
    return std::string(error.text);
  };
  EXPECT_NE(text("cuda", 0).find("DRIVER_TOO_OLD"), std::string::npos);
  EXPECT_NE(text("fake", 1).find("below 1"), std::string::npos) << error.text;
  EXPECT_NE(text("tpu", 0).find("cpu:0 fake:0"), std::string::npos) << error.text;
}

TEST(StreamTest, BadOptions) {
  World world;
  auto stream = world.stream();
  OpCall& call = world.make("logp");
  core::CallOptions options;
  options.numerics = 0x80;
  EXPECT_EQ(world.call(*stream, call, options), RLK_INVALID_ARGUMENT);
  EXPECT_NE(world.text().find("RLK_NUMERICS"), std::string::npos);
  options = {};
  const std::string long_pin(100, 'x');
  options.pin = long_pin;
  EXPECT_EQ(world.call(*stream, call, options), RLK_INVALID_ARGUMENT);
  EXPECT_EQ(world.counters("logp").calls, 0u);
}

TEST(StreamTest, FewerArgumentsThanDeclaredAreAbsent) {
  World world;
  auto stream = world.stream("cpu");
  OpCall& call = world.make("logp");
  call.input_pointers.resize(2);
  call.output_pointers.resize(1);
  bool absent = false;
  cpu_script<Logp>().on_enqueue = [&](const sdk::Run& run) {
    absent = run.input(RLK_LOGP_IN_ROW_INDICES) == nullptr && run.output(RLK_LOGP_OUT_ENTROPY) == nullptr;
  };
  ASSERT_EQ(world.call(*stream, call), RLK_OK) << world.text();
  EXPECT_TRUE(absent);
}

// A program's object of a thread, which ends with what is its own: after a thread_local that was made later.
struct LastCall {
  World* world = nullptr;
  core::Stream* stream = nullptr;
  OpCall* call = nullptr;
  rlk_status* status = nullptr;
  ~LastCall() {
    if (world != nullptr) *status = world->call(*stream, *call);
  }
};

TEST(StreamTest, AThreadMayCallWhileItEnds) {
  World world;
  auto stream = world.stream();
  OpCall& call = world.make("logp");
  for (const bool called_before : {true, false}) {
    rlk_status before = RLK_OK, status = RLK_INTERNAL;
    std::thread([&] {
      static thread_local LastCall last;
      last.world = &world, last.stream = stream.get(), last.call = &call, last.status = &status;
      if (called_before) before = world.call(*stream, call);
    }).join();
    EXPECT_EQ(before, RLK_OK);
    EXPECT_EQ(status, RLK_OK) << world.text();
  }
  EXPECT_EQ(world.synchronize(*stream), RLK_OK);
}

TEST(RegistryTest, TheCpuIsAlwaysFirstAndGenerationsGrow) {
  Registry registry;
  EXPECT_NE(registry.current(), nullptr);
  EXPECT_TRUE(registry.current()->devices.empty());
  registry.publish({World::fake(), World::cpu()}, {});
  const auto first = registry.current();
  ASSERT_EQ(first->devices.size(), 2u);
  EXPECT_EQ(first->devices[0]->backend, "cpu");
  EXPECT_NE(first->find_device("fake", 0), nullptr);
  EXPECT_EQ(first->find_device("fake", 1), nullptr);
  registry.publish({World::cpu(), World::fake()}, {});
  EXPECT_GT(registry.current()->generation, first->generation);
  EXPECT_EQ(registry.current()->find_device("fake", 0), first->find_device("fake", 0)) << "a device keeps its entry";
  EXPECT_EQ(first->candidates.size(), 10u) << "an old generation stays readable";
}

std::vector<std::string> candidates_on(const core::Snapshot& now, const char* device) {
  std::vector<std::string> ids;
  for (const core::Candidate& candidate : now.candidates) {
    if (candidate.on->name() == device && (ids.empty() || ids.back() != candidate.plugin->id))
      ids.push_back(candidate.plugin->id);
  }
  return ids;
}

TEST(RegistryTest, ASecondOwnerOfABackendServesNobodyElsesStreams) {
  using Ids = std::vector<std::string>;
  for (const char* backend : {"cpu", "fake"}) {
    SCOPED_TRACE(backend);
    for (const bool own_card : {false, true}) {
      Registry registry;
      registry.publish({World::cpu(), World::fake(), World::guest(), World::rival(backend, own_card)}, {});
      const auto now = registry.current();
      EXPECT_EQ(candidates_on(*now, "cpu:0"), Ids({"cpu"}));
      EXPECT_EQ(candidates_on(*now, "fake:0"), (Ids{"fake", "guest"})) << "guest is attached to that very device";
    }
  }
}

TEST(RegistryTest, ASecondOwnersOwnCardHasAnAddressThatItKeeps) {
  Registry registry;
  registry.publish({World::cpu(), World::rival("fake", true)}, {});
  const core::DeviceEntry* rivals = registry.current()->find_device("fake", 0);
  ASSERT_NE(rivals, nullptr);
  registry.publish({World::cpu(), World::fake(), World::rival("fake", true)}, {});
  EXPECT_EQ(registry.current()->find_device("fake", 0), rivals) << "somebody may use it";
  ASSERT_NE(registry.current()->find_device("fake", 1), nullptr);
  EXPECT_EQ(candidates_on(*registry.current(), "fake:0"), std::vector<std::string>{"rival"});
  EXPECT_EQ(candidates_on(*registry.current(), "fake:1"), std::vector<std::string>{"fake"});
}

TEST(RegistryTest, QuarantineSurvivesPublishing) {
  Registry registry;
  registry.publish({World::cpu(), World::fake()}, {});
  const uint64_t generation = registry.current()->generation;
  const auto before = registry.current();
  const core::PluginBinding& fake = *before->plugins[1];
  registry.quarantine(fake, "add", "first", "f32", "BACKEND_ERROR", "text");
  registry.quarantine(fake, "add", "first", "f32", "BACKEND_ERROR", "text");
  EXPECT_EQ(registry.current()->generation, generation + 1) << "the same again is nothing new";
  registry.publish({World::cpu(), World::fake()}, {});
  int quarantined = 0;
  const auto now = registry.current();
  for (const core::Candidate& candidate : now->candidates) {
    quarantined += static_cast<int>(candidate.quarantined.size());
  }
  EXPECT_EQ(quarantined, 1);
}

// Another one each time: what its probe found has another name.
core::PluginBinding fake_of(int version) {
  core::PluginBinding fake = World::fake();
  fake.units.at(0).feature = "version " + std::to_string(version);
  return fake;
}

TEST(RegistryTest, AGenerationEndsWithItsLastReader) {
  Registry registry;
  for (const int version : {0, 1}) registry.publish({World::cpu(), fake_of(version)}, {});
  std::weak_ptr<const core::PluginBinding> old;
  std::thread([&] {
    const auto read = registry.current();
    old = read->plugins[1];
    registry.publish({World::cpu(), fake_of(2)}, {});
    EXPECT_EQ(read->plugins[1]->units[0].feature, "version 1");
    EXPECT_EQ(registry.current()->plugins[1]->units[0].feature, "version 2");
    EXPECT_FALSE(old.expired()) << "it is being read";
  }).join();
  EXPECT_TRUE(old.expired());
}

TEST(RegistryTest, AThousandChangesLeaveOneGeneration) {
  Registry registry;
  std::vector<std::weak_ptr<const core::PluginBinding>> all;
  for (int version = 0; version < 1000; ++version) {
    registry.publish({World::cpu(), fake_of(version)}, {});
    all.emplace_back(registry.current()->plugins[1]);
  }
  EXPECT_EQ(std::count_if(all.begin(), all.end(), [](const auto& one) { return !one.expired(); }), 2)
      << "the last one, and the first, who owns the device that has an address";
}

TEST(RegistryTest, ReadersNeverSeeAHalfBuiltSnapshot) {
  Registry registry;
  registry.publish({World::cpu(), World::fake()}, {});
  std::atomic<bool> stop{false};
  std::vector<std::thread> readers;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 3; ++t) {
    readers.emplace_back([&] {
      uint64_t last = 0;
      while (!stop) {
        const auto now = registry.current();
        wrong += now->generation < last || now->candidates.size() != 10 || now->devices.size() != 2;
        last = now->generation;
      }
    });
  }
  for (int i = 0; i < 50; ++i) registry.publish({World::cpu(), World::fake()}, {});
  stop = true;
  for (std::thread& reader : readers) reader.join();
  EXPECT_EQ(wrong, 0);
}

TEST(HostServices, AreAllThere) {
  const rlk_host* host = loader::host_services();
  for (const char* id : {RLK_SERVICE_LOG, RLK_SERVICE_ALLOCATE, RLK_SERVICE_PARALLEL, RLK_SERVICE_KERNEL_CACHE}) {
    EXPECT_NE(host->get_service(host->context, id), nullptr) << id;
  }
  EXPECT_EQ(host->get_service(host->context, "rlk.nothing/1"), nullptr);
  EXPECT_EQ(host->get_service(host->context, nullptr), nullptr);
}

TEST(HostServices, MemoryIsAligned) {
  const rlk_host* host = loader::host_services();
  const auto* service =
      static_cast<const rlk_allocate_service*>(host->get_service(host->context, RLK_SERVICE_ALLOCATE));
  void* block = service->allocate(host->context, 1000);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(block) % 64, 0u);
  std::memset(block, 1, 1000);
  service->deallocate(host->context, block);
  service->deallocate(host->context, nullptr);
  EXPECT_EQ(service->allocate(host->context, UINT64_MAX), nullptr);
}

TEST(HostServices, KernelCacheUsesWhatTheLoaderBrings) {
  const rlk_host* host = loader::host_services();
  const auto* service =
      static_cast<const rlk_kernel_cache_service*>(host->get_service(host->context, RLK_SERVICE_KERNEL_CACHE));
  uint64_t size = 0;
  loader::set_kernel_cache({});
  EXPECT_EQ(service->load(host->context, "p", "k", nullptr, 0, &size), RLK_NOT_FOUND);
  EXPECT_EQ(service->store(host->context, "p", "k", "x", 1), RLK_UNSUPPORTED);
  EXPECT_EQ(service->begin(host->context, "p", "k"), RLK_UNSUPPORTED);
  std::string kept;
  loader::set_kernel_cache(
      {[&](std::string_view, std::string_view, void*, uint64_t, uint64_t* out) -> rlk_status {
         *out = kept.size();
         return RLK_OK;
       },
       [&](std::string_view plugin, std::string_view key, const void* memory, uint64_t bytes) -> rlk_status {
         kept =
             std::string(plugin) + "/" + std::string(key) + "=" + std::string(static_cast<const char*>(memory), bytes);
         return RLK_OK;
       },
       [](std::string_view, std::string_view key) -> rlk_status { return key == "k" ? RLK_OK : RLK_NOT_READY; },
       [&](std::string_view, std::string_view key) { kept = "abandoned " + std::string(key); }});
  EXPECT_EQ(service->begin(host->context, "p", "k"), RLK_OK);
  EXPECT_EQ(service->begin(host->context, "p", "other"), RLK_NOT_READY);
  service->abandon(host->context, "p", "k");
  EXPECT_EQ(kept, "abandoned k");
  EXPECT_EQ(service->store(host->context, "p", "k", "value", 5), RLK_OK);
  EXPECT_EQ(kept, "p/k=value");
  EXPECT_EQ(service->load(host->context, "p", "k", nullptr, 0, &size), RLK_OK);
  EXPECT_EQ(size, 9u);
  EXPECT_EQ(service->store(host->context, nullptr, "k", "value", 5), RLK_INVALID_ARGUMENT);
  loader::set_kernel_cache({});
}

}  // namespace
}  // namespace rlk::test
