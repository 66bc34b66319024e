// What failed at run time, kept between processes: which unit of which plugin, the evidence, and until when.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/dispatch/call/registry.hpp"
#include "loader/store/breadcrumbs.hpp"
#include "loader/store/record.hpp"
#include "loader/store/store.hpp"

namespace rlk::loader {

struct QuarantineEntry {
  std::string key;  // state_of_plugin when it failed: another build, library or card has not failed
  std::string id;
  std::string path;
  std::string op;  // "" is everything of the plugin
  std::string implementation;
  std::string dtype;  // "" is all
  std::string reason_code;
  std::string reason;
  std::string program;
  std::string machine;
  int64_t pid = 0;
  int64_t since_unix = 0;
  int64_t until_unix = 0;
  int64_t times = 1;  // how often it failed

  std::string who() const { return core::Quarantined{id, op, implementation, dtype, {}, {}}.who(); }
};

// The plugin's file, what it loaded, its devices and the host: a text that changes when one of them does.
std::string state_of_plugin(const PluginRecord& record, Store* store);

inline constexpr std::string_view kEndedInside = "PROCESS_ENDED";  // reason_code of what a breadcrumb tells

// [thread-safe]
class QuarantineList {
public:
  using Clock = std::function<int64_t()>;  // seconds since 1970
  // How long a unit stays off after its first failure, and after one that came again. A process that ended inside a
  // plugin may have been ended by another process, and a card may have been at fault: they are tried again sooner.
  static constexpr int64_t kFirstSeconds = 86400;
  static constexpr int64_t kFirstDoubtfulSeconds = 3600;
  static constexpr int64_t kAgainSeconds = 7 * kFirstSeconds;

  // The store outlives the list.
  explicit QuarantineList(Store* store, Clock now = {});

  // Remembers a failure; times and machine are filled in when they are not set.
  void add(QuarantineEntry entry);
  // Adds what processes that ended inside a plugin left behind.
  void add_breadcrumbs();
  // Those in force, the oldest first.
  std::vector<QuarantineEntry> in_force() const;
  // Of one plugin, or of all with an empty id; returns how many were in force and are no more. `staying` receives the
  // files of those that cannot be removed, in a folder of root's or one that is only read: they stay in force.
  size_t clear(const std::string& id, std::vector<std::string>* staying = nullptr);

private:
  std::vector<QuarantineEntry> all() const;

  Store& store_;
  Clock now_;
};

// Takes out what is in force: the plugin becomes `quarantined`, or its units fail and it becomes `partial`.
void apply(const std::vector<QuarantineEntry>& in_force, Store* store, PluginRecord* record);

}  // namespace rlk::loader
