// Could another user replace this file? Answered from owners and modes of the file and of every folder above it.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "loader/store/reason.hpp"

namespace rlk::loader {

// rlk judges access as this user has it.
struct Identity {
  uid_t user = 0;
  gid_t group = 0;
  static Identity of_process();  // effective user and group
};

struct TrustResult {
  const Reason* problem = nullptr;  // null: trusted
  std::string text;                 // which component, what was seen
  std::vector<std::string> notes;   // harmless, but worth a line: a sticky folder, one's own group
};

// `path` must be canonical (no symbolic links, no "..": the caller resolved it and goes on with that path).
// Trusted owners are root and the user. Write permission for the user's own group is fine, and so is a folder all users
// may write to if it is sticky: there a user cannot rename what belongs to another user.
TrustResult check_trust(const std::string& path, const Identity& identity);

// A folder that is searched for libraries: could another user put one there, or make the folder if it is not there? The
// path need not be canonical, nor lead anywhere. A sticky folder is refused too: any user may add a new name to it.
TrustResult check_place(const std::string& folder, const Identity& identity);

}  // namespace rlk::loader
