// One call on its stream: workspace, host-readable inputs, failures, data errors.
#include "unit/dispatch/world.hpp"

namespace rlk::test {
namespace {

using sdk::ops::Add;
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
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
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

// ---- failures

TEST(Failure, OfEnqueueQuarantinesAndTheNextCandidateServes) {
  World world;
  std::vector<core::Quarantined> told;
  world.registry.on_quarantine([&](const core::Quarantined& q, bool only_suspected) {
    EXPECT_FALSE(only_suspected);
    told.push_back(q);
  });
  fake_script<Logp>().fail_enqueue = RLK_BACKEND_ERROR;
  auto stream = world.stream();
  OpCall& call = world.make("logp");
  ASSERT_EQ(world.call(*stream, call), RLK_OK) << world.text();
  ASSERT_EQ(world.synchronize(*stream), RLK_OK);
  EXPECT_EQ(static_cast<float*>(call.outputs[0].data)[0], 2) << "by fake/second";
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].plugin, "fake");
  EXPECT_EQ(told[0].implementation, "first");
  EXPECT_EQ(told[0].dtype, "f32");
  EXPECT_EQ(told[0].reason_code, "BACKEND_ERROR");
  EXPECT_NE(told[0].reason.find("the script says so"), std::string::npos);
  // It is not asked again for the dtype, and explain says why.
  ASSERT_EQ(world.call(*stream, call), RLK_OK);
  EXPECT_EQ(fake_script<Logp>().enqueues, 1);
  const core::Explanation explanation = world.explain(*stream, call);
  bool found = false;
  for (const core::Option& o : explanation.options) {
    found = found || (o.plugin == "fake" && o.implementation == "first" && o.reason_code == "QUARANTINED");
  }
  EXPECT_TRUE(found);
  EXPECT_EQ(world.counters("logp").failures, 1u);
  // Another dtype of it is not switched off.
  OpCall& half = world.make("logp");
  half.dtypes[0] = Dtype::bf16;
  half.rebuild();
  EXPECT_EQ(World::taken(world.explain(*stream, half)), "fake/first");
}

TEST(Failure, OfEveryCandidateIsAnError) {
  World world;
  for (Script* s : {&fake_script<Logp, 0>(), &fake_script<Logp, 1>()}) s->fail_enqueue = RLK_PLUGIN_EXCEPTION;
  for (Script* s : {&cpu_script<Logp, 0>(), &cpu_script<Logp, 1>()}) s->level = RLK_SUPPORT_NO;
  auto stream = world.stream();
  OpCall& call = world.make("logp");
  EXPECT_EQ(world.call(*stream, call), RLK_UNSUPPORTED);
  for (const char* part : {"fake/first", "fake/second", "QUARANTINED", "the script says so", "cpu/first"}) {
    EXPECT_NE(world.text().find(part), std::string::npos) << part << " | " << world.text();
  }
}

TEST(Failure, OfPlanning) {
  World world;
  fake_script<Logp, 0>().fail_plan = RLK_BACKEND_ERROR;
  fake_script<Logp, 1>().fail_plan = RLK_UNSUPPORTED;
  auto stream = world.stream();
  OpCall& call = world.make("logp");
  ASSERT_EQ(world.call(*stream, call), RLK_OK) << world.text();
  EXPECT_EQ(world.counters("logp").staged, 1u);
  ASSERT_EQ(world.registry.current()->quarantined.size(), 1u) << "unsupported is an answer, not a failure";
  EXPECT_EQ(world.registry.current()->quarantined[0]->implementation, "first");
}

TEST(Failure, InPlaceIsNotTriedAgain) {
  World world;
  fake_script<Add>().fail_enqueue = RLK_BACKEND_ERROR;
  auto stream = world.stream();
  OpCall& call = world.make("add");
  call.outputs[0].data = call.inputs[0].data;
  call.refresh();
  EXPECT_EQ(world.call(*stream, call), RLK_BACKEND_ERROR);
  EXPECT_NE(world.text().find("written over its inputs"), std::string::npos) << world.text();
  EXPECT_EQ(world.call(*stream, call), RLK_OK) << "by the next one";
}

