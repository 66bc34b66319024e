// Does the engine go every way that the ABI allows? Graphs, plugins without devices, older plugins, lost devices.
#include <gtest/gtest.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <rlk/ops/logp.h>

#include "conformance/shared_answers.hpp"
#include "conformance/simple/mutant.hpp"
#include "conformance/simple/target.hpp"

namespace rlk::core {
namespace {

using Verdict = UnitResult::Verdict;

class EnginePaths : public testing::Test {
protected:
  ~EnginePaths() override { simple::set_mutant(""); }
  static std::vector<UnitResult> run(const Target& target, const char* op, bool graph_replay = false) {
    ConformanceOptions options;
    if (*op != 0) options.ops = {op};
    options.dtype = "f32";
    options.graph_replay = graph_replay;
    options.answers = test::shared_answers();
    return run_conformance(target, options);
  }
  static std::string words(const UnitResult& r) { return r.feature + ": " + r.reason_code + ": " + r.reason; }

  const rlk_plugin* plugin_ = rlk_simple_entry(simple::bare_host(), nullptr);
  simple::OpenTarget open_{plugin_, simple::bare_host()};
};

TEST_F(EnginePaths, ReplayFromAGraphIsTriedWhenAsked) {
  for (const UnitResult& r : run(open_.target(), "add", true)) EXPECT_EQ(r.verdict, Verdict::verified) << words(r);

  simple::set_mutant("graph_runs_once");
  for (const UnitResult& r : run(open_.target(), "add", false)) EXPECT_EQ(r.verdict, Verdict::verified) << words(r);
  int failed = 0;
  for (const UnitResult& r : run(open_.target(), "add", true)) {
    if (r.verdict != Verdict::failed) continue;
    ++failed;
    EXPECT_EQ(r.reason_code, "NOT_WRITTEN");
    EXPECT_NE(r.reason.find("replayed from a graph"), std::string::npos) << r.reason;
  }
  EXPECT_GT(failed, 0);
}

TEST_F(EnginePaths, AReplayComesAfterAnotherExecutionWhereCapturesAreSaidToBeApart) {
  simple::set_mutant("captures_apart");
  for (const UnitResult& r : run(open_.target(), "add", true)) EXPECT_EQ(r.verdict, Verdict::verified) << words(r);

  simple::set_mutant("captures_share_the_plan");
  for (const UnitResult& r : run(open_.target(), "add", false)) EXPECT_EQ(r.verdict, Verdict::verified) << words(r);
  int failed = 0;
  for (const UnitResult& r : run(open_.target(), "add", true)) {
    if (r.verdict != Verdict::failed) continue;
    ++failed;
    EXPECT_NE(r.reason.find("replayed from a graph"), std::string::npos) << words(r);
  }
  EXPECT_GT(failed, 0);
}

TEST_F(EnginePaths, OperatorsOnlyPluginRunsOnItsOwnersMemoryAndStream) {
  rlk_plugin operators = *plugin_;  // the same code as a guest: no device table, streams only by wrapping
  operators.flags = RLK_PLUGIN_OPERATORS_ONLY;
  operators.device = nullptr;
  operators.event = nullptr;
  rlk_stream_api streams = *plugin_->stream;
  streams.create = nullptr;
  streams.query = nullptr;
  streams.synchronize = nullptr;
  streams.copy = nullptr;
  operators.stream = &streams;
  Target target = open_.target();
  target.plugin = &operators;
  const std::vector<UnitResult> results = run(target, "logp");
  EXPECT_GT(results.size(), 20u);
  for (const UnitResult& r : results) EXPECT_EQ(r.verdict, Verdict::verified) << words(r);
}

TEST_F(EnginePaths, WhatAnOlderPluginDoesNotKnowIsDeclinedOnItsBehalf) {
  rlk_implementation older = *plugin_->implementations[0];
  ASSERT_STREQ(older.op, "logp");
  older.params_size = offsetof(rlk_logp_params, softcap);  // knows temperature only
  older.n_inputs = RLK_LOGP_IN_MASK;                       // knows no mask and no row_indices
  older.n_outputs = RLK_LOGP_OUT_ENTROPY;
  const rlk_implementation* rows[] = {&older};
  rlk_plugin plugin = *plugin_;
  plugin.implementations = rows;
  plugin.n_implementations = 1;
  Target target = open_.target();
  target.plugin = &plugin;
  std::set<std::string> declined;
  for (const UnitResult& r : run(target, "logp")) {
    if (r.verdict == Verdict::verified) continue;
    EXPECT_EQ(r.verdict, Verdict::declined) << words(r);
    EXPECT_EQ(r.reason_code, "OLDER_REVISION") << words(r);
    declined.insert(r.feature);
  }
  const std::set<std::string> newer = {"entropy",     "ignore_index", "keep_mask", "mask",
                                       "row_indices", "softcap",      "sum_p2",    "vocab_shard"};
  EXPECT_EQ(declined, newer);
}

TEST_F(EnginePaths, ALostDeviceEndsTheRunAndLeavesTheRestUnverified) {
  simple::set_mutant("device_lost");
  int failed = 0;
  const std::vector<UnitResult> results = run(open_.target(), "add");
  for (const UnitResult& r : results) {
    EXPECT_NE(r.verdict, Verdict::verified) << words(r);
    EXPECT_EQ(r.reason_code, "DEVICE_LOST") << words(r);
    failed += r.verdict == Verdict::failed ? 1 : 0;
  }
  EXPECT_GT(failed, 0);
}

// Operators and dtypes at the same time, on as many threads as a large machine would use.
class EngineThreads : public EnginePaths {
protected:
  std::vector<UnitResult> run_on(unsigned threads, const char* op,
                                 std::function<void(const std::string&)> progress = {}) {
    ConformanceOptions options;
    if (*op != 0) options.ops = {op};
    options.threads = threads;
    options.progress = std::move(progress);
    options.answers = test::shared_answers();
    return run_conformance(open_.target(), options);
  }
};

TEST_F(EngineThreads, FindWhatOneThreadFindsInTheSameOrder) {
  simple::set_mutant("bf16_sums");
  const std::vector<UnitResult> alone = run_on(1, "logp"), together = run_on(4, "logp");
  ASSERT_EQ(alone.size(), together.size());
  int failed = 0;
  for (size_t i = 0; i < alone.size(); ++i) {
    EXPECT_EQ(alone[i].feature, together[i].feature);
    EXPECT_EQ(alone[i].variant, together[i].variant);
    EXPECT_EQ(alone[i].dtype, together[i].dtype);
    EXPECT_EQ(alone[i].verdict, together[i].verdict) << words(together[i]);
    EXPECT_EQ(alone[i].cases, together[i].cases) << words(together[i]);
    EXPECT_EQ(alone[i].verdict == Verdict::failed, alone[i].dtype == "bf16") << words(alone[i]);
    failed += alone[i].verdict == Verdict::failed ? 1 : 0;
  }
  EXPECT_GT(failed, 0);
}

TEST_F(EngineThreads, GiveAnOperatorsUnitsWhenItsLastDtypeWasTried) {
  for (const unsigned threads : {1u, 4u}) {
    ConformanceOptions options;
    options.ops = {"logp", "add"};  // not as they are declared
    options.threads = threads;
    std::vector<std::string> order;
    std::vector<UnitResult> told;
    options.tried = [&](const std::string& op, std::vector<UnitResult> units) {
      order.push_back(op);
      for (const UnitResult& unit : units) EXPECT_EQ(unit.op, op);
      told.insert(told.end(), units.begin(), units.end());
    };
    const std::vector<UnitResult> all = run_conformance(open_.target(), options);
    if (threads == 1) {
      EXPECT_EQ(order, options.ops);
    }
    EXPECT_EQ(std::multiset<std::string>(order.begin(), order.end()), (std::multiset<std::string>{"add", "logp"}));
    EXPECT_EQ(all.front().op, "logp");
    ASSERT_EQ(told.size(), all.size());
    const auto in = [](const std::vector<UnitResult>& units) {
      std::multiset<std::string> texts;
      for (const UnitResult& r : units) texts.insert(r.op + " " + r.dtype + " " + r.variant + " " + words(r));
      return texts;
    };
    EXPECT_EQ(in(told), in(all));
  }
}

TEST_F(EngineThreads, TellOneAfterTheOtherWhatEachIsAt) {
  std::atomic<int> inside{0}, calls{0};
  run_on(4, "add", [&](const std::string& text) {
    EXPECT_EQ(inside.fetch_add(1), 0);
    EXPECT_TRUE(text == "device" || text.rfind("add serial ", 0) == 0) << text;
    ++calls;
    --inside;
  });
  EXPECT_GT(calls, 20);
}

TEST_F(EngineThreads, OfALostDeviceNothingIsVerified) {
  simple::set_mutant("device_lost");
  const std::vector<UnitResult> results = run_on(4, "add");
  EXPECT_GE(results.size(), 4u);  // of each dtype
  for (const UnitResult& r : results) {
    EXPECT_NE(r.verdict, Verdict::verified) << words(r);
    EXPECT_EQ(r.reason_code, "DEVICE_LOST") << r.op << " " << r.dtype << " " << words(r);
  }
}

TEST_F(EnginePaths, ASwitchThatNoTestReachesIsToldAndHangsNothing) {
  rlk_implementation row = *plugin_->implementations[0];
  ASSERT_STREQ(row.op, "logp");
  const rlk_switch far[] = {{sizeof(rlk_switch), 0, "V", INT64_MAX},       {sizeof(rlk_switch), 0, "V", INT64_MIN},
                            {sizeof(rlk_switch), 0, "N", INT64_MAX - 1},   {sizeof(rlk_switch), 0, "V", 64},
                            {sizeof(rlk_switch), 0, "nobody", 64},         {sizeof(rlk_switch), 0, nullptr, 64},
                            {sizeof(rlk_switch), 0, "V", int64_t{1} << 40}};
  std::vector<const rlk_switch*> switches = {nullptr};
  for (const rlk_switch& change : far) switches.push_back(&change);
  row.switches = switches.data();
  row.n_switches = static_cast<uint32_t>(switches.size());
  const rlk_implementation* rows[] = {&row};
  rlk_plugin plugin = *plugin_;
  plugin.implementations = rows;
  plugin.n_implementations = 1;
  Target target = open_.target();
  target.plugin = target.owner = &plugin;
  std::set<std::string> untested;
  for (const UnitResult& r : run(target, "logp")) {
    if (r.verdict == Verdict::verified) continue;
    EXPECT_EQ(r.reason_code, "SWITCH_UNTESTED") << words(r);
    untested.insert(r.feature);
  }
  const std::set<std::string> expected = {"switch:V=9223372036854775807",
                                          "switch:V=-9223372036854775808",
                                          "switch:N=9223372036854775806",
                                          "switch:nobody=64",
                                          "switch:=64",
                                          "switch:V=1099511627776"};
  EXPECT_EQ(untested, expected);
}

TEST_F(EnginePaths, AnUnknownOperatorIsDeclinedByName) {
  rlk_implementation unknown = *plugin_->implementations[0];
  unknown.op = "rope";
  const rlk_implementation* rows[] = {&unknown};
  rlk_plugin plugin = *plugin_;
  plugin.implementations = rows;
  plugin.n_implementations = 1;
  Target target = open_.target();
  target.plugin = &plugin;
  const std::vector<UnitResult> results = run(target, "");
  ASSERT_EQ(results.size(), 1u);
  EXPECT_EQ(results[0].verdict, Verdict::declined);
  EXPECT_EQ(results[0].reason_code, "UNKNOWN_OPERATOR");
}

}  // namespace
}  // namespace rlk::core
