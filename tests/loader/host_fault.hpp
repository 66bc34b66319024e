// A host with the built-in CPU and a plugin that has passed its probe and misbehaves from now on.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <initializer_list>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/declaration/error.hpp"
#include "core/dispatch/call/dispatcher.hpp"
#include "framework/op_call.hpp"
#include "framework/process.hpp"
#include "loader/loader.hpp"
#include "loader/register/register.hpp"
#include "tests/loader/staged_loader.hpp"

namespace rlk::loader {

using rlk::testing::ScopedEnv;

// Patience of half a second instead of a minute.
inline constexpr double kShort = 0.5 / 60;

// The built-in CPU and the fault plugin, which had no fault in its probe and has one from now on.
class Host : public StagedLoader {
protected:
  Host() : plugins(probed_once()) {}
  // Files of its own, which this process has not loaded yet.
  void probe_own(std::initializer_list<const char*> names) {
    for (const char* name : names) add_plugin(name);
    plugins = probe();
    plugins.insert(plugins.begin(), {built_in_record("cpu"), {}});
  }
  void publish() {
    registrar = std::make_unique<Registrar>(&registry, loader::host_services());
    registrar->publish(&plugins);
    const core::Policy policy;
    dispatcher = std::make_unique<core::Dispatcher>(registry, policy);
  }
  // Another dispatcher, with the policy of these variables alone.
  void dispatch_with(const std::map<std::string, const char*>& variables) {
    core::Policy policy;
    const auto value_of = [&](const char* name) {
      const auto found = variables.find(name);
      return found != variables.end() ? found->second : nullptr;
    };
    ASSERT_EQ(core::Policy::make(value_of, {}, {}, &policy, &error), RLK_OK) << error.text;
    dispatcher = std::make_unique<core::Dispatcher>(registry, policy);
  }
  const PluginRecord& record() const { return plugins.at(1).record; }

  rlk_status make_stream(const char* backend, std::unique_ptr<core::Stream>* made) {
    core::DeviceState* device = nullptr;
    rlk_status status = dispatcher->device(backend, 0, &device, &error);
    if (status == RLK_OK) status = core::Stream::create(*device, dispatcher->counters(), 0, made, &error);
    return status;
  }
  // 1 + 2 at every place.
  rlk_status add(core::Stream& on) {
    test::OpCall call(*core::find_declaration("add"));
    for (size_t i = 0; i < 2; ++i) fill(call.inputs[i], i == 0 ? 1.0f : 2.0f);
    fill(call.outputs[0], -1.0f);
    rlk_status status =
        dispatcher->call(on, *call.decl, call.params.data(), call.input_pointers, call.output_pointers, {}, &error);
    if (status == RLK_OK) status = dispatcher->synchronize(on, UINT64_MAX, &error);
    const test::Argument& out = call.outputs[0];
    EXPECT_TRUE(status != RLK_OK || static_cast<const float*>(out.data)[0] == 3.0f) << "a wrong number";
    return status;
  }
  // Given back to the plugin when the device's state dies.
  rlk_status use_memory(core::Stream& on) {
    void* memory = nullptr;
    const rlk_status status = on.device().memory.allocate(*on.clock(), 64, &memory, &error);
    if (status == RLK_OK) on.device().memory.deallocate(memory, on.fence(false), nullptr);
    return status;
  }
  static void fill(const test::Argument& argument, float value) {
    int64_t count = 1;
    for (const int64_t size : argument.shape) count *= size;
    for (int64_t i = 0; i < count; ++i) static_cast<float*>(argument.data)[i] = value;
  }
  void end() {
    stream.reset();
    dispatcher.reset();
    registrar.reset();
  }
  // "PLUGIN_EXCEPTION: ..." of what was switched off, "" when nothing was.
  std::string switched_off() const {
    std::string all;
    const auto now = registry.current();
    for (const auto& entry : now->quarantined)
      all += entry->who() + " (" + entry->reason_code + "): " + entry->reason + "; ";
    return all;
  }

  // One probe for all tests that do not mind a library that is loaded already.
  static const std::vector<ProbedPlugin>& probed_once() {
    struct Once : Host {
      explicit Once(int) : Host(std::vector<ProbedPlugin>()) { probe_own({"fault"}); }
      void TestBody() override {}
      std::vector<ProbedPlugin> take() const { return plugins; }
    };
    // A forked process that calls exit() leaves the folder to its parent.
    static const pid_t maker = getpid();
    static const auto end = [](Once* made) {
      if (getpid() == maker) delete made;
    };
    static const std::unique_ptr<Once, void (*)(Once*)> once(new Once(0), end);
    static const std::vector<ProbedPlugin> found = once->take();
    return found;
  }
  explicit Host(std::vector<ProbedPlugin> given) : plugins(std::move(given)) {}

  core::Registry registry;
  std::vector<ProbedPlugin> plugins;
  std::unique_ptr<Registrar> registrar;
  std::unique_ptr<core::Dispatcher> dispatcher;
  std::unique_ptr<core::Stream> stream;
  rlk_error error = core::fresh_error();
};

}  // namespace rlk::loader
