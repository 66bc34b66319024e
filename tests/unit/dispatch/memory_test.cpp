// The caching allocator: reuse in stream order, across streams only when the point is passed, and memory that runs out.
#include "core/dispatch/device/copy.hpp"
#include "unit/dispatch/world.hpp"

namespace rlk::test {
namespace {

class MemoryTest : public ::testing::Test {
protected:
  MemoryTest()
      : one(world.stream()), other(world.stream()), memory(one->device().memory), pinned(one->device().pinned) {
    fake_log().allocations = 0;
  }

  void* allocate(core::CachingAllocator& from, Stream& stream, uint64_t bytes) {
    void* out = nullptr;
    world.last = {sizeof(rlk_error), 0, 0, {}, {}};
    EXPECT_EQ(from.allocate(*stream.clock(), bytes, &out, &world.last), RLK_OK) << world.text();
    return out;
  }
  void free(core::CachingAllocator& from, Stream& stream, void* block) {
    EXPECT_EQ(from.deallocate(block, stream.fence(true), &world.last), RLK_OK) << world.text();
  }
  void hold(Stream& stream, bool held) { fake(stream.handle()).worker->hold(held); }
  void busy(Stream& stream) {
    hold(stream, true);
    fake(stream.handle()).push([] {});
  }

  World world;
  std::unique_ptr<Stream> one, other;
  core::CachingAllocator& memory;
  core::CachingAllocator& pinned;
};

TEST_F(MemoryTest, IsReusedInTheOrderOfTheStreamAtOnce) {
  busy(*one);
  void* block = allocate(memory, *one, 100000);
  free(memory, *one, block);
  EXPECT_EQ(allocate(memory, *one, 100000), block);
  EXPECT_EQ(memory.statistics().cache_hits, 1u);
  EXPECT_EQ(fake_log().allocations, 1u);
  hold(*one, false);
}

TEST_F(MemoryTest, IsReusedByAnotherStreamOnlyWhenThePointIsPassed) {
  busy(*one);
  void* block = allocate(memory, *one, 100000);
  free(memory, *one, block);
  void* second = allocate(memory, *other, 100000);
  EXPECT_NE(second, block);
  hold(*one, false);
  ASSERT_EQ(world.synchronize(*one), RLK_OK);
  EXPECT_EQ(allocate(memory, *other, 100000), block);
}

// A capture that another library makes forbids to ask for events: that is no sign that the work is over.
TEST(MemoryOfAnEvent, ThatCannotBeAskedIsNotGivenToAnotherStream) {
  static rlk_event_api events = *World::fake().api->event;
  static rlk_plugin plugin = *World::fake().api;
  events.query = [](rlk_plugin_event*, rlk_error*) -> rlk_status { return RLK_CAPTURE_FORBIDS; };
  plugin.event = &events;
  World world(World::kCpu);
  world.plugins.push_back(World::fake());
  world.plugins.back().api = &plugin;
  world.publish();
  world.make_dispatcher({}, {});
  auto one = world.stream(), other = world.stream();
  core::CachingAllocator& memory = one->device().memory;
  void *block = nullptr, *second = nullptr;
  fake(one->handle()).worker->hold(true);
  fake(one->handle()).push([] {});
  ASSERT_EQ(memory.allocate(*one->clock(), 100000, &block, &world.last), RLK_OK) << world.text();
  ASSERT_EQ(memory.deallocate(block, one->fence(true), &world.last), RLK_OK) << world.text();
  ASSERT_EQ(memory.allocate(*other->clock(), 100000, &second, &world.last), RLK_OK) << world.text();
  EXPECT_NE(second, block);
  fake(one->handle()).worker->hold(false);
  EXPECT_EQ(world.synchronize(*one), RLK_OK);
  ASSERT_EQ(memory.deallocate(second, other->fence(true), &world.last), RLK_OK) << world.text();
}

TEST_F(MemoryTest, PinnedMemoryWaitsForItsOwnStreamToo) {
  busy(*one);
  void* block = allocate(pinned, *one, 4096);
  free(pinned, *one, block);
  EXPECT_NE(allocate(pinned, *one, 4096), block) << "the host would write into a copy that is still to come";
  hold(*one, false);
  ASSERT_EQ(world.synchronize(*one), RLK_OK);
  EXPECT_EQ(allocate(pinned, *one, 4096), block);
}

TEST_F(MemoryTest, AnotherUserIsWaitedFor) {
  void* block = allocate(memory, *one, 100000);
  busy(*other);
  ASSERT_EQ(memory.record_use(block, other->fence(true), nullptr), RLK_OK);
  free(memory, *one, block);
  void* second = allocate(memory, *one, 100000);
  EXPECT_NE(second, block);
  hold(*other, false);
  ASSERT_EQ(world.synchronize(*other), RLK_OK);
  EXPECT_EQ(allocate(memory, *one, 100000), block);
}

TEST_F(MemoryTest, SimilarSizesShareBlocksAndDifferentOnesDoNot) {
  void* block = allocate(memory, *one, 1 << 20);
  free(memory, *one, block);
  EXPECT_EQ(allocate(memory, *one, (1 << 20) - 1000), block);
  free(memory, *one, block);
  EXPECT_NE(allocate(memory, *one, 1 << 10), block) << "a megabyte for a kilobyte would be waste";
}

TEST_F(MemoryTest, RunsOutReleasesTheCacheAndTriesAgain) {
  fake_log().limit_bytes = fake_log().live_bytes + (3 << 20);
  busy(*other);
  void* a = allocate(memory, *one, 1 << 20);
  void* b = allocate(memory, *other, 1 << 20);
  free(memory, *one, a);
  free(memory, *other, b);
  // Too big for what is left, and one of the cached blocks is still in flight: it is waited for.
  std::thread releaser([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    hold(*other, false);
  });
  EXPECT_NE(allocate(memory, *one, 3 << 20), nullptr);
  releaser.join();
  EXPECT_EQ(memory.statistics().out_of_memory_retries, 1u);
  EXPECT_EQ(memory.statistics().cached_bytes, 0u);
  EXPECT_EQ(fake_log().deallocations, 2u);
}

TEST_F(MemoryTest, RunsOutForGoodSaysWhoHoldsWhat) {
  fake_log().limit_bytes = 2 << 20;
  allocate(memory, *one, 1 << 20);
  void* out = nullptr;
  world.last = {sizeof(rlk_error), 0, 0, {}, {}};
  EXPECT_EQ(memory.allocate(*one->clock(), 5 << 20, &out, &world.last), RLK_OUT_OF_MEMORY);
  for (const char* part : {"fake:0", "5242880", "1048576 bytes in use", "device has", "batches"}) {
    EXPECT_NE(world.text().find(part), std::string::npos) << part << " | " << world.text();
  }
}

TEST_F(MemoryTest, ForeignPointersAreRefused) {
  int local = 0;
  EXPECT_EQ(memory.deallocate(&local, one->fence(false), &world.last), RLK_INVALID_ARGUMENT);
  void* block = allocate(memory, *one, 10);
  free(memory, *one, block);
  EXPECT_EQ(memory.deallocate(block, one->fence(false), &world.last), RLK_INVALID_ARGUMENT) << "freed twice";
}

TEST_F(MemoryTest, Statistics) {
  const uint64_t before = fake_log().live_bytes;
  void* block = allocate(memory, *one, 1000);
  core::MemoryStatistics s = memory.statistics();
  EXPECT_EQ(s.in_use_bytes, 1024u);
  EXPECT_EQ(s.peak_bytes, 1024u);
  free(memory, *one, block);
  s = memory.statistics();
  EXPECT_EQ(s.in_use_bytes, 0u);
  EXPECT_EQ(s.cached_bytes, 1024u);
  memory.release_cached(true);
  EXPECT_EQ(memory.statistics().cached_bytes, 0u);
  EXPECT_EQ(fake_log().live_bytes, before);
}

TEST_F(MemoryTest, NothingIsLeftWhenTheDispatcherEnds) {
  fake_script<sdk::ops::Logp>().workspace = 100000;
  OpCall& call = world.make("logp");
  ASSERT_EQ(world.call(*one, call), RLK_OK);
  void* block = allocate(memory, *other, 4096);
  free(memory, *other, block);
  one.reset();
  other.reset();
  world.dispatcher.reset();
  EXPECT_EQ(fake_log().live_bytes, 0u);
  EXPECT_EQ(fake_log().violations, 0);
}

// An allocator like PyTorch's: it hands freed blocks of a stream out again at once, in the order of that stream.
struct Embedder {
  struct Block {
    void* memory;
    uint64_t bytes;
    void* stream;
  };
  std::mutex mutex;
  std::vector<Block> live, cached;
  int allocations = 0, reused = 0;
  bool full = false;