TEST(Failure, OfMemoryReleasesTheCachesIsTriedOnceAndThenTheNextServes) {
  World world;
  auto stream = world.stream();
  void* memory = nullptr;
  core::DeviceState& device = stream->device();
  ASSERT_EQ(device.memory.allocate(*stream->clock(), 4096, &memory, nullptr), RLK_OK);
  ASSERT_EQ(device.memory.deallocate(memory, stream->mark(true), nullptr), RLK_OK);
  Script& script = fake_script<Logp>();
  script.fail_enqueue = RLK_OUT_OF_MEMORY;
  uint64_t cached_at_second = 1;
  script.on_enqueue = [&](const sdk::Run&) {
    if (script.enqueues == 2) cached_at_second = device.memory.statistics().cached_bytes;
  };
  OpCall& call = world.make("logp");
  ASSERT_EQ(world.call(*stream, call), RLK_OK) << world.text();
  EXPECT_EQ(script.enqueues, 2);
  EXPECT_EQ(cached_at_second, 0u);
  EXPECT_EQ((fake_script<Logp, 1>().enqueues), 1);
  EXPECT_TRUE(world.registry.current()->quarantined.empty());
  script.fail_enqueue = RLK_OK;
  ASSERT_EQ(world.call(*stream, call), RLK_OK);
  EXPECT_EQ(script.enqueues, 3) << "for that call only";
  // Without any that has memory.
  for (Script* s : {&script, &fake_script<Logp, 1>()}) s->fail_enqueue = RLK_OUT_OF_MEMORY;
  for (Script* s : {&cpu_script<Logp, 0>(), &cpu_script<Logp, 1>()}) s->level = RLK_SUPPORT_NO;
  EXPECT_EQ(world.call(*stream, call), RLK_OUT_OF_MEMORY);
  EXPECT_NE(world.text().find("fake/second: OUT_OF_MEMORY"), std::string::npos) << world.text();
  ASSERT_EQ(world.synchronize(*stream), RLK_OK);
}

TEST(Failure, ADeviceThatOnlyOnePluginSaysIsLostIsServedByTheNext) {
  World world;
  fake_script<Logp>().fail_enqueue = RLK_DEVICE_LOST;
  auto stream = world.stream();
  OpCall& call = world.make("logp");
  ASSERT_EQ(world.call(*stream, call), RLK_OK) << world.text();
  EXPECT_EQ((fake_script<Logp, 1>().enqueues), 1);
  ASSERT_EQ(world.registry.current()->quarantined.size(), 1u);
  EXPECT_EQ(world.registry.current()->quarantined[0]->reason_code, "DEVICE_LOST");
  ASSERT_EQ(world.synchronize(*stream), RLK_OK);
}

void lose(Stream& stream) {
  FakeStream& inside = fake(stream.handle());
  inside.worker->wait(inside.worker->pushed(), UINT64_MAX);
  inside.broken_status = RLK_DEVICE_LOST;
  inside.broken = true;
}

TEST(Failure, AnIllegalAddressSwitchesOffTheOnlyOneThatCanHaveDoneIt) {
  World world;
  auto stream = world.stream(), other = world.stream();
  OpCall &logp = world.make("logp"), &add = world.make("add");
  ASSERT_EQ(world.call(*other, add), RLK_OK);
  ASSERT_EQ(world.synchronize(*other), RLK_OK) << "fine so far";
  ASSERT_EQ(world.call(*stream, logp), RLK_OK);
  lose(*stream);
  EXPECT_EQ(world.synchronize(*stream), RLK_DEVICE_LOST);
  ASSERT_EQ(world.registry.current()->quarantined.size(), 1u);
  EXPECT_EQ(world.registry.current()->quarantined[0]->op, "logp");
  // The other streams of the device fail the same way, and their calls are innocent.
  ASSERT_EQ(world.call(*other, add), RLK_OK);
  lose(*other);
  EXPECT_EQ(world.synchronize(*other), RLK_DEVICE_LOST);
  EXPECT_EQ(world.registry.current()->quarantined.size(), 1u);
}

TEST(Failure, AnIllegalAddressThatSeveralStreamsMayHaveDoneIsEvidenceAgainstEach) {
  World world;
  std::vector<std::string> told;
  world.registry.on_quarantine([&](const core::Quarantined& q, bool only_suspected) {
    EXPECT_TRUE(only_suspected);
    told.push_back(q.op + " " + q.reason_code);
  });
  auto stream = world.stream(), other = world.stream();
  OpCall &logp = world.make("logp"), &add = world.make("add");
  ASSERT_EQ(world.call(*stream, logp), RLK_OK);
  ASSERT_EQ(world.call(*other, add), RLK_OK);
  lose(*stream);
  EXPECT_EQ(world.synchronize(*stream), RLK_DEVICE_LOST);
  EXPECT_EQ(told.size(), 2u);
  EXPECT_TRUE(world.registry.current()->quarantined.empty());
  EXPECT_EQ(world.registry.current()->suspected.size(), 2u);
  EXPECT_EQ(World::taken(world.explain(*other, add)), "fake/first") << "nobody is switched off";
}

