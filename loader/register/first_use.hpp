// Breadcrumbs of this process's plugins: what dispatch and registration are about to do with one for the first time is
// written into the store's folder, and taken back when it has come out alive.
#pragma once

#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "core/dispatch/trust/trace.hpp"
#include "loader/probe/probe.hpp"
#include "loader/store/breadcrumbs.hpp"
#include "loader/store/quarantine.hpp"

namespace rlk::loader {

// [thread-safe]
class FirstUses {
public:
  // The store outlives this.
  explicit FirstUses(Store* store) : store_(*store), list_(store), breadcrumbs_(store->folder()) {}

  // Plugins that are about to be loaded. Of others no breadcrumbs are left, nor of what is built in.
  void know(const std::vector<ProbedPlugin>& plugins);
  core::Trace leave(const core::FirstUse& use);
  // The process is about to end: where nothing is under way, nothing is left.
  void end() { breadcrumbs_.end(); }
  void end_with_the_process() { breadcrumbs_.end_with_the_process(); }
  // What failed at run time is kept for the next processes.
  void keep(const core::Quarantined& failed);

private:
  struct Known {
    std::string key;
    std::string path;
  };

  // Nothing of a plugin that know() did not get. A generation is what its id stood for when it was first heard of:
  // that is while it is loaded.
  std::optional<Known> known(const std::string& id, const rlk_plugin* api);

  Store& store_;
  QuarantineList list_;
  Breadcrumbs breadcrumbs_;
  std::mutex mutex_;
  std::map<std::string, Known, std::less<>> known_;  // by plugin id: its newest generation
  std::map<const rlk_plugin*, Known> generations_;
};

}  // namespace rlk::loader
