// close_range, which the oldest libc that we link against does not have yet; without it, what /proc lists.
#include "loader/probe/descriptors.hpp"

#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "loader/store/file.hpp"

namespace rlk::loader {
namespace {

bool close_range_of(unsigned first, unsigned last) {
#ifdef SYS_close_range
  return first > last || syscall(SYS_close_range, first, last, 0) == 0;
#else
  return false;
#endif
}

// For a system that cannot list them. A limit that was lowered since hides some; one of a billion would take minutes.
int most_descriptors() {
  constexpr rlim_t kMost = 1 << 20;
  rlimit files = {};
  return static_cast<int>(getrlimit(RLIMIT_NOFILE, &files) == 0 ? std::min(files.rlim_max, kMost) : kMost);
}

}  // namespace

void close_descriptors(int first, int kept) {
  const auto from = static_cast<unsigned>(first), hole = static_cast<unsigned>(kept);
  const bool closed = kept < first ? close_range_of(from, ~0u)
                                   : (kept == first || close_range_of(from, hole - 1)) && close_range_of(hole + 1, ~0u);
  if (!closed) close_listed_descriptors(first, kept);
}

void close_listed_descriptors(int first, int kept) {
  std::vector<int> open;
  if (Folder folder = open_folder("/proc/self/fd"); folder != nullptr) {
    while (const dirent* item = readdir(folder.get()))
      if (item->d_name[0] != '.') open.push_back(std::atoi(item->d_name));
    folder.reset();  // its own is in the list, and closed by now
  } else {
    const int end = most_descriptors();
    for (int fd = first; fd < end; ++fd) open.push_back(fd);
  }
  for (const int fd : open)
    if (fd >= first && fd != kept) close(fd);
}

}  // namespace rlk::loader
