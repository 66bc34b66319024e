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
  void add_to(PluginRecord* record);
  // Remembers one more class of a plugin that add_to has seen.
  void note(const core::ComparedClass& compared);

private:
  Store& store_;
  std::mutex mutex_;
  std::map<std::string, std::string> entries_;  // by plugin id: the entry of the store, which names all that counts
};

}  // namespace rlk::loader
