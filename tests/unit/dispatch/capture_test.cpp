// What captured work owns: a workspace and a data error record of its own, for as long as it can run.
#include "unit/dispatch/world.hpp"

namespace rlk::test {
namespace {

using core::Graph;
using sdk::ops::Add;
using sdk::ops::Logp;

class CaptureTest : public ::testing::Test {
protected:
  CaptureTest() : other(world.stream()), call(world.make("logp")) { wrap(); }

  // A stream of the vendor's, as rlk sees it.
  void wrap() {
    wrapped = nullptr;
    native = std::make_unique<FakeStreamWithHostFunctions>();
    ASSERT_EQ(Stream::wrap(other->device(), world.dispatcher->counters(), static_cast<FakeStream*>(native.get()),
                           &wrapped, nullptr),
              RLK_OK);
  }
  FakeStream& inside() { return fake(wrapped->handle()); }
  VendorGraph capture_call() { return capture_call(call); }
  VendorGraph capture_call(OpCall& captured) {
    inside().begin_capture();
    EXPECT_EQ(world.call(*wrapped, captured), RLK_OK) << world.text();
    return inside().end_capture();
  }
  void run(const VendorGraph& graph, Stream& on) {
    for (const Work& work : graph.work) fake(on.handle()).push(work);
  }
  int64_t* ids() { return static_cast<int64_t*>(call.inputs[RLK_LOGP_IN_IDS].data); }
  core::DeviceState& device() { return other->device(); }