TEST(Failure, OfAWrappedStreamIsEvidenceBecauseItsOwnersKernelsAreUnknown) {
  World world;
  auto stream = world.stream();
  auto native = std::make_unique<FakeStreamWithHostFunctions>();
  std::unique_ptr<Stream> wrapped;
  ASSERT_EQ(Stream::wrap(stream->device(), world.dispatcher->counters(), static_cast<FakeStream*>(native.get()),
                         &wrapped, nullptr),
            RLK_OK);
  OpCall& logp = world.make("logp");
  ASSERT_EQ(world.call(*wrapped, logp), RLK_OK);
  lose(*wrapped);
  EXPECT_EQ(world.synchronize(*wrapped), RLK_DEVICE_LOST);
  EXPECT_NE(world.text().find("logp by fake/first and others"), std::string::npos) << world.text();
  EXPECT_TRUE(world.registry.current()->quarantined.empty());
  EXPECT_EQ(world.registry.current()->suspected.size(), 1u);
}

TEST(Failure, OfADeviceIsNeverTheStagedCpus) {
  World world(World::kAll, {{"RLK_OP_ADD", "cpu"}});
  auto stream = world.stream();
  OpCall& add = world.make("add");
  for (const rlk_status status : {RLK_BACKEND_ERROR, RLK_DEVICE_LOST}) {
    ASSERT_EQ(world.call(*stream, add), RLK_OK) << world.text();
    lose(*stream);
    fake(stream->handle()).broken_status = status;
    EXPECT_EQ(world.synchronize(*stream), status);
    EXPECT_TRUE(world.registry.current()->quarantined.empty());
    EXPECT_TRUE(world.registry.current()->suspected.empty());
    fake(stream->handle()).broken = false;
  }
  auto cpu = world.stream("cpu");
  EXPECT_EQ(world.call(*cpu, add), RLK_OK) << world.text();
}

TEST(Failure, AfterAGraphMayBeAnybodys) {
  World world;
  auto stream = world.stream();
  OpCall& add = world.make("add");
  ASSERT_EQ(world.call(*stream, add), RLK_OK);
  ASSERT_EQ(stream->begin_capture(nullptr), RLK_OK);
  ASSERT_EQ(world.call(*stream, add), RLK_OK);
  std::unique_ptr<core::Graph> graph;
  ASSERT_EQ(core::Graph::end_capture(*stream, &graph, nullptr), RLK_OK);
  ASSERT_EQ(world.synchronize(*stream), RLK_OK);
  ASSERT_EQ(graph->launch(*stream, nullptr), RLK_OK);
  lose(*stream);
  EXPECT_EQ(world.synchronize(*stream), RLK_DEVICE_LOST);
  EXPECT_TRUE(world.registry.current()->quarantined.empty());
}

TEST(Failure, ThatIsAsynchronousNamesTheCallsAndBlamesOneOnly) {
  World world;
  auto stream = world.stream();
  OpCall& logp = world.make("logp");
  OpCall& add = world.make("add");
  ASSERT_EQ(world.call(*stream, logp), RLK_OK);
  ASSERT_EQ(world.call(*stream, add), RLK_OK);
  fake(stream->handle()).worker->wait(2, UINT64_MAX);
  fake(stream->handle()).broken = true;
  EXPECT_EQ(world.synchronize(*stream), RLK_BACKEND_ERROR);
  for (const char* part : {"the fake device failed", "logp by fake/first", "add by fake/first"}) {
    EXPECT_NE(world.text().find(part), std::string::npos) << part << " | " << world.text();
  }
  EXPECT_EQ(world.last.native_code, 700);
  EXPECT_STREQ(world.last.domain, "fake");
  EXPECT_TRUE(world.registry.current()->quarantined.empty()) << "either may be to blame";

  auto second = world.stream();
  ASSERT_EQ(world.call(*second, logp), RLK_OK);
  fake(second->handle()).worker->wait(1, UINT64_MAX);
  fake(second->handle()).broken = true;
  EXPECT_EQ(world.synchronize(*second), RLK_BACKEND_ERROR);
  ASSERT_EQ(world.registry.current()->quarantined.size(), 1u);
  EXPECT_EQ(world.registry.current()->quarantined[0]->op, "logp");
}

