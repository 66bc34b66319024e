// What a plan may ask for: memory that lives as long as it does, time to be compiled, parameters that only it knows.
#include <thread>

#include "unit/dispatch/world.hpp"

namespace rlk::test {
namespace {

using core::Graph;
using sdk::ops::Add;
using sdk::ops::Logp;

// ---- persistent memory

class PersistentMemoryTest : public ::testing::Test {
protected:
  PersistentMemoryTest() : stream(world.stream()), other(world.stream()), call(world.make("logp")) {
    script.persistent = 1000;
    script.on_enqueue = [this](const sdk::Run& run) {
      memory.push_back(run.persistent());
      is_new.push_back(run.is_persistent_new());
    };
  }
  World world;
  std::unique_ptr<Stream> stream, other;
  OpCall& call;
  Script& script = fake_script<Logp>();
  std::vector<void*> memory;
  std::vector<bool> is_new;
};

TEST_F(PersistentMemoryTest, OfASharedPlanIsNewOnceAndTheSameInEveryExecution) {
  for (int i = 0; i < 2; ++i) ASSERT_EQ(world.call(*stream, call), RLK_OK) << world.text();
  OpCall& of_other = world.make("logp");  // streams without an order between them share no output
  ASSERT_EQ(world.call(*other, of_other), RLK_OK) << world.text();
  EXPECT_EQ(is_new, (std::vector<bool>{true, false, false}));
  EXPECT_NE(memory[0], nullptr);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(memory[0]) % 256, 0u);
  EXPECT_EQ(memory, (std::vector<void*>(3, memory[0])));
  ASSERT_EQ(world.synchronize(*stream), RLK_OK);
  ASSERT_EQ(world.synchronize(*other), RLK_OK);
  stream = nullptr;
  other = nullptr;
  world.dispatcher = nullptr;
  EXPECT_EQ(fake_log().live_bytes, 0u);
}

TEST_F(PersistentMemoryTest, OtherStreamsWaitForTheExecutionThatFillsIt) {
  fake(stream->handle()).worker->hold(true);
  ASSERT_EQ(world.call(*stream, call), RLK_OK);
  OpCall& second = world.make("logp");
  ASSERT_EQ(world.call(*other, second), RLK_OK);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(script.runs, 0) << "the memory is not filled yet";
  fake(stream->handle()).worker->hold(false);
  ASSERT_EQ(world.synchronize(*other), RLK_OK);
  EXPECT_EQ(script.runs, 2);
}

TEST_F(PersistentMemoryTest, IsNewAgainAfterAFirstExecutionThatFailed) {
  script.fail_enqueue = RLK_OUT_OF_MEMORY;
  world.call(*stream, call);  // the next candidate serves it
  script.fail_enqueue = RLK_OK;
  OpCall& of_other = world.make("logp");
  ASSERT_EQ(world.call(*other, of_other), RLK_OK) << world.text();
  EXPECT_TRUE(is_new.back());
}

TEST_F(PersistentMemoryTest, OfAPlanThatIsNotSharedBelongsToTheInstance) {
  script.plan_flags = RLK_PLAN_CAPTURABLE;
  fake(stream->handle()).worker->hold(true);
  for (int i = 0; i < 2; ++i) ASSERT_EQ(world.call(*stream, call), RLK_OK) << world.text();
  fake(stream->handle()).worker->hold(false);
  ASSERT_EQ(world.synchronize(*stream), RLK_OK);
  ASSERT_EQ(world.call(*stream, call), RLK_OK);
  EXPECT_EQ(is_new, (std::vector<bool>{true, true, false}));
  EXPECT_NE(memory[0], memory[1]);
}

TEST_F(PersistentMemoryTest, CannotBeFilledInACapture) {
  ASSERT_EQ(stream->begin_capture(nullptr), RLK_OK);
  script.workspace = 0;
  EXPECT_EQ(world.call(*stream, call), RLK_CAPTURE_FORBIDS) << "no plan";
  std::unique_ptr<Graph> graph;
  ASSERT_EQ(Graph::end_capture(*stream, &graph, nullptr), RLK_OK);
  // A plan without filled memory: its only execution failed.
  script.fail_enqueue = RLK_OUT_OF_MEMORY;
  world.call(*stream, call);
  script.fail_enqueue = RLK_OK;
  ASSERT_EQ(stream->begin_capture(nullptr), RLK_OK);
  EXPECT_EQ(world.call(*stream, call), RLK_CAPTURE_FORBIDS);
  EXPECT_NE(world.text().find("persistent memory"), std::string::npos) << world.text();
  graph = nullptr;
  ASSERT_EQ(Graph::end_capture(*stream, &graph, nullptr), RLK_OK);
  ASSERT_EQ(world.call(*stream, call), RLK_OK);
  ASSERT_EQ(stream->begin_capture(nullptr), RLK_OK);
  EXPECT_EQ(world.call(*stream, call), RLK_OK) << "filled in this stream's order: " << world.text();
  graph = nullptr;
  ASSERT_EQ(Graph::end_capture(*stream, &graph, nullptr), RLK_OK);
}

// ---- plans that are not ready

TEST(NotReady, TheNextServesUntilThePlanIsThere) {
  World world;
  Script &first = fake_script<Logp, 0>(), &second = fake_script<Logp, 1>();
  first.compiling = true;
  auto stream = world.stream();
  OpCall& call = world.make("logp");
  for (int i = 0; i < 100; ++i) ASSERT_EQ(world.call(*stream, call), RLK_OK) << world.text();
  EXPECT_EQ(second.enqueues, 100);
  EXPECT_LE(first.asked, 3) << "not at each call";
  EXPECT_EQ(world.counters("logp").not_ready, 100u);
  const core::Explanation explanation = world.explain(*stream, call);
  EXPECT_EQ(World::taken(explanation), "fake/second");
  bool found = false;
  for (const core::Option& o : explanation.options) {
    found = found || (o.implementation == "first" && o.plugin == "fake" && o.reason_code == "NOT_READY");
  }
  EXPECT_TRUE(found);
  first.compiling = false;
  for (int i = 0; i < 200 && first.enqueues == 0; ++i) {
    ASSERT_EQ(world.call(*stream, call), RLK_OK) << world.text();
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_EQ(first.enqueues, 1);
  ASSERT_EQ(world.call(*stream, call), RLK_OK);
  EXPECT_EQ(first.enqueues, 2) << "and stays";
  EXPECT_EQ(World::taken(world.explain(*stream, call)), "fake/first");
  EXPECT_TRUE(world.registry.current()->quarantined.empty());
  ASSERT_EQ(world.synchronize(*stream), RLK_OK);
}

TEST(NotReady, IsWaitedForWhereNoOtherCanServe) {
  World world;
  Script& first = fake_script<Logp, 0>();
  first.compiling = true;
  auto stream = world.stream();
  OpCall& call = world.make("logp");
  core::CallOptions pinned;
  pinned.pin = "fake:first";
  std::thread compiler([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    first.compiling = false;
  });
  EXPECT_EQ(world.call(*stream, call, pinned), RLK_OK) << world.text();
  compiler.join();
  EXPECT_EQ(first.enqueues, 1);
  EXPECT_EQ(world.counters("logp").not_ready, 1u);
  ASSERT_EQ(world.synchronize(*stream), RLK_OK);
}

TEST(NotReady, IsWaitedForWhenFallbackIsForbidden) {
  World world(World::kAll, {{"RLK_FALLBACK", "strict"}});
  Script &first = fake_script<Logp, 0>(), &second = fake_script<Logp, 1>();
  second.level = RLK_SUPPORT_NO;
  first.compiling = true;
  auto stream = world.stream();
  OpCall& call = world.make("logp");
  std::thread compiler([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    first.compiling = false;
  });
  EXPECT_EQ(world.call(*stream, call), RLK_OK) << world.text();
  compiler.join();
  EXPECT_EQ(first.enqueues, 1) << "and the CPU did not";
  ASSERT_EQ(world.synchronize(*stream), RLK_OK);
}

TEST(NotReady, IsAFallbackToTheCpuThatIsNamed) {
  World world;
  fake_script<Logp, 0>().compiling = fake_script<Logp, 1>().compiling = true;
  auto stream = world.stream();
  OpCall& call = world.make("logp");
  ASSERT_EQ(world.call(*stream, call), RLK_OK) << world.text();
  const auto fallbacks = world.dispatcher->counters().fallbacks(op("logp"));
  ASSERT_EQ(fallbacks.size(), 1u);
  EXPECT_EQ(fallbacks[0]->reason_code, "NOT_READY");
  ASSERT_EQ(world.synchronize(*stream), RLK_OK);
}

// ---- private parameters

class PrivateParamsTest : public ::testing::Test {
protected:
  PrivateParamsTest() : stream(world.stream()), call(world.make("add")) {
    params.struct_size = sizeof(params);
    params.type = RLK_EXT_PRIVATE_PARAMS;
    params.plugin = "guest";
    params.data = "split=4";
    params.bytes = 7;
    options.next = reinterpret_cast<const rlk_ext*>(&params);
    const auto see = [](std::vector<std::string>* seen) {
      return [seen](const rlk_private_params* p) {
        EXPECT_TRUE(p == nullptr || p->next == nullptr) << "the others are no business of the plugin";
        seen->push_back(p == nullptr ? "nothing" : std::string(static_cast<const char*>(p->data), p->bytes));
      };
    };
    guest_script().on_query = see(&guest_queries);
    guest_script().on_plan = see(&guest_plans);
    fake_script<Add>().on_query = see(&fake_queries);
  }
  ~PrivateParamsTest() override { world.synchronize(*stream); }
  rlk_status run() { return world.call(*stream, call, options); }

  World world{World::kAll | World::kGuest, {{"RLK_OP_ADD", "guest/first"}}};
  std::unique_ptr<Stream> stream;
  OpCall& call;
  rlk_private_params params{};
  core::CallOptions options;
  std::vector<std::string> guest_queries, guest_plans, fake_queries;
};

TEST_F(PrivateParamsTest, ReachThePluginTheyNameAndNoOther) {
  ASSERT_EQ(run(), RLK_OK) << world.text();
  EXPECT_EQ(guest_queries, (std::vector<std::string>{"split=4", "split=4"})) << "plan_create asks query once more";
  EXPECT_EQ(guest_plans, std::vector<std::string>{"split=4"});
  EXPECT_EQ(fake_queries, std::vector<std::string>{"nothing"});
  EXPECT_EQ(guest_script().enqueues, 1);
}

TEST_F(PrivateParamsTest, ArePartOfThePlansKeyByteForByte) {
  ASSERT_EQ(run(), RLK_OK) << world.text();
  std::string copy = "split=4";
  params.data = copy.data();
  ASSERT_EQ(run(), RLK_OK);
  EXPECT_EQ(guest_script().plans, 1) << "equal bytes at another address";
  copy.back() = '5';
  ASSERT_EQ(run(), RLK_OK);
  EXPECT_EQ(guest_plans, (std::vector<std::string>{"split=4", "split=5"}));
  params.bytes = 6;
  ASSERT_EQ(run(), RLK_OK);
  options.next = nullptr;
  ASSERT_EQ(run(), RLK_OK);
  EXPECT_EQ(guest_plans, (std::vector<std::string>{"split=4", "split=5", "split=", "nothing"}));
  options.next = reinterpret_cast<const rlk_ext*>(&params);
  params.bytes = 7;
  ASSERT_EQ(run(), RLK_OK);
  EXPECT_EQ(guest_script().plans, 4) << "each has its plan";
}

TEST_F(PrivateParamsTest, OfAnInstanceThatIsMadeLaterAreTheOnesOfItsPlan) {
  guest_script().plan_flags = RLK_PLAN_CAPTURABLE;
  fake(stream->handle()).worker->hold(true);
  std::string data = "split=4";
  params.data = data.data();
  ASSERT_EQ(run(), RLK_OK);
  ASSERT_EQ(run(), RLK_OK);
  fake(stream->handle()).worker->hold(false);
  EXPECT_EQ(guest_plans, (std::vector<std::string>{"split=4", "split=4"}));
}

TEST_F(PrivateParamsTest, ThatAreRequiredLeaveNobodyElse) {
  params.type |= RLK_EXT_REQUIRED;
  guest_script().level = RLK_SUPPORT_NO;
  EXPECT_EQ(run(), RLK_UNSUPPORTED);
  EXPECT_NE(world.text().find("fake/first: PRIVATE_PARAMS"), std::string::npos) << world.text();
  params.type = RLK_EXT_PRIVATE_PARAMS;
  EXPECT_EQ(run(), RLK_OK) << "as a preference any may serve: " << world.text();
  params.type |= RLK_EXT_REQUIRED;
  params.plugin = "nobody";
  EXPECT_EQ(run(), RLK_UNSUPPORTED);
  EXPECT_NE(world.text().find("NO_SUCH_PLUGIN"), std::string::npos) << world.text();
}

TEST_F(PrivateParamsTest, ThatBreakTheRulesAreNamed) {
  const auto refused = [&](const char* part, rlk_status status = RLK_INVALID_ARGUMENT) {
    EXPECT_EQ(run(), status) << part;
    EXPECT_NE(world.text().find(part), std::string::npos) << part << " | " << world.text();
  };
  params.bytes = RLK_MAX_PRIVATE_BYTES + 1;
  refused("at most 4096");
  params.bytes = 7;
  params.data = nullptr;
  refused("at NULL");
  params.data = "split=4";
  params.plugin = nullptr;
  refused("names no plugin");
  params.plugin = "";
  refused("empty");
  params.plugin = "guest";
  rlk_private_params second = params;
  params.next = reinterpret_cast<const rlk_ext*>(&second);
  refused("twice");
  params.next = reinterpret_cast<const rlk_ext*>(&params);
  params.type = 77;
  refused("ends with NULL");
  params.next = nullptr;
  params.type = 77 | RLK_EXT_REQUIRED;
  refused("type 77", RLK_UNSUPPORTED);
  params.type = 77;
  EXPECT_EQ(run(), RLK_OK) << "an unknown element is skipped";
  EXPECT_EQ(guest_plans, std::vector<std::string>{"nothing"});
}

}  // namespace
}  // namespace rlk::test
