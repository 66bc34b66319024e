// A machine of its own for a test of the loader: folders for plugins and cache, an environment, the real prober.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "framework/env.hpp"
#include "framework/fs.hpp"
#include "loader/discover/discover.hpp"
#include "loader/host/services.hpp"
#include "loader/loader.hpp"
#include "loader/probe/probe.hpp"

namespace rlk::loader {

class StagedLoader : public ::testing::Test {
protected:
  StagedLoader() : cache(folder.folder("cache", 0700)) {
    folder.folder("plugins");
    options.environment = {{{"PATH", "/usr/bin:/bin"}, {"RLK_PLUGIN_PATH", folder / "plugins"}}, false};
    for (const auto& [name, value] : rlk::testing::crashes_stay_crashes()) set(name, value);
    options.host = loader::host_services();
    options.store = &store;
    options.prober = RLK_TEST_PROBER;
  }
  void add_plugin(const std::string& name) {
    const std::string file = "librlk_plugin_" + name + ".so";
    folder.copy(name == "fault" ? RLK_TEST_FAULT_PLUGIN : RLK_TEST_OBJECTS "/" + file, "plugins/" + file);
  }
  void set_fault(const std::string& fault) { set("RLK_FAULT_UNDECLARED", fault); }
  void set(const std::string& name, const std::string& value) { options.environment.values[name] = value; }

  // The built-in's verdict, which costs seconds: as the first test of the program that needed it has found it.
  void recall_the_built_in() {
    static const std::map<std::string, std::string> judged = [&] {
      const rlk::testing::TempFolder own;
      Store store_of_its_own(own.folder("cache", 0700));
      ProbeOptions alone = options;
      alone.store = &store_of_its_own;
      alone.environment.values["RLK_PLUGIN_PATH"] = "";
      EXPECT_EQ(find_plugins({}, alone).at(0).record.state, State::smoke_tested);
      std::map<std::string, std::string> files;
      for (const auto& file : std::filesystem::directory_iterator(own / "cache")) {
        if (file.is_regular_file()) files[file.path().filename()] = rlk::testing::read_text(file.path());
      }
      return files;
    }();
    for (const auto& [name, content] : judged) folder.file("cache/" + name, content, 0600);
  }

  std::vector<ProbedPlugin> probe() { return probe_plugins(discover(options.environment, {}), options); }
  // The only plugin there is.
  PluginRecord probe_one() {
    std::vector<ProbedPlugin> plugins = probe();
    EXPECT_EQ(plugins.size(), 1u);
    return plugins.empty() ? PluginRecord() : plugins.front().record;
  }

  rlk::testing::TempFolder folder;
  std::string cache;
  Store store{cache};
  ProbeOptions options;
};

}  // namespace rlk::loader
