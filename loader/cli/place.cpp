// Writing outputs without replacing what is no file.
#include "loader/cli/place.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>

#include "loader/cli/verb.hpp"
#include "loader/store/file.hpp"

namespace rlk::cli {
namespace {

constexpr int kMaxLinks = 40;  // as many as the kernel follows
constexpr int kMaxNames = 100;

std::string folder_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : path.substr(0, slash + 1);
}

// Follows links at the end of a path, also to what is not there yet.
std::string follow_links(std::string path) {
  for (int i = 0; i < kMaxLinks; ++i) {
    char target[PATH_MAX];
    const ssize_t length = readlink(path.c_str(), target, sizeof(target));
    if (length < 0) return path;
    const std::string next(target, static_cast<size_t>(length));
    path = next.starts_with('/') ? next : folder_of(path) + "/" + next;
  }
  return path;
}

// What stands where a path leads.
struct Place {
  std::string path;       // of the file itself, no link
  bool in_place = false;  // nothing may be put there in its stead
  mode_t mode = 0;        // of the file that is there, 0: none
};

// Throws Error with the reason when nothing can be written there.
template <class Error>
Place find_place(const std::string& path) {
  const auto refuse = [&](const std::string& why) { throw Error(path + ": " + why); };
  struct stat status {};
  Place place{path};
  if (stat(path.c_str(), &status) != 0) {
    const int why = errno;
    place.path = follow_links(path);
    if (why != ENOENT) refuse("cannot be created: " + loader::errno_text(why));
    if (access(folder_of(place.path).c_str(), W_OK | X_OK) != 0)
      refuse("cannot be created: " + loader::errno_text(errno));
    return place;
  }
  if (S_ISDIR(status.st_mode)) refuse("is a folder; expected a file, a pipe or a character device");
  if (S_ISSOCK(status.st_mode)) refuse("is a socket; expected a file, a pipe or a character device");
  if (S_ISBLK(status.st_mode)) refuse("is a disk; expected a file, a pipe or a character device");
  if (access(path.c_str(), W_OK) != 0) refuse("cannot be written: " + loader::errno_text(errno));
  place.mode = status.st_mode & 0777;
  place.in_place = !S_ISREG(status.st_mode) || status.st_nlink > 1;
  if (place.in_place) return place;
  // A link of the kernel's own (/proc/self/fd/1) may lead to a file that has no name.
  const std::string file = follow_links(path);
  struct stat there {};
  const bool named = lstat(file.c_str(), &there) == 0 && there.st_dev == status.st_dev && there.st_ino == status.st_ino;
  place.in_place = !named || access(folder_of(file).c_str(), W_OK | X_OK) != 0;
  if (named) place.path = file;
  return place;
}

[[noreturn]] void fail(const std::string& path, const char* what) {
  throw Failure(fmt::format("{}: {}: {}", path, what, loader::errno_text(errno)));
}

void write_all(int fd, const std::string& path, const std::vector<std::string_view>& parts) {
  for (std::string_view part : parts) {
    while (!part.empty()) {
      const ssize_t written = write(fd, part.data(), std::min<size_t>(part.size(), 1u << 30));
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) fail(path, "cannot be written");
      part.remove_prefix(static_cast<size_t>(written));
    }
  }
}

void write_in_place(const std::string& path, const Place& place, const std::vector<std::string_view>& parts) {
  // O_TRUNC means nothing to a pipe or a device.
  const loader::UniqueFd fd(open(place.path.c_str(), O_WRONLY | O_TRUNC | O_NOCTTY | O_CLOEXEC));
  if (!fd) fail(path, "cannot be opened");
  write_all(fd.get(), path, parts);
}

// A file beside the place, gone with this object unless it was put in place.
class Temporary {
public:
  explicit Temporary(const Place& place) : place_(place) {
    for (int i = 0; i < kMaxNames; ++i) {
      name_ = fmt::format("{}.tmp{}.{}", place.path, getpid(), i);
      // Never through a link that another user put there.
      fd_ = loader::UniqueFd(open(name_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666));
      if (fd_ || errno != EEXIST) break;
    }
    if (fd_ && place.mode != 0 && fchmod(fd_.get(), place.mode) != 0) close();
  }
  ~Temporary() {
    if (!name_.empty() && fd_) unlink(name_.c_str());
  }
  Temporary(const Temporary&) = delete;
  Temporary& operator=(const Temporary&) = delete;

  int fd() const { return fd_.get(); }
  bool put_in_place() {
    if (rename(name_.c_str(), place_.path.c_str()) != 0) return false;
    name_.clear();
    return true;
  }

private:
  void close() {
    const int code = errno;
    unlink(name_.c_str());
    fd_.reset();
    errno = code;
  }
  const Place& place_;
  std::string name_;
  loader::UniqueFd fd_;
};

}  // namespace

void require_place(const std::string& path) {
  find_place<UsageError>(path);
}

void write_whole(const std::string& path, const std::vector<std::string_view>& parts) {
  // Asked for again: what stands there may have changed since the start.
  const Place place = find_place<Failure>(path);
  if (place.in_place) return write_in_place(path, place, parts);
  Temporary temporary(place);
  if (temporary.fd() < 0) fail(path, "cannot be created");
  write_all(temporary.fd(), path, parts);
  if (temporary.put_in_place()) return;
  if (errno != EBUSY) fail(path, "cannot be put in place");
  write_in_place(path, place, parts);  // a mount point, such as a file that a container shares
}

}  // namespace rlk::cli
