// Breadcrumbs: which code of which plugin this process is inside for the first time, written where it outlives a crash.
// The next process to start reads what dead processes left behind.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "loader/store/held_file.hpp"

namespace rlk::loader {

struct Breadcrumb {
  std::string key;  // of the plugin's present state (quarantine.hpp)
  std::string id;
  std::string path;
  std::string op;  // "" is everything of the plugin
  std::string implementation;
  std::string dtype;
  std::string phase;
  int64_t unix = 0;
  int64_t pid = 0;
  std::string program;
  std::string machine;
};

// One small file per process, made with the first breadcrumb and locked for as long as the process itself lives (its
// forked children may live on); a breadcrumb is written and taken back in place, without waiting for any disk.
// [thread-safe]
class Breadcrumbs {
public:
  // An empty folder, or one that cannot be written, leaves no breadcrumbs.
  explicit Breadcrumbs(std::string folder) : folder_(std::move(folder)) {}
  ~Breadcrumbs() { end(); }
  Breadcrumbs(const Breadcrumbs&) = delete;
  Breadcrumbs& operator=(const Breadcrumbs&) = delete;

  // Lies there until the result dies. This outlives it. Time, process and machine are filled in.
  std::shared_ptr<void> leave(Breadcrumb breadcrumb);

  // Removes the file where nothing is under way; the next breadcrumb makes another.
  void end();

  // The end of the process has begun, by itself: what other threads are inside has not caused it, and is not to be
  // blamed for what happens to them now. Only what this thread is inside has, or what runs on a thread of the host.
  void end_with_the_process();

  // What processes that are no more left in the folder; it is removed there.
  static std::vector<Breadcrumb> collect(const std::string& folder);

private:
  static constexpr size_t kSlots = 64;
  static constexpr size_t kSlotBytes = 2048;
  bool open_file();

  const std::string folder_;
  std::mutex mutex_;  // of what follows
  std::string path_;
  HeldFile fd_;
  pid_t pid_ = 0;  // of the process that made the file
  bool in_use_[kSlots] = {};
  long threads_[kSlots] = {};  // the thread that left it
};

}  // namespace rlk::loader
