// Loads again what the child found good, lends devices to operators-only plugins, then publishes all at once. No device
// is opened.
#include "loader/register/register.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "core/dispatch/trust/process_end.hpp"
#include "core/dispatch/trust/trace.hpp"
#include "loader/discover/builtin.hpp"
#include "loader/register/exit_watchdog.hpp"
#include "loader/register/working_folder.hpp"

namespace rlk::loader {
namespace {

constexpr double kSecondsToEnd = 30.0;  // in which the end of the process does nothing

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
  for (const bool operators_only : {true, false}) {  // they borrow the others' devices
    for (const auto& generation : loaded_) {
      core::PluginBinding& binding = generation->binding;
      if (is_operators_only(binding) != operators_only) continue;
      Devices devices = binding.devices;
      for (const auto& [owner, attached] : generation->attached)
        devices.insert(devices.end(), attached.begin(), attached.end());
      close_plugin(*binding.api, binding.instance, devices);
    }
  }
}

void Registrar::publish_built_in(PluginRecord* record) {
  std::vector<ProbedPlugin> alone = {{std::move(*record), {}, {}}};
  publish(&alone);
  *record = std::move(alone.front().record);
}

void Registrar::publish(std::vector<ProbedPlugin>* plugins, const Patience& patience) {
  Next next;
  for (ProbedPlugin& plugin : *plugins) {
    if (!is_wanted(plugin.record)) continue;
    if (const auto failure = load(plugin, patience, &next)) reject(*failure, Place::host, &plugin.record);
  }
  // In place of a file that is refused stands the one that it was to replace.
  std::vector<Generation*> serving;
  for (ProbedPlugin& plugin : *plugins) {
    PluginRecord& record = plugin.record;
    const auto found = next.by_id.find(record.id);
    Generation* generation = is_wanted(record) && found != next.by_id.end() ? found->second : nullptr;
    if (generation == nullptr && (generation = find_refused(plugin, next)) != nullptr)
      next.by_id[generation->binding.id] = generation;
    serving.push_back(generation);
  }
  for (size_t i = 0; i < plugins->size(); ++i) {
    PluginRecord& record = plugins->at(i).record;
    if (serving[i] == nullptr) continue;
    if (const auto failure = refuse_second_owner(*serving[i], &next, &record)) {
      reject(*failure, Place::host, &record);
      next.by_id.erase(std::exchange(serving[i], nullptr)->binding.id);
    }
  }
  for (size_t i = 0; i < plugins->size(); ++i) {
    PluginRecord& record = plugins->at(i).record;
    if (serving[i] == nullptr) continue;
    if (const auto failure = lend_devices(serving[i], next)) {
      reject(*failure, Place::host, &record);
      next.by_id.erase(std::exchange(serving[i], nullptr)->binding.id);
    }
  }

  std::vector<core::PluginBinding> bindings;
  std::vector<core::RejectedPlugin> rejected;
  for (size_t i = 0; i < plugins->size(); ++i) {
    PluginRecord& record = plugins->at(i).record;
    if (serving[i] != nullptr) {
      if (is_wanted(record)) {
        if (record.state != State::partial && record.state != State::registered)
          record.advance(State::registered, Place::host);
        serving[i]->binding.units = record.units;
        serving[i]->binding.costs = record.costs;
        serving[i]->record = record;
      }
      serving[i]->was_published = true;
      bindings.push_back(serving[i]->binding);
    } else if (record.state != State::shadowed && !record.is_place) {  // the id of a shadowed one belongs to another
      rejected.push_back({record.id, record.backend, record.reason_code, record.reason});
    }
  }
  note_changes(next, plugins);
  live_ = std::move(next.by_id);
  registry_.publish(std::move(bindings), std::move(rejected));
}

// By content: a file that was only touched or copied is no other, and one that came back is there already.
Registrar::Generation* Registrar::find_loaded(const ProbedPlugin& plugin) {
  const FileIdentity& file = plugin.screened.identity;
  for (const auto& generation : loaded_) {
    const FileIdentity& known = generation->file.identity;
    if (generation->binding.id != plugin.record.id) continue;
    if (generation->binding.built_in || known == file) return generation.get();
    const bool same_place = generation->file.path == plugin.record.path ||
                            (known.device == file.device && known.inode == file.inode);  // a hard link
    if (same_place && !plugin.content.empty() && generation->content == plugin.content) return generation.get();
  }
  return nullptr;
}

// The new file fails an operator and dtype that the serving one passes.
std::optional<Failure> Registrar::refuse_worse(const PluginRecord& record) const {
  const auto live = live_.find(record.id);
  if (live == live_.end()) return std::nullopt;
  for (const core::UnitResult& unit : record.units) {
    if (unit.verdict != core::UnitResult::Verdict::failed) continue;
    for (const core::UnitResult& old : live->second->binding.units) {
      if (old.verdict != core::UnitResult::Verdict::verified || old.op != unit.op || old.dtype != unit.dtype ||
          old.feature != unit.feature)
        continue;
      return Failure{&reason::kWorseThanLoaded,
                     fmt::format("{} {} {}{} failed its test ({}, {}), which the file that is loaded passes", unit.op,
                                 unit.implementation, unit.dtype, unit.feature.empty() ? "" : " " + unit.feature,
                                 unit.reason_code, unit.reason),
                     {},
                     {}};
    }
  }
  return std::nullopt;
}

Registrar::Generation* Registrar::find_refused(const ProbedPlugin& refused, const Next& next) const {
  const PluginRecord& record = refused.record;
  if (record.is_place || record.path.empty() || record.state == State::shadowed) return nullptr;
  for (const auto& [id, generation] : live_) {
    if (id != record.id && generation->file.path != record.path) continue;
    if (generation->binding.built_in || next.by_id.count(id) > 0) continue;
    // A refusal of the very file that serves is about the one that serves.
    const bool same = (!refused.content.empty() && refused.content == generation->content) ||
                      identity_of(record.path) == generation->file.identity;
    if (same && record.state != State::deferred) continue;
    return generation;
  }
  return nullptr;
}

void Registrar::note_changes(const Next& next, std::vector<ProbedPlugin>* plugins) {
  changes_.clear();
  const auto live = [&](const std::string& id) -> const Generation* {
    const auto found = live_.find(id);
    return found != live_.end() ? found->second : nullptr;
  };
  std::vector<ProbedPlugin> old;
  for (const ProbedPlugin& plugin : *plugins) {
    const PluginRecord& record = plugin.record;
    const auto now = next.by_id.find(record.id);
    const bool serves = now != next.by_id.end() && is_wanted(record);
    if (serves && now->second != live(record.id))
      changes_.push_back({live(record.id) == nullptr ? Change::Kind::added : Change::Kind::replaced, record});
    if (serves || record.is_place) continue;
    // Another file of the same id has taken its place: nothing goes on without one.
    const bool another_serves = next.by_id.count(record.id) > 0 &&
                                std::any_of(plugins->begin(), plugins->end(), [&](const ProbedPlugin& other) {
                                  return &other != &plugin && other.record.id == record.id && is_wanted(other.record);
                                });
    if (another_serves) continue;
    for (const auto& [id, generation] : next.by_id) {
      if (generation != live(id) || generation->binding.built_in) continue;
      if (id != record.id && generation->file.path != record.path) continue;
      if (record.state == State::shadowed) continue;
      changes_.push_back({Change::Kind::refused, record});
      PluginRecord& goes_on = old.emplace_back(ProbedPlugin{generation->record, {}, {}}).record;
      goes_on.notes.push_back("its file was replaced by one that is refused (" + record.reason_code +
                              "); what was loaded before goes on");
    }
  }
  for (const auto& generation : loaded_) {
    const std::string& id = generation->binding.id;
    const auto now = next.by_id.find(id);
    if (!generation->was_published || (now != next.by_id.end() && now->second == generation.get())) continue;
    PluginRecord& record = old.emplace_back(ProbedPlugin{generation->record, {}, {}}).record;
    if (now != next.by_id.end()) {
      record.stop(State::retired, Place::host, reason::kReplaced,
                  fmt::format("replaced by {} of version {}; streams that live on its devices stay with it",
                              now->second->file.path, now->second->binding.api->version));
    } else {
      record.stop(State::retired, Place::host, reason::kGone,
                  record.path + " is not there any more, or not wanted; streams that live on its devices stay with it");
    }
    if (generation.get() == live(id) && now == next.by_id.end()) changes_.push_back({Change::Kind::retired, record});
  }
  plugins->insert(plugins->end(), std::make_move_iterator(old.begin()), std::make_move_iterator(old.end()));
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
    const WorkingFolder folder;
    failure = open();
    if (failure && binding.api != nullptr) close();
    trace.reset();
    folder.put_back(binding.id);
  }

private:
  void enter(const char* phase) {
    attempt.enter(phase);
    trace.reset();
    trace = core::trace({binding.id, {}, {}, {}, phase, binding.api});
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

std::optional<Failure> Registrar::load(const ProbedPlugin& plugin, const Patience& patience, Next* next) {
  const PluginRecord& record = plugin.record;
  Generation* const loaded = find_loaded(plugin);
  const auto live = live_.find(record.id);
  if (live != live_.end() && live->second != loaded) {
    if (auto worse = refuse_worse(record)) return worse;
  }
  if (loaded != nullptr) {
    next->by_id[record.id] = loaded;
    return std::nullopt;
  }
  const auto opening = std::make_shared<Opening>(plugin, host_);
  if (opening->binding.built_in) {
    opening->go();
  } else {
    std::vector<LoadedFile> files;
    bool is_first = true;
    for (const auto& one : loaded_) {
      files.push_back(one->file);
      is_first = is_first && one->binding.id != record.id && one->file.path != record.path;
    }
    if (!is_first) {
      if (auto refused = refuse_beside(plugin, files)) return refused;
    }
    if (hung_in_linker_ != nullptr && !hung_in_linker_->attempt.has_ended()) {
      return Failure{
          &reason::kTimedOut,
          fmt::format("not loaded: plugin {} ({}) hangs while it is loaded, and holds the dynamic linker's lock",
                      hung_in_linker_->binding.id, hung_in_linker_->path),
          "remove plugin " + hung_in_linker_->binding.id,
          {}};
    }
    const std::shared_ptr<Attempt> shared(opening, &opening->attempt);
    auto given_up = attempt(
        shared, [opening](Attempt&) { opening->go(); }, patience);
    if (given_up) {
      if (opening->attempt.phase() == "load") {
        hung_in_linker_ = opening;
        start_exit_watchdog(record.id, kSecondsToEnd * patience.scale,
                            [opening] { return !opening->attempt.has_ended(); });
      }
      return given_up;
    }
  }
  core::watch_for_the_end();
  if (opening->failure) return opening->failure;
  loaded_.emplace_back(new Generation{
      std::move(opening->binding), {record.path, plugin.screened.identity}, plugin.content, {}, false, record});
  next->by_id[record.id] = loaded_.back().get();
  return std::nullopt;
}

// By the same rule as the registry's, which leaves out devices without a word.
std::optional<Failure> Registrar::refuse_second_owner(const Generation& generation, Next* next,
                                                      PluginRecord* record) const {
  const core::PluginBinding& binding = generation.binding;
  if (is_operators_only(binding)) return std::nullopt;
  std::string taken;
  size_t count = 0;
  for (uint32_t i = 0; i < binding.devices.size(); ++i) {
    const core::PluginBinding* holder = core::find_holder(next->owners, binding, i);
    if (holder == nullptr) continue;
    ++count;
    taken += (taken.empty() ? "" : ", ") +
             fmt::format("device {} ({}) is owned by plugin {}", i, binding.devices[i]->properties().name, holder->id);
  }
  if (count > 0 && count == binding.devices.size()) return Failure{&reason::kDeviceTaken, taken, {}, {}};
  if (count > 0) record->notes.push_back(taken);
  next->owners.push_back(&binding);
  return std::nullopt;
}

std::optional<Failure> Registrar::lend_devices(Generation* generation, const Next& next) const {
  core::PluginBinding& binding = generation->binding;
  if (!is_operators_only(binding)) return std::nullopt;
  for (const core::PluginBinding* owner : next.owners) {
    if (owner->backend != binding.backend) continue;
    Devices& attached = generation->attached[owner->instance];
    if (attached.empty()) attached = borrow_devices(*binding.api, binding.instance, owner->devices);
    binding.devices = attached;
    return std::nullopt;
  }
  return Failure{&reason::kNoDevice,
                 "no registered plugin owns devices of the backend " + binding.backend,
                 "see why the plugin that owns the backend's devices is not registered",
                 {}};
}

}  // namespace rlk::loader
