// What running calls proved beyond the tests, kept between processes: the classes of sizes that an implementation first
// served at run time, and served right.
#pragma once

#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "core/dispatch/registry.hpp"
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

private:
  Store& store_;
  std::mutex mutex_;
  std::map<const rlk_plugin*, std::string> entries_;  // of the store, whose names say all that counts
};

}  // namespace rlk::loader
