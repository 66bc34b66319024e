// A plugin as a host sees it: its entry, an instance, and one device with one stream once they are asked for.
// RLK_TEST_PLUGIN is the plugin's path.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <rlk/abi.h>
#include <rlk/abi/ext/draft/graph.h>

#include <cstdlib>

namespace rlk::test {

inline rlk_error no_error() {
  rlk_error error{};
  error.struct_size = sizeof(error);
  return error;
}

// A variable for a scope.
class Variable {
public:
  Variable(const char* name, const char* value) : name_(name) { setenv(name, value, 1); }
  ~Variable() { unsetenv(name_); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

private:
  const char* name_;
};

class PluginFixture : public testing::Test {
protected:
  void SetUp() override {
    static const rlk_host host{sizeof(rlk_host),
                               RLK_ABI_MAJOR,
                               RLK_ABI_MINOR,
                               RLK_ABI_DRAFT,
                               0,
                               0,
                               "test",
                               "0",
                               nullptr,
                               [](void*, const char*) -> const void* { return nullptr; }};
    void* library = dlopen(RLK_TEST_PLUGIN, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    ASSERT_NE(library, nullptr) << dlerror();
    const auto entry = reinterpret_cast<rlk_plugin_entry_v1_fn>(dlsym(library, RLK_PLUGIN_ENTRY_SYMBOL));
    api = entry(&host, &error);
    ASSERT_NE(api, nullptr) << error.text;
    ASSERT_EQ(api->create(&host, &instance, &error), RLK_OK) << error.text;
  }
  void TearDown() override {
    EXPECT_TRUE(stream == nullptr || api->stream->destroy(stream, nullptr) == RLK_OK);
    EXPECT_TRUE(device == nullptr || api->device_close(device, nullptr) == RLK_OK);
    EXPECT_TRUE(instance == nullptr || api->destroy(instance, nullptr) == RLK_OK);
  }
  void open() {
    ASSERT_EQ(api->device_open(instance, 0, &device, &error), RLK_OK) << error.text;
    ASSERT_EQ(api->stream->create(device, 0, &stream, &error), RLK_OK) << error.text;
  }
  const rlk_graph_api& graphs() const {
    return *static_cast<const rlk_graph_api*>(api->get_extension(instance, RLK_EXT_GRAPH));
  }

  rlk_error error = no_error();
  const rlk_plugin* api = nullptr;
  rlk_plugin_instance* instance = nullptr;
  rlk_plugin_device* device = nullptr;
  rlk_plugin_stream* stream = nullptr;
};

}  // namespace rlk::test