TEST(Failure, OfTheStreamIsNotPutDownToTheNextCall) {
  World world;
  auto stream = world.stream();
  OpCall& call = world.make("logp");
  fake(stream->handle()).broken = true;
  fake_script<Logp>().fail_enqueue = RLK_BACKEND_ERROR;
  EXPECT_EQ(world.call(*stream, call), RLK_BACKEND_ERROR);
  EXPECT_NE(world.text().find("the fake device failed"), std::string::npos) << world.text();
  EXPECT_TRUE(world.registry.current()->quarantined.empty());
}

// ---- data errors

TEST(DataError, IsToldOnceWithOperatorRowValueAndWhatToDo) {
  for (const char* backend : {"cpu", "fake", "plain"}) {
    SCOPED_TRACE(backend);
    World world(World::kAll | World::kPlain);
    auto stream = world.stream(backend);
    OpCall& call = world.make("logp");
    static_cast<int64_t*>(call.inputs[RLK_LOGP_IN_IDS].data)[3] = 99999;
    static_cast<int64_t*>(call.inputs[RLK_LOGP_IN_IDS].data)[4] = 88888;
    ASSERT_EQ(world.call(*stream, call), RLK_OK) << world.text();
    EXPECT_EQ(world.synchronize(*stream), RLK_DATA_ERROR);
    for (const char* part : {"logp", "row 3", "99999", "'ids'", "expected", "ignore_index", "NaN", backend}) {
      EXPECT_NE(world.text().find(part), std::string::npos) << part << " | " << world.text();
    }
    EXPECT_EQ(world.synchronize(*stream), RLK_OK) << "told once: " << world.text();
    EXPECT_EQ(world.counters("logp").data_errors, 1u);
    EXPECT_TRUE(world.registry.current()->quarantined.empty());
  }
}

TEST(DataError, OfAStagedCallIsToldByTheDevicesStream) {
  for (const char* backend : {"fake", "plain"}) {
    SCOPED_TRACE(backend);
    World world(World::kAll | World::kPlain, {{"RLK_BACKEND", "cpu"}});
    auto stream = world.stream(backend);
    OpCall& call = world.make("logp");
    static_cast<int64_t*>(call.inputs[RLK_LOGP_IN_IDS].data)[2] = -7;
    ASSERT_EQ(world.call(*stream, call), RLK_OK) << world.text();
    EXPECT_EQ(world.synchronize(*stream), RLK_DATA_ERROR);
    for (const char* part : {"row 2", "-7", "call 1 "}) {
      EXPECT_NE(world.text().find(part), std::string::npos) << part << " | " << world.text();
    }
    EXPECT_EQ(world.synchronize(*stream), RLK_OK);
  }
}

TEST(DataError, ThatAnInnerWaitMeetsIsKeptForTheCaller) {
  World world(World::kAll, {{"RLK_OP_ATTENTION", "fake"}});
  auto stream = world.stream();
  OpCall& bad = world.make("logp");
  static_cast<int64_t*>(bad.inputs[RLK_LOGP_IN_IDS].data)[1] = -5;
  ASSERT_EQ(world.call(*stream, bad), RLK_OK);
  fake_script<Attention>().host_inputs = 1u << RLK_ATTENTION_IN_CU_SEQLENS_Q;
  OpCall& packed = world.make("attention", RLK_ATTENTION_LAYOUT_PACKED);
  ASSERT_EQ(world.call(*stream, packed), RLK_OK) << world.text();
  EXPECT_EQ(world.counters("attention").host_copies, 1u);
  EXPECT_EQ(world.synchronize(*stream), RLK_DATA_ERROR);
  EXPECT_NE(world.text().find("-5"), std::string::npos) << world.text();
}

TEST(DataError, EveryKindHasWords) {
  for (const int32_t kind :
       {RLK_DATA_ID_OUT_OF_RANGE, RLK_DATA_NO_FINITE_LOGIT, RLK_DATA_ROW_OUT_OF_RANGE, RLK_DATA_BAD_SEQLENS, 99}) {
    for (const char* name : {"logp", "attention", "logp_backward"}) {
      rlk_data_error error = {sizeof(rlk_data_error), kind, core::make_tag(op(name), 12), 0, 17, 4711};
      const std::string text = core::describe(error, "cuda:0");
      for (const char* part : {name, "17", "expected", "cuda:0", "call 12"}) {
        EXPECT_NE(text.find(part), std::string::npos) << part << " | " << text;
      }
    }
  }
  rlk_data_error unknown = {sizeof(rlk_data_error), 1, 0, 0, 1, 2};
  EXPECT_NE(core::describe(unknown, "s").find("unknown call"), std::string::npos);
}

}  // namespace
}  // namespace rlk::test
