// What is blamed for an asynchronous failure: only work that can have caused it on that device, and the CPU never for
// what happened to another device.
#include "unit/dispatch/world.hpp"

namespace rlk::test {
namespace {

using sdk::ops::Add;

void fail_stream(Stream& stream, rlk_status status) {
  FakeStream& inside = fake(stream.handle());
  inside.worker->wait(inside.worker->pushed(), UINT64_MAX);
  inside.broken_status = status;
  inside.broken = true;
}

size_t quarantined(const World& world) {
  return world.registry.current()->quarantined.size();
}

TEST(Blame, OfTheCopiesOfAStagedCallIsNobodysAlone) {
  World world(World::kAll, {{"RLK_OP_ADD", "cpu"}});
  auto stream = world.stream();
  ASSERT_EQ(world.call(*stream, world.make("logp")), RLK_OK) << world.text();
  ASSERT_EQ(world.call(*stream, world.make("add")), RLK_OK) << world.text();
  fail_stream(*stream, RLK_BACKEND_ERROR);
  EXPECT_EQ(world.synchronize(*stream), RLK_BACKEND_ERROR);
  EXPECT_NE(world.text().find("logp by fake/first and others"), std::string::npos) << world.text();
  EXPECT_EQ(quarantined(world), 0u) << "the staged call's copies may have done it";
  EXPECT_EQ(world.registry.current()->suspected.size(), 1u);
}

TEST(Blame, OfAStagedCallOnAStreamThatFailedIsNotTheCpus) {
  World world(World::kAll, {{"RLK_OP_ADD", "cpu"}});
  cpu_script<Add>().fail_enqueue = RLK_BACKEND_ERROR;  // what it was given to read is whatever a failed copy left
  auto stream = world.stream();
  OpCall& add = world.make("add");
  for (const bool runs_after_the_failure_was_told : {false, true}) {
    SCOPED_TRACE(runs_after_the_failure_was_told);
    FakeStream& inside = fake(stream->handle());
    inside.worker->hold(runs_after_the_failure_was_told);
    ASSERT_EQ(world.call(*stream, add), RLK_OK) << world.text();
    if (!runs_after_the_failure_was_told) inside.worker->wait(inside.worker->pushed(), UINT64_MAX);
    inside.broken = true;
    rlk_error error = {sizeof(rlk_error), 0, 0, {}, {}};
    EXPECT_EQ(world.dispatcher->query(*stream, &error), RLK_BACKEND_ERROR);
    inside.broken = false;
    inside.worker->hold(false);
    EXPECT_EQ(world.synchronize(*stream), RLK_BACKEND_ERROR) << "the call failed too, and that is told";
    EXPECT_NE(world.text().find("add by cpu/first"), std::string::npos) << world.text();
    EXPECT_EQ(quarantined(world), 0u);
  }
  cpu_script<Add>().fail_enqueue = RLK_OK;
  auto cpu = world.stream("cpu");
  EXPECT_EQ(world.call(*cpu, add), RLK_OK) << world.text();
}

TEST(Blame, OfACallAfterTheFailureWasToldIsTheCpusAgain) {
  World world(World::kAll, {{"RLK_OP_ADD", "cpu"}});
  auto stream = world.stream();
  fail_stream(*stream, RLK_BACKEND_ERROR);
  EXPECT_EQ(world.synchronize(*stream), RLK_BACKEND_ERROR);
  fake(stream->handle()).broken = false;
  cpu_script<Add>().fail_enqueue = RLK_BACKEND_ERROR;
  ASSERT_EQ(world.call(*stream, world.make("add")), RLK_OK) << world.text();
  EXPECT_EQ(world.synchronize(*stream), RLK_BACKEND_ERROR);
  ASSERT_EQ(quarantined(world), 1u) << "nothing happened to the stream since";
  EXPECT_EQ(world.registry.current()->quarantined[0]->plugin, "cpu");
}

TEST(Blame, OfAStreamThatWaitedForAnotherIsNobodysAlone) {
  World world;
  auto stream = world.stream();
  ASSERT_EQ(world.call(*stream, world.make("logp")), RLK_OK);
  stream->note_wait();
  fail_stream(*stream, RLK_BACKEND_ERROR);
  EXPECT_EQ(world.synchronize(*stream), RLK_BACKEND_ERROR);
  EXPECT_EQ(quarantined(world), 0u) << "the work that it waited for may have failed";
  EXPECT_EQ(world.registry.current()->suspected.size(), 1u);
}

TEST(Blame, OfAQuestionThatTheBackendCannotAnswerIsNoCalls) {
  for (const rlk_status status : {RLK_PLUGIN_EXCEPTION, RLK_INVALID_ARGUMENT, RLK_UNSUPPORTED}) {
    World world;
    auto stream = world.stream();
    ASSERT_EQ(world.call(*stream, world.make("logp")), RLK_OK);
    fail_stream(*stream, status);
    EXPECT_EQ(world.synchronize(*stream), status);
    EXPECT_TRUE(world.registry.current()->suspected.empty());
    // No kernel throws inside the slot that asks: an exception there is the plugin's own.
    if (status != RLK_PLUGIN_EXCEPTION) {
      EXPECT_EQ(quarantined(world), 0u);
      continue;
    }
    ASSERT_EQ(quarantined(world), 1u);
    const auto now = world.registry.current();
    const core::Quarantined& off = *now->quarantined[0];
    EXPECT_EQ(off.op, "") << "the whole plugin";
    EXPECT_NE(off.reason.find("stream synchronize"), std::string::npos) << off.reason;
  }
}

TEST(Texts, OfAPluginWithoutAFinalZeroAreNotReadPastTheirEnd) {
  static rlk_plugin table = *World::fake().api;
  static rlk_stream_api streams = *table.stream;
  streams.synchronize = [](rlk_plugin_stream*, uint64_t, rlk_data_error*, rlk_error* error) -> rlk_status {
    std::memset(error->text, 'x', sizeof(error->text));
    std::memset(error->domain, 'y', sizeof(error->domain));
    error->text[0] = '\n';
    return RLK_BACKEND_ERROR;
  };
  table.stream = &streams;
  World world(World::kCpu);
  world.plugins.push_back(World::fake());
  world.plugins.back().api = &table;
  world.publish();
  auto stream = world.stream();
  EXPECT_EQ(world.synchronize(*stream), RLK_BACKEND_ERROR);
  EXPECT_LT(world.text().size(), sizeof(rlk_error::text));
  EXPECT_NE(world.text().find("failed: \\nxx"), std::string::npos) << world.text();
  EXPECT_EQ(std::string(world.last.domain), std::string(sizeof(rlk_error::domain) - 1, 'y'));
}

TEST(Blame, OfOneUnitStaysOneWhenPluginsWerePublishedMeanwhile) {
  World world;
  auto stream = world.stream();
  OpCall& logp = world.make("logp");
  ASSERT_EQ(world.call(*stream, logp), RLK_OK);
  world.publish();
  ASSERT_EQ(world.call(*stream, logp), RLK_OK);
  fail_stream(*stream, RLK_BACKEND_ERROR);
  EXPECT_EQ(world.synchronize(*stream), RLK_BACKEND_ERROR);
  EXPECT_EQ(quarantined(world), 1u) << "two generations of the registry, one implementation";
}

}  // namespace
}  // namespace rlk::test
