// Builds generations of the snapshot and swaps them in.
#include "core/dispatch/call/registry.hpp"

#include <fmt/core.h>
#include <rlk/sdk/thread_own.hpp>

#include <algorithm>
#include <atomic>
#include <mutex>

#include "core/declaration/error.hpp"
#include "core/declaration/near_name.hpp"
#include "core/declaration/text.hpp"
#include "core/dispatch/log.hpp"
#include "core/dispatch/trust/process_end.hpp"

namespace rlk::core {

namespace {

using Listener = std::function<void(const Quarantined&, bool only_suspected)>;

bool is_known(const std::vector<std::shared_ptr<const Quarantined>>& list, const Quarantined& entry) {
  return std::any_of(list.begin(), list.end(), [&](const auto& known) {
    return known->plugin == entry.plugin && known->api == entry.api &&
           known->concerns(entry.op, entry.implementation) && (known->dtype == entry.dtype || known->dtype.empty());
  });
}

// Every registry of the process, for faults that are noticed far from any. Never destroyed: plugins' leftovers may be
// released while the process ends.
struct Registries {
  std::mutex mutex;
  std::vector<Registry*> all;
};
Registries& registries() {
  static auto* const known = new Registries;
  return *known;
}

}  // namespace

std::string Quarantined::who() const {
  const std::string of_dtype = " for dtype " + (dtype.empty() ? std::string("any") : dtype);
  return (op.empty() ? "every operator" : op + "/" + implementation) + of_dtype;
}

struct Registry::State {
  std::function<void(const ComparedClass&)> compared_listener;
  std::function<void(const UncomparedClass&)> uncompared_listener;
  std::function<bool(const std::string& plugin, const std::string& op)> want_listener;
  std::atomic<const Snapshot*> current{nullptr};  // the newest
  std::mutex mutex;                               // of everything below
  std::shared_ptr<const Snapshot> newest;
  uint64_t generations = 0;
  std::vector<std::unique_ptr<DeviceEntry>> devices;  // every device that was ever published
  Listener listener;

