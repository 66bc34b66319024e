// The processes that began in one process: found, and ended.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace rlk::loader {

struct ProcessSeen {
  pid_t pid = 0;
  pid_t parent = 0;
  pid_t session = 0;
  char state = '?';  // of /proc: 'T' stopped, 't' traced, 'Z' dead and not yet reaped
  std::string name;  // the process's own word, at most 15 bytes of anything
};

// Those that live and descend from `root`, without it. Whose parents have died counts where the root, or what is
// between, takes in orphans (PR_SET_CHILD_SUBREAPER).
std::vector<ProcessSeen> descendants_of(pid_t root);

// Kills them until none is left, for two seconds at most; the root stays. Returns those that had left the root's
// session: "123 (name)".
std::vector<std::string> end_descendants(pid_t root);

// The processes that trace a thread of the process. A tracer is a thread, of any of a process.
std::vector<pid_t> tracers_of(pid_t pid);

}  // namespace rlk::loader
