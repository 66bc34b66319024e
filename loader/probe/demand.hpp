// Which operators of which plugin calls have asked for before they were tried: those come first. All processes that
// share a store know of each other's, by a file per plugin in its folder.
#pragma once

#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "loader/store/store.hpp"

namespace rlk::loader {

// [thread-safe]
class Demand {
public:
  // The store outlives this. Without a folder it is that of this process alone.
  explicit Demand(const Store* store) : store_(*store) {}

  // Told once for each operator; again is nothing new.
  void want(const std::string& plugin, const std::string& op);
  // Of `waiting` those that are wanted: what most processes want first, else in the given order.
  std::vector<std::string> wanted_of(const std::string& plugin, const std::vector<std::string>& waiting) const;
  // Everything that is wanted of it, in no order.
  std::vector<std::string> all_of(const std::string& plugin) const;
  // Nothing of the plugin waits any more.
  void forget(const std::string& plugin);

private:
  std::string path_of(const std::string& plugin) const;
  std::map<std::string, size_t> counts_of(const std::string& plugin) const;

  const Store& store_;
  mutable std::mutex mutex_;
  std::map<std::string, std::set<std::string>> own_;
};

}  // namespace rlk::loader