  // Those of the device, which has one but where another plugin took its address while it was retired.
  std::vector<const DeviceEntry*> known_entries(const PluginDevice& device) const;
  void retire(const Snapshot& before, Snapshot& next) const;
  void add_devices(Snapshot& next);
  void add_candidates(Snapshot& next);
  void add_candidates_of(const std::shared_ptr<const PluginBinding>& owner,
                         const std::vector<const DeviceEntry*>& entries, Snapshot& next) const;
  std::shared_ptr<const PluginBinding> known_binding(PluginBinding plugin) const;
  void swap_in(std::unique_ptr<Snapshot> next);
  // The present generation once more, to be changed.
  std::unique_ptr<Snapshot> next_generation() const;
};

bool owns_devices(const PluginBinding& plugin) {
  return (plugin.api->flags & RLK_PLUGIN_OPERATORS_ONLY) == 0;
}

const PluginBinding* find_holder(const std::vector<const PluginBinding*>& before, const PluginBinding& plugin,
                                 uint32_t ordinal) {
  for (const PluginBinding* other : before) {
    if (!owns_devices(*other) || other->backend != plugin.backend) continue;
    for (const auto& device : other->devices) {
      if (device != nullptr && is_same_card(device->properties(), plugin.devices[ordinal]->properties())) return other;
    }
  }
  return nullptr;
}

// ---- the snapshot

const DeviceEntry* Snapshot::find_device(std::string_view backend, uint32_t ordinal) const {
  for (const DeviceEntry* entry : devices) {
    if (entry->backend == backend && entry->ordinal == ordinal) return entry;
  }
  return nullptr;
}

bool Snapshot::knows(std::string_view id_or_backend) const {
  return std::any_of(plugins.begin(), plugins.end(), [&](const auto& plugin) {
    return plugin->id == id_or_backend || plugin->backend == id_or_backend;
  });
}

std::string Snapshot::meant_plugin(std::string_view id_or_backend) const {
  std::vector<std::string> names;
  for (const auto& plugin : plugins) names.insert(names.end(), {plugin->id, plugin->backend});
  for (const RejectedPlugin& plugin : rejected) names.insert(names.end(), {plugin.id, plugin.backend});
  const std::string near = near_name(id_or_backend, names);
  return near.empty() ? "; see rlk-plugins list" : fmt::format(", did you mean {}?", near);
}

std::shared_ptr<const Candidate> Candidates::find(const Candidate& like) const {
  const auto found = std::find_if(all_.begin(), all_.end(), [&](const auto& known) {
    return known->plugin == like.plugin && known->implementation == like.implementation && known->on == like.on &&
           known->device == like.device && known->quarantined == like.quarantined;
  });
  return found != all_.end() ? *found : nullptr;
}

bool Snapshot::is_current(const DeviceEntry& device) const {
  return std::find(devices.begin(), devices.end(), &device) != devices.end();
}

const RejectedPlugin* Snapshot::find_rejected(std::string_view id_or_backend) const {
  for (const RejectedPlugin& plugin : rejected) {
    if (plugin.id == id_or_backend || plugin.backend == id_or_backend) return &plugin;
  }
  return nullptr;
}

// ---- building one

std::vector<const DeviceEntry*> Registry::State::known_entries(const PluginDevice& device) const {
  std::vector<const DeviceEntry*> known;
  for (const auto& entry : devices)
    if (entry->device.get() == &device) known.push_back(entry.get());
  return known;
}

namespace {

bool has_device_of(const PluginBinding& plugin, const PluginBinding& owner) {
  return std::any_of(plugin.devices.begin(), plugin.devices.end(), [&](const auto& device) {
    return device != nullptr && std::any_of(owner.devices.begin(), owner.devices.end(), [&](const auto& owners) {
             return owners != nullptr && device->is_of(*owners);
           });
  });
}

}  // namespace

bool is_same(const UnitResult& a, const UnitResult& b) {
  return a.op == b.op && a.implementation == b.implementation && a.dtype == b.dtype && a.feature == b.feature &&
         a.variant == b.variant && a.verdict == b.verdict && a.numerics == b.numerics &&
         a.reason_code == b.reason_code && a.reason == b.reason && a.size_classes == b.size_classes;
}

// A plugin that owns devices and is not among the next is retired, with the plugins attached to them. Attached to a
// device that stays, a replaced plugin has nothing left to serve.
void Registry::State::retire(const Snapshot& before, Snapshot& next) const {
  const auto is_next = [&](const PluginBinding& plugin) {
    return std::any_of(next.plugins.begin(), next.plugins.end(),
                       [&](const auto& other) { return owns_devices(*other) && has_device_of(plugin, *other); });
  };
  const auto is_noted = [&](const PluginBinding& plugin) {
    return std::any_of(next.retired.begin(), next.retired.end(),
                       [&](const auto& other) { return other->api == plugin.api && has_device_of(plugin, *other); });
  };
  for (const auto* plugins : {&before.plugins, &before.retired}) {
    for (const auto& plugin : *plugins)
      if (!is_next(*plugin) && !is_noted(*plugin)) next.retired.push_back(plugin);
  }
}

void Registry::State::add_devices(Snapshot& next) {
  std::vector<const PluginBinding*> owners;
  std::vector<std::pair<std::shared_ptr<const PluginBinding>, uint32_t>> found;
  const auto find = [&](bool cpu) {
    for (const auto& plugin : next.plugins) {
      if (!owns_devices(*plugin) || (plugin->backend == "cpu") != cpu) continue;
      for (uint32_t i = 0; i < plugin->devices.size(); ++i) {
        if (plugin->devices[i] != nullptr && find_holder(owners, *plugin, i) == nullptr) found.emplace_back(plugin, i);
      }
      owners.push_back(plugin.get());
    }
  };
  find(true);
  find(false);
  // A device keeps its address as long as its plugin is there; new ones take what is free.
  const auto is_taken = [&](const std::string& backend, uint32_t ordinal) {
    return next.find_device(backend, ordinal) != nullptr;
  };
  const auto is_anybodys = [&](const std::string& backend, uint32_t ordinal) {
    return std::any_of(found.begin(), found.end(), [&](const auto& other) {
      const auto known = known_entries(*other.first->devices[other.second]);
      return std::any_of(known.begin(), known.end(), [&](const DeviceEntry* entry) {
        return entry->backend == backend && entry->ordinal == ordinal;
      });
    });
  };
  for (const auto& [owner, number] : found) {
    const std::shared_ptr<PluginDevice>& device = owner->devices[number];
    const auto known = known_entries(*device);
    const auto free = std::find_if(known.begin(), known.end(),
                                   [&](const DeviceEntry* entry) { return !is_taken(entry->backend, entry->ordinal); });
    const DeviceEntry* entry = free != known.end() ? *free : nullptr;
    if (entry == nullptr) {
      uint32_t ordinal = number;
      while (is_taken(owner->backend, ordinal) || is_anybodys(owner->backend, ordinal)) ++ordinal;
      auto made = std::make_unique<DeviceEntry>(DeviceEntry{owner->backend, ordinal, owner, device});
      entry = devices.emplace_back(std::move(made)).get();
    }
    next.devices.push_back(entry);
  }
}

void Registry::State::add_candidates_of(const std::shared_ptr<const PluginBinding>& owner,
                                        const std::vector<const DeviceEntry*>& entries, Snapshot& next) const {
  const PluginBinding& plugin = *owner;
  for (uint32_t i = 0; i < plugin.api->n_implementations; ++i) {
    const rlk_implementation* implementation = plugin.api->implementations[i];
    const OpDecl* decl = find_declaration(implementation->op);
    if (decl == nullptr) continue;
    for (const auto& device : plugin.devices) {
      if (device == nullptr) continue;
      for (const DeviceEntry* on : entries) {
        if (!device->is_of(*on->device)) continue;
        Candidate candidate(*decl, *implementation, owner, *on, *device);
        for (const UnitResult& unit : plugin.units) {
          if (unit.op == decl->name && unit.implementation == implementation->name) candidate.units.push_back(&unit);
        }
        for (const MeasuredCost& cost : plugin.costs) {
          if (cost.op == decl->name && cost.implementation == implementation->name &&
              cost.device == on->properties().name)
            candidate.costs.push_back(&cost);
        }
        for (const auto& entry : next.quarantined) {
          if (entry->plugin == plugin.id && (entry->api == nullptr || entry->api == plugin.api) &&
              entry->concerns(decl->name, implementation->name)) {
            candidate.quarantined.push_back(entry);
          }
        }
        std::shared_ptr<const Candidate> known = newest != nullptr ? newest->candidates.find(candidate) : nullptr;
        if (known == nullptr) known = std::make_shared<const Candidate>(std::move(candidate));
        next.candidates.push_back(std::move(known));
      }
    }
  }
}

void Registry::State::add_candidates(Snapshot& next) {
  for (const auto& plugin : next.plugins) add_candidates_of(plugin, next.devices, next);
  // The devices of retired plugins, and there the newest of each plugin.
  std::vector<const DeviceEntry*> left;
  for (const auto& plugin : next.retired) {
    if (!owns_devices(*plugin)) continue;
    for (const auto& device : plugin->devices) {
      if (device == nullptr) continue;
      const auto known = known_entries(*device);
      left.insert(left.end(), known.begin(), known.end());
    }
  }
  for (const auto& plugin : next.retired) {
    std::vector<const DeviceEntry*> its;
    for (const DeviceEntry* on : left) {
      const bool served = std::any_of(next.candidates.begin(), next.candidates.end(), [&](const Candidate& candidate) {
        return candidate.on == on && candidate.plugin->id == plugin->id;
      });
      if (!served) its.push_back(on);
    }
    add_candidates_of(plugin, its, next);
  }
}

std::shared_ptr<const PluginBinding> Registry::State::known_binding(PluginBinding plugin) const {
  for (const auto* plugins : {&newest->plugins, &newest->retired}) {
    for (const auto& known : *plugins) {
      if (known->id == plugin.id && known->api == plugin.api && known->instance == plugin.instance &&
          known->devices == plugin.devices && known->costs == plugin.costs &&
          std::equal(known->units.begin(), known->units.end(), plugin.units.begin(), plugin.units.end(), is_same))
        return known;
    }
  }
  return std::make_shared<const PluginBinding>(std::move(plugin));
}

void Registry::State::swap_in(std::unique_ptr<Snapshot> next) {
  next->generation = generations++;
  add_devices(*next);
  add_candidates(*next);
  newest = std::move(next);
  current.store(newest.get(), std::memory_order_release);
}

std::unique_ptr<Snapshot> Registry::State::next_generation() const {
  auto next = std::make_unique<Snapshot>();
  next->plugins = newest->plugins;
  next->retired = newest->retired;
  next->rejected = newest->rejected;
  next->quarantined = newest->quarantined;
  next->suspected = newest->suspected;
  return next;
}

// ---- the registry

Registry::Registry() : state_(std::make_unique<State>()) {
  state_->swap_in(std::make_unique<Snapshot>());
  const std::lock_guard lock(registries().mutex);
  registries().all.push_back(this);
}
Registry::~Registry() {
  const std::lock_guard lock(registries().mutex);
  std::erase(registries().all, this);
}

void Registry::switch_off(const rlk_plugin& plugin, const char* what, const rlk_error& error) noexcept {
  try {
    const std::string text = fmt::format("in {}: {}", what, text_of(error));
    const std::lock_guard lock(registries().mutex);
    for (Registry* registry : registries().all) {
      const auto now = registry->current();
      for (const auto* plugins : {&now->plugins, &now->retired}) {
        for (const auto& known : *plugins)
          if (known->api == &plugin) registry->quarantine(*known, "", "", "", name_of_status(error.status), text);
      }
    }
  } catch (const std::exception&) {  // no memory even to say so
  }
}

namespace {

// The snapshot that a thread read last, counted by the thread alone: threads that count one number in a line of memory
// wait for each other. Its address cannot be another one's as long as it is held here.
struct LastRead {
  std::shared_ptr<const Snapshot> snapshot;
};

}  // namespace

std::shared_ptr<const Snapshot> Registry::current() const {
  auto& last = sdk::thread_own<LastRead>();
  if (last.snapshot.get() == state_->current.load(std::memory_order_acquire)) return last.snapshot;
  std::shared_ptr<const Snapshot> newest;
  {
    const std::lock_guard lock(state_->mutex);
    newest = state_->newest;
  }
  const Snapshot* const address = newest.get();
  last.snapshot = {std::make_shared<std::shared_ptr<const Snapshot>>(std::move(newest)), address};
  return last.snapshot;
}

void Registry::publish(std::vector<PluginBinding> plugins, std::vector<RejectedPlugin> rejected) {
  const std::lock_guard lock(state_->mutex);
  auto next = std::make_unique<Snapshot>();
  for (PluginBinding& plugin : plugins) next->plugins.push_back(state_->known_binding(std::move(plugin)));
  next->rejected = std::move(rejected);
  next->quarantined = state_->newest->quarantined;
  next->suspected = state_->newest->suspected;
  state_->retire(*state_->newest, *next);
  if (next->plugins == state_->newest->plugins && next->retired == state_->newest->retired &&
      next->rejected == state_->newest->rejected)
    return;
  state_->swap_in(std::move(next));
}

void Registry::quarantine(const PluginBinding& plugin, const std::string& op, const std::string& implementation,
                          const std::string& dtype, const std::string& reason_code, const std::string& reason) {
  quarantine({plugin.id, op, implementation, dtype, reason_code, reason, plugin.api});
}

void Registry::quarantine(Quarantined failed) {
  const auto entry = std::make_shared<const Quarantined>(std::move(failed));
  Listener listener;
  {
    const std::lock_guard lock(state_->mutex);
    if (is_known(state_->newest->quarantined, *entry)) return;
    std::unique_ptr<Snapshot> next = state_->next_generation();
    next->quarantined.push_back(entry);
    state_->swap_in(std::move(next));
    listener = state_->listener;
  }
  // While the process ends the call goes to another candidate, and this one is not blamed.
  if (end_has_begun()) return;
  // Stored before it is logged: a reader of the log may end the process.
  if (listener) listener(*entry, /*only_suspected=*/false);
  log_line(RLK_LOG_ERROR, entry->plugin,
           fmt::format("{} is switched off ({}): {}", entry->who(), entry->reason_code, entry->reason));
}

void Registry::suspect(std::vector<Quarantined> suspects) {
  std::vector<std::shared_ptr<const Quarantined>> fresh;
  Listener listener;
  {
    const std::lock_guard lock(state_->mutex);
    for (Quarantined& entry : suspects) {
      if (is_known(state_->newest->suspected, entry) || is_known(state_->newest->quarantined, entry)) continue;
      fresh.push_back(std::make_shared<const Quarantined>(std::move(entry)));
    }
    if (fresh.empty()) return;
    std::unique_ptr<Snapshot> next = state_->next_generation();
    next->suspected.insert(next->suspected.end(), fresh.begin(), fresh.end());
    state_->swap_in(std::move(next));
    listener = state_->listener;
  }
  if (end_has_begun()) return;
  for (const auto& entry : fresh) {
    log_line(RLK_LOG_WARN, entry->plugin,
             fmt::format("{} may have caused a failure, as others may; it stays on ({}): {}", entry->who(),
                         entry->reason_code, entry->reason));
    if (listener) listener(*entry, /*only_suspected=*/true);
  }
}

void Registry::on_quarantine(std::function<void(const Quarantined&, bool only_suspected)> listener) {
  const std::lock_guard lock(state_->mutex);
  state_->listener = std::move(listener);
}

void Registry::on_compared(std::function<void(const ComparedClass&)> listener) {
  const std::lock_guard lock(state_->mutex);
  state_->compared_listener = std::move(listener);
}

void Registry::note_compared(const ComparedClass& compared) {
  if (end_has_begun()) return;
  std::function<void(const ComparedClass&)> listener;
  {
    const std::lock_guard lock(state_->mutex);
    listener = state_->compared_listener;
  }
  if (listener) listener(compared);
}

void Registry::on_uncompared(std::function<void(const UncomparedClass&)> listener) {
  const std::lock_guard lock(state_->mutex);
  state_->uncompared_listener = std::move(listener);
}

void Registry::note_uncompared(const UncomparedClass& uncompared) {
  std::function<void(const UncomparedClass&)> listener;
  {
    const std::lock_guard lock(state_->mutex);
    listener = state_->uncompared_listener;
  }
  if (listener) listener(uncompared);
}

bool Registry::want(const Candidate& untried) {
  if (end_has_begun()) return false;
  std::function<bool(const std::string&, const std::string&)> listener;
  {
    const std::lock_guard lock(state_->mutex);
    listener = state_->want_listener;
  }
  return listener && listener(untried.plugin->id, untried.decl->name);
}

void Registry::on_want(std::function<bool(const std::string& plugin, const std::string& op)> listener) {
  const std::lock_guard lock(state_->mutex);
  state_->want_listener = std::move(listener);
}

}  // namespace rlk::core
