// Verified plugins become candidates of dispatch; everything else becomes a reason.
#include "loader/register/register.hpp"

#include <gtest/gtest.h>

#include "loader/loader.hpp"
#include "tests/loader/staged_loader.hpp"

namespace rlk::loader {
namespace {

class Register : public StagedLoader {
protected:
  Register() { recall_the_built_in(); }
  core::Registry registry;
  Registrar registrar{&registry, loader::host_services()};
};

TEST_F(Register, TheBuiltInServesBeforeAnythingIsProbed) {
  PluginRecord cpu = built_in_record("cpu");
  registrar.publish_built_in(&cpu);
  EXPECT_EQ(cpu.state, State::registered) << cpu.reason;
  const auto read = registry.current();
  const core::Snapshot& now = *read;
  ASSERT_EQ(now.plugins.size(), 1u);
  EXPECT_TRUE(now.plugins[0]->built_in);
  EXPECT_TRUE(now.plugins[0]->units.empty());
  EXPECT_EQ(now.plugins[0]->devices.size(), 1u);
}

TEST_F(Register, GoodPluginsAreLoadedAndOthersKeepTheirReason) {
  add_plugin("fault");
  add_plugin("fault_attached");
  folder.file("plugins/librlk_plugin_junk.so", "junk");
  options.environment.values["RLK_PROBE"] = "isolated";
  std::vector<ProbedPlugin> plugins = find_plugins({}, options);
  registrar.publish(&plugins);
  const auto read = registry.current();
  const core::Snapshot& now = *read;
  ASSERT_EQ(now.plugins.size(), 3u);
  EXPECT_EQ(now.plugins[0]->id, "cpu");
  EXPECT_EQ(now.plugins[1]->id, "fault");
  EXPECT_EQ(now.plugins[1]->devices.size(), 2u);
  EXPECT_FALSE(now.plugins[1]->units.empty());
  EXPECT_EQ(now.plugins[2]->id, "fault-attached");
  EXPECT_EQ(now.plugins[2]->devices.size(), 2u);
  ASSERT_EQ(now.rejected.size(), 1u);
  EXPECT_EQ(now.rejected[0].id, "junk");
  EXPECT_EQ(now.rejected[0].reason_code, "NOT_ELF");
  for (size_t i = 1; i < 3; ++i) EXPECT_EQ(plugins[i].record.state, State::registered) << plugins[i].record.reason;
  EXPECT_EQ(plugins[1].record.history.back().place, Place::host);
  for (const auto& plugin : now.plugins)
    for (const auto& device : plugin->devices) EXPECT_EQ(device->handle(), nullptr) << "nobody has used it";
  rlk_plugin_device* opened = nullptr;
  EXPECT_EQ(now.plugins[2]->devices[1]->open(&opened, nullptr), RLK_OK);
  EXPECT_NE(now.plugins[1]->devices[1]->handle(), nullptr) << "the owner's is opened for it";
  EXPECT_EQ(now.plugins[1]->devices[0]->handle(), nullptr);
}

TEST_F(Register, AnOwnerThatComesLaterInTheSearchIsStillTheOwner) {
  add_plugin("fault");
  add_plugin("fault_attached");
  set("RLK_PLUGIN_PATH",
      (folder / "plugins/librlk_plugin_fault_attached.so") + ":" + (folder / "plugins/librlk_plugin_fault.so"));
  std::vector<ProbedPlugin> plugins = probe();
  registrar.publish(&plugins);
  EXPECT_EQ(plugins[0].record.id, "fault-attached");
  EXPECT_EQ(plugins[0].record.state, State::registered) << plugins[0].record.reason;
}

TEST_F(Register, ASecondOwnerOfTheCpuIsRefusedAndNamesTheFirst) {
  add_plugin("fault_second_cpu");
  std::vector<ProbedPlugin> plugins = probe();
  plugins.insert(plugins.begin(), {built_in_record("cpu"), {}});  // unverified, to spare its test
  registrar.publish(&plugins);
  ASSERT_EQ(plugins.size(), 2u);
  const PluginRecord& second = plugins[1].record;
  EXPECT_EQ(second.state, State::rejected);
  EXPECT_EQ(second.reason_code, "DEVICE_TAKEN");
  EXPECT_NE(second.reason.find("plugin cpu"), std::string::npos) << second.reason;
  EXPECT_TRUE(second.broken) << "somebody must choose";
  const auto read = registry.current();
  const core::Snapshot& now = *read;
  for (const core::Candidate& candidate : now.candidates) EXPECT_EQ(candidate.plugin->id, "cpu");
  ASSERT_EQ(now.rejected.size(), 1u);
  EXPECT_EQ(now.rejected[0].reason_code, "DEVICE_TAKEN");
}

TEST_F(Register, OfTwoOwnersTheFirstFoundLendsItsDevices) {
  add_plugin("fault");
  add_plugin("fault_attached");
  add_plugin("fault_second_acme");  // its id comes first in the alphabet, its file last
  std::vector<ProbedPlugin> plugins = probe();
  registrar.publish(&plugins);
  ASSERT_EQ(plugins.size(), 3u);
  EXPECT_EQ(plugins[1].record.state, State::registered) << plugins[1].record.reason;
  EXPECT_EQ(plugins[2].record.reason_code, "DEVICE_TAKEN") << plugins[2].record.reason;
  size_t attached = 0;
  const auto now = registry.current();
  for (const core::Candidate& candidate : now->candidates) attached += candidate.plugin->id == "fault-attached";
  EXPECT_EQ(attached, 2u) << "on both devices of fault";
}

TEST_F(Register, AFileWithTheIdOfTheBuiltInIsShadowed) {
  const std::string path = folder / "plugins/librlk_plugin_cpu.so";
  folder.file("plugins/librlk_plugin_cpu.so", "an id by its name alone");
  options.environment.values["RLK_PROBE"] = "off";
  std::vector<ProbedPlugin> plugins = find_plugins({}, options);
  registrar.publish(&plugins);
  ASSERT_EQ(plugins.size(), 2u);
  EXPECT_EQ(plugins[0].record.state, State::registered);
  EXPECT_EQ(plugins[1].record.state, State::shadowed);
  EXPECT_EQ(plugins[1].record.reason_code, "SAME_ID");
  EXPECT_NE(plugins[1].record.reason.find(path), std::string::npos) << plugins[1].record.reason;
}

TEST_F(Register, PlacesOfTheSearchAreNoPlugins) {
  set("RLK_PLUGIN_PATH", folder / "cuda");
  std::vector<ProbedPlugin> plugins = probe();
  registrar.publish(&plugins);
  ASSERT_EQ(plugins.size(), 1u);
  EXPECT_TRUE(plugins[0].record.is_place);
  EXPECT_TRUE(registry.current()->rejected.empty()) << "no plugin is called cuda";
}

TEST_F(Register, PublishingAgainOpensNothingTwice) {
  add_plugin("fault");
  std::vector<ProbedPlugin> first = probe();
  registrar.publish(&first);
  const auto device = registry.current()->plugins.at(0)->devices.at(0);
  std::vector<ProbedPlugin> second = probe();
  registrar.publish(&second);
  EXPECT_EQ(registry.current()->plugins.at(0)->devices.at(0), device);
  EXPECT_EQ(second[0].record.state, State::registered);
}

TEST_F(Register, AFileThatChangedAfterItsProbeIsNotLoaded) {
  add_plugin("fault");
  std::vector<ProbedPlugin> plugins = probe();
  ASSERT_EQ(plugins[0].record.state, State::smoke_tested) << plugins[0].record.reason;
  std::filesystem::remove(folder / "plugins/librlk_plugin_fault.so");
  add_plugin("fault");  // the same bytes, but this file was not probed
  registrar.publish(&plugins);
  EXPECT_EQ(plugins[0].record.state, State::rejected);
  EXPECT_EQ(plugins[0].record.reason_code, "FILE_CHANGED");
  ASSERT_EQ(registry.current()->rejected.size(), 1u);
}

TEST_F(Register, AnUnprobedBuiltInIsRegisteredWithTheReason) {
  options.environment.values["RLK_PROBE"] = "off";
  std::vector<ProbedPlugin> plugins = find_plugins({}, options);
  registrar.publish(&plugins);
  EXPECT_EQ(plugins[0].record.state, State::registered);
  EXPECT_EQ(plugins[0].record.reason_code, "PROBE_OFF");
  EXPECT_EQ(registry.current()->plugins.size(), 1u);
}

}  // namespace
}  // namespace rlk::loader
