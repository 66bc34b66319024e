// Graph capture: what is refused before anything is enqueued, and what a graph keeps alive.
#include "unit/dispatch/world.hpp"

namespace rlk::test {
namespace {

using core::Graph;
using sdk::ops::Add;
using sdk::ops::Attention;

class GraphTest : public ::testing::Test {
protected:
  GraphTest() : stream(world.stream()), call(world.make("add")) {}

  void begin() {
    world.last = {sizeof(rlk_error), 0, 0, {}, {}};
    ASSERT_EQ(stream->begin_capture(&world.last), RLK_OK) << world.text();
  }
  std::unique_ptr<Graph> end() {
    std::unique_ptr<Graph> graph;
    EXPECT_EQ(Graph::end_capture(*stream, &graph, &world.last), RLK_OK) << world.text();
    return graph;
  }
  void expect_refused(rlk_status status, const char* part) {
    EXPECT_EQ(status, RLK_CAPTURE_FORBIDS);
    EXPECT_NE(world.text().find(part), std::string::npos) << world.text();
    EXPECT_TRUE(fake(stream->handle()).captured.empty()) << "nothing was enqueued";
    EXPECT_EQ(fake_log().violations, 0);
  }
  float* input() { return static_cast<float*>(call.inputs[0].data); }
  float* output() { return static_cast<float*>(call.outputs[0].data); }

