// From ids to what the store keeps of a plugin.
#include "loader/register/first_use.hpp"

#include <utility>

namespace rlk::loader {

void FirstUses::know(const std::vector<ProbedPlugin>& plugins) {
  for (const ProbedPlugin& plugin : plugins) {
    const PluginRecord& record = plugin.record;
    if (!may_run(record) || record.path.empty()) continue;
    Known plugin_now = {state_of_plugin(record, &store_), record.path};
    const std::lock_guard lock(mutex_);
    known_[record.id] = std::move(plugin_now);
  }
}

std::optional<FirstUses::Known> FirstUses::known(const std::string& id, const rlk_plugin* api) {
  const std::lock_guard lock(mutex_);
  if (const auto generation = generations_.find(api); api != nullptr && generation != generations_.end())
    return generation->second;
  const auto found = known_.find(id);
  if (found == known_.end()) return std::nullopt;
  if (api != nullptr) generations_.emplace(api, found->second);
  return found->second;
}

core::Trace FirstUses::leave(const core::FirstUse& use) {
  const std::optional<Known> plugin = known(std::string(use.plugin), use.api);
  if (!plugin) return nullptr;
  Breadcrumb breadcrumb;
  breadcrumb.key = plugin->key;
  breadcrumb.path = plugin->path;
  breadcrumb.id = use.plugin;
  breadcrumb.op = use.op;
  breadcrumb.implementation = use.implementation;
  breadcrumb.dtype = use.dtype;
  breadcrumb.phase = use.phase;
  return breadcrumbs_.leave(std::move(breadcrumb));
}

void FirstUses::keep(const core::Quarantined& failed) {
  const std::optional<Known> plugin = known(failed.plugin, failed.api);
  if (!plugin) return;
  QuarantineEntry entry;
  entry.key = plugin->key;
  entry.path = plugin->path;
  entry.id = failed.plugin;
  entry.op = failed.op;
  entry.implementation = failed.implementation;
  entry.dtype = failed.dtype;
  entry.reason_code = failed.reason_code;
  entry.reason = failed.reason;
  list_.add(std::move(entry));
}

}  // namespace rlk::loader
