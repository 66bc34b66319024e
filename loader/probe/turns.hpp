// In which order plugins are probed, and how many of one backend at once: their runtimes share its devices.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <optional>
#include <vector>

#include "loader/store/record.hpp"

namespace rlk::loader {

// Until one of a backend's plugins has reported what there is to share, they go one after the other: it reports its
// devices before it is tried, and then others go beside it. Without a device they
// may all go at once, with devices as many as their memory allows. What does not pass beside another has its turn again
// alone: a device may be for one process at a time, or its memory full. [thread-safe]
class Turns {
public:
  struct Turn {
    size_t group = 0, plugin = 0;
    bool is_again = false;  // alone, because its first verdict was found beside others and is not good
  };

  // Of every group (a backend) how many plugins it has. Not `side_by_side`: one after the other, whatever they share.
  Turns(const std::vector<size_t>& plugins, bool side_by_side);

  // A plugin of the group that is known already, or has told its devices by now: what it tells is used.
  void know(size_t group, const PluginRecord& record);

  // The next, of the group with the fewest in work. Waits while all that is left must wait. Nothing at the end.
  std::optional<Turn> next();
  // False: the turn's verdict is to be forgotten, and end() is to give the plugin another.
  bool stands(const Turn& turn, const PluginRecord& record);
  void end(const Turn& turn, const PluginRecord& record, bool again);
  // Nothing begins any more.
  void stop();

private:
  struct Group {
    size_t plugins = 0;
    size_t begun = 0;          // of them
    size_t room = 1;           // how many may be in work at once
    bool has_devices = false;  // that they share
    std::vector<size_t> again;
    std::vector<size_t> in_work;
    std::vector<bool> had_company;  // of each plugin, in its first turn
  };

  void learn(Group* group, const PluginRecord& record) const;
  static bool is_over(const Group& group) { return group.begun == group.plugins && group.again.empty(); }

  const bool side_by_side_;
  mutable std::mutex mutex_;  // of what follows
  std::condition_variable changed_;
  std::vector<Group> groups_;
  bool stopped_ = false;
};

}  // namespace rlk::loader
