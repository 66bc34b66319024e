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
  EXPECT_EQ(fake_log().host_functions, 5u + 2) << "the first call is timed";
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
  // The caller writes a gap while the call is on its way.
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

// Of a logits-like input: rows far apart, the CPU's result, and what went over the bus.
struct Moved {
  uint64_t copies, to_host, pinned;
};
template <class Change>
Moved moved_by_add(std::vector<int64_t> shape, const Change& change) {
  World world(World::kAll, {{"RLK_BACKEND", "cpu"}});
  auto stream = world.stream();
  OpCall& call = world.make("add");
  int64_t count = 1;
  for (const int64_t size : shape) count *= size;
  for (Argument* a : {&call.inputs[0], &call.inputs[1], &call.outputs[0]}) {
    a->shape = shape;
    a->strides = contiguous_strides(shape);
    a->data = call.allocate(static_cast<size_t>(count) * 4);
  }
  change(call);
  call.refresh();
  // Each element of the first input has a number of its own, which the result must have at the same index.
  const auto each = [&](const Argument& argument, const auto& visit) {
    std::vector<int64_t> index(shape.size());
    for (int64_t n = 0; n < count; ++n) {
      int64_t at = 0;
      for (size_t d = 0; d < shape.size(); ++d) at += index[d] * argument.strides[d];
      visit(*reinterpret_cast<float*>(static_cast<char*>(argument.data) + argument.byte_offset + at * 4), n);
      for (size_t d = shape.size(); d-- > 0 && ++index[d] == shape[d];) index[d] = 0;
    }
  };
  std::vector<float> expected(static_cast<size_t>(count));
  each(call.inputs[0], [](float& value, int64_t n) { value = static_cast<float>(n % 1000); });
  each(call.inputs[0], [&](const float& value, int64_t n) { expected[static_cast<size_t>(n)] = value; });
  each(call.inputs[1], [](float& value, int64_t) { value = 0.5f; });
  const uint64_t before = fake_log().copies, bytes = fake_log().to_host, pinned = fake_log().most_bytes;
  EXPECT_EQ(world.call(*stream, call), RLK_OK) << world.text();
  EXPECT_EQ(world.synchronize(*stream), RLK_OK) << world.text();
  each(call.outputs[0], [&](const float& value, int64_t n) {
    EXPECT_EQ(value, expected[static_cast<size_t>(n)] + 0.5f) << "element " << n;
  });
  return {fake_log().copies - before, fake_log().to_host - bytes, fake_log().most_bytes - pinned};
}

// Memory that is reserved and not touched between the rows.
void spread(OpCall& call, Argument* argument, std::vector<int64_t> strides, size_t bytes) {
  argument->strides = std::move(strides);
  argument->data = call.allocate(bytes);
}

TEST(Staging, RowsFarApartAreCopiedWithoutWhatLiesBetween) {
  constexpr int64_t kApart = 1 << 22;
  const Moved moved = moved_by_add({4, 64}, [](OpCall& call) {
    spread(call, &call.inputs[0], {kApart, 1}, (3 * kApart + 64) * 4);
  });
  EXPECT_EQ(moved.to_host, 2u * 4 * 64 * 4) << "both inputs, and no gaps";
  EXPECT_EQ(moved.copies, 4u + 1 + 1);
  EXPECT_LT(moved.pinned, 64u << 10) << "nor is memory for the gaps taken";
}

TEST(Staging, RowsNearEachOtherComeInOneCopyWithTheirGaps) {
  const Moved moved = moved_by_add({4, 64}, [](OpCall& call) { spread(call, &call.inputs[0], {100, 1}, 4 * 100 * 4); });
  EXPECT_EQ(moved.copies, 3u);
  EXPECT_EQ(moved.to_host, (3 * 100 + 64 + 4 * 64) * 4u);
}

// Both at once: a few rows far apart, whose elements have small gaps.
TEST(Staging, GapsAreCutWhereTheyAreWorthIt) {
  constexpr int64_t kApart = 1 << 20;
  const Moved moved = moved_by_add({3, 50}, [](OpCall& call) {
    spread(call, &call.inputs[0], {kApart, 2}, (2 * kApart + 100) * 4);
  });
  EXPECT_EQ(moved.copies, 3u + 1 + 1);
  EXPECT_EQ(moved.to_host, (3 * 99 + 150) * 4u);
}

