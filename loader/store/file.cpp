// Opening, reading and hashing, each with a limit and an answer for a file that is not what it seemed.
#include "loader/store/file.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <system_error>
#include <vector>

#define XXH_INLINE_ALL  // header only: no library to install beside librlk
#include <xxhash.h>

namespace rlk::loader {
namespace {

std::string to_hex(XXH128_hash_t hash) {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, hash);
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  for (unsigned char byte : canonical.digest) {
    out += kDigits[byte >> 4];
    out += kDigits[byte & 15];
  }
  return out;
}

int64_t nanoseconds(const struct timespec& time) {
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

// One read that outlives signals; 0 at the end of the file, negative on error.
ssize_t read_some(int fd, uint64_t offset, void* out, size_t size) {
  ssize_t got = 0;
  do {
    got = pread(fd, out, size, static_cast<off_t>(offset));
  } while (got < 0 && errno == EINTR);
  return got;
}

}  // namespace

UniqueFd::~UniqueFd() {
  if (fd_ >= 0) close(fd_);
}

FileIdentity identity_of(const struct stat& status) {
  return {status.st_dev, status.st_ino, static_cast<uint64_t>(status.st_size), nanoseconds(status.st_mtim),
          nanoseconds(status.st_ctim)};
}

std::optional<FileIdentity> identity_of(const std::string& path) {
  struct stat status = {};
  if (stat(path.c_str(), &status) != 0) return std::nullopt;
  return identity_of(status);
}

bool is_settled(const FileIdentity& identity) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  constexpr int64_t kSettledNs = 2'000'000'000;
  return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count() - identity.changed_ns > kSettledNs;
}

std::string to_string(const FileIdentity& identity) {
  return fmt::format("{}:{}:{}:{}:{}", identity.device, identity.inode, identity.size, identity.modified_ns,
                     identity.changed_ns);
}

UniqueFd open_regular(const std::string& path, struct stat* status) {
  // Non-blocking: opening a pipe for reading would otherwise wait for a writer that may never come.
  UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!fd) return fd;
  if (fstat(fd.get(), status) != 0) return UniqueFd();
  if (!S_ISREG(status->st_mode)) {
    fd.reset();
    errno = ENOTSUP;
  }
  return fd;
}

Folder open_folder(const std::string& path) {
  const int fd = sdk::above_standard(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NONBLOCK));
  Folder folder(fd >= 0 ? fdopendir(fd) : nullptr, &closedir);
  if (folder == nullptr && fd >= 0) {
    const int code = errno;
    close(fd);
    errno = code;
  }
  return folder;
}

UniqueFd open_private(const std::string& path, int flags) {
  UniqueFd fd(open(path.c_str(), O_CREAT | O_CLOEXEC | O_NOFOLLOW | flags, 0600));
  if (fd) fchmod(fd.get(), 0600);  // one that is another user's stays as it is
  return fd;
}

UniqueFd make_temporary(std::string* pattern) {
  UniqueFd fd(mkostemp(pattern->data(), O_CLOEXEC));
  if (fd) fchmod(fd.get(), 0600);
  return fd;
}

bool make_private_folder(const std::string& path) {
  return mkdir(path.c_str(), 0700) == 0 && chmod(path.c_str(), 0700) == 0;
}

bool may_grow_to(uint64_t bytes) {
  struct rlimit largest = {};
  return getrlimit(RLIMIT_FSIZE, &largest) != 0 || largest.rlim_cur == RLIM_INFINITY || bytes <= largest.rlim_cur;
}

bool read_at(int fd, uint64_t offset, void* out, size_t size) {
  char* to = static_cast<char*>(out);
  while (size > 0) {
    const ssize_t got = read_some(fd, offset, to, size);
    if (got <= 0) return false;
    to += got;
    offset += static_cast<uint64_t>(got);
    size -= static_cast<size_t>(got);
  }
  return true;
}

std::optional<std::string> read_file(const std::string& path, size_t limit) {
  const auto too_large = [] {
    errno = EFBIG;
    return std::nullopt;
  };
  struct stat status = {};
  const UniqueFd fd = open_regular(path, &status);
  if (!fd) return std::nullopt;
  std::string out;
  char piece[16384];
  // Read to the end and not to st_size: files of /proc and /sys state a size of zero.
  if (status.st_size > 0 && static_cast<uint64_t>(status.st_size) > limit) return too_large();
  out.reserve(static_cast<size_t>(status.st_size));
  while (true) {
    const ssize_t got = read_some(fd.get(), out.size(), piece, sizeof(piece));
    if (got < 0) return std::nullopt;
    if (got == 0) return out;
    out.append(piece, static_cast<size_t>(got));
    if (out.size() > limit) return too_large();
  }
}

std::string hash_bytes(std::string_view bytes) {
  return to_hex(XXH3_128bits(bytes.data(), bytes.size()));
}

std::string hash_bytes(std::string_view first, std::string_view second) {
  XXH3_state_t state;
  XXH3_INITSTATE(&state);
  XXH3_128bits_reset(&state);
  for (const std::string_view part : {first, second}) XXH3_128bits_update(&state, part.data(), part.size());
  return to_hex(XXH3_128bits_digest(&state));
}

std::optional<std::string> hash_file(const std::string& path) {
  struct stat status = {};
  const UniqueFd fd = open_regular(path, &status);
  const std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state(XXH3_createState(), &XXH3_freeState);
  if (!fd || state == nullptr || XXH3_128bits_reset(state.get()) != XXH_OK) return std::nullopt;
  std::vector<char> piece(1 << 20);
  for (uint64_t offset = 0;;) {
    const ssize_t got = read_some(fd.get(), offset, piece.data(), piece.size());
    if (got < 0) return std::nullopt;
    if (got == 0) return to_hex(XXH3_128bits_digest(state.get()));
    XXH3_128bits_update(state.get(), piece.data(), static_cast<size_t>(got));
    offset += static_cast<uint64_t>(got);
  }
}

std::string errno_text(int code) {
  return fmt::format("{} ({})", std::generic_category().message(code), code);
}

}  // namespace rlk::loader
