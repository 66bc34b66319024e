// Files as the loader handles them: never blocking on a pipe, never trusting a size, never mapped (a mapped file that
// another process truncates kills the reader; a read one gives an error).
#pragma once

#include <dirent.h>
#include <sys/stat.h>
#include <rlk/sdk/descriptor.hpp>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace rlk::loader {

// Never 0 to 2: sdk::above_standard says why.
class UniqueFd {
public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(sdk::above_standard(fd)) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~UniqueFd();

  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  void reset() { *this = UniqueFd(); }

private:
  int fd_ = -1;
};

// What tells one state of a file from another without reading it.
struct FileIdentity {
  uint64_t device = 0;
  uint64_t inode = 0;
  uint64_t size = 0;
  int64_t modified_ns = 0;
  int64_t changed_ns = 0;  // cannot be set back by the file's owner, unlike the modification time
  bool operator==(const FileIdentity&) const = default;
};
FileIdentity identity_of(const struct stat& status);
std::optional<FileIdentity> identity_of(const std::string& path);
std::string to_string(const FileIdentity& identity);
// Did the file change more than two seconds ago? Before that, the next change might leave the same times.
bool is_settled(const FileIdentity& identity);

// Opens a regular file for reading. On failure the descriptor is empty and errno says why; ENOTSUP for what is not a
// regular file (a folder, a pipe, a device).
UniqueFd open_regular(const std::string& path, struct stat* status);

// nullptr, with errno, where it cannot be read.
using Folder = std::unique_ptr<DIR, int (*)(DIR*)>;
Folder open_folder(const std::string& path);

// Make a new file, or open one that is there, for this user alone whatever umask says: with 0777, which a plugin may
// have set, what is written today could not be read tomorrow. `flags` go with O_CREAT; `pattern` is mkostemp's.
UniqueFd open_private(const std::string& path, int flags);
UniqueFd make_temporary(std::string* pattern);
bool make_private_folder(const std::string& path);
// May a file have so many bytes? Beyond the limit (`ulimit -f`) writing would end the process by SIGXFSZ.
bool may_grow_to(uint64_t bytes);

// Reads exactly `size` bytes at `offset`; false when the file ends before or fails.
bool read_at(int fd, uint64_t offset, void* out, size_t size);

// The whole file; nothing when it cannot be read or is larger than `limit` bytes (EFBIG): errno says why.
std::optional<std::string> read_file(const std::string& path, size_t limit);

// xxHash128 as 32 hexadecimal digits; of two texts as of one behind the other.
std::string hash_bytes(std::string_view bytes);
std::string hash_bytes(std::string_view first, std::string_view second);
std::optional<std::string> hash_file(const std::string& path);

// "No such file or directory (2)".
std::string errno_text(int code);

}  // namespace rlk::loader