  World world;
  std::unique_ptr<Stream> stream;
  OpCall& call;
};

TEST_F(GraphTest, ReplaysACallThatWasWarmedUp) {
  fake_script<Add>().workspace = 1000;
  ASSERT_EQ(world.call(*stream, call), RLK_OK) << world.text();
  begin();
  ASSERT_EQ(world.call(*stream, call), RLK_OK) << world.text();
  std::unique_ptr<Graph> graph = end();
  ASSERT_EQ(world.synchronize(*stream), RLK_OK);
  for (int i = 1; i <= 3; ++i) {
    input()[0] = static_cast<float>(i);
    ASSERT_EQ(graph->launch(*stream, nullptr), RLK_OK);
    ASSERT_EQ(world.synchronize(*stream), RLK_OK);
    EXPECT_EQ(output()[0], i);
  }
  EXPECT_EQ(fake_log().violations, 0);
}

TEST_F(GraphTest, OwnsItsWorkspace) {
  Script& script = fake_script<Add>();
  script.workspace = 1 << 16;
  fake_log().delay_us = 100;
  ASSERT_EQ(world.call(*stream, call), RLK_OK);
  begin();
  ASSERT_EQ(world.call(*stream, call), RLK_OK);
  std::unique_ptr<Graph> graph = end();
  // Replays on one stream and calls on the other at the same time: a shared workspace would be seen.
  auto other = world.stream();
  OpCall& second = world.make("add");
  for (int i = 0; i < 20; ++i) {
    ASSERT_EQ(graph->launch(*other, &world.last), RLK_OK) << world.text();
    ASSERT_EQ(world.call(*stream, second), RLK_OK) << world.text();
  }
  ASSERT_EQ(world.synchronize(*stream), RLK_OK);
  ASSERT_EQ(world.synchronize(*other), RLK_OK);
  const uint64_t in_use = stream->device().memory.statistics().in_use_bytes;
  graph.reset();
  EXPECT_LT(stream->device().memory.statistics().in_use_bytes, in_use);
  EXPECT_EQ(fake_log().violations, 0);
}

TEST_F(GraphTest, AReplayElsewhereWaitsForEarlierUsersOfTheWorkspace) {
  Script& script = fake_script<Add>();
  script.workspace = 1 << 12;
  ASSERT_EQ(world.call(*stream, call), RLK_OK);
  ASSERT_EQ(world.synchronize(*stream), RLK_OK);
  fake(stream->handle()).worker->hold(true);
  ASSERT_EQ(world.call(*stream, call), RLK_OK) << "still to run, with the workspace that the graph gets";
  begin();
  ASSERT_EQ(world.call(*stream, call), RLK_OK);
  std::unique_ptr<Graph> graph = end();
  auto other = world.stream();
  ASSERT_EQ(graph->launch(*other, &world.last), RLK_OK) << world.text();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(script.runs, 1);
  fake(stream->handle()).worker->hold(false);
  ASSERT_EQ(world.synchronize(*other), RLK_OK);
  EXPECT_EQ(script.runs, 3);
}

TEST_F(GraphTest, KeepsItsPlansAlive) {
  stream.reset();
  world.make_dispatcher({}, {}, /*max_plans=*/1);
  stream = world.stream();
  Script& script = fake_script<Add>();
  script.plan_flags = RLK_PLAN_CAPTURABLE;  // one in flight: the graph keeps the instance for good
  ASSERT_EQ(world.call(*stream, call), RLK_OK);
  ASSERT_EQ(world.synchronize(*stream), RLK_OK);
  begin();
  ASSERT_EQ(world.call(*stream, call), RLK_OK) << world.text();
  std::unique_ptr<Graph> graph = end();
  OpCall& other = world.make("add");
  other.set_f64(0, -0.5);
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(world.call(*stream, other), RLK_OK) << world.text();
    ASSERT_EQ(world.synchronize(*stream), RLK_OK);
  }
  EXPECT_EQ(script.destroyed, 0) << "dropped from the cache, but the graph replays it";
  ASSERT_EQ(graph->launch(*stream, nullptr), RLK_OK);
  ASSERT_EQ(world.synchronize(*stream), RLK_OK);
  graph.reset();
  ASSERT_EQ(world.synchronize(*stream), RLK_OK);
  EXPECT_EQ(script.destroyed, 1);
  EXPECT_EQ(fake_log().violations, 0);
}

TEST_F(GraphTest, AnInstanceIsOneCapturesUnlessCapturesAreApart) {
  Script& script = fake_script<Add>();
  for (const bool apart : {false, true}) {
    OpCall& captured = world.make("add");
    captured.set_f64(0, apart ? 0.5 : -0.5);  // a plan of its own
    script.plan_flags = RLK_PLAN_CAPTURABLE | (apart ? RLK_PLAN_CAPTURED_APART : 0u);
    ASSERT_EQ(world.call(*stream, captured), RLK_OK);
    ASSERT_EQ(world.synchronize(*stream), RLK_OK);
    const int plans = script.plans;
    begin();
    ASSERT_EQ(world.call(*stream, captured), RLK_OK) << world.text();
    EXPECT_EQ(world.call(*stream, captured), apart ? RLK_OK : RLK_CAPTURE_FORBIDS) << world.text();
    EXPECT_EQ(world.text().find("every instance of its plan") == std::string::npos, apart) << world.text();
    std::unique_ptr<Graph> graph = end();
    auto other = world.stream();
    EXPECT_EQ(world.call(*other, captured), RLK_OK) << world.text();
    ASSERT_EQ(world.synchronize(*other), RLK_OK);
    EXPECT_EQ(script.plans - plans, apart ? 0 : 1) << "the graph has the only other one";
    const int runs = script.runs;
    ASSERT_EQ(graph->launch(*stream, nullptr), RLK_OK);
    ASSERT_EQ(world.synchronize(*stream), RLK_OK);
    EXPECT_EQ(script.runs - runs, apart ? 2 : 1);
  }
  EXPECT_EQ(fake_log().violations, 0);
}

TEST_F(GraphTest, KeepsPlansWhoseCapturesAreApartAlive) {
  stream.reset();
  world.make_dispatcher({}, {}, /*max_plans=*/1);
  stream = world.stream();
  Script& script = fake_script<Add>();
  script.plan_flags = RLK_PLAN_CAPTURABLE | RLK_PLAN_CAPTURED_APART;
  ASSERT_EQ(world.call(*stream, call), RLK_OK);
  ASSERT_EQ(world.synchronize(*stream), RLK_OK);
  begin();
  ASSERT_EQ(world.call(*stream, call), RLK_OK) << world.text();
  std::unique_ptr<Graph> graph = end();
  OpCall& other = world.make("add");
  other.set_f64(0, -0.5);
  ASSERT_EQ(world.call(*stream, other), RLK_OK) << world.text();
  ASSERT_EQ(world.synchronize(*stream), RLK_OK);
  EXPECT_EQ(script.destroyed, 0) << "dropped from the cache, but its constants are the graph's";
  graph.reset();
  ASSERT_EQ(world.synchronize(*stream), RLK_OK);
  EXPECT_EQ(script.destroyed, 1);
}

TEST_F(GraphTest, KeepsAPlanThatIsDroppedWhileItIsCaptured) {
  stream.reset();
  world.make_dispatcher({}, {}, /*max_plans=*/1);
  stream = world.stream();
  auto other = world.stream();
  Script& script = fake_script<Add>();
  ASSERT_EQ(world.call(*stream, call), RLK_OK);
  ASSERT_EQ(world.synchronize(*stream), RLK_OK);
  begin();
  OpCall& second = world.make("add");
  second.set_f64(0, -0.5);
  // Another plan takes its place in the cache, as another thread's call might, while the captured call is inside it.
  bool entered = false;
  script.on_enqueue = [&](const sdk::Run&) {
    if (std::exchange(entered, true)) return;
    EXPECT_EQ(world.call(*other, second), RLK_OK) << world.text();
  };
  ASSERT_EQ(world.call(*stream, call), RLK_OK) << world.text();
  std::unique_ptr<Graph> graph = end();
  ASSERT_EQ(world.synchronize(*other), RLK_OK);
  ASSERT_EQ(world.synchronize(*stream), RLK_OK);
  ASSERT_EQ(script.destroyed, 0) << "the graph replays it";
  ASSERT_EQ(graph->launch(*stream, nullptr), RLK_OK);
  ASSERT_EQ(world.synchronize(*stream), RLK_OK);
  graph.reset();
  ASSERT_EQ(world.synchronize(*stream), RLK_OK);
  EXPECT_EQ(script.destroyed, 1);
  EXPECT_EQ(fake_log().violations, 0);
}

TEST_F(GraphTest, GrowthDuringCaptureIsRefused) {
  uint64_t bytes = 100;
  fake_script<Add>().prepared = [&](int64_t) { return bytes; };
  ASSERT_EQ(world.call(*stream, call), RLK_OK) << world.text();
  begin();
  bytes = 100000;
  expect_refused(world.call(*stream, call), "workspace of 100000 bytes");
  bytes = 100;
  EXPECT_EQ(world.call(*stream, call), RLK_OK) << world.text();
  end();
}

TEST_F(GraphTest, ASmallCallFirstLeavesTheLargestWorkspaceForTheOthers) {
  uint64_t bytes = 1000;
  fake_script<Add>().prepared = [&](int64_t) { return bytes; };
  ASSERT_EQ(world.call(*stream, call), RLK_OK);
  auto other = world.stream();
  bytes = 100000;
  ASSERT_EQ(world.call(*other, call), RLK_OK) << "what the device has needed before";
  ASSERT_EQ(world.synchronize(*stream), RLK_OK);
  ASSERT_EQ(world.synchronize(*other), RLK_OK);
  begin();
  for (const uint64_t needed : {1000, 100000}) {
    bytes = needed;
    EXPECT_EQ(world.call(*stream, call), RLK_OK) << world.text();
  }
  bytes = 1000000;
  EXPECT_EQ(world.call(*stream, call), RLK_CAPTURE_FORBIDS);
  EXPECT_NE(world.text().find("1000000 bytes is needed and 100000 are here"), std::string::npos) << world.text();
  end();
}

TEST_F(GraphTest, PlanningDuringCaptureIsRefused) {
  begin();
  expect_refused(world.call(*stream, call), "Make the call once before the capture begins");
  end();
  EXPECT_EQ(fake_script<Add>().plans, 0);
}

TEST_F(GraphTest, StagingDuringCaptureIsRefused) {
  fake_script<Add, 0>().level = fake_script<Add, 1>().level = RLK_SUPPORT_NO;
  ASSERT_EQ(world.call(*stream, call), RLK_OK) << world.text();
  ASSERT_EQ(world.synchronize(*stream), RLK_OK);
  const uint64_t host_functions = fake_log().host_functions;
  begin();
  expect_refused(world.call(*stream, call), "staged on the CPU");
  EXPECT_EQ(fake_log().host_functions, host_functions);
  end();
}

TEST_F(GraphTest, PlansThatCannotBeCapturedArePassedOver) {
  fake_script<Add, 0>().plan_flags = RLK_PLAN_SHAREABLE;
  core::CallOptions second;
  second.pin = "fake:second";
  ASSERT_EQ(world.call(*stream, call), RLK_OK);
  ASSERT_EQ(world.call(*stream, call, second), RLK_OK);
  begin();
  EXPECT_EQ(world.call(*stream, call), RLK_OK) << world.text();
  EXPECT_EQ(world.call(*stream, call), RLK_OK) << world.text();
  end();
  EXPECT_EQ((fake_script<Add, 0>().enqueues), 1);
  EXPECT_EQ((fake_script<Add, 1>().enqueues), 3);
}

TEST_F(GraphTest, HostReadableInputsMustBeGivenByTheCaller) {
  fake_script<Attention>().host_inputs = 1u << RLK_ATTENTION_IN_CU_SEQLENS_Q;
  OpCall& packed = world.make("attention", RLK_ATTENTION_LAYOUT_PACKED);
  ASSERT_EQ(world.call(*stream, packed), RLK_OK) << world.text();
  begin();
  expect_refused(world.call(*stream, packed), "options.host_inputs");
  const void* host[5] = {nullptr, nullptr, nullptr, packed.inputs[3].data, nullptr};
  core::CallOptions options;
  options.host_inputs = host;
  EXPECT_EQ(world.call(*stream, packed, options), RLK_OK) << world.text();
  end();
}

TEST_F(GraphTest, QuestionsDuringCaptureAreRefused) {
  begin();
  EXPECT_EQ(world.synchronize(*stream), RLK_CAPTURE_FORBIDS);
  EXPECT_EQ(world.dispatcher->query(*stream, nullptr), RLK_CAPTURE_FORBIDS);
  EXPECT_EQ(stream->begin_capture(nullptr), RLK_INVALID_ARGUMENT);
  EXPECT_EQ(stream->finish(nullptr), RLK_INVALID_ARGUMENT);
  end();
  EXPECT_EQ(stream->finish(nullptr), RLK_OK);
  EXPECT_EQ(fake_log().violations, 0);
}

TEST_F(GraphTest, AFailureDuringCaptureIsNotTriedElsewhere) {
  ASSERT_EQ(world.call(*stream, call), RLK_OK);
  begin();
  fake_script<Add>().fail_enqueue = RLK_BACKEND_ERROR;
  EXPECT_EQ(world.call(*stream, call), RLK_BACKEND_ERROR);
  EXPECT_NE(world.text().find("drop the capture"), std::string::npos) << world.text();
  end();
}

TEST_F(GraphTest, BackendsWithoutGraphsSaySo) {
  World plain(World::kCpu | World::kPlain);
  auto other = plain.stream("plain");
  rlk_error error = {sizeof(rlk_error), 0, 0, {}, {}};
  EXPECT_EQ(other->begin_capture(&error), RLK_UNSUPPORTED);
  EXPECT_NE(std::string(error.text).find("plain"), std::string::npos);
  std::unique_ptr<Graph> graph;
  EXPECT_EQ(Graph::end_capture(*other, &graph, &error), RLK_INVALID_ARGUMENT);
}

TEST_F(GraphTest, AGraphOutlivesTheStreamThatCapturedIt) {
  fake_script<Add>().workspace = 1000;
  ASSERT_EQ(world.call(*stream, call), RLK_OK);
  begin();
  ASSERT_EQ(world.call(*stream, call), RLK_OK);
  std::unique_ptr<Graph> graph = end();
  EXPECT_EQ(world.dispatcher->live_graphs(), 1u);
  stream.reset();
  auto other = world.stream();
  input()[0] = 42;
  ASSERT_EQ(graph->launch(*other, &world.last), RLK_OK) << world.text();
  ASSERT_EQ(world.synchronize(*other), RLK_OK);
  EXPECT_EQ(output()[0], 42);
  graph.reset();
  EXPECT_EQ(world.dispatcher->live_graphs(), 0u);
  EXPECT_EQ(other->device().memory.statistics().in_use_bytes, 0u);
  EXPECT_EQ(fake_log().violations, 0);
}

}  // namespace
}  // namespace rlk::test
