// From ids to what the store keeps of a plugin.
#include "loader/register/first_use.hpp"

#include <utility>

namespace rlk::loader {

void FirstUses::know(const std::vector<ProbedPlugin>& plugins) {
  for (const ProbedPlugin& plugin : plugins) {
    const PluginRecord& record = plugin.record;
    const bool will_run = record.state == State::smoke_tested || record.state == State::partial;
    if (!will_run || record.path.empty()) continue;
    Known known = {state_of_plugin(record, &store_), record.path};
    const std::lock_guard lock(mutex_);
    known_[record.id] = std::move(known);
  }
}

core::Trace FirstUses::leave(const core::FirstUse& use) {
  Crumb crumb;
  {
    const std::lock_guard lock(mutex_);
    const auto known = known_.find(use.plugin);
    if (known == known_.end()) return nullptr;
    crumb.key = known->second.key;
    crumb.path = known->second.path;
  }
  crumb.id = use.plugin;
  crumb.op = use.op;
  crumb.implementation = use.implementation;
  crumb.dtype = use.dtype;
  crumb.phase = use.phase;
  return crumbs_.leave(std::move(crumb));
}

void FirstUses::keep(const core::Quarantined& failed) {
  QuarantineEntry entry;
  {
    const std::lock_guard lock(mutex_);
    const auto known = known_.find(failed.plugin);
    if (known == known_.end()) return;
    entry.key = known->second.key;
    entry.path = known->second.path;
  }
  entry.id = failed.plugin;
  entry.op = failed.op;
  entry.implementation = failed.implementation;
  entry.dtype = failed.dtype;
  entry.reason_code = failed.reason_code;
  entry.reason = failed.reason;
  list_.add(std::move(entry));
}

}  // namespace rlk::loader