  World world;
  std::unique_ptr<Stream> other;
  std::unique_ptr<FakeStreamWithHostFunctions> native;
  std::unique_ptr<Stream> wrapped;
  OpCall& call;
};

// ---- records

TEST_F(CaptureTest, ARecordThatAWrappedStreamLeftBehindIsNotGivenOutWhileItsWorkRuns) {
  native->worker->hold(true);
  ids()[1] = -5;
  ASSERT_EQ(world.call(*wrapped, call), RLK_OK);
  wrapped = nullptr;  // the vendor's stream still has the kernel before it
  const auto left = std::move(native);
  wrap();
  OpCall& good = world.make("logp");
  ASSERT_EQ(world.call(*wrapped, good), RLK_OK);
  left->worker->hold(false);
  left->worker->wait(left->worker->pushed(), UINT64_MAX);
  EXPECT_EQ(world.synchronize(*wrapped), RLK_OK) << "that error is another stream's: " << world.text();
}

TEST_F(CaptureTest, RecordsAreRecycledOnceTheStreamHasPassed) {
  const size_t before = device().records.in_use();
  for (int i = 0; i < 200; ++i) {
    ASSERT_EQ(world.call(*wrapped, call), RLK_OK);
    native->worker->wait(native->worker->pushed(), UINT64_MAX);
    wrap();
  }
  device().collect();
  EXPECT_EQ(device().records.in_use(), before);
}

TEST_F(CaptureTest, AGraphsDataErrorIsToldByTheStreamThatLaunchedIt) {
  ASSERT_EQ(world.call(*other, call), RLK_OK);
  ASSERT_EQ(other->begin_capture(nullptr), RLK_OK);
  ASSERT_EQ(world.call(*other, call), RLK_OK) << world.text();
  std::unique_ptr<Graph> graph;
  ASSERT_EQ(Graph::end_capture(*other, &graph, nullptr), RLK_OK);
  auto launching = world.stream();
  ASSERT_EQ(world.synchronize(*other), RLK_OK);
  ids()[2] = -7;
  ASSERT_EQ(graph->launch(*launching, nullptr), RLK_OK);
  fake(launching->handle()).worker->wait(fake(launching->handle()).worker->pushed(), UINT64_MAX);
  EXPECT_EQ(world.synchronize(*other), RLK_OK) << "it did not launch it: " << world.text();
  EXPECT_EQ(world.synchronize(*launching), RLK_DATA_ERROR);
  EXPECT_NE(world.text().find("-7"), std::string::npos) << world.text();
  EXPECT_EQ(world.synchronize(*launching), RLK_OK) << "told once";
  // And one that the graph takes to its grave.
  ASSERT_EQ(graph->launch(*launching, nullptr), RLK_OK);
  graph = nullptr;
  EXPECT_EQ(world.synchronize(*launching), RLK_DATA_ERROR);
}

TEST_F(CaptureTest, TheVendorsGraphNeverWritesIntoARecycledRecord) {
  ASSERT_EQ(world.call(*wrapped, call), RLK_OK);
  const VendorGraph graph = capture_call();
  // The stream that captured it is gone, and its own record serves another.
  ASSERT_EQ(world.synchronize(*wrapped), RLK_OK);
  wrap();
  ids()[0] = -9;
  run(graph, *other);
  fake(other->handle()).worker->wait(fake(other->handle()).worker->pushed(), UINT64_MAX);
  rlk_data_error error{};
  EXPECT_FALSE(wrapped->take_own_data_error(&error)) << "row " << error.row;
  EXPECT_EQ(world.synchronize(*other), RLK_DATA_ERROR) << "any stream of the device tells it";
  EXPECT_NE(world.text().find("-9"), std::string::npos) << world.text();
}

// ---- the vendor's captures

TEST_F(CaptureTest, TwoCapturesWithoutACallBetweenShareNothing) {
  Script& script = fake_script<Logp>();
  script.workspace = 4096;
  std::vector<void*> workspaces;
  std::vector<rlk_data_error_record*> records;
  script.on_enqueue = [&](const sdk::Run& run) {
    workspaces.push_back(run.workspace());
    records.push_back(run.data_error_record());
    EXPECT_EQ(run.is_capturing(), workspaces.size() > 1);
  };
  ASSERT_EQ(world.call(*wrapped, call), RLK_OK);
  ASSERT_EQ(world.synchronize(*wrapped), RLK_OK);
  OpCall& elsewhere = world.make("logp");  // its results must not race with those of the first
  const VendorGraph first = capture_call(), second = capture_call(elsewhere);
  ASSERT_EQ(workspaces.size(), 3u);
  EXPECT_NE(workspaces[1], workspaces[2]);
  EXPECT_NE(records[1], records[2]);
  EXPECT_NE(records[0], records[1]);
  // Both at once, on two streams: the kernels check their workspaces.
  fake_log().delay_us = 100;
  auto third = world.stream();
  for (int i = 0; i < 20; ++i) {
    run(first, *other);
    run(second, *third);
  }
  ASSERT_EQ(world.synchronize(*other), RLK_OK);
  ASSERT_EQ(world.synchronize(*third), RLK_OK);
  EXPECT_EQ(fake_log().violations, 0);
}

TEST_F(CaptureTest,
       ACallMadeOnAnotherStreamIsMadeForEveryCapture) {  // torch.cuda.graph captures on a stream of its own
  Script& script = fake_script<Logp>();
  script.workspace = 4096;
  std::vector<void*> workspaces;
  script.on_enqueue = [&](const sdk::Run& run) { workspaces.push_back(run.workspace()); };
  ASSERT_EQ(world.call(*other, call), RLK_OK);
  ASSERT_EQ(world.synchronize(*other), RLK_OK);
  const VendorGraph graph = capture_call();
  ASSERT_EQ(workspaces.size(), 2u);
  EXPECT_NE(workspaces[0], workspaces[1]);
  fake_log().delay_us = 100;
  OpCall& elsewhere = world.make("logp");
  for (int i = 0; i < 20; ++i) {  // both at once: the kernels check their workspaces
    run(graph, *wrapped);
    ASSERT_EQ(world.call(*other, elsewhere), RLK_OK);
  }
  ASSERT_EQ(world.synchronize(*other), RLK_OK);
  ASSERT_EQ(world.synchronize(*wrapped), RLK_OK);
  EXPECT_EQ(fake_log().violations, 0);
}

TEST_F(CaptureTest, WhatTheVendorsGraphHeldIsFreeAgainWhenItDies) {
  fake_script<Logp>().workspace = 1 << 20;
  ASSERT_EQ(world.call(*wrapped, call), RLK_OK);
  ASSERT_EQ(world.synchronize(*wrapped), RLK_OK);
  ASSERT_EQ(world.call(*wrapped, call), RLK_OK);
  const uint64_t one_workspace = device().memory.statistics().in_use_bytes;
  for (int i = 0; i < 10; ++i) {
    { const VendorGraph graph = capture_call(); }
    ASSERT_EQ(world.call(*wrapped, call), RLK_OK);
    ASSERT_EQ(world.synchronize(*wrapped), RLK_OK);
  }
  EXPECT_EQ(device().memory.statistics().in_use_bytes, one_workspace);
  EXPECT_LE(device().records.in_use(), 3u);
}

TEST_F(CaptureTest, WhoseEndNobodyTellsIsKeptForEver) {
  World old(World::kAll);
  wrapped = nullptr;
  other = old.stream();
  fake_log().lacks_optional = false;
  fake_script<Logp>().workspace = 1 << 20;
  native = std::make_unique<FakeStreamWithHostFunctions>();
  std::unique_ptr<Stream> stream;
  ASSERT_EQ(Stream::wrap(other->device(), old.dispatcher->counters(), static_cast<FakeStream*>(native.get()), &stream,
                         nullptr),
            RLK_OK);
  device().capture_retains.learn(RLK_UNSUPPORTED);
  OpCall& logp = old.make("logp");
  ASSERT_EQ(old.call(*stream, logp), RLK_OK);
  for (int i = 0; i < 3; ++i) {
    fake(stream->handle()).begin_capture();
    ASSERT_EQ(old.call(*stream, logp), RLK_OK) << old.text();
    { const VendorGraph graph = fake(stream->handle()).end_capture(); }
    ASSERT_EQ(old.call(*stream, logp), RLK_OK);
    ASSERT_EQ(old.synchronize(*stream), RLK_OK);
  }
  EXPECT_GE(device().memory.statistics().in_use_bytes, uint64_t{4} << 20);
  stream = nullptr;
  other = nullptr;
}

TEST_F(CaptureTest, AStreamThatJoinsACaptureByAnEventIsCapturing) {
  auto joined = world.stream();
  ASSERT_EQ(world.call(*joined, call), RLK_OK);
  ASSERT_EQ(world.synchronize(*joined), RLK_OK);
  joined->note_wait();
  fake(joined->handle()).begin_capture();  // as the wait for an event of a capturing stream does
  bool capturing = false;
  ASSERT_EQ(joined->is_capturing(&capturing, nullptr), RLK_OK);
  EXPECT_TRUE(capturing);
  ASSERT_EQ(world.call(*joined, call), RLK_OK) << world.text();
  EXPECT_EQ(fake(joined->handle()).captured.size(), 1u);
  const VendorGraph graph = fake(joined->handle()).end_capture();
}

}  // namespace
}  // namespace rlk::test
