// A registry with scripted plugins, a dispatcher over it, and calls whose memory is the fake device's.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "core/dispatch/data_error.hpp"
#include "core/dispatch/dispatcher.hpp"
#include "core/dispatch/graph.hpp"
#include "core/dispatch/host.hpp"
#include "framework/op_call.hpp"
#include "unit/dispatch/scripted.hpp"

namespace rlk::test {

using core::Dispatcher;
using core::PluginBinding;
using core::Policy;
using core::Registry;
using core::Stream;
using core::UnitResult;

template <class P>
PluginBinding bind(const char* id, const char* backend, bool built_in = false) {
  rlk_error error = {sizeof(rlk_error), 0, 0, {}, {}};
  PluginBinding binding;
  binding.id = id;
  binding.backend = backend;
  binding.built_in = built_in;
  binding.api = sdk::detail::PluginThunks<P>::entry(core::host_services(), &error, id, backend, "1.0", "test");
  EXPECT_NE(binding.api, nullptr) << error.text;
  EXPECT_EQ(binding.api->create(core::host_services(), &binding.instance, &error), RLK_OK) << error.text;
  if ((binding.api->flags & RLK_PLUGIN_OPERATORS_ONLY) == 0) {
    binding.devices.resize(1);
    EXPECT_EQ(binding.api->device_open(binding.instance, 0, &binding.devices[0], &error), RLK_OK) << error.text;
  }
  return binding;
}

inline UnitResult unit(std::string op, std::string implementation, std::string dtype, std::string feature,
                       std::string variant = "v1",
                       uint32_t numerics = RLK_NUMERICS_TOLERANCE | RLK_NUMERICS_DETERMINISTIC,
                       UnitResult::Verdict verdict = UnitResult::Verdict::verified) {
  UnitResult result;
  result.op = std::move(op);
  result.implementation = std::move(implementation);
  result.dtype = std::move(dtype);
  result.feature = std::move(feature);
  result.variant = std::move(variant);
  result.numerics = numerics;
  result.verdict = verdict;
  if (verdict != UnitResult::Verdict::verified) {
    result.reason_code = "WRONG_RESULT";
    result.reason = "row 3 differs";
  }
  return result;
}

// Everything that the tests ask for is verified unless a test takes it back.
inline void verify(PluginBinding& binding) {
  for (uint32_t i = 0; i < binding.api->n_implementations; ++i) {
    const rlk_implementation& row = *binding.api->implementations[i];
    for (const char* dtype : {"f32", "bf16"}) {
      for (const char* feature : {"", "strided", "alias:out=a", "bias", "lse", "layout=packed", "alpha"}) {
        binding.units.push_back(unit(row.op, row.name, dtype, feature));
      }
    }
  }
}

// A world is made of plugins that live as long as the process, as in a real one.
struct World {
  enum Parts { kCpu = 1, kFake = 2, kPlain = 4, kGuest = 8, kAll = kCpu | kFake };

  explicit World(int parts = kAll, std::vector<std::pair<std::string, std::string>> environment = {},
                 std::vector<core::PolicyEntry> entries = {}, size_t max_plans = 1024) {
    fake_log().reset();
    reset_scripts();
    if ((parts & kCpu) != 0) plugins.push_back(cpu());
    if ((parts & kFake) != 0) plugins.push_back(fake());
    if ((parts & kPlain) != 0) plugins.push_back(plain());
    if ((parts & kGuest) != 0) plugins.push_back(guest());
    publish();
    make_dispatcher(std::move(environment), std::move(entries), max_plans);
  }

  void publish(std::vector<core::RejectedPlugin> rejected = {}) { registry.publish(plugins, std::move(rejected)); }

  rlk_status make_policy(const std::vector<std::pair<std::string, std::string>>& environment,
                         const std::vector<core::PolicyEntry>& entries, Policy* out, rlk_error* error) const {
    std::vector<std::string> names;
    for (const auto& [name, value] : environment) names.push_back(name);
    const auto find = [&](const char* name) -> const char* {
      for (const auto& [known, value] : environment) {
        if (known == name) return value.c_str();
      }
      return nullptr;
    };
    return Policy::make(find, names, entries, out, error);
  }
  void make_dispatcher(std::vector<std::pair<std::string, std::string>> environment,
                       std::vector<core::PolicyEntry> entries, size_t max_plans = 1024) {
    Policy policy;
    rlk_error error = {sizeof(rlk_error), 0, 0, {}, {}};
    EXPECT_EQ(make_policy(environment, entries, &policy, &error), RLK_OK) << error.text;
    dispatcher = std::make_unique<Dispatcher>(registry, std::move(policy), max_plans);
  }

