// A call of a backend that the tensors are not of: copied there and back, in the order of the stream.
#include "unit/dispatch/world.hpp"

namespace rlk::test {
namespace {

using sdk::ops::Add;

float* floats(Argument& argument) {
  return static_cast<float*>(argument.data);
}

TEST(Staging, KeepsTheOrderOfTheStreamWithoutWaiting) {
  World world(World::kAll, {{"RLK_OP_ADD", "cpu"}});
  fake_log().delay_us = 100;
  auto stream = world.stream();
  OpCall& call = world.make("add");
  float *a = floats(call.inputs[0]), *b = floats(call.inputs[1]), *out = floats(call.outputs[0]);
  std::vector<float> seen;
  const uint64_t waits = fake_log().waits;
  fake(stream->handle()).worker->hold(true);
  for (int i = 0; i < 5; ++i) {
    // Earlier work makes the input, later work reads the result: both must be on the right side of the call.
    fake(stream->handle()).push([=] { a[0] = static_cast<float>(i), b[0] = 100; });
    ASSERT_EQ(world.call(*stream, call), RLK_OK) << world.text();
    fake(stream->handle()).push([&seen, out] { seen.push_back(out[0]); });
  }
  EXPECT_EQ(fake_log().waits, waits) << "nothing waited";
  EXPECT_EQ(cpu_script<Add>().enqueues, 0) << "nothing ran yet";
  fake(stream->handle()).worker->hold(false);
  ASSERT_EQ(world.synchronize(*stream), RLK_OK);
  EXPECT_EQ(seen, (std::vector<float>{100, 101, 102, 103, 104}));
  EXPECT_EQ(world.counters("add").staged, 5u);
  EXPECT_EQ(world.counters("add").blocking, 0u);
  EXPECT_EQ(fake_log().host_functions, 5u);
}

TEST(Staging, WithoutHostFunctionsWaitsAndIsCounted) {
  World world(World::kCpu | World::kPlain, {{"RLK_BACKEND", "cpu"}});
  auto stream = world.stream("plain");
  OpCall& call = world.make("add");
  float *a = floats(call.inputs[0]), *out = floats(call.outputs[0]);
  float seen = 0;
  fake(stream->handle()).push([=] { a[1] = 42; });
  ASSERT_EQ(world.call(*stream, call), RLK_OK) << world.text();
  fake(stream->handle()).push([&seen, out] { seen = out[1]; });
  ASSERT_EQ(world.synchronize(*stream), RLK_OK);
  EXPECT_EQ(seen, 42);
  EXPECT_EQ(world.counters("add").blocking, 1u);
}

TEST(Staging, WritesStridedOutputsWithoutTouchingTheGaps) {
  World world(World::kAll, {{"RLK_BACKEND", "cpu"}});
  auto stream = world.stream();
  OpCall& call = world.make("add");
  auto* spread = static_cast<float*>(call.allocate(60));
  for (int i = 0; i < 15; ++i) spread[i] = -1;
  call.outputs[0].data = spread;
  call.outputs[0].strides = {3};
  call.inputs[0].strides = {-1};
  call.inputs[0].byte_offset = 16;
  call.inputs[0].alignment = 4;
  call.refresh();
  for (int i = 0; i < 5; ++i) floats(call.inputs[0])[i] = static_cast<float>(i);
  // Somebody else writes a gap while the call is on its way.
  fake(stream->handle()).worker->hold(true);
  ASSERT_EQ(world.call(*stream, call), RLK_OK) << world.text();
  spread[1] = 7;
  fake(stream->handle()).worker->hold(false);
  ASSERT_EQ(world.synchronize(*stream), RLK_OK);
  for (size_t i = 0; i < 5; ++i) EXPECT_EQ(spread[3 * i], 4 - static_cast<int>(i));
  EXPECT_EQ(spread[1], 7);
  EXPECT_EQ(spread[2], -1);
}

TEST(Staging, InPlace) {
  World world(World::kAll, {{"RLK_BACKEND", "cpu"}});
  auto stream = world.stream();
  OpCall& call = world.make("add");
  for (int i = 0; i < 5; ++i) floats(call.inputs[0])[i] = floats(call.inputs[1])[i] = static_cast<float>(i);
  call.outputs[0].data = call.inputs[0].data;
  call.refresh();
  ASSERT_EQ(world.call(*stream, call), RLK_OK) << world.text();
  ASSERT_EQ(world.synchronize(*stream), RLK_OK);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(floats(call.inputs[0])[i], 2 * i);
}

TEST(Staging, EmptyTensors) {
  World world(World::kAll, {{"RLK_BACKEND", "cpu"}});
  auto stream = world.stream();
  OpCall& call = world.make("logp");
  call.symbols = {0, 0, 37};
  call.rebuild();
  for (auto* side : {&call.inputs, &call.outputs}) {
    for (Argument& a : *side) a.data = nullptr;
  }
  call.refresh();
  ASSERT_EQ(world.call(*stream, call), RLK_OK) << world.text();
  EXPECT_EQ(world.synchronize(*stream), RLK_OK);
}

TEST(Staging, AFailureInsideIsToldByTheStream) {
  World world(World::kAll, {{"RLK_OP_ADD", "cpu:first"}});
  cpu_script<Add>().fail_enqueue = RLK_PLUGIN_EXCEPTION;
  auto stream = world.stream();
  OpCall& call = world.make("add");
  ASSERT_EQ(world.call(*stream, call), RLK_OK);
  EXPECT_EQ(world.synchronize(*stream), RLK_PLUGIN_EXCEPTION);
  for (const char* part : {"add", "cpu/first", "staged", "the script says so"}) {
    EXPECT_NE(world.text().find(part), std::string::npos) << part << " | " << world.text();
  }
  ASSERT_EQ(world.registry.current()->quarantined.size(), 1u);
  EXPECT_EQ(world.registry.current()->quarantined[0]->plugin, "cpu");
  EXPECT_EQ(world.synchronize(*stream), RLK_OK) << "told once";
}

TEST(Staging, ATransposedOutputComesBackInOneCopy) {
  World world(World::kAll, {{"RLK_BACKEND", "cpu"}});
  auto stream = world.stream();
  OpCall& call = world.make("add");
  constexpr int64_t kRows = 40, kColumns = 60;
  for (Argument* a : {&call.inputs[0], &call.inputs[1], &call.outputs[0]}) {
    a->shape = {kRows, kColumns};
    a->strides = {kColumns, 1};
    a->data = call.allocate(kRows * kColumns * 4);
  }
  call.outputs[0].strides = {1, kRows};
  call.refresh();
  for (int i = 0; i < kRows * kColumns; ++i) {
    floats(call.inputs[0])[i] = static_cast<float>(i);
    floats(call.inputs[1])[i] = 0.5f;
  }
  const uint64_t before = fake_log().copies;
  ASSERT_EQ(world.call(*stream, call), RLK_OK) << world.text();
  ASSERT_EQ(world.synchronize(*stream), RLK_OK);
  EXPECT_EQ(fake_log().copies - before, 3u) << "two inputs and the output";
  for (int64_t r = 0; r < kRows; ++r) {
    for (int64_t c = 0; c < kColumns; ++c) {
      ASSERT_EQ(floats(call.outputs[0])[c * kRows + r], static_cast<float>(r * kColumns + c) + 0.5f);
    }
  }
}

TEST(Staging, AnOutputInTooManyPiecesIsRefusedBeforeAnythingIsEnqueued) {
  World world(World::kAll, {{"RLK_BACKEND", "cpu"}});
  auto stream = world.stream();
  OpCall& call = world.make("add");
  constexpr int64_t kPieces = 20000;
  for (Argument* a : {&call.inputs[0], &call.inputs[1], &call.outputs[0]}) {
    a->shape = {kPieces};
    a->strides = {1};
    a->data = call.allocate(2 * kPieces * 4);
  }
  call.outputs[0].strides = {2};
  call.refresh();
  const uint64_t before = fake_log().copies;
  EXPECT_EQ(world.call(*stream, call), RLK_UNSUPPORTED);
  for (const char* part : {"'out'", "20000 pieces", "16384", "contiguous"}) {
    EXPECT_NE(world.text().find(part), std::string::npos) << part << " | " << world.text();
  }
  EXPECT_EQ(fake_log().copies, before);
  EXPECT_EQ(world.counters("add").staged, 0u);
  EXPECT_EQ(stream->device().pending.size(), 0u);
}

TEST(Staging, ADeviceThatDiesLeavesNothingThatTheEndWaitsFor) {
  for (const bool wrapped : {false, true}) {
    SCOPED_TRACE(wrapped ? "wrapped" : "created");
    World world(World::kAll, {{"RLK_OP_ADD", "cpu"}});
    auto stream = world.stream();
    auto native = std::make_unique<FakeStreamWithHostFunctions>();
    if (wrapped) {
      core::DeviceState& device = stream->device();
      ASSERT_EQ(
          Stream::wrap(device, world.dispatcher->counters(), static_cast<FakeStream*>(native.get()), &stream, nullptr),
          RLK_OK);
    }
    FakeStream& inside = fake(stream->handle());
    OpCall& call = world.make("add");
    inside.worker->hold(true);
    for (int i = 0; i < 3; ++i) ASSERT_EQ(world.call(*stream, call), RLK_OK) << world.text();
    EXPECT_EQ(stream->device().pending.size(), 3u);
    inside.worker->die();
    inside.broken = true;
    inside.broken_status = RLK_DEVICE_LOST;
    EXPECT_EQ(world.synchronize(*stream), RLK_DEVICE_LOST);
    stream = nullptr;
    world.dispatcher = nullptr;  // would wait for ever for the calls inside the plan
    EXPECT_EQ(cpu_script<Add>().enqueues, 0);
    EXPECT_EQ(cpu_script<Add>().destroyed, 1);
    EXPECT_EQ(core::PendingWork::tickets(), 0u) << "what will never run is kept for ever";
    for (uintptr_t late = 1; late < 1000; ++late) core::PendingWork::run_ticket(reinterpret_cast<void*>(late));
    EXPECT_EQ(cpu_script<Add>().enqueues, 0) << "a queue that was worked off too late found the call";
    EXPECT_TRUE(world.registry.current()->quarantined.empty()) << "the CPU did not lose the device";
  }
}

TEST(Staging, ManyAtOnce) {
  World world(World::kAll, {{"RLK_BACKEND", "cpu"}});
  std::vector<std::thread> threads;
  std::atomic<int> failures{0};
  for (int t = 0; t < 3; ++t) {
    OpCall* call = &world.make("add");
    threads.emplace_back([&, call, t] {
      auto stream = world.stream();
      for (int i = 0; i < 5; ++i) floats(call->inputs[0])[i] = static_cast<float>(t);
      for (int i = 0; i < 60; ++i) {
        failures += world.dispatcher->call(*stream, *call->decl, nullptr, call->input_pointers, call->output_pointers,
                                           {}, nullptr) != RLK_OK;
      }
      failures += world.dispatcher->synchronize(*stream, UINT64_MAX, nullptr) != RLK_OK;
      for (int i = 0; i < 5; ++i) failures += floats(call->outputs[0])[i] != static_cast<float>(t);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failures, 0);
}

}  // namespace
}  // namespace rlk::test