TEST(Staging, InputsOfEveryOrderAndSignOfStrides) {
  constexpr int64_t kApart = 1 << 20;
  const auto bytes = static_cast<size_t>(2 * kApart + 4096) * 4;
  // Transposed, backwards along each axis, the far axis innermost, and broadcast.
  const struct {
    std::vector<int64_t> strides;
    int64_t first;  // element
    uint64_t copies, elements;
  } layouts[] = {
      {{1, kApart}, 0, 3 + 2, 3 * 5 + 15},  {{1, -kApart}, 2 * kApart, 3 + 2, 3 * 5 + 15},
      {{-1, kApart}, 4, 3 + 2, 3 * 5 + 15}, {{-3, -1}, 14, 1 + 2, 15 + 15},
      {{0, kApart}, 0, 3 + 2, 3 + 15},      {{0, 0}, 0, 1 + 2, 1 + 15},
      {{1, 1}, 0, 1 + 2, 7 + 15},  // windows that overlap
  };
  for (const auto& layout : layouts) {
    SCOPED_TRACE(testing::PrintToString(layout.strides));
    const Moved moved = moved_by_add({5, 3}, [&](OpCall& call) {
      spread(call, &call.inputs[0], layout.strides, bytes);
      call.inputs[0].byte_offset = static_cast<uint64_t>(layout.first) * 4;
      call.inputs[0].alignment = 4;
    });
    EXPECT_EQ(moved.copies, layout.copies);
    EXPECT_EQ(moved.to_host, layout.elements * 4);
  }
}

// The layout on the host may turn with a size that is no part of the key: another plan then.
TEST(Staging, APlanSeesTheStridesOfItsCopies) {
  World world(World::kAll, {{"RLK_BACKEND", "cpu"}});
  auto stream = world.stream();
  std::vector<std::vector<int64_t>> seen;
  cpu_script<sdk::ops::Logp>().on_enqueue = [&](const sdk::Run& run) {
    const rlk_tensor& logits = *run.input(RLK_LOGP_IN_LOGITS);
    seen.push_back({logits.strides, logits.strides + logits.ndim});
  };
  OpCall& call = world.make("logp");
  const int64_t near = 48, far = 1 << 16;  // elements from row to row
  for (const auto& [rows, stride] : {std::pair<int64_t, int64_t>{5, near}, {5, far}, {7, far}, {7, near}}) {
    call.symbols = {rows, rows, 37};
    call.rebuild();
    call.inputs[0].strides = {stride, 1};
    call.inputs[0].data = call.allocate(static_cast<size_t>(rows * stride) * 4);
    call.refresh();
    ASSERT_EQ(world.call(*stream, call), RLK_OK) << world.text();
    ASSERT_EQ(world.synchronize(*stream), RLK_OK) << world.text();
  }
  EXPECT_EQ(seen, (std::vector<std::vector<int64_t>>{{near, 1}, {37, 1}, {37, 1}, {near, 1}}));
  EXPECT_EQ(cpu_script<sdk::ops::Logp>().plans, 2) << "one for rows with gaps, one for rows without";
}

TEST(Staging, AnOutputFarApartInAnotherOrderComesBackInRuns) {
  constexpr int64_t kApart = 1 << 20;
  const Moved moved = moved_by_add({50, 3}, [](OpCall& call) {
    spread(call, &call.outputs[0], {1, kApart}, static_cast<size_t>(2 * kApart + 50) * 4);
  });
  EXPECT_EQ(moved.copies, 2u + 3) << "one per column";
  EXPECT_LT(moved.pinned, 64u << 10);
}

