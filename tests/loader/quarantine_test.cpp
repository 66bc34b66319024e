// A plugin that passed its probe and fails later: what the next process knows of it.
#include <gtest/gtest.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>

#include "framework/process.hpp"
#include "loader/loader.hpp"
#include "loader/register/first_use.hpp"
#include "loader/register/register.hpp"
#include "tests/loader/staged_loader.hpp"

namespace rlk::loader {
namespace {

class QuarantineTest : public StagedLoader {
protected:
  QuarantineTest() {
    recall_the_built_in();
    add_plugin("fault");
  }
  // The fault plugin, after everything that a start does before it loads plugins.
  ProbedPlugin found() {
    for (ProbedPlugin& plugin : find_plugins({}, options)) {
      if (plugin.record.id == "fault") return plugin;
    }
    ADD_FAILURE() << "no plugin";
    return {};
  }
  // A process that registers the plugin and then does `work`: how it ends.
  template <class Work>
  int in_a_process(const char* fault, Work&& work) {
    std::vector<ProbedPlugin> plugins = {found()};
    return rlk::testing::join(rlk::testing::in_fork([&] {
      alarm(30);
      auto* const first_uses = new FirstUses(&store);
      first_uses->know(plugins);
      core::set_tracer([first_uses](const core::FirstUse& use) { return first_uses->leave(use); });
      auto* const registry = new core::Registry;
      setenv("RLK_FAULT_UNDECLARED", fault, 1);
      (new Registrar(registry, loader::host_services()))->publish(&plugins, {0.5 / 60, nullptr});
      work(*first_uses);
      return 0;
    }));
  }
  static void nothing(FirstUses&) {}

