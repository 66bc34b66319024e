// What running calls proved beyond the tests, kept between processes: the classes of sizes that an implementation first
// served at run time, and served right; and those that could not be compared, for doctor.
#pragma once

#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "core/dispatch/call/registry.hpp"
#include "loader/store/record.hpp"
#include "loader/store/store.hpp"

namespace rlk::loader {

// [thread-safe]
class ComparedClasses {
public:
  // The store outlives this.
  explicit ComparedClasses(Store* store) : store_(*store) {}

  // Adds what earlier processes found to the record's units, which are about to be published.
  void add_to(PluginRecord* record) const;
  // The record is that of this generation of its plugin.
  void know(const rlk_plugin* api, const PluginRecord& record);
  // Remembers one more class of a generation that is known.
  void note(const core::ComparedClass& compared);
  // Remembers that a class could not be compared, of a generation that is known or will be.
  void note_uncompared(const core::UncomparedClass& uncompared);
  // What was remembered of the record's plugin and has not been compared since. `api` and `calls` are not kept.
  std::vector<core::UncomparedClass> uncompared_of(const PluginRecord& record) const;

private:
  void keep(const std::string& entry, const core::UncomparedClass& uncompared);

  Store& store_;
  std::mutex mutex_;
  std::map<const rlk_plugin*, std::string> states_;  // in the names of the store's entries: they say all that counts
  std::vector<core::UncomparedClass> early_;         // of generations that are not known yet
};

}  // namespace rlk::loader