  std::unique_ptr<Stream> stream(const char* backend = "fake") {
    core::DeviceState* device = nullptr;
    rlk_error error = {sizeof(rlk_error), 0, 0, {}, {}};
    EXPECT_EQ(dispatcher->device(backend, 0, &device, &error), RLK_OK) << error.text;
    std::unique_ptr<Stream> stream;
    EXPECT_EQ(Stream::create(*device, dispatcher->counters(), 0, &stream, &error), RLK_OK) << error.text;
    return stream;
  }

  // A call whose memory lives as long as the world: streams, which die before it, may still be at work on it.
  OpCall& make(const char* op, int form = 0) {
    return *calls.emplace_back(std::make_unique<OpCall>(*core::find_declaration(op), form));
  }

  rlk_status call(Stream& stream, OpCall& call, core::CallOptions options = {}) {
    last = {sizeof(rlk_error), 0, 0, {}, {}};
    return dispatcher->call(stream, *call.decl, call.params.data(), call.input_pointers, call.output_pointers, options,
                            &last);
  }
  rlk_status synchronize(Stream& stream) {
    last = {sizeof(rlk_error), 0, 0, {}, {}};
    return dispatcher->synchronize(stream, UINT64_MAX, &last);
  }
  core::Explanation explain(Stream& stream, OpCall& call, core::CallOptions options = {}) {
    core::Explanation explanation;
    last = {sizeof(rlk_error), 0, 0, {}, {}};
    EXPECT_EQ(dispatcher->explain(stream, *call.decl, call.params.data(), call.input_pointers, call.output_pointers,
                                  options, &explanation, &last),
              RLK_OK)
        << last.text;
    return explanation;
  }
  // "fake/first", "cpu/first staged", or "" when nobody takes it.
  static std::string taken(const core::Explanation& explanation) {
    for (const core::Option& o : explanation.options) {
      if (o.verdict == core::Verdict::taken) return o.plugin + "/" + o.implementation + (o.staged ? " staged" : "");
    }
    return "";
  }
  core::OpCounters& counters(const char* op) { return dispatcher->counters().of(*core::find_declaration(op)); }
  std::string text() const { return last.text; }

  static PluginBinding cpu() {
    static auto& binding = *new PluginBinding(bind<CpuPlugin>("cpu", "cpu", true));
    return binding;
  }
  static PluginBinding fake() {
    static auto& binding = *new PluginBinding(bind<FakePlugin>("fake", "fake"));
    PluginBinding copy = binding;
    verify(copy);
    return copy;
  }
  static PluginBinding plain() {
    static auto& binding = *new PluginBinding(bind<PlainPlugin>("plain", "plain"));
    PluginBinding copy = binding;
    verify(copy);
    return copy;
  }
  static PluginBinding guest() {
    static auto& binding = *new PluginBinding([] {
      PluginBinding made = bind<GuestPlugin>("guest", "fake");
      const rlk_attach_info info = {sizeof(rlk_attach_info), 0, "fake", nullptr};
      made.devices.resize(1);
      EXPECT_EQ(made.api->device_attach(made.instance, &info, &made.devices[0], nullptr), RLK_OK);
      return made;
    }());
    PluginBinding copy = binding;
    verify(copy);
    return copy;
  }
  static void reset_scripts() {
    using sdk::ops::Add;
    using sdk::ops::Attention;
    using sdk::ops::Logp;
    for (Script* s :
         {&fake_script<Add, 0>(), &fake_script<Add, 1>(), &fake_script<Logp, 0>(), &fake_script<Logp, 1>(),
          &fake_script<Attention>(), &plain_script<Add, 0>(), &plain_script<Add, 1>(), &plain_script<Logp, 0>(),
          &plain_script<Logp, 1>(), &plain_script<Attention>(), &cpu_script<Add, 0>(), &cpu_script<Add, 1>(),
          &cpu_script<Logp, 0>(), &cpu_script<Logp, 1>(), &cpu_script<Attention>(), &guest_script()}) {
      s->reset();
    }
    fake_script<Logp, 0>().mark = 1;
    fake_script<Logp, 1>().mark = 2;
    plain_script<Logp, 0>().mark = 3;
    cpu_script<Logp, 0>().mark = 10;
    cpu_script<Logp, 1>().mark = 11;
  }

  Registry registry;
  std::vector<PluginBinding> plugins;
  std::unique_ptr<Dispatcher> dispatcher;
  std::vector<std::unique_ptr<OpCall>> calls;
  rlk_error last{};
};

inline const core::OpDecl& op(const char* name) {
  return *core::find_declaration(name);
}

}  // namespace rlk::test
