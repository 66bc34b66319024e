// A machine of its own for a test of the loader: folders for plugins and cache, an environment, the real prober.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/dispatch/host.hpp"
#include "framework/env.hpp"
#include "framework/fs.hpp"
#include "loader/discover/discover.hpp"
#include "loader/probe/probe.hpp"

namespace rlk::loader {

class StagedLoader : public ::testing::Test {
protected:
  StagedLoader() : cache(folder.folder("cache", 0700)) {
    folder.folder("plugins");
    options.environment = {{{"PATH", "/usr/bin:/bin"}, {"RLK_PLUGIN_PATH", folder / "plugins"}}, false};
    for (const auto& [name, value] : rlk::testing::crashes_stay_crashes()) set(name, value);
    options.host = core::host_services();
    options.store = &store;
    options.prober = RLK_TEST_PROBER;
  }
  void add_plugin(const std::string& name) {
    const std::string file = "librlk_plugin_" + name + ".so";
    folder.copy(name == "fault" ? RLK_TEST_FAULT_PLUGIN : RLK_TEST_OBJECTS "/" + file, "plugins/" + file);
  }
  void set_fault(const std::string& fault) { set("RLK_FAULT_UNDECLARED", fault); }
  void set(const std::string& name, const std::string& value) { options.environment.values[name] = value; }

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
