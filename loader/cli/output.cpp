// A private duplicate of standard output.
#include "loader/cli/output.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

namespace rlk::cli {
namespace {

std::FILE* own_output = nullptr;
int own_number = -1;  // its descriptor
int first_failure = 0;

// stdio forgets why a write failed once it writes on.
ssize_t write_own(void*, const char* bytes, size_t size) {
  size_t done = 0;
  while (done < size) {
    const ssize_t now = write(own_number, bytes + done, size - done);
    if (now < 0 && errno == EINTR) continue;
    if (now < 0) {
      if (first_failure == 0) first_failure = errno;
      break;
    }
    done += static_cast<size_t>(now);
  }
  return static_cast<ssize_t>(done);
}

}  // namespace

void hold_standard_numbers() {
  // For reading: what is written there fails, as it did while they were closed.
  int fd = 0;
  while ((fd = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0 && fd <= STDERR_FILENO) {
  }
  if (fd >= 0) close(fd);
}

void keep_output() {
  const int own = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  if (own < 0) return;  // standard output is closed: there is nothing to protect
  cookie_io_functions_t functions = {};
  functions.write = write_own;
  std::FILE* file = fopencookie(nullptr, "w", functions);
  if (file == nullptr || dup2(STDERR_FILENO, STDOUT_FILENO) < 0) {
    if (file != nullptr) std::fclose(file);
    close(own);
    return;
  }
  if (isatty(own) == 1) setvbuf(file, nullptr, _IOLBF, BUFSIZ);
  own_output = file;
  own_number = own;
}

std::FILE* output() {
  return own_output != nullptr ? own_output : stdout;
}

int output_number() {
  return own_output != nullptr ? own_number : STDOUT_FILENO;
}

int output_failure() {
  return first_failure;
}

}  // namespace rlk::cli
