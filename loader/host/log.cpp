// The log: one logger, to stderr or to RLK_LOG_FILE, its level from RLK_LOG.
#include <spdlog/sinks/base_sink.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <rlk/sdk/descriptor.hpp>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <system_error>

#include "core/declaration/no_cancel.hpp"
#include "core/declaration/text.hpp"
#include "core/dispatch/log.hpp"

namespace rlk::core {
namespace {

spdlog::level::level_enum level_of(int32_t level) {
  switch (level) {
    case RLK_LOG_DEBUG:
      return spdlog::level::debug;
    case RLK_LOG_INFO:
      return spdlog::level::info;
    case RLK_LOG_WARN:
      return spdlog::level::warn;
    default:
      return spdlog::level::err;
  }
}

// " rank 3" of a distributed job, by what its launcher says; "" elsewhere.
std::string rank_text() {
  for (const char* name : {"RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"}) {
    const char* rank = std::getenv(name);
    if (rank == nullptr || *rank == '\0') continue;
    const std::string_view digits = rank;
    if (digits.size() > 9 || digits.find_first_not_of("0123456789") != std::string_view::npos) continue;
    return " rank " + std::string(digits);
  }
  return "";
}

// What RLK_LOG_FILE names, with the process's number for each %p; "" where it is not set. A privileged process
// ignores the variable.
std::string log_file() {
  const char* wanted = secure_getenv("RLK_LOG_FILE");
  std::string path = wanted != nullptr ? wanted : "";
  const std::string pid = std::to_string(getpid());
  for (size_t at = path.find("%p"); at != std::string::npos; at = path.find("%p", at + pid.size()))
    path.replace(at, 2, pid);
  return path;
}

// Every line is written whole, behind what other processes have written. In place of spdlog's own, which opens the file
// where it likes.
class FileSink : public spdlog::sinks::base_sink<std::mutex> {
public:
  explicit FileSink(int fd) : fd_(fd) {}

private:
  void sink_it_(const spdlog::details::log_msg& message) override {
    spdlog::memory_buf_t line;
    formatter_->format(message, line);
    for (size_t written = 0; written < line.size();) {
      const ssize_t some = write(fd_, line.data() + written, line.size() - written);
      if (some < 0 && errno != EINTR) spdlog::throw_spdlog_ex("RLK_LOG_FILE cannot be written", errno);
      if (some > 0) written += static_cast<size_t>(some);
    }
  }
  void flush_() override {}

  const int fd_;  // of the process: the log is never destroyed
};

// nullptr, with the reason, when nothing can be written there. Opening a pipe would wait for a reader.
std::shared_ptr<spdlog::sinks::sink> file_sink(const std::string& path, std::string* why) {
  struct stat status = {};
  if (stat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode)) {
    *why = "it is a folder, a pipe or a device";
    return nullptr;
  }
  std::error_code ignored;
  if (const auto folder = std::filesystem::path(path).parent_path(); !folder.empty())
    std::filesystem::create_directories(folder, ignored);
  const int fd = sdk::above_standard(open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY, 0666));
  if (fd < 0) {
    *why = std::generic_category().message(errno);
    return nullptr;
  }
  return std::make_shared<FileSink>(fd);
}

// The logger itself lets everything through, so that log_always needs no second one. It is never destroyed: plugins
// may log while the process ends.
struct Log {
  spdlog::logger logger{"rlk", std::make_shared<spdlog::sinks::stderr_sink_mt>()};
  spdlog::level::level_enum threshold = spdlog::level::warn;

  Log() {
    std::string why;
    const std::string path = log_file();
    if (!path.empty()) {
      if (auto sink = file_sink(path, &why)) logger.sinks() = {std::move(sink)};
    }
    logger.set_pattern("[%Y-%m-%d %H:%M:%S.%e] [rlk] [%l] [%P" + rank_text() + "] %v");
    logger.set_level(spdlog::level::trace);
    logger.flush_on(spdlog::level::trace);
    if (!why.empty())
      logger.warn("RLK_LOG_FILE is \"{}\", where nothing can be written: {}. The log is on stderr", printable(path),
                  printable(why));
    const char* wanted = std::getenv("RLK_LOG");
    if (wanted == nullptr || *wanted == '\0') return;
    const spdlog::level::level_enum level = spdlog::level::from_str(wanted);
    if (level == spdlog::level::off && std::string_view(wanted) != "off") {
      logger.warn("RLK_LOG is \"{}\"; expected trace, debug, info, warn, err, critical or off. Using warn",
                  printable(wanted));
      return;
    }
    threshold = level;
  }
};

Log& the_log() {
  static Log* log = new Log;
  return *log;
}

}  // namespace

void log_line(int32_t level, std::string_view source, std::string_view text) noexcept {
  try {
    Log& log = the_log();
    const spdlog::level::level_enum at = level_of(level);
    if (at < log.threshold || log.threshold == spdlog::level::off) return;
    const NoCancel whole;
    log.logger.log(at, "{}: {}", printable(source), printable(text));
  } catch (...) {
    // A line that cannot be written must not change what the program does.
  }
}

void log_always(std::string_view source, std::string_view text) noexcept {
  try {
    the_log().logger.log(spdlog::level::info, "{}: {}", printable(source), printable(text));
  } catch (...) {
  }
}

}  // namespace rlk::core
