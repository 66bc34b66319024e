// How many processors this process may keep busy: fewer than the machine has where its affinity leaves some out
// (taskset, a batch system), or where a container has a share of their time.
#pragma once

#include <string>

namespace rlk::loader {

struct Processors {
  int count = 1;
  std::string why;        // "the affinity of this process leaves 2 of 64"
  bool is_quota = false;  // the count is that of a quota, which is less than the affinity leaves
};

// Of this process, as it is now. [thread-safe]
Processors processors();

// The same with what the kernel's files say below another root, and so many processors in the affinity and in the
// machine.
Processors processors_of(const std::string& root, int allowed, int all);

}  // namespace rlk::loader
