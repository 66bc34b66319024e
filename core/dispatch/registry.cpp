// Builds generations of the snapshot and swaps them in.
#include "core/dispatch/registry.hpp"

#include <algorithm>
#include <atomic>
#include <mutex>

#include "core/dispatch/host.hpp"

namespace rlk::core {

struct Registry::State {
  std::atomic<const Snapshot*> current{nullptr};
  std::mutex mutex;  // of everything below: writers only
  std::vector<std::unique_ptr<const Snapshot>> generations;
  std::vector<std::unique_ptr<DeviceEntry>> devices;  // every device that was ever published
  std::function<void(const Quarantined&)> listener;

  const DeviceEntry* device_entry(const PluginBinding& owner, uint32_t ordinal);
  void add_devices(Snapshot& next);
  void add_candidates(Snapshot& next);
  void swap_in(std::unique_ptr<Snapshot> next);
};

namespace {

bool owns_devices(const PluginBinding& plugin) {
  return (plugin.api->flags & RLK_PLUGIN_OPERATORS_ONLY) == 0;
}

}  // namespace

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

const RejectedPlugin* Snapshot::find_rejected(std::string_view id_or_backend) const {
  for (const RejectedPlugin& plugin : rejected) {
    if (plugin.id == id_or_backend || plugin.backend == id_or_backend) return &plugin;
  }
  return nullptr;
}

// ---- building one

const DeviceEntry* Registry::State::device_entry(const PluginBinding& owner, uint32_t ordinal) {
  const std::shared_ptr<PluginDevice>& device = owner.devices[ordinal];
  for (const auto& entry : devices) {
    if (entry->device == device) return entry.get();
  }
  auto entry = std::make_unique<DeviceEntry>();
  entry->backend = owner.backend;
  entry->ordinal = ordinal;
  entry->owner = &owner;
  entry->device = device;
  return devices.emplace_back(std::move(entry)).get();
}

// The first plugin that owns devices of a backend is the backend's owner; others of the same backend bring operators.
void Registry::State::add_devices(Snapshot& next) {
  const auto add = [&](bool cpu) {
    for (const auto& plugin : next.plugins) {
      if (!owns_devices(*plugin) || (plugin->backend == "cpu") != cpu) continue;
      for (uint32_t i = 0; i < plugin->devices.size(); ++i) {
        if (plugin->devices[i] == nullptr || next.find_device(plugin->backend, i) != nullptr) continue;
        next.devices.push_back(device_entry(*plugin, i));
      }
    }
  };
  add(true);
  add(false);
}

void Registry::State::add_candidates(Snapshot& next) {
  for (const auto& plugin : next.plugins) {
    for (uint32_t i = 0; i < plugin->api->n_implementations; ++i) {
      const rlk_implementation* implementation = plugin->api->implementations[i];
      const OpDecl* decl = find_declaration(implementation->op);
      if (decl == nullptr) continue;
      for (uint32_t ordinal = 0; ordinal < plugin->devices.size(); ++ordinal) {
        const DeviceEntry* on = next.find_device(plugin->backend, ordinal);
        if (on == nullptr || plugin->devices[ordinal] == nullptr) continue;
        Candidate candidate{decl, implementation, plugin.get(), on, plugin->devices[ordinal].get(), {}, {}};
        for (const UnitResult& unit : plugin->units) {
          if (unit.op == decl->name && unit.implementation == implementation->name) candidate.units.push_back(&unit);
        }
        for (const auto& entry : next.quarantined) {
          if (entry->plugin == plugin->id && entry->op == decl->name && entry->implementation == implementation->name) {
            candidate.quarantined.push_back(entry.get());
          }
        }
        next.candidates.push_back(std::move(candidate));
      }
    }
  }
}

void Registry::State::swap_in(std::unique_ptr<Snapshot> next) {
  next->generation = generations.size();
  add_devices(*next);
  add_candidates(*next);
  const Snapshot* visible = next.get();
  generations.push_back(std::move(next));
  current.store(visible, std::memory_order_release);
}

// ---- the registry

Registry::Registry() : state_(std::make_unique<State>()) {
  state_->swap_in(std::make_unique<Snapshot>());
}
Registry::~Registry() = default;

const Snapshot* Registry::current() const {
  return state_->current.load(std::memory_order_acquire);
}

void Registry::publish(std::vector<PluginBinding> plugins, std::vector<RejectedPlugin> rejected) {
  const std::lock_guard lock(state_->mutex);
  auto next = std::make_unique<Snapshot>();
  for (PluginBinding& plugin : plugins) next->plugins.push_back(std::make_shared<PluginBinding>(std::move(plugin)));
  next->rejected = std::move(rejected);
  next->quarantined = current()->quarantined;
  state_->swap_in(std::move(next));
}

void Registry::quarantine(const std::string& plugin, const std::string& op, const std::string& implementation,
                          const std::string& dtype, const std::string& reason_code, const std::string& reason) {
  auto entry = std::make_shared<const Quarantined>(Quarantined{plugin, op, implementation, dtype, reason_code, reason});
  std::function<void(const Quarantined&)> listener;
  {
    const std::lock_guard lock(state_->mutex);
    const Snapshot* before = current();
    for (const auto& known : before->quarantined) {
      if (known->plugin == plugin && known->op == op && known->implementation == implementation &&
          (known->dtype == dtype || known->dtype.empty())) {
        return;
      }
    }
    auto next = std::make_unique<Snapshot>();
    next->plugins = before->plugins;
    next->rejected = before->rejected;
    next->quarantined = before->quarantined;
    next->quarantined.push_back(entry);
    state_->swap_in(std::move(next));
    listener = state_->listener;
  }
  log_line(RLK_LOG_ERROR, plugin,
           op + "/" + implementation + " is switched off for dtype " + (dtype.empty() ? "any" : dtype) + " (" +
               reason_code + "): " + reason);
  if (listener) listener(*entry);
}

void Registry::on_quarantine(std::function<void(const Quarantined&)> listener) {
  const std::lock_guard lock(state_->mutex);
  state_->listener = std::move(listener);
}

}  // namespace rlk::core