  std::vector<QuarantineEntry> in_force() {
    QuarantineList list(&store);
    list.add_breadcrumbs();
    return list.in_force();
  }
};

TEST_F(QuarantineTest, APluginThatCrashedTheHostIsOffAtTheNextStartAndNamed) {
  for (const char* phase : {"create", "raw_probe", "count", "raw_describe"}) {
    SCOPED_TRACE(phase);
    ASSERT_EQ(found().record.state, State::smoke_tested);
    EXPECT_EQ(in_a_process((std::string(phase) + ":crash").c_str(), nothing), -SIGSEGV);
    const PluginRecord record = found().record;
    EXPECT_EQ(record.state, State::quarantined);
    EXPECT_EQ(record.reason_code, "QUARANTINED");
    EXPECT_TRUE(record.broken) << "exit code 1";
    EXPECT_NE(record.reason.find("PROCESS_ENDED"), std::string::npos) << record.reason;
    EXPECT_NE(record.reason.find("of this plugin"), std::string::npos) << record.reason;
    EXPECT_NE(record.hint.find("quarantine clear"), std::string::npos) << record.hint;
    // It is not loaded, so the next process lives.
    EXPECT_EQ(in_a_process((std::string(phase) + ":crash").c_str(), nothing), 0);
    EXPECT_EQ(QuarantineList(&store).clear("fault"), 1u);
  }
}

TEST_F(QuarantineTest, OneThatHangsUntilTheProcessEndsCostsNoWaitAtTheNextStart) {
  set("RLK_PROBE_TIMEOUT", "60");
  EXPECT_EQ(in_a_process("create:stall", nothing), 0);
  EXPECT_EQ(found().record.state, State::quarantined);
}

TEST_F(QuarantineTest, ACrashInACallTakesOutTheUnitAlone) {
  EXPECT_EQ(in_a_process("none:none",
                         [](FirstUses&) {
                           const core::Trace inside = core::trace({"fault", "add", "simple", "f32", "enqueue"});
                           raise(SIGSEGV);
                         }),
            -SIGSEGV);
  const PluginRecord record = found().record;
  EXPECT_EQ(record.state, State::partial);
  EXPECT_EQ(record.reason_code, "QUARANTINED");
  EXPECT_NE(record.reason.find("add/simple for dtype f32"), std::string::npos) << record.reason;
  EXPECT_NE(record.reason.find("enqueue"), std::string::npos) << record.reason;
  for (const core::UnitResult& unit : record.units) {
    const bool off = unit.op == "add" && unit.dtype == "f32";
    EXPECT_EQ(unit.reason_code == "QUARANTINED", off) << unit.dtype << " " << unit.feature;
  }
}

TEST_F(QuarantineTest, WhatCameOutAliveLeavesNothing) {
  EXPECT_EQ(in_a_process("none:none",
                         [](FirstUses&) {
                           core::trace({"fault", "add", "simple", "f32", "enqueue"});
                           core::trace({"cpu", "add", "simple", "f32", "enqueue"});
                           raise(SIGSEGV);
                         }),
            -SIGSEGV);
  EXPECT_TRUE(in_force().empty());
  EXPECT_EQ(found().record.state, State::smoke_tested);
}

TEST_F(QuarantineTest, AProcessThatLivesIsNoCulprit) {
  std::vector<ProbedPlugin> plugins = {found()};
  FirstUses first_uses(&store);
  first_uses.know(plugins);
  const core::Trace inside = first_uses.leave({"fault", "add", "simple", "f32", "plan_create"});
  ASSERT_NE(inside, nullptr);
  EXPECT_TRUE(in_force().empty());
}

TEST_F(QuarantineTest, AFailureIsKeptWithItsEvidenceAndForgottenWhenAsked) {
  std::vector<ProbedPlugin> plugins = {found()};
  FirstUses first_uses(&store);
  first_uses.know(plugins);
  first_uses.keep({"fault", "add", "simple", "f64", "WRONG_RESULT", "3 is not 4"});
  const std::vector<QuarantineEntry> entries = in_force();
  ASSERT_EQ(entries.size(), 1u);
  EXPECT_EQ(entries[0].reason, "3 is not 4");
  EXPECT_EQ(entries[0].pid, getpid());
  EXPECT_EQ(entries[0].until_unix - entries[0].since_unix, QuarantineList::kFirstSeconds);
  EXPECT_EQ(found().record.state, State::partial);
  EXPECT_EQ(QuarantineList(&store).clear("somebody else"), 0u);
  EXPECT_EQ(QuarantineList(&store).clear("fault"), 1u);
  EXPECT_EQ(found().record.state, State::smoke_tested);
}

TEST(QuarantineOfAReadOnlyFolder, StaysInForceAndIsNamed) {
  const rlk::testing::TempFolder folder;
  const auto add = [](Store* to, const char* id) {
    QuarantineEntry entry;
    entry.key = "key", entry.id = id, entry.reason_code = "WRONG_RESULT";
    QuarantineList(to).add(entry);
  };
  Store of_root(folder.folder("of_root", 0700));
  add(&of_root, "theirs");
  add(&of_root, "both");
  Store own(folder.folder("own", 0700), {folder / "of_root"});
  add(&own, "mine");
  add(&own, "both");
  QuarantineList list(&own);
  EXPECT_EQ(list.in_force().size(), 3u);
  std::vector<std::string> staying;
  EXPECT_EQ(list.clear("", &staying), 1u);
  EXPECT_EQ(list.in_force().size(), 2u);
  ASSERT_EQ(staying.size(), 2u);
  for (const std::string& file : staying) {
    EXPECT_EQ(file.find(folder / "of_root/quarantine-"), 0u) << file;
    EXPECT_EQ(std::remove(file.c_str()), 0);
  }
  staying.clear();
  EXPECT_EQ(list.clear("", &staying), 0u);
  EXPECT_TRUE(staying.empty());
}

TEST_F(QuarantineTest, AnotherBuildIsNotConcerned) {
  std::vector<ProbedPlugin> plugins = {found()};
  FirstUses first_uses(&store);
  first_uses.know(plugins);
  first_uses.keep({"fault", "", "", "", "PLUGIN_EXCEPTION", "text"});
  EXPECT_EQ(found().record.state, State::quarantined);
  std::ofstream(plugins[0].record.path, std::ios::app) << "another build";
  EXPECT_EQ(found().record.state, State::smoke_tested);
}

TEST_F(QuarantineTest, EndsAndLastsLongerWhenItComesAgain) {
  int64_t now = 1'000'000;
  QuarantineList list(&store, [&] { return now; });
  const auto add = [&](const char* code) {
    QuarantineEntry entry;
    entry.key = "key", entry.id = "fault", entry.reason_code = code, entry.since_unix = now;
    list.add(entry);
    return list.in_force().at(0).until_unix - now;
  };
  EXPECT_EQ(add("PROCESS_ENDED"), QuarantineList::kFirstDoubtfulSeconds);
  now += 5;
  EXPECT_EQ(add("PROCESS_ENDED"), QuarantineList::kFirstDoubtfulSeconds) << "the ranks of one job fail together";
  now += QuarantineList::kFirstDoubtfulSeconds + 1;
  EXPECT_TRUE(list.in_force().empty());
  EXPECT_EQ(add("PROCESS_ENDED"), QuarantineList::kAgainSeconds);
}

}  // namespace
}  // namespace rlk::loader
