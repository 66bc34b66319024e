// The plugin that is part of rlk: it is probed as any other, and its verdict is kept for as many as can share it.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "loader/loader.hpp"
#include "tests/loader/staged_loader.hpp"

namespace rlk::loader {
namespace {

class BuiltIn : public StagedLoader {
protected:
  BuiltIn() { add_plugin("fault"); }
};

TEST_F(BuiltIn, TakesLongestAndIsProbedFirst) {
  options.mode = ProbeMode::off;
  options.max_children = 1;
  std::vector<std::string> finished;
  options.on_finished = [&](const PluginRecord& record) { finished.push_back(record.id); };
  find_plugins({}, options);
  EXPECT_EQ(finished, (std::vector<std::string>{"cpu", "fault"}));
}

TEST_F(BuiltIn, IsProbedLikeAnyOther) {
  options.environment.values["RLK_PLUGINS_DISABLE"] = "*";  // which cannot switch it off
  const std::vector<ProbedPlugin> plugins = find_plugins({}, options);
  ASSERT_EQ(plugins.size(), 2u);
  const PluginRecord& cpu = plugins[0].record;
  EXPECT_EQ(cpu.id, "cpu");
  EXPECT_EQ(cpu.source, "built-in");
  EXPECT_EQ(cpu.state, State::smoke_tested) << cpu.reason_code << ": " << cpu.reason;
  EXPECT_GT(count_operators(cpu).verified, 0u);
  EXPECT_EQ(cpu.devices.size(), 1u);
  EXPECT_EQ(plugins[1].record.reason_code, "DISABLED");
}

// With `fresh` everything is tried, which takes a minute: tests/cli/test_verbs.py, FirstStart, does so once for all.
TEST_F(BuiltIn, IsTriedByACanary) {
  const auto cpu = [&] { return find_plugins({}, options).at(0).record; };
  const PluginRecord first = cpu();
  EXPECT_EQ(first.tried, kTriedCanary);
  EXPECT_FALSE(first.from_cache);
  EXPECT_TRUE(cpu().from_cache);
  EXPECT_EQ(cpu().tried, kTriedCanary);
}

// Of the environment, its verdict depends on which libraries are found: the cards that a rank may use, or a
// vendor's folder, change nothing.
TEST_F(BuiltIn, HasOneVerdictForAllWhoFindTheSameLibraries) {
  const auto cpu = [&] { return find_plugins({}, options).at(0).record; };
  EXPECT_FALSE(cpu().from_cache);
  set("ACME_VISIBLE_DEVICES", "1");
  set("LD_LIBRARY_PATH", folder.folder("libraries"));
  EXPECT_TRUE(cpu().from_cache);
  Dl_info tbb = {};
  ASSERT_NE(dladdr(dlsym(RTLD_DEFAULT, "TBB_runtime_version"), &tbb), 0);
  folder.copy(tbb.dli_fname, "libraries/" + std::filesystem::path(tbb.dli_fname).filename().string());
  const PluginRecord anew = cpu();
  EXPECT_FALSE(anew.from_cache);
  EXPECT_EQ(anew.state, State::smoke_tested) << anew.reason;
}

}  // namespace
}  // namespace rlk::loader
