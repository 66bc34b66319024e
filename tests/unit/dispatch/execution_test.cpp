// One call on its stream: workspace, host-readable inputs.
#include "unit/dispatch/world.hpp"

namespace rlk::test {
namespace {

using sdk::ops::Attention;
using sdk::ops::Logp;

// ---- workspace

TEST(Workspace, IsKeptBetweenCallsAndGrowsGeometrically) {
  World world;
  Script& script = fake_script<Logp>();
  uint64_t bytes = 1000;
  script.prepared = [&](int64_t) { return bytes; };
  std::vector<uint64_t> seen;
  script.on_enqueue = [&](const sdk::Run& run) { seen.push_back(run.workspace_bytes()); };
  auto stream = world.stream();
  OpCall& call = world.make("logp");
  for (int i = 0; i < 40; ++i) {
    ASSERT_EQ(world.call(*stream, call), RLK_OK) << world.text();
    bytes += 1000;
  }
  EXPECT_EQ(seen.front(), 1000u);
  EXPECT_EQ(seen.back(), 40000u) << "exactly what prepare asked for";
  EXPECT_LE(stream->device().memory.statistics().allocations, 12u);
  ASSERT_EQ(world.synchronize(*stream), RLK_OK);
  EXPECT_EQ(fake_log().violations, 0);
}

TEST(Workspace, StreamsDoNotShareIt) {
  World world;
  fake_script<Logp>().workspace = 1 << 16;
  fake_log().delay_us = 50;
  auto one = world.stream(), other = world.stream();
  OpCall &call = world.make("logp"), &second = world.make("logp");
  for (int i = 0; i < 50; ++i) {
    ASSERT_EQ(world.call(*one, call), RLK_OK) << world.text();
    ASSERT_EQ(world.call(*other, second), RLK_OK) << world.text();
  }
  ASSERT_EQ(world.synchronize(*one), RLK_OK);
  ASSERT_EQ(world.synchronize(*other), RLK_OK);
  EXPECT_EQ(fake_log().violations, 0);
}

TEST(Workspace, PrepareIsCalledOnlyWhenItIsNeeded) {
  World world;
  fake_script<Logp>().workspace = 512;
  auto stream = world.stream();
  OpCall& call = world.make("logp");
  ASSERT_EQ(world.call(*stream, call), RLK_OK);
  EXPECT_EQ(fake_script<Logp>().prepares, 0) << "the bound is known";
}

TEST(Workspace, ThatDoesNotFitIsLeftToTheNextWhoNeedsLess) {
  World world;
  fake_script<Logp>().workspace = 1 << 20;
  fake_log().limit_bytes = 1 << 19;
  auto stream = world.stream();
  OpCall& call = world.make("logp");
  ASSERT_EQ(world.call(*stream, call), RLK_OK) << world.text();
  EXPECT_EQ(fake_script<Logp>().enqueues, 0);
  EXPECT_EQ((fake_script<Logp, 1>().enqueues), 1);
  EXPECT_TRUE(world.registry.current()->quarantined.empty());
}

TEST(Workspace, ThatFitsForNobodyIsOutOfMemory) {
  World world(World::kFake);
  for (Script* script : {&fake_script<Logp, 0>(), &fake_script<Logp, 1>()}) script->workspace = 1 << 20;
  fake_log().limit_bytes = 1 << 19;
  auto stream = world.stream();
  OpCall& call = world.make("logp");
  EXPECT_EQ(world.call(*stream, call), RLK_OUT_OF_MEMORY);
  for (const char* part : {"1048576 bytes", "fake:0", "Free memory", "fake/first", "fake/second"}) {
    EXPECT_NE(world.text().find(part), std::string::npos) << part << " | " << world.text();
  }
  EXPECT_TRUE(world.registry.current()->quarantined.empty());
}

// ---- host-readable inputs

class HostInputs : public ::testing::Test {
protected:
  HostInputs() : call(world.make("attention", RLK_ATTENTION_LAYOUT_PACKED)) {
    Script& script = fake_script<Attention>();
    script.host_inputs = 1u << RLK_ATTENTION_IN_CU_SEQLENS_Q | 1u << RLK_ATTENTION_IN_CU_SEQLENS_K;
    script.on_enqueue = [this](const sdk::Run& run) {
      const auto* q = static_cast<const int32_t*>(run.host_input(RLK_ATTENTION_IN_CU_SEQLENS_Q));
      seen = q == nullptr ? std::vector<int32_t>{} : std::vector<int32_t>{q[0], q[1], q[2]};
      EXPECT_EQ(run.host_input(RLK_ATTENTION_IN_Q), nullptr);
    };
    for (const int i : {RLK_ATTENTION_IN_CU_SEQLENS_Q, RLK_ATTENTION_IN_CU_SEQLENS_K}) {
      const int32_t values[] = {0, 4, 11};
      std::memcpy(call.inputs[static_cast<size_t>(i)].data, values, sizeof(values));
    }
  }
  World world;
  OpCall& call;
  std::vector<int32_t> seen;
};

TEST_F(HostInputs, AreCopiedFromTheDeviceWhichWaitsAndIsCounted) {
  auto stream = world.stream();
  // The values are made by earlier work of the stream.
  fake(stream->handle()).push([this] {
    static_cast<int32_t*>(call.inputs[RLK_ATTENTION_IN_CU_SEQLENS_Q].data)[1] = 5;
  });
  ASSERT_EQ(world.call(*stream, call), RLK_OK) << world.text();
  EXPECT_EQ(seen, (std::vector<int32_t>{0, 5, 11}));
  EXPECT_EQ(world.counters("attention").host_copies, 1u);
}

TEST_F(HostInputs, GivenByTheCallerNeedNoWait) {
  auto stream = world.stream();
  const int32_t values[] = {0, 7, 11};
  const void* host[] = {nullptr, nullptr, nullptr, values, values};
  core::CallOptions options;
  options.host_inputs = host;
  const uint64_t waits = fake_log().waits;
  ASSERT_EQ(world.call(*stream, call, options), RLK_OK) << world.text();
  EXPECT_EQ(seen, (std::vector<int32_t>{0, 7, 11}));
  EXPECT_EQ(world.counters("attention").host_copies, 0u);
  EXPECT_EQ(fake_log().waits, waits);
}

TEST_F(HostInputs, OfStridedTensorsAreContiguous) {
  Argument& q = call.inputs[RLK_ATTENTION_IN_CU_SEQLENS_Q];
  auto* spread = static_cast<int32_t*>(call.allocate(64));
  for (int i = 0; i < 12; ++i) spread[i] = i % 4 == 0 ? (i == 0 ? 0 : i == 4 ? 3 : 11) : -1;
  q.data = spread;
  q.strides = {4};
  call.refresh();
  auto stream = world.stream();
  world.plugins[1].units.push_back(unit("attention", "first", "f32", "strided"));
  world.publish();
  ASSERT_EQ(world.call(*stream, call), RLK_OK) << world.text();
  EXPECT_EQ(seen, (std::vector<int32_t>{0, 3, 11}));
}

TEST_F(HostInputs, ThatFindNoMemoryWaitForTheCopiesBefore) {
  auto stream = world.stream();
  FakeLog& log = fake_log();
  log.limit_bytes = log.live_bytes + 1000;  // room for one of the two
  log.delay_us = 50000;
  EXPECT_EQ(world.call(*stream, call), RLK_OUT_OF_MEMORY) << world.text();
  EXPECT_EQ(log.copies, 1u);
  Worker& worker = *fake(stream->handle()).worker;
  EXPECT_TRUE(worker.is_done(worker.pushed())) << "the copy would land in memory that is free again";
}

TEST_F(HostInputs, ThatNoMemoryHoldsEndTheCallAndLeaveThePlan) {
#ifdef RLK_SANITIZED
  GTEST_SKIP() << "sanitizers end the program instead of throwing bad_alloc";
#endif
  // One number seen 2^50 times, to be gathered for the host.
  for (const int i : {RLK_ATTENTION_IN_CU_SEQLENS_Q, RLK_ATTENTION_IN_CU_SEQLENS_K}) {
    Argument& lengths = call.inputs[static_cast<size_t>(i)];
    lengths.shape = {int64_t{1} << 50};
    lengths.strides = {0};
  }
  call.refresh();
  cpu_script<Attention>().host_inputs = 1u << RLK_ATTENTION_IN_CU_SEQLENS_Q;
  auto stream = world.stream("cpu");
  EXPECT_THROW(world.call(*stream, call), std::bad_alloc) << world.text();
  stream.reset();
  world.dispatcher.reset();  // would wait for ever for a call that is still inside the plan
  EXPECT_EQ(cpu_script<Attention>().destroyed, 1);
}

TEST_F(HostInputs, OnUnifiedMemoryAreReadInPlace) {
  cpu_script<Attention>().host_inputs = 1u << RLK_ATTENTION_IN_CU_SEQLENS_Q;
  const void* where = nullptr;
  cpu_script<Attention>().on_enqueue = [&](const sdk::Run& run) {
    where = run.host_input(RLK_ATTENTION_IN_CU_SEQLENS_Q);
  };
  auto stream = world.stream("cpu");
  ASSERT_EQ(world.call(*stream, call), RLK_OK) << world.text();
  EXPECT_EQ(where, call.inputs[RLK_ATTENTION_IN_CU_SEQLENS_Q].data);
}

TEST_F(HostInputs, ThatAreNotDeclaredReadableAreAReasonToDecline) {
  fake_script<Logp>().host_inputs = 1u << RLK_LOGP_IN_IDS;
  auto stream = world.stream();
  OpCall& logp = world.make("logp");
  ASSERT_EQ(world.call(*stream, logp), RLK_OK) << world.text();
  EXPECT_EQ(fake_script<Logp>().enqueues, 0);
  EXPECT_EQ((fake_script<Logp, 1>().enqueues), 1);
}

}  // namespace
}  // namespace rlk::test
