// Calls that fail: what serves them instead, what is switched off for it, and what data errors say.
#include <utility>

#include "unit/dispatch/world.hpp"

namespace rlk::test {
namespace {

using sdk::ops::Add;
using sdk::ops::Attention;
using sdk::ops::Logp;

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
  ASSERT_EQ(device.memory.deallocate(memory, stream->fence(true), nullptr), RLK_OK);
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
    const std::string end =
        "< " + std::to_string(call.inputs[RLK_LOGP_IN_LOGITS].shape[1]) + " (global_vocab > 0 ? global_vocab : V)";
    for (const char* part :
         {"logp", "row 3", "99999", "'ids'", "expected", end.c_str(), "ignore_index", "NaN", backend}) {
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
    for (const char* part : {"row 2", "-7", "call 1 ", "global_vocab : V)"}) {
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

TEST(DataError, BesideAFailureIsToldByTheNextAnswer) {
  World world;
  auto stream = world.stream();
  rlk_data_error bad_id{};
  bad_id.struct_size = sizeof(bad_id);
  bad_id.kind = RLK_DATA_ID_OUT_OF_RANGE;
  bad_id.row = 7;
  stream->reports()->add_data_error(bad_id);
  stream->reports()->add_failure({RLK_OUT_OF_MEMORY, "a staged call", {}}, stream->reports()->stream_failures());
  EXPECT_EQ(world.synchronize(*stream), RLK_OUT_OF_MEMORY);
  EXPECT_EQ(world.synchronize(*stream), RLK_DATA_ERROR);
  EXPECT_NE(world.text().find("row 7"), std::string::npos) << world.text();
  EXPECT_EQ(world.synchronize(*stream), RLK_OK);
}

TEST(DataError, OfACallLongAgoHasNoNumberOfAnother) {
  core::RecentDomainEnds ends;
  const core::OpDecl& decl = op("attention");
  std::vector<int64_t> symbols(decl.symbols.size(), 5);
  ends.note(core::make_tag(decl, 1), decl, {symbols.data(), nullptr, 0});
  ASSERT_NE(ends.of(core::make_tag(decl, 1)), nullptr);
  EXPECT_EQ((*ends.of(core::make_tag(decl, 1)))[0], 5);
  for (uint32_t call = 2; call <= 100; ++call)
    ends.note(core::make_tag(decl, call), decl, {symbols.data(), nullptr, 0});
  EXPECT_EQ(ends.of(core::make_tag(decl, 1)), nullptr);
  EXPECT_NE(ends.of(core::make_tag(decl, 100)), nullptr);
}

TEST(DataError, EveryKindHasWords) {
  for (const int32_t kind : {RLK_DATA_ID_OUT_OF_RANGE, RLK_DATA_NO_FINITE_LOGIT, RLK_DATA_ROW_OUT_OF_RANGE,
                             RLK_DATA_BAD_SEQLENS, RLK_DATA_BAD_SECOND_SEQLENS, 99}) {
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
