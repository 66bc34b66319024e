// A private duplicate of standard output.
#include "loader/cli/output.hpp"

#include <fcntl.h>
#include <unistd.h>

namespace rlk::cli {
namespace {

std::FILE* own_output = nullptr;

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
  std::FILE* file = fdopen(own, "w");
  if (file == nullptr || dup2(STDERR_FILENO, STDOUT_FILENO) < 0) {
    if (file != nullptr) std::fclose(file);
    if (file == nullptr) close(own);
    return;
  }
  own_output = file;
}

std::FILE* output() {
  return own_output != nullptr ? own_output : stdout;
}

}  // namespace rlk::cli
