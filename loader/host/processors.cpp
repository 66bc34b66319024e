// The affinity by system call; the quota from the files of the process's control group and of those above it, in
// either version of control groups.
#include "loader/host/processors.hpp"

#include <fmt/core.h>
#include <sched.h>
#include <unistd.h>
#include <rlk/sdk/descriptor.hpp>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <sstream>
#include <string_view>
#include <vector>

namespace rlk::loader {
namespace {

constexpr int kMostProcessors = 1 << 16;

int allowed_processors() {
  for (int most = 1024; most <= kMostProcessors; most *= 4) {
    cpu_set_t* const set = CPU_ALLOC(static_cast<size_t>(most));
    if (set == nullptr) break;
    const size_t bytes = CPU_ALLOC_SIZE(static_cast<size_t>(most));
    const int count = sched_getaffinity(0, bytes, set) == 0 ? CPU_COUNT_S(bytes, set) : 0;
    CPU_FREE(set);
    if (count > 0) return count;
  }
  return std::max(1, static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN)));
}

// Whether a list "rw,cpu,cpuacct" has the word.
bool has_word(const std::string& list, std::string_view word) {
  std::istringstream words(list);
  for (std::string one; std::getline(words, one, ',');)
    if (one == word) return true;
  return false;
}

// Where control groups of a version are mounted, and which of them is mounted there.
struct Mount {
  std::string point, group;
  bool is_second = false;  // version 2
};

// "31 23 0:28 /group /sys/fs/cgroup rw,relatime shared:1 - cgroup2 cgroup2 rw"
std::vector<Mount> mounts_of(const std::string& root) {
  std::vector<Mount> mounts;
  std::istringstream lines(sdk::read_text(root + "/proc/self/mountinfo"));
  for (std::string line; std::getline(lines, line);) {
    const size_t end = line.find(" - ");
    if (end == std::string::npos) continue;
    std::istringstream before(line.substr(0, end)), after(line.substr(end + 3));
    Mount mount;
    std::string ignored, type, options;
    before >> ignored >> ignored >> ignored >> mount.group >> mount.point;
    after >> type >> ignored >> options;
    mount.is_second = type == "cgroup2";
    if (mount.is_second || (type == "cgroup" && has_word(options, "cpu"))) mounts.push_back(std::move(mount));
  }
  return mounts;
}

// The process's group of that version: "0::/group", or "1:cpu,cpuacct:/group".
std::string group_of(const std::string& root, bool is_second) {
  std::istringstream lines(sdk::read_text(root + "/proc/self/cgroup"));
  for (std::string line; std::getline(lines, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    if (is_second ? line.starts_with("0::") : has_word(controllers, "cpu")) return line.substr(second + 1);
  }
  return "/";
}

// Processors' worth of time that one group has; infinity without a limit.
double quota_of(const std::string& folder, bool is_second) {
  double quota = -1, period = 0;
  if (is_second) {
    std::istringstream text(sdk::read_text(folder + "/cpu.max"));  // "max 100000" is no number
    text >> quota >> period;
  } else {
    std::istringstream(sdk::read_text(folder + "/cpu.cfs_quota_us")) >> quota;
    std::istringstream(sdk::read_text(folder + "/cpu.cfs_period_us")) >> period;
  }
  return quota > 0 && period > 0 ? quota / period : INFINITY;
}

struct Quota {
  double processors = INFINITY;
  std::string folder;
};

// The least of the group's own and of those above it, as far as they can be seen from here.
Quota least_quota(const std::string& root) {
  Quota least;
  for (const Mount& mount : mounts_of(root)) {
    std::string group = group_of(root, mount.is_second);
    // In a container the group may be named as the host sees it, and be the very one that is mounted.
    if (mount.group != "/" && group.starts_with(mount.group)) group = group.substr(mount.group.size());
    if (group.find("..") != std::string::npos) group.clear();
    for (;;) {
      while (!group.empty() && group.back() == '/') group.pop_back();
      const std::string folder = mount.point + group;
      if (const double quota = quota_of(root + folder, mount.is_second); quota < least.processors)
        least = {quota, folder};
      if (group.empty()) break;
      group.resize(group.rfind('/') == std::string::npos ? 0 : group.rfind('/'));
    }
  }
  return least;
}

}  // namespace

Processors processors_of(const std::string& root, int allowed, int all) {
  Processors found;
  found.count = std::max(allowed, 1);
  found.why = allowed < all ? fmt::format("the affinity of this process leaves {} of {} processors", allowed, all)
                            : fmt::format("the processors of this machine");
  const Quota quota = least_quota(root);
  // Part of a processor's time keeps one more thread busy for a part of the time.
  if (std::ceil(quota.processors) >= found.count) return found;
  found.count = std::max(1, static_cast<int>(std::ceil(quota.processors)));
  found.is_quota = true;
  found.why = fmt::format("the control group {} has the time of {:.4g} of {} processors", quota.folder,
                          quota.processors, allowed);
  return found;
}

Processors processors() {
  return processors_of("", allowed_processors(), static_cast<int>(sysconf(_SC_NPROCESSORS_CONF)));
}

}  // namespace rlk::loader