  core::DeviceAllocator table() {
    return {this,
            [](void* self, const char* backend, uint32_t ordinal, void* stream, uint64_t bytes, void** out,
               rlk_error*) -> rlk_status {
              EXPECT_EQ(std::string(backend) + std::to_string(ordinal), "fake0");
              return static_cast<Embedder*>(self)->allocate(stream, bytes, out);
            },
            [](void* self, const char*, uint32_t, void* stream, void* memory, uint64_t bytes,
               rlk_error*) -> rlk_status { return static_cast<Embedder*>(self)->deallocate(stream, memory, bytes); }};
  }
  rlk_status allocate(void* stream, uint64_t bytes, void** out) {
    const std::lock_guard lock(mutex);
    if (full) return RLK_OUT_OF_MEMORY;
    ++allocations;
    for (size_t i = 0; i < cached.size(); ++i) {
      if (cached[i].stream != stream || cached[i].bytes < bytes) continue;
      ++reused;
      live.push_back({cached[i].memory, bytes, stream});
      cached.erase(cached.begin() + static_cast<std::ptrdiff_t>(i));
      *out = live.back().memory;
      return RLK_OK;
    }
    live.push_back({std::aligned_alloc(256, (bytes + 255) / 256 * 256), bytes, stream});
    *out = live.back().memory;
    return RLK_OK;
  }
  rlk_status deallocate(void* stream, void* memory, uint64_t bytes) {
    const std::lock_guard lock(mutex);
    for (size_t i = 0; i < live.size(); ++i) {
      if (live[i].memory != memory) continue;
      EXPECT_EQ(live[i].bytes, bytes);
      EXPECT_EQ(live[i].stream, stream);
      cached.push_back(live[i]);
      live.erase(live.begin() + static_cast<std::ptrdiff_t>(i));
      return RLK_OK;
    }
    ADD_FAILURE() << "a block that is not alive";
    return RLK_INVALID_ARGUMENT;
  }
  ~Embedder() {
    EXPECT_TRUE(live.empty()) << "everything goes back";
    for (const Block& block : cached) std::free(block.memory);
  }
};

class EmbedderTest : public ::testing::Test {
protected:
  EmbedderTest() {
    world.dispatcher = nullptr;
    world.dispatcher = std::make_unique<Dispatcher>(world.registry, Policy(), 1024, embedder.table());
    stream = world.stream();
    fake_log().allocations = 0;
  }
  ~EmbedderTest() override {
    stream = nullptr;
    world.dispatcher = nullptr;
  }
  Embedder embedder;
  World world;
  std::unique_ptr<Stream> stream;
};

TEST_F(EmbedderTest, ServesWorkspacesAndRlkKeepsNoCacheBesideIt) {
  uint64_t bytes = 1000;
  fake_script<sdk::ops::Logp>().prepared = [&](int64_t) { return bytes; };
  OpCall& call = world.make("logp");
  for (int i = 0; i < 5; ++i) {
    ASSERT_EQ(world.call(*stream, call), RLK_OK) << world.text();
    bytes *= 2;
  }
  ASSERT_EQ(world.synchronize(*stream), RLK_OK);
  EXPECT_EQ(embedder.live.size(), 1u) << "the present workspace";
  EXPECT_EQ(embedder.live[0].stream, stream->device().api.stream->native(stream->handle()));
  EXPECT_GE(embedder.allocations, 4);
  EXPECT_EQ(fake_log().allocations, 0u) << "of the device itself";
  EXPECT_EQ(stream->device().memory.statistics().cached_bytes, 0u);
  EXPECT_EQ(fake_log().violations, 0);
}

TEST_F(EmbedderTest, GetsABlockBackOnlyWhenOtherStreamsHavePassed) {
  auto other = world.stream();
  core::CachingAllocator& memory = stream->device().memory;
  void* block = nullptr;
  ASSERT_EQ(memory.allocate(*stream->clock(), 4096, &block, nullptr), RLK_OK);
  fake(other->handle()).worker->hold(true);
  fake(other->handle()).push([] {});
  ASSERT_EQ(memory.record_use(block, other->fence(true), nullptr), RLK_OK);
  ASSERT_EQ(memory.deallocate(block, stream->fence(true), nullptr), RLK_OK);
  EXPECT_EQ(embedder.live.size(), 1u) << "the other stream is not there yet";
  fake(other->handle()).worker->hold(false);
  ASSERT_EQ(world.synchronize(*other), RLK_OK);
  void* second = nullptr;
  ASSERT_EQ(memory.allocate(*stream->clock(), 4096, &second, nullptr), RLK_OK);
  EXPECT_EQ(second, block);
  ASSERT_EQ(memory.deallocate(second, stream->fence(true), nullptr), RLK_OK);
}

TEST_F(EmbedderTest, ThatIsFullIsTold) {
  embedder.full = true;
  for (Script* script : {&fake_script<sdk::ops::Logp, 0>(), &fake_script<sdk::ops::Logp, 1>()})
    script->workspace = 1000;
  for (Script* script : {&cpu_script<sdk::ops::Logp, 0>(), &cpu_script<sdk::ops::Logp, 1>()})
    script->level = RLK_SUPPORT_NO;
  OpCall& call = world.make("logp");
  EXPECT_EQ(world.call(*stream, call), RLK_OUT_OF_MEMORY);
}

TEST_F(EmbedderTest, IsNotAskedWhileAGraphIsCaptured) {
  fake_script<sdk::ops::Logp>().workspace = 1000;
  OpCall& call = world.make("logp");
  ASSERT_EQ(world.call(*stream, call), RLK_OK);
  std::vector<std::unique_ptr<core::Graph>> graphs(2);
  for (auto& graph : graphs) {
    const int asked = embedder.allocations;
    ASSERT_EQ(stream->begin_capture(nullptr), RLK_OK);
    // The first takes the workspace over; the second would need another.
    EXPECT_EQ(world.call(*stream, call), &graph == &graphs[0] ? RLK_OK : RLK_CAPTURE_FORBIDS) << world.text();
    EXPECT_EQ(embedder.allocations, asked);
    ASSERT_EQ(core::Graph::end_capture(*stream, &graph, nullptr), RLK_OK);
  }
}

TEST_F(MemoryTest, CopiesOfOrdinaryMemoryAreDoneWhenTheyReturn) {
  const uint64_t bytes = (9 << 20) + 12345;
  std::vector<char> host(bytes), back(bytes);
  for (size_t i = 0; i < bytes; ++i) host[i] = static_cast<char>(i * 31 % 127);
  void* device = allocate(memory, *one, bytes);
  ASSERT_EQ(core::copy(*one, device, host.data(), bytes, RLK_COPY_HOST_TO_DEVICE, &world.last), RLK_OK) << world.text();
  ASSERT_EQ(core::copy(*one, back.data(), device, bytes, RLK_COPY_DEVICE_TO_HOST, &world.last), RLK_OK) << world.text();
  EXPECT_EQ(host, back);
  EXPECT_EQ(core::copy(*one, device, host.data(), 1, 7, &world.last), RLK_INVALID_ARGUMENT);
  EXPECT_EQ(core::copy(*one, nullptr, host.data(), 1, RLK_COPY_HOST_TO_DEVICE, &world.last), RLK_INVALID_ARGUMENT);
  EXPECT_EQ(core::copy(*one, nullptr, nullptr, 0, RLK_COPY_HOST_TO_DEVICE, &world.last), RLK_OK);
}

TEST_F(MemoryTest, CopiesOfPinnedMemoryAreAsynchronous) {
  auto* host = static_cast<char*>(allocate(pinned, *one, 64));
  auto* device = static_cast<char*>(allocate(memory, *one, 64));
  busy(*one);
  host[0] = 1;
  device[0] = 0;
  ASSERT_EQ(core::copy(*one, device, host, 64, RLK_COPY_HOST_TO_DEVICE, &world.last), RLK_OK);
  EXPECT_EQ(device[0], 0);
  hold(*one, false);
  ASSERT_EQ(world.synchronize(*one), RLK_OK);
  EXPECT_EQ(device[0], 1);
}

TEST_F(MemoryTest, ManyThreads) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      auto stream = world.stream();
      std::vector<void*> blocks;
      for (int i = 0; i < 300; ++i) {
        void* block = nullptr;
        ASSERT_EQ(memory.allocate(*stream->clock(), static_cast<uint64_t>((i * 37 + t) % 5000), &block, nullptr),
                  RLK_OK);
        blocks.push_back(block);
        if (blocks.size() > 10) {
          ASSERT_EQ(memory.deallocate(blocks.front(), stream->fence(true), nullptr), RLK_OK);
          blocks.erase(blocks.begin());
        }
      }
      for (void* block : blocks) ASSERT_EQ(memory.deallocate(block, stream->fence(true), nullptr), RLK_OK);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(memory.statistics().in_use_bytes, 0u);
}

}  // namespace
}  // namespace rlk::test
