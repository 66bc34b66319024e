// Descriptors that a program cannot take for its own input or output.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <string>

namespace rlk::sdk {

// What open(), socket() or their like gave, moved out of 0 to 2. A program that closed its standard input or output
// would be given those numbers, and what it then prints would go into the file. -1, with errno, for -1, or where no
// other number is free. [async-signal-safe]
inline int above_standard(int fd) noexcept {
  if (fd < 0 || fd > STDERR_FILENO) return fd;
  const int moved = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  const int code = errno;
  close(fd);
  errno = code;
  return moved;
}

// The text of a file such as those of /proc and /sys, up to `most` bytes of it; "" when it cannot be read.
inline std::string read_text(const std::string& path, size_t most = size_t{1} << 20) {
  const int fd = above_standard(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
  if (fd < 0) return {};
  std::string text;
  char piece[4096];
  while (text.size() < most) {
    const ssize_t got = read(fd, piece, sizeof(piece));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    text.append(piece, static_cast<size_t>(got));
  }
  close(fd);
  if (text.size() > most) text.resize(most);
  return text;
}

}  // namespace rlk::sdk
