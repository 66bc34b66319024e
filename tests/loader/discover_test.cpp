// Discovery: which variable finds what, in which order, and which one is to blame for what was dropped.
#include "loader/discover/discover.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "framework/env.hpp"
#include "framework/fs.hpp"
#include "loader/store/sha256.hpp"
#include "loader/store/store.hpp"

namespace rlk::loader {
namespace {

using rlk::testing::TempFolder;
using Values = std::map<std::string, std::string, std::less<>>;

const std::string kTinyPlugin = RLK_TEST_OBJECTS "/tiny_plugin.so";

Environment environment(Values values, bool privileged = false) {
  return {std::move(values), privileged};
}

// "id state code source", one line per plugin: discovery in a form that a test can state.
std::string summary(const std::vector<PluginRecord>& records) {
  std::string out;
  for (const PluginRecord& record : records) {
    if (record.is_place) continue;
    out +=
        record.id + " " + std::string(to_string(record.state)) + " " + record.reason_code + " " + record.source + "\n";
  }
  return out;
}

class Discover : public ::testing::Test {
protected:
  Discover() {
    for (const char* name : {"a", "b", "c"}) folder.folder(name);
    folder.file("a/librlk_plugin_zeta.so");
    folder.file("a/librlk_plugin_alpha.so");
    folder.file("a/librlk_plugin_.so");       // no id
    folder.file("a/libother.so");             // not a plugin
    folder.file("a/librlk_plugin_x.so.bak");  // not a plugin
    folder.file("b/librlk_plugin_beta.so");
    folder.file("c/librlk_plugin_gamma.so");
    options.defaults = {{folder / "c", "default folder", true}};
  }
  std::string run(Values values, bool privileged = false) {
    return summary(discover(environment(std::move(values), privileged), options));
  }
  // "name code source", one line per place.
  std::string places(Values values, bool privileged = false) {
    std::string out;
    for (const PluginRecord& record : discover(environment(std::move(values), privileged), options)) {
      if (!record.is_place) continue;
      EXPECT_EQ(record.id, "");
      EXPECT_EQ(record.state, State::rejected);
      EXPECT_NE(record.reason.find(record.path), std::string::npos) << record.reason;
      out +=
          record.path.substr(record.path.find_last_of('/') + 1) + " " + record.reason_code + " " + record.source + "\n";
    }
    return out;
  }
  TempFolder folder;
  SearchOptions options;
};

TEST_F(Discover, WithoutVariablesTheDefaultsAreSearched) {
  EXPECT_EQ(run({}), "gamma discovered  default folder\n");
}

TEST_F(Discover, AMissingDefaultFolderLeavesNoRecord) {
  options.defaults = {{folder / "none", "default folder", true}};
  EXPECT_EQ(run({}), "");
}

TEST_F(Discover, PluginPathReplacesTheDefaultsAndSortsAFolder) {
  EXPECT_EQ(run({{"RLK_PLUGIN_PATH", folder / "a"}}),
            "alpha discovered  RLK_PLUGIN_PATH\nzeta discovered  RLK_PLUGIN_PATH\n");
}

TEST_F(Discover, PathsAreSearchedInTheirOrderAndEmptyPiecesAreNothing) {
  EXPECT_EQ(run({{"RLK_PLUGIN_PATH", "::" + (folder / "b") + ":" + (folder / "a/") + ":"}}),
            "beta discovered  RLK_PLUGIN_PATH\nalpha discovered  RLK_PLUGIN_PATH\nzeta discovered  RLK_PLUGIN_PATH\n");
}

TEST_F(Discover, AnEmptyVariableIsAnUnsetOne) {
  EXPECT_EQ(run({{"RLK_PLUGIN_PATH", ""}, {"RLK_PLUGINS_SELECT", ""}}), "gamma discovered  default folder\n");
}

TEST_F(Discover, AFileThatIsNamedMayHaveAnyName) {
  EXPECT_EQ(run({{"RLK_PLUGIN_PATH", folder / "a/libother.so"}}), "libother discovered  RLK_PLUGIN_PATH\n");
}

TEST_F(Discover, AddPluginPathComesBeforeTheDefaults) {
  EXPECT_EQ(run({{"RLK_ADD_PLUGIN_PATH", folder / "b"}}),
            "beta discovered  RLK_ADD_PLUGIN_PATH\ngamma discovered  default folder\n");
}

TEST_F(Discover, AddPluginPathComesBeforeAReplacementToo) {
  EXPECT_EQ(run({{"RLK_ADD_PLUGIN_PATH", folder / "b"}, {"RLK_PLUGIN_PATH", folder / "c"}}),
            "beta discovered  RLK_ADD_PLUGIN_PATH\ngamma discovered  RLK_PLUGIN_PATH\n");
}

TEST_F(Discover, PolicyEntriesComeBeforeTheDefaultsAndAreNamedWhenReplaced) {
  options.policy = {{folder / "b", "/etc/rlk.toml"}};
  EXPECT_EQ(run({}), "beta discovered  /etc/rlk.toml\ngamma discovered  default folder\n");
  EXPECT_EQ(run({{"RLK_PLUGIN_PATH", folder / "c"}}), "gamma discovered  RLK_PLUGIN_PATH\n");
  EXPECT_EQ(places({{"RLK_PLUGIN_PATH", folder / "c"}}), "b SEARCH_REPLACED /etc/rlk.toml\n") << "c is searched";
  EXPECT_EQ(places({{"RLK_PLUGIN_PATH", folder / "a/librlk_plugin_zeta.so"}}),
            "b SEARCH_REPLACED /etc/rlk.toml\nc SEARCH_REPLACED default folder\n");
  const auto records = discover(environment({{"RLK_PLUGIN_PATH", folder / "a/librlk_plugin_zeta.so"}}), options);
  EXPECT_NE(records.back().reason.find("librlk_plugin_gamma.so"), std::string::npos) << records.back().reason;
  EXPECT_NE(records.back().reason.find("c (default folder) is not searched"), std::string::npos)
      << records.back().reason;
}

TEST_F(Discover, AFolderThatIsSearchedUnderAnotherNameIsNotCalledReplaced) {
  ASSERT_EQ(symlink((folder / "c").c_str(), (folder / "link").c_str()), 0);
  for (const char* name : {"c/", "./c", "link"}) EXPECT_EQ(places({{"RLK_PLUGIN_PATH", folder / name}}), "") << name;
  EXPECT_EQ(places({{"RLK_ADD_PLUGIN_PATH", folder / "c"}, {"RLK_PLUGIN_PATH", folder / "b"}}), "");
}

TEST_F(Discover, MissingUnreadableAndRelativeFoldersArePlacesAndNoPlugins) {
  options.defaults.clear();
  EXPECT_EQ(run({{"RLK_PLUGIN_PATH", folder / "plugins"}}), "");
  EXPECT_EQ(places({{"RLK_PLUGIN_PATH", folder / "plugins"}}), "plugins FOLDER_MISSING RLK_PLUGIN_PATH\n");
  EXPECT_EQ(places({{"RLK_PLUGIN_PATH", "plugins:./x"}}),
            "plugins PATH_NOT_ABSOLUTE RLK_PLUGIN_PATH\nx PATH_NOT_ABSOLUTE RLK_PLUGIN_PATH\n");
  // A user who names a plugin's file means that plugin.
  EXPECT_EQ(run({{"RLK_PLUGIN_PATH", "librlk_plugin_q.so:" + (folder / "librlk_plugin_r.so")}}),
            "q rejected PATH_NOT_ABSOLUTE RLK_PLUGIN_PATH\nr rejected FOLDER_MISSING RLK_PLUGIN_PATH\n");
  if (geteuid() == 0) return;  // root reads everything
  folder.folder("b", 0000);
  EXPECT_EQ(places({{"RLK_PLUGIN_PATH", folder / "b"}}), "b FOLDER_UNREADABLE RLK_PLUGIN_PATH\n");
  folder.folder("b", 0755);
}

TEST_F(Discover, FilesThatTheNameRulePassesOverAreTold) {
  folder.file("b/acme.so");
  folder.file("b/librlk_plugin_late.so.1");
  folder.file("b/libvendor.so.3");  // a library that a plugin needs
  folder.file("b/README.md");
  EXPECT_EQ(run({{"RLK_ADD_PLUGIN_PATH", folder / "b"}}),
            "beta discovered  RLK_ADD_PLUGIN_PATH\ngamma discovered  default folder\n");
  EXPECT_EQ(places({{"RLK_ADD_PLUGIN_PATH", folder / "b"}}), "b NAME_IGNORED RLK_ADD_PLUGIN_PATH\n");
  const auto told = [&] {
    for (const PluginRecord& record : discover(environment({{"RLK_ADD_PLUGIN_PATH", folder / "b"}}), options))
      if (record.is_place) return record.broken ? "broken" : record.reason;
    return std::string();
  };
  EXPECT_NE(told().find("acme.so, librlk_plugin_late.so.1; expected"), std::string::npos) << told();
  for (int i = 0; i < 20; ++i) folder.file("b/many" + std::to_string(i) + ".so");
  EXPECT_NE(told().find("and 17 more"), std::string::npos) << told();
}

TEST_F(Discover, TheReasonNamesTheVariableAndThePath) {
  options.defaults.clear();
  const auto records = discover(environment({{"RLK_PLUGIN_PATH", folder / "none"}}), options);
  ASSERT_EQ(records.size(), 1u);
  EXPECT_NE(records[0].reason.find("RLK_PLUGIN_PATH"), std::string::npos);
  EXPECT_NE(records[0].reason.find(folder / "none"), std::string::npos);
  EXPECT_NE(records[0].reason.find("No such file"), std::string::npos);
}

TEST_F(Discover, SelectAndDisableFilterByGlobsOnTheId) {
  const std::string both = (folder / "a") + ":" + (folder / "b");
  EXPECT_EQ(run({{"RLK_PLUGIN_PATH", both}, {"RLK_PLUGINS_SELECT", "z*,beta"}}),
            "alpha rejected NOT_SELECTED RLK_PLUGIN_PATH\nzeta discovered  RLK_PLUGIN_PATH\n"
            "beta discovered  RLK_PLUGIN_PATH\n");
  EXPECT_EQ(run({{"RLK_PLUGIN_PATH", both}, {"RLK_PLUGINS_DISABLE", "?eta"}}),
            "alpha discovered  RLK_PLUGIN_PATH\nzeta rejected DISABLED RLK_PLUGIN_PATH\n"
            "beta rejected DISABLED RLK_PLUGIN_PATH\n");
  EXPECT_EQ(run({{"RLK_PLUGIN_PATH", both}, {"RLK_PLUGINS_SELECT", "*eta"}, {"RLK_PLUGINS_DISABLE", "zeta"}}),
            "alpha rejected NOT_SELECTED RLK_PLUGIN_PATH\nzeta rejected DISABLED RLK_PLUGIN_PATH\n"
            "beta discovered  RLK_PLUGIN_PATH\n");
}

TEST_F(Discover, TheIdComesFromTheNoteAndNotFromTheName) {
  options.defaults.clear();
  folder.copy(kTinyPlugin, "b/librlk_plugin_beta.so");
  const auto records = discover(environment({{"RLK_PLUGIN_PATH", folder / "b"}}), options);
  ASSERT_EQ(records.size(), 1u);
  EXPECT_EQ(records[0].id, "tiny");
  EXPECT_EQ(records[0].backend, "acme");
  EXPECT_EQ(records[0].version, "0.1.0");
  EXPECT_EQ(records[0].abi, "1.0");
}

TEST_F(Discover, TheSameFileIsShadowedHoweverItIsReached) {
  folder.copy(kTinyPlugin, "b/librlk_plugin_beta.so");
  folder.link(folder / "b/librlk_plugin_beta.so", "c/librlk_plugin_gamma2.so");
  std::filesystem::create_hard_link(folder / "b/librlk_plugin_beta.so", folder / "c/librlk_plugin_hard.so");
  EXPECT_EQ(run({{"RLK_PLUGIN_PATH", (folder / "b") + ":" + (folder / "c")}}),
            "tiny discovered  RLK_PLUGIN_PATH\ngamma discovered  RLK_PLUGIN_PATH\n"
            "tiny shadowed SAME_FILE RLK_PLUGIN_PATH\ntiny shadowed SAME_FILE RLK_PLUGIN_PATH\n");
}

TEST_F(Discover, TheSameIdIsShadowedByTheFirst) {
  options.defaults.clear();
  folder.copy(kTinyPlugin, "b/librlk_plugin_beta.so");
  folder.copy(kTinyPlugin, "c/librlk_plugin_gamma.so");
  const auto records =
      discover(environment({{"RLK_ADD_PLUGIN_PATH", folder / "b"}, {"RLK_PLUGIN_PATH", folder / "c"}}), options);
  EXPECT_EQ(summary(records), "tiny discovered  RLK_ADD_PLUGIN_PATH\ntiny shadowed SAME_ID RLK_PLUGIN_PATH\n");
  EXPECT_NE(records[1].reason.find(folder / "b/librlk_plugin_beta.so"), std::string::npos);
  EXPECT_NE(records[1].reason.find(folder / "c/librlk_plugin_gamma.so"), std::string::npos) << records[1].reason;
}

TEST_F(Discover, AFileThatIsRefusedHidesNoneAndIsToldWithItsOwnFault) {
  const std::string both = (folder / "b") + ":" + (folder / "c");
  const std::string first = folder.copy(kTinyPlugin, "b/librlk_plugin_beta.so");
  folder.copy(kTinyPlugin, "c/librlk_plugin_gamma.so");
  const std::string second_serves = " RLK_PLUGIN_PATH\ntiny discovered  RLK_PLUGIN_PATH\n";
  ASSERT_EQ(chmod(first.c_str(), 0777), 0);
  EXPECT_EQ(run({{"RLK_PLUGIN_PATH", both}}), "tiny rejected WRITABLE_BY_OTHERS" + second_serves);
  ASSERT_EQ(chmod(first.c_str(), 0755), 0);
  folder.folder("b", 0777);
  EXPECT_EQ(run({{"RLK_PLUGIN_PATH", both}}), "tiny rejected WRITABLE_BY_OTHERS" + second_serves);
  folder.folder("b", 0755);
  EXPECT_EQ(run({{"RLK_PLUGIN_PATH", both}}),
            "tiny discovered  RLK_PLUGIN_PATH\ntiny shadowed SAME_ID RLK_PLUGIN_PATH\n")
      << "nothing is wrong with the first";
  // Of three the first that nothing is wrong with, and it keeps the id.
  folder.copy(kTinyPlugin, "a/librlk_plugin_tiny.so");
  ASSERT_EQ(chmod((folder / "a/librlk_plugin_tiny.so").c_str(), 0777), 0);
  EXPECT_EQ(run({{"RLK_PLUGIN_PATH", (folder / "a/librlk_plugin_tiny.so") + ":" + both}}),
            "tiny rejected WRITABLE_BY_OTHERS RLK_PLUGIN_PATH\ntiny discovered  RLK_PLUGIN_PATH\n"
            "tiny shadowed SAME_ID RLK_PLUGIN_PATH\n");
}

TEST_F(Discover, AHardLinkInAFolderOfOthersDoesNotHideTheFile) {
  folder.copy(kTinyPlugin, "c/librlk_plugin_gamma.so");
  folder.folder("d", 0777);
  std::filesystem::create_hard_link(folder / "c/librlk_plugin_gamma.so", folder / "d/librlk_plugin_tiny.so");
  EXPECT_EQ(run({{"RLK_PLUGIN_PATH", (folder / "d") + ":" + (folder / "c")}}),
            "tiny rejected WRITABLE_BY_OTHERS RLK_PLUGIN_PATH\ntiny discovered  RLK_PLUGIN_PATH\n");
}

TEST_F(Discover, AFileThatTheAllowListDoesNotNameHidesNone) {
  folder.copy(kTinyPlugin, "b/librlk_plugin_beta.so");
  folder.copy(kTinyPlugin, "c/librlk_plugin_gamma.so");
  std::ofstream(folder / "b/librlk_plugin_beta.so", std::ios::app) << "more";
  Store none("");
  const std::string list = folder.file("list", *sha256_of(&none, folder / "c/librlk_plugin_gamma.so") + "  gamma\n");
  EXPECT_EQ(run({{"RLK_PLUGIN_PATH", (folder / "b") + ":" + (folder / "c")}, {"RLK_ALLOW_LIST", list}}),
            "tiny rejected NOT_ALLOWED RLK_PLUGIN_PATH\ntiny discovered  RLK_PLUGIN_PATH\n");
}

TEST_F(Discover, AnAllowListThatCannotBeReadIsAFaultOfItsOwn) {
  folder.copy(kTinyPlugin, "b/librlk_plugin_beta.so");
  const std::string list = folder / "nowhere";
  Environment both = environment({{"RLK_PLUGIN_PATH", folder / "b"}, {"RLK_ALLOW_LIST", list}});
  auto records = discover(both, {});
  ASSERT_EQ(records.size(), 2u);
  EXPECT_EQ(records[0].reason_code, "ALLOW_LIST_UNUSABLE");
  EXPECT_EQ(records[0].state, State::rejected);
  EXPECT_NE(records[0].reason.find(list + ": No such file"), std::string::npos) << records[0].reason;
  EXPECT_EQ(records[0].hint.find("add the line"), std::string::npos) << records[0].hint;
  EXPECT_TRUE(records[1].is_place);
  EXPECT_TRUE(records[1].broken);
  EXPECT_EQ(records[1].path + " " + records[1].source, list + " RLK_ALLOW_LIST");
  // The file's own fault is the nearer one.
  folder.folder("b", 0777);
  EXPECT_EQ(discover(both, {})[0].reason_code, "WRITABLE_BY_OTHERS");
  folder.folder("b", 0755);
  both.origins["RLK_ALLOW_LIST"] = "/etc/rlk.toml:3: allow_list";
  EXPECT_NE(discover(both, {})[1].reason.find("/etc/rlk.toml:3: allow_list asks for"), std::string::npos);
  both.values["RLK_ALLOW"] = "warn";
  records = discover(both, {});
  EXPECT_EQ(records[0].state, State::discovered) << "it is used all the same";
  EXPECT_TRUE(records[1].broken);
  both.values["RLK_ALLOW"] = "off";
  EXPECT_EQ(discover(both, {}).size(), 1u);
  both.values = {{"RLK_ALLOW", "require"}, {"RLK_PLUGIN_PATH", folder / "b"}};
  EXPECT_NE(discover(both, {})[1].reason.find("RLK_ALLOW asks for an allow-list, and RLK_ALLOW_LIST names no list"),
            std::string::npos);
}

TEST_F(Discover, ACpuThatCannotBeDisabledIsTold) {
  EXPECT_EQ(places({{"RLK_PLUGINS_DISABLE", "cuda,cpu"}}), "cpu NO_EFFECT RLK_PLUGINS_DISABLE\n");
  EXPECT_EQ(places({{"RLK_PLUGINS_DISABLE", "*"}}), "") << "all plugins, and the CPU backend is none";
}

TEST_F(Discover, AFilteredPluginShadowsNobody) {
  folder.copy(kTinyPlugin, "b/librlk_plugin_beta.so");
  folder.copy(kTinyPlugin, "c/librlk_plugin_gamma.so");
  EXPECT_EQ(run({{"RLK_PLUGIN_PATH", (folder / "b") + ":" + (folder / "c")}, {"RLK_PLUGINS_DISABLE", "tiny"}}),
            "tiny rejected DISABLED RLK_PLUGIN_PATH\ntiny rejected DISABLED RLK_PLUGIN_PATH\n");
}

TEST_F(Discover, PrivilegedProcessesIgnorePathVariablesAndSaySo) {
  EXPECT_EQ(run({{"RLK_PLUGIN_PATH", folder / "a"}, {"RLK_ADD_PLUGIN_PATH", folder / "b"}}, true),
            "gamma discovered  default folder\n");
  EXPECT_EQ(places({{"RLK_PLUGIN_PATH", folder / "a"}, {"RLK_ADD_PLUGIN_PATH", folder / "b"}}, true),
            "b PRIVILEGED_PROCESS RLK_ADD_PLUGIN_PATH\na PRIVILEGED_PROCESS RLK_PLUGIN_PATH\n");
}

TEST_F(Discover, AFolderFullOfStrangeThingsIsHarmless) {
  folder.folder("a/librlk_plugin_folder.so");
  folder.link("/nowhere", "a/librlk_plugin_dangling.so");
  ASSERT_EQ(mkfifo((folder / "a/librlk_plugin_pipe.so").c_str(), 0644), 0);
  EXPECT_EQ(run({{"RLK_PLUGIN_PATH", folder / "a"}}),
            "alpha discovered  RLK_PLUGIN_PATH\ndangling discovered  RLK_PLUGIN_PATH\n"
            "folder discovered  RLK_PLUGIN_PATH\npipe discovered  RLK_PLUGIN_PATH\n"
            "zeta discovered  RLK_PLUGIN_PATH\n");
}

TEST(DefaultFolders, AreAbsoluteAndIncludeTheOneBesideThisCode) {
  const auto folders = default_folders();
  ASSERT_EQ(folders.size(), 2u);
  for (const SearchEntry& entry : folders) {
    EXPECT_EQ(entry.path.front(), '/');
    EXPECT_TRUE(entry.optional);
    EXPECT_TRUE(entry.path.ends_with("/rlk/plugins")) << entry.path;
  }
}

TEST(Environment, OfProcessSeesTheVariables) {
  const rlk::testing::ScopedEnv set("RLK_TEST_VARIABLE", "a=b");
  const Environment environment = Environment::of_process();
  EXPECT_EQ(environment.get("RLK_TEST_VARIABLE"), "a=b");
  EXPECT_EQ(environment.get("RLK_TEST_NO_SUCH_VARIABLE"), std::nullopt);
  EXPECT_FALSE(environment.privileged);
}

TEST(Environment, NamesWhoSetAValueAndTrustsThePolicyFileInAPrivilegedProcess) {
  Environment environment{{{"RLK_ALLOW_LIST", "/list"}, {"RLK_PROBER", "/prober"}}, true};
  environment.origins["RLK_ALLOW_LIST"] = "/etc/rlk.toml:1: allow_list";
  EXPECT_EQ(environment.origin("RLK_ALLOW_LIST"), "/etc/rlk.toml:1: allow_list");
  EXPECT_EQ(environment.origin("RLK_PROBER"), "RLK_PROBER");
  EXPECT_EQ(environment.path("RLK_ALLOW_LIST"), "/list");
  EXPECT_EQ(environment.path("RLK_PROBER"), std::nullopt);
}

}  // namespace
}  // namespace rlk::loader