TEST(Staging, InPlaceWithGaps) {
  constexpr int64_t kApart = 1 << 20;
  const Moved moved = moved_by_add({3, 50}, [](OpCall& call) {
    spread(call, &call.inputs[0], {kApart, 1}, static_cast<size_t>(2 * kApart + 50) * 4);
    call.outputs[0].data = call.inputs[0].data;
    call.outputs[0].strides = call.inputs[0].strides;
  });
  EXPECT_EQ(moved.copies, 3u + 1 + 3);
}

// The device has no implementation of the operator.
void decline_add(World::Parts parts) {
  if ((parts & World::kFake) != 0) fake_script<Add>().level = fake_script<Add, 1>().level = RLK_SUPPORT_NO;
  if ((parts & World::kPlain) != 0) plain_script<Add>().level = plain_script<Add, 1>().level = RLK_SUPPORT_NO;
}
size_t times(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

TEST(Staging, TheFirstCallTellsWhatItCostAndAllAreCounted) {
  for (const World::Parts device : {World::kFake, World::kPlain}) {
    const bool waits = device == World::kPlain;
    SCOPED_TRACE(waits ? "without host functions" : "with host functions");
    World world(World::kCpu | device, {{"RLK_FALLBACK", "warn"}});
    decline_add(device);
    auto stream = world.stream(waits ? "plain" : "fake");
    OpCall& call = world.make("add");  // five floats each
    testing::internal::CaptureStderr();
    for (int i = 0; i < 3; ++i) EXPECT_EQ(world.call(*stream, call), RLK_OK) << world.text();
    EXPECT_EQ(world.synchronize(*stream), RLK_OK);
    const std::string log = testing::internal::GetCapturedStderr();
    EXPECT_EQ(times(log, "This call copied"), 1u) << log;
    for (const char* part :
         {"add on ", "staged through host memory", "copied 40 bytes to the host and 20 bytes back in ", " ms",
          "RLK_FALLBACK=strict makes it an error", "rlk-plugins explain add",
          waits ? "rlk-plugins scope plain" : "rlk-plugins scope fake"}) {
      EXPECT_NE(log.find(part), std::string::npos) << part << " | " << log;
    }
    EXPECT_EQ(log.find("the host waits") != std::string::npos, waits) << log;
    const core::OpCounters& all = world.counters("add");
    EXPECT_EQ(all.staged_cost.to_host_bytes, 3u * 40);
    EXPECT_EQ(all.staged_cost.to_device_bytes, 3u * 20);
    EXPECT_GT(all.staged_cost.nanoseconds, 0u);
    const auto reasons = world.dispatcher->counters().fallbacks(op("add"));
    ASSERT_EQ(reasons.size(), 1u);
    EXPECT_EQ(reasons[0]->staged, 3u);
    EXPECT_EQ(reasons[0]->staged_cost.to_host_bytes, 3u * 40);
    EXPECT_EQ(reasons[0]->staged_cost.nanoseconds, all.staged_cost.nanoseconds);
  }
}

TEST(Staging, WhereItIsAllowedNothingIsLogged) {
  World world(World::kAll, {{"RLK_FALLBACK", "allow"}});
  decline_add(World::kFake);
  auto stream = world.stream();
  testing::internal::CaptureStderr();
  EXPECT_EQ(world.call(*stream, world.make("add")), RLK_OK) << world.text();
  EXPECT_EQ(world.synchronize(*stream), RLK_OK);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  EXPECT_EQ(world.counters("add").staged, 1u);
  EXPECT_EQ(fake_log().host_functions, 1u) << "nor timed";
}

TEST(Staging, ExplainNamesWhatWouldBeCopied) {
  World world(World::kAll, {{"RLK_FALLBACK", "warn"}});
  decline_add(World::kFake);
  auto stream = world.stream();
  OpCall& call = world.make("add");
  const core::Explanation explained = world.explain(*stream, call);
  EXPECT_EQ(World::taken(explained), "cpu/first staged");
  EXPECT_EQ(explained.staged.to_host, 40u);
  EXPECT_EQ(explained.staged.to_device, 20u);
  EXPECT_EQ(explained.staged.copies, 3u);
  EXPECT_GT(explained.staged.estimated_us(), 0);
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
    EXPECT_EQ(stream->device().pending.size(), 3u + 2) << "the first call is timed";
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
