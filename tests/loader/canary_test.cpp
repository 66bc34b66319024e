// A first start whose CPU kernels are wrong: the canary refuses them, everything is tried, and the verdict says so.
// The linker gives the loader of this program __wrap_rlk_cpu_entry_v1 for the built-in's entry.
#include <gtest/gtest.h>

#include <algorithm>

#include "conformance/spoiled/spoiled.hpp"
#include "loader/host/services.hpp"
#include "loader/probe/examine.hpp"
#include "loader/probe/probe.hpp"

namespace {
bool is_spoiled = false;
}

extern "C" {
// NOLINTNEXTLINE(bugprone-reserved-identifier): the linker's name
const rlk_plugin* __real_rlk_cpu_entry_v1(const rlk_host*, rlk_error*);
// NOLINTNEXTLINE(bugprone-reserved-identifier): likewise
const rlk_plugin* __wrap_rlk_cpu_entry_v1(const rlk_host* host, rlk_error* error) {
  const rlk_plugin* honest = __real_rlk_cpu_entry_v1(host, error);
  if (!is_spoiled || honest == nullptr) return honest;
  static const rlk::spoiled::Plugin plugin(*honest);
  return &plugin.api();
}
}

namespace rlk::loader {
namespace {

class CanaryTest : public ::testing::Test {
protected:
  PluginRecord examined(const char* op) {
    PluginRecord record = built_in_record("cpu");
    ExamineOptions options;
    options.host = loader::host_services();
    options.place = Place::host;
    options.suite.canary = true;
    options.suite.ops = {op};
    options.suite.dtype = "f32";
    examine(&record, options);
    return record;
  }
  void TearDown() override { is_spoiled = false; }
};

TEST_F(CanaryTest, PassesWhereTheKernelsAreRight) {
  const PluginRecord record = examined("value_loss");
  EXPECT_EQ(record.state, State::smoke_tested) << record.reason;
  EXPECT_EQ(record.tried, kTriedCanary);
  EXPECT_TRUE(record.notes.empty());
}

TEST_F(CanaryTest, WrongKernelsAreRefusedAndEverythingIsTried) {
  is_spoiled = true;
  const PluginRecord record = examined("value_loss");
  EXPECT_TRUE(record.state == State::partial || record.state == State::rejected) << to_string(record.state);
  EXPECT_TRUE(record.broken);
  EXPECT_EQ(record.tried, kTriedEverything);
  ASSERT_EQ(record.notes.size(), 1u);
  EXPECT_NE(record.notes[0].find("the canary failed (WRONG_RESULT, value_loss "), std::string::npos) << record.notes[0];
  const auto plain = std::find_if(record.units.begin(), record.units.end(),
                                  [](const core::UnitResult& unit) { return unit.feature.empty(); });
  ASSERT_NE(plain, record.units.end());
  EXPECT_EQ(plain->verdict, core::UnitResult::Verdict::failed);
  EXPECT_GT(plain->cases, 1);
}

core::UnitResult unit_of(const char* op, const char* implementation, const char* dtype) {
  core::UnitResult unit;
  unit.op = op, unit.implementation = implementation, unit.dtype = dtype;
  return unit;
}

TEST_F(CanaryTest, OneThatFailsEndsWhatRestedOnTheReport) {
  PluginRecord record = examined("silu");
  const std::vector<core::UnitResult> tried = record.units;
  ASSERT_FALSE(tried.empty());
  StandingReport report{"x100.json of 2026-01-31", record};
  for (core::UnitResult& unit : record.units)
    if (unit.verdict == core::UnitResult::Verdict::verified) unit.reason_code = core::kReported;
  record.units.push_back(unit_of("value_loss", "simd", ""));
  record.units.back().reason_code = core::kWaiting;
  record.devices.clear(), record.evidence.clear();
  is_spoiled = true;
  ExamineOptions options;
  options.host = loader::host_services();
  options.place = Place::host;
  options.by_operator = true;
  options.operators = {"value_loss"};
  options.reports = {report};
  options.suite.dtype = "f32";
  examine(&record, options);
  EXPECT_EQ(waiting_operators(record), std::vector<std::string>{"silu"});
  EXPECT_TRUE(std::any_of(record.units.begin(), record.units.end(), [](const core::UnitResult& unit) {
    return unit.op == "value_loss" && unit.verdict == core::UnitResult::Verdict::failed && unit.cases > 1;
  }));
  EXPECT_NE(record.notes.back().find("stands for nothing here, and everything is tried"), std::string::npos);
}

// A verdict of earlier operators stands while more of them are tried: it depends on what is loaded all the while.
TEST_F(CanaryTest, WhatIsReportedOnTheWayNamesTheFilesThatAreLoaded) {
  PluginRecord record = examined("silu");
  record.units.push_back(unit_of("value_loss", "simd", ""));
  record.units.back().reason_code = core::kWaiting;
  record.devices.clear(), record.evidence.clear(), record.loaded_files.clear();
  ExamineOptions options;
  options.host = loader::host_services();
  options.place = Place::host;
  options.by_operator = true;
  options.operators = {"value_loss"};
  options.suite.dtype = "f32";
  int reports = 0;
  options.on_progress = [&](const PluginRecord& now) {
    ++reports;
    EXPECT_FALSE(now.loaded_files.empty()) << to_string(now.state);
  };
  examine(&record, options);
  EXPECT_GT(reports, 3);
}

}  // namespace
}  // namespace rlk::loader
