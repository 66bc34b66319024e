// Loads again what the child found good, lends devices to operators-only plugins, then publishes all at once. No device
// is opened.
#include "loader/register/register.hpp"

#include <utility>

#include "core/dispatch/trace.hpp"
#include "loader/discover/builtin.hpp"

namespace rlk::loader {
namespace {

bool is_built_in(const PluginRecord& record) {
  return record.source == kBuiltInSource;
}

bool is_wanted(const PluginRecord& record) {
  return record.state == State::smoke_tested || record.state == State::partial || record.state == State::registered ||
         is_built_in(record);
}

bool is_operators_only(const core::PluginBinding& binding) {
  return !core::owns_devices(binding);
}

}  // namespace

Registrar::~Registrar() {
  for (const bool operators_only : {true, false})  // they borrow the others' devices
    for (const auto& [id, binding] : live_)
      if (is_operators_only(binding) == operators_only) close_plugin(*binding.api, binding.instance, binding.devices);
}

void Registrar::publish_built_in(PluginRecord* record) {
  std::vector<ProbedPlugin> alone = {{std::move(*record), {}}};
  publish(&alone);
  *record = std::move(alone.front().record);
}

void Registrar::publish(std::vector<ProbedPlugin>* plugins, const Patience& patience) {
  const auto each_wanted = [&](auto&& step) {
    for (ProbedPlugin& plugin : *plugins) {
      if (!is_wanted(plugin.record)) continue;
      if (const auto failure = step(plugin)) reject(*failure, Place::host, &plugin.record);
    }
  };
  each_wanted([&](const ProbedPlugin& plugin) { return load(plugin, patience); });
  std::vector<const core::PluginBinding*> owners;  // in search order
  each_wanted([&](ProbedPlugin& plugin) { return refuse_second_owner(plugin.record.id, &owners, &plugin.record); });
  each_wanted([&](const ProbedPlugin& plugin) { return lend_devices(plugin.record.id, owners); });

  std::vector<core::PluginBinding> bindings;
  std::vector<core::RejectedPlugin> rejected;
  for (ProbedPlugin& plugin : *plugins) {
    PluginRecord& record = plugin.record;
    if (is_wanted(record) && live_.count(record.id) > 0) {
      core::PluginBinding& binding = bindings.emplace_back(live_.at(record.id));
      binding.units = record.units;
      if (record.state != State::partial && record.state != State::registered)
        record.advance(State::registered, Place::host);
    } else if (record.state != State::shadowed && !record.is_place) {  // the id of a shadowed one belongs to another
      rejected.push_back({record.id, record.backend, record.reason_code, record.reason});
    }
  }
  registry_.publish(std::move(bindings), std::move(rejected));
}

// One plugin's way into this process. The thread that goes it owns this: it may have been given up long ago.
struct Registrar::Opening {
  Opening(const ProbedPlugin& plugin, const rlk_host& services)
      : path(plugin.record.path), identity(plugin.screened.identity), host(services) {
    binding.id = plugin.record.id;
    binding.backend = plugin.record.backend;
    binding.built_in = is_built_in(plugin.record);
  }
  const std::string path;
  const FileIdentity identity;
  const rlk_host& host;
  Attempt attempt;
  core::PluginBinding binding;
  std::optional<Failure> failure;
  core::Trace trace;  // of the phase that runs

  void go() {
    failure = open();
    if (failure && binding.api != nullptr) close();
    trace.reset();
  }

private:
  void enter(const char* phase) {
    attempt.enter(phase);
    trace.reset();
    trace = core::trace({binding.id, {}, {}, {}, phase});
  }

  void close() {
    enter("destroy");
    close_plugin(*binding.api, binding.instance, binding.devices);
  }

