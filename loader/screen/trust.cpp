// Owner and mode of every folder from the root down, then of the file; a sticky folder is only noted.
#include "loader/screen/trust.hpp"

#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>

#include "loader/store/file.hpp"

namespace rlk::loader {
namespace {

std::string describe(const std::string& path, const struct stat& status) {
  char mode[8];
  std::snprintf(mode, sizeof(mode), "%04o", static_cast<unsigned>(status.st_mode & 07777));
  return fmt::format("{} (owner {}, group {}, mode {})", path, status.st_uid, status.st_gid, mode);
}

// Which other users may write it, by its mode: nullptr for none. What sticky means for that, the caller knows.
const char* writable_by_others(const struct stat& status, const Identity& identity) {
  if ((status.st_mode & S_IWOTH) != 0) return "every user";
  const bool is_foreign = status.st_gid != identity.group && status.st_gid != 0;
  return (status.st_mode & S_IWGRP) != 0 && is_foreign ? "another group" : nullptr;
}

bool check_component(const std::string& path, const Identity& identity, TrustResult* result) {
  struct stat status = {};
  const auto fail = [&](const Reason& why, std::string text) {
    result->problem = &why;
    result->text = std::move(text);
    return false;
  };
  if (lstat(path.c_str(), &status) != 0) return fail(reason::kFileUnreadable, path + ": " + errno_text(errno));
  if (status.st_uid != 0 && status.st_uid != identity.user)
    return fail(reason::kOwnerUntrusted,
                fmt::format("{} belongs neither to root nor to user {}", describe(path, status), identity.user));
  if (const char* const who = writable_by_others(status, identity); who != nullptr) {
    if (!S_ISDIR(status.st_mode) || (status.st_mode & S_ISVTX) == 0)
      return fail(reason::kWritableByOthers, fmt::format("{} can be written by {}", describe(path, status), who));
    result->notes.push_back(fmt::format("{} can be written by {}, but is sticky", describe(path, status), who));
  } else if ((status.st_mode & S_IWGRP) != 0) {
    result->notes.push_back(fmt::format("{} can be written by {} group", describe(path, status),
                                        status.st_gid == 0 ? "root's" : "the user's own"));
  }
  return true;
}

}  // namespace

Identity Identity::of_process() {
  return {geteuid(), getegid()};
}

TrustResult check_trust(const std::string& path, const Identity& identity) {
  TrustResult result;
  // From the root down, so that the message names the outermost folder to fix.
  for (size_t slash = 0; slash != std::string::npos; slash = path.find('/', slash + 1)) {
    const std::string folder = slash == 0 ? "/" : path.substr(0, slash);
    if (!check_component(folder, identity, &result)) return result;
  }
  check_component(path, identity, &result);
  return result;
}

TrustResult check_place(const std::string& folder, const Identity& identity) {
  // The nearest thing that is there decides which users may make the rest.
  std::string there = folder;
  char canonical[PATH_MAX];
  while (realpath(there.c_str(), canonical) == nullptr) {
    const size_t slash = there.find_last_of('/');
    if (slash == 0 || slash == std::string::npos) {
      canonical[0] = '/', canonical[1] = '\0';
      break;
    }
    there.resize(slash);
  }
  TrustResult result = check_trust(canonical, identity);
  struct stat status = {};
  if (result.problem != nullptr || stat(canonical, &status) != 0 || !S_ISDIR(status.st_mode)) return result;
  if (const char* const who = writable_by_others(status, identity); who != nullptr) {
    result.problem = &reason::kWritableByOthers;
    result.text = fmt::format("{}: {} may put files there", describe(canonical, status), who);
  }
  return result;
}

}  // namespace rlk::loader
