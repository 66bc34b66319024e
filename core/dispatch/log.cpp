// The log: one stderr logger, its level from RLK_LOG.
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <cstdlib>
#include <string>

#include "core/declaration/text.hpp"
#include "core/dispatch/host.hpp"

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

// The logger itself lets everything through, so that log_always needs no second one. It is never destroyed: plugins
// may log while the process ends.
struct Log {
  spdlog::logger logger{"rlk", std::make_shared<spdlog::sinks::stderr_sink_mt>()};
  spdlog::level::level_enum threshold = spdlog::level::warn;

  Log() {
    logger.set_pattern("[%Y-%m-%d %H:%M:%S.%e] [rlk] [%l] %v");
    logger.set_level(spdlog::level::trace);
    logger.flush_on(spdlog::level::trace);
    const char* wanted = std::getenv("RLK_LOG");
    if (wanted == nullptr || *wanted == '\0') return;
    const spdlog::level::level_enum level = spdlog::level::from_str(wanted);
    if (level == spdlog::level::off && std::string_view(wanted) != "off") {
      logger.warn("RLK_LOG is \"{}\"; expected trace, debug, info, warn, err, critical or off. Using warn", wanted);
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
    if (at >= log.threshold && log.threshold != spdlog::level::off)
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
