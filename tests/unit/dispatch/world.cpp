// The plugins of the registry, what each has verified, and the calls.
#include "unit/dispatch/world.hpp"

#include <map>
#include <tuple>

#include "unit/dispatch/scripted.hpp"

namespace rlk::test {

namespace {

using Scripts = std::map<std::tuple<std::string, std::string, int>, Script>;
Scripts& scripts() {
  static Scripts all;
  return all;
}

template <class P>
PluginBinding bind(const char* id, const char* backend, uint32_t devices, bool built_in = false) {
  rlk_error error = {sizeof(rlk_error), 0, 0, {}, {}};
  PluginBinding binding;
  binding.id = id;
  binding.backend = backend;
  binding.built_in = built_in;
  binding.api = sdk::detail::PluginThunks<P>::entry(loader::host_services(), &error, id, backend, "1.0", "test");
  EXPECT_NE(binding.api, nullptr) << error.text;
  EXPECT_EQ(binding.api->create(loader::host_services(), &binding.instance, &error), RLK_OK) << error.text;
  for (uint32_t i = 0; i < devices; ++i) {
    rlk_device_properties properties{};
    properties.struct_size = sizeof(properties);
    EXPECT_EQ(binding.api->device_describe(binding.instance, i, &properties, &error), RLK_OK) << error.text;
    binding.devices.push_back(std::make_shared<core::PluginDevice>(binding.api, binding.instance, i, properties));
  }
  return binding;
}

PluginBinding bind_guest(const PluginBinding& owner) {
  PluginBinding made = bind<GuestPlugin>("guest", "fake", 0);
  for (const auto& device : owner.devices) {
    made.devices.push_back(std::make_shared<core::PluginDevice>(made.api, made.instance, device));
  }
  return made;
}

// Everything that the tests ask for is verified unless a test takes it back.
void verify(PluginBinding& binding) {
  for (uint32_t i = 0; i < binding.api->n_implementations; ++i) {
    const rlk_implementation& row = *binding.api->implementations[i];
    for (const char* dtype : {"f32", "bf16"}) {
      for (const char* feature : {"", "strided", "alias:out=a", "bias", "lse", "layout=packed", "alpha"}) {
        binding.units.push_back(unit(row.op, row.name, dtype, feature));
      }
    }
  }
}

void reset_scripts() {
  for (auto& [key, script] : scripts()) script.reset();
  fake_script<sdk::ops::Logp, 0>().mark = 1;
  fake_script<sdk::ops::Logp, 1>().mark = 2;
  plain_script<sdk::ops::Logp, 0>().mark = 3;
  cpu_script<sdk::ops::Logp, 0>().mark = 10;
  cpu_script<sdk::ops::Logp, 1>().mark = 11;
}

}  // namespace

Script& script_of(const std::string& plugin, const std::string& op, int number) {
  return scripts()[{plugin, op, number}];
}

UnitResult unit(std::string op, std::string implementation, std::string dtype, std::string feature, std::string variant,
                uint32_t numerics, UnitResult::Verdict verdict) {
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

World::World(int parts, const Environment& environment, const std::vector<core::PolicyEntry>& entries,
             size_t max_plans) {
  fake_log().reset();
  reset_scripts();
  if ((parts & kCpu) != 0) plugins.push_back(cpu());
  if ((parts & kFake) != 0) plugins.push_back(fake());
  if ((parts & kPlain) != 0) plugins.push_back(plain());
  if ((parts & kGuest) != 0) plugins.push_back(guest());
  publish();
  make_dispatcher(environment, entries, max_plans);
}

void World::publish(std::vector<core::RejectedPlugin> rejected) {
  registry.publish(plugins, std::move(rejected));
}

rlk_status World::make_policy(const Environment& environment, const std::vector<core::PolicyEntry>& entries,
                              Policy* out, rlk_error* error) {
  std::vector<std::string> names;
  for (const auto& [name, value] : environment) names.push_back(name);
  const auto find = [&](const char* name) -> const char* {
    for (const auto& [known, value] : environment) {
      if (known == name) return value.c_str();
    }
    // Scripted implementations compute marks and not answers.
    return std::string_view(name) == "RLK_WATCH" ? "off" : nullptr;
  };
  return Policy::make(find, names, entries, out, error);
}
void World::make_dispatcher(const Environment& environment, const std::vector<core::PolicyEntry>& entries,
                            size_t max_plans) {
  Policy policy;
  rlk_error error = {sizeof(rlk_error), 0, 0, {}, {}};
  EXPECT_EQ(make_policy(environment, entries, &policy, &error), RLK_OK) << error.text;
  dispatcher = std::make_unique<Dispatcher>(registry, std::move(policy), max_plans);
}

std::unique_ptr<Stream> World::stream(const char* backend, uint32_t ordinal) {
  core::DeviceState* device = nullptr;
  rlk_error error = {sizeof(rlk_error), 0, 0, {}, {}};
  EXPECT_EQ(dispatcher->device(backend, ordinal, &device, &error), RLK_OK) << error.text;
  std::unique_ptr<Stream> made;
  EXPECT_EQ(Stream::create(*device, dispatcher->counters(), 0, &made, &error), RLK_OK) << error.text;
  return made;
}

OpCall& World::make(const char* op, int form) {
  return *calls.emplace_back(std::make_unique<OpCall>(*core::find_declaration(op), form));
}

rlk_status World::call(Stream& stream, OpCall& call, core::CallOptions options) {
  last = {sizeof(rlk_error), 0, 0, {}, {}};
  return dispatcher->call(stream, *call.decl, call.params.data(), call.input_pointers, call.output_pointers, options,
                          &last);
}
rlk_status World::synchronize(Stream& stream) {
  last = {sizeof(rlk_error), 0, 0, {}, {}};
  return dispatcher->synchronize(stream, UINT64_MAX, &last);
}
core::Explanation World::explain(Stream& stream, OpCall& call, core::CallOptions options) {
  core::Explanation explanation;
  last = {sizeof(rlk_error), 0, 0, {}, {}};
  EXPECT_EQ(dispatcher->explain(stream, *call.decl, call.params.data(), call.input_pointers, call.output_pointers,
                                options, &explanation, &last),
            RLK_OK)
      << last.text;
  return explanation;
}
std::string World::taken(const core::Explanation& explanation) {
  for (const core::Option& o : explanation.options) {
    if (o.verdict == core::Verdict::taken) return o.plugin + "/" + o.implementation + (o.staged ? " staged" : "");
  }
  return "";
}

PluginBinding World::cpu() {
  static auto& binding = *new PluginBinding(bind<CpuPlugin>("cpu", "cpu", 1, true));
  return binding;
}
PluginBinding World::fake() {
  static auto& binding = *new PluginBinding(bind<FakePlugin>("fake", "fake", 1));
  PluginBinding copy = binding;
  verify(copy);
  return copy;
}
PluginBinding World::plain() {
  static auto& binding = *new PluginBinding(bind<PlainPlugin>("plain", "plain", 1));
  PluginBinding copy = binding;
  verify(copy);
  return copy;
}
PluginBinding World::guest() {
  static auto& binding = *new PluginBinding(bind_guest(fake()));
  PluginBinding copy = binding;
  verify(copy);
  return copy;
}

PluginBinding World::rival(const char* backend, bool own_card) {
  static auto& bindings = *new std::map<std::pair<std::string, bool>, PluginBinding>;
  PluginBinding& binding = bindings[{backend, own_card}];
  if (binding.api == nullptr) {
    binding = bind<FakePlugin>("rival", backend, 1);
    rlk_device_properties properties = binding.devices[0]->properties();
    if (own_card) properties.uuid[0] = 1;
    binding.devices[0] = std::make_shared<core::PluginDevice>(binding.api, binding.instance, 0, properties);
  }
  PluginBinding copy = binding;
  verify(copy);
  return copy;
}

std::vector<PluginBinding> World::unopened(uint32_t devices) {
  PluginBinding owner = bind<FakePlugin>("fake", "fake", devices);
  PluginBinding brings_operators = bind_guest(owner);
  verify(owner);
  verify(brings_operators);
  // Plugins and their devices live as long as the process, as in a real one.
  static auto& kept = *new std::vector<PluginBinding>;
  kept.push_back(owner);
  kept.push_back(brings_operators);
  return {cpu(), std::move(owner), std::move(brings_operators)};
}

}  // namespace rlk::test
