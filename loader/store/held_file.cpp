// The list of held descriptors, which a handler of fork walks in the child.
#include "loader/store/held_file.hpp"

#include <fcntl.h>
#include <pthread.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <mutex>
#include <vector>

namespace rlk::loader {
namespace {

struct Held {
  std::mutex mutex;  // taken over every fork: a child finds the list whole
  std::vector<int> fds;
};

Held& held_files() {
  static auto* const all = new Held;  // forks may come while the process ends
  return *all;
}

void before_fork() {
  held_files().mutex.lock();
}

void after_fork_in_parent() {
  held_files().mutex.unlock();
}

// Closing would leave numbers that the owners close once more, when other code has them. Only what is safe in the
// child of a process with threads.
void after_fork_in_child() {
  const std::vector<int>& fds = held_files().fds;
  const int nowhere = fds.empty() ? -1 : sdk::above_standard(open("/", O_PATH | O_CLOEXEC));
  for (const int fd : fds) {
    if (nowhere >= 0) {
      dup3(nowhere, fd, O_CLOEXEC);
      continue;
    }
    close(fd);  // no descriptor was free; this one is now
    const int instead = sdk::above_standard(open("/", O_PATH | O_CLOEXEC));
    if (instead == fd || instead < 0) continue;
    dup3(instead, fd, O_CLOEXEC);
    close(instead);
  }
  if (nowhere >= 0) close(nowhere);
  held_files().mutex.unlock();
}

}  // namespace

HeldFile::HeldFile(const std::function<UniqueFd()>& open) {
  // Of no effect when memory ran out: the lock then lasts until the last child has ended.
  static const int registered = pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
  static_cast<void>(registered);
  const std::lock_guard lock(held_files().mutex);
  held_files().fds.reserve(held_files().fds.size() + 1);
  fd_ = open();
  if (fd_) held_files().fds.push_back(fd_.get());
}

HeldFile::~HeldFile() {
  if (!fd_) return;
  const std::lock_guard lock(held_files().mutex);
  std::erase(held_files().fds, fd_.get());
  fd_.reset();
}

bool HeldFile::try_lock() const {
  int result = 0;
  do {
    result = flock(fd_.get(), LOCK_EX | LOCK_NB);
  } while (result != 0 && errno == EINTR);
  return result == 0;
}

}  // namespace rlk::loader