  std::optional<Failure> find_entry(rlk_plugin_entry_v1_fn* entry) {
    if (binding.built_in && (*entry = built_in_entry(binding.id)) != nullptr) return std::nullopt;
    // What was verified is that file and no other: compared before its code runs, and after, when it is mapped.
    const auto changed = [&]() -> std::optional<Failure> {
      const auto now = identity_of(path);
      if (now && *now == identity) return std::nullopt;
      return Failure{&reason::kFileChanged, path + " is not the file that was probed", {}, {}};
    };
    if (auto changed_before = changed()) return changed_before;
    enter("load");
    if (auto refused = load_entry(path, entry)) return refused;
    return changed();
  }

  std::optional<Failure> open() {
    rlk_plugin_entry_v1_fn entry = nullptr;
    if (auto stop = find_entry(&entry)) return stop;
    enter("negotiate");
    if (auto stop = negotiate(entry, host, &binding.api)) return stop;
    enter("create");
    if (auto stop = create(*binding.api, host, &binding.instance)) return stop;
    enter("probe");
    if (auto stop = ask_probe(*binding.api, binding.instance, [](const Evidence&) {})) return stop;
    if (is_operators_only(binding)) return std::nullopt;
    enter("enumerate");
    return describe_devices(*binding.api, binding.instance, &binding.devices);
  }
};

std::optional<Failure> Registrar::load(const ProbedPlugin& plugin, const Patience& patience) {
  const PluginRecord& record = plugin.record;
  if (live_.count(record.id) > 0) return std::nullopt;
  const auto opening = std::make_shared<Opening>(plugin, host_);
  if (opening->binding.built_in) {
    opening->go();
  } else {
    if (stuck_in_linker_ != nullptr && !stuck_in_linker_->attempt.has_ended()) {
      return Failure{&reason::kTimedOut,
                     "not loaded: plugin " + stuck_in_linker_->binding.id + " (" + stuck_in_linker_->path +
                         ") hangs while it is loaded, and holds the dynamic linker's lock",
                     "remove plugin " + stuck_in_linker_->binding.id,
                     {}};
    }
    const std::shared_ptr<Attempt> shared(opening, &opening->attempt);
    const auto given_up = attempt(
        shared, [opening](Attempt&) { opening->go(); }, patience);
    if (given_up) {
      if (opening->attempt.phase() == "load") stuck_in_linker_ = opening;
      return given_up;
    }
  }
  if (!opening->failure) live_.emplace(record.id, std::move(opening->binding));
  return opening->failure;
}

// By the same rule as the registry's, which leaves out devices without a word.
std::optional<Failure> Registrar::refuse_second_owner(const std::string& id,
                                                      std::vector<const core::PluginBinding*>* owners,
                                                      PluginRecord* record) const {
  const core::PluginBinding& binding = live_.at(id);
  if (is_operators_only(binding)) return std::nullopt;
  std::string taken;
  size_t count = 0;
  for (uint32_t i = 0; i < binding.devices.size(); ++i) {
    const core::PluginBinding* holder = core::find_holder(*owners, binding, i);
    if (holder == nullptr) continue;
    ++count;
    taken += (taken.empty() ? "" : ", ") + std::string("device ") + std::to_string(i) + " (" +
             binding.devices[i]->properties().name + ") is owned by plugin " + holder->id;
  }
  if (count > 0 && count == binding.devices.size()) return Failure{&reason::kDeviceTaken, taken, {}, {}};
  if (count > 0) record->notes.push_back(taken);
  owners->push_back(&binding);
  return std::nullopt;
}

std::optional<Failure> Registrar::lend_devices(const std::string& id,
                                               const std::vector<const core::PluginBinding*>& owners) {
  core::PluginBinding& binding = live_.at(id);
  if (!is_operators_only(binding) || !binding.devices.empty()) return std::nullopt;
  for (const core::PluginBinding* owner : owners) {
    if (owner->backend != binding.backend) continue;
    binding.devices = borrow_devices(*binding.api, binding.instance, owner->devices);
    return std::nullopt;
  }
  return Failure{&reason::kNoDevice,
                 "no registered plugin owns devices of the backend " + binding.backend,
                 "see why the plugin that owns the backend's devices is not registered",
                 {}};
}

}  // namespace rlk::loader
