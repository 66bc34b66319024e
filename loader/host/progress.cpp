// A thread that writes the line anew a few times a second.
#include "loader/host/progress.hpp"

#include <fmt/core.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <system_error>
#include <utility>

#include "core/declaration/text.hpp"

namespace rlk::loader {
namespace {

constexpr std::chrono::milliseconds kMoment(400);
constexpr std::chrono::milliseconds kAgain(200);
constexpr std::chrono::seconds kUntilTheLog(3);

size_t columns() {
  winsize size = {};
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 20 ? size.ws_col : 80;
}

}  // namespace

Progress::Progress(std::string what) : Progress(std::move(what), Log()) {}

Progress::Progress(std::string what, Log log)
    : log_(std::move(log)), is_terminal_(isatty(STDERR_FILENO) != 0), what_(std::move(what)) {
  if (!is_terminal_ && !log_.tell) return;
  try {
    thread_ = std::thread([this] { run(); });
  } catch (const std::system_error&) {
    // No thread can be started: nothing is shown.
  }
}

Progress::~Progress() {
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  ends_.notify_all();
  if (thread_.joinable()) thread_.join();
  if (shown_) std::fputs("\r\033[K", stderr);
}

void Progress::say(std::string what) {
  const std::lock_guard lock(mutex_);
  what_ = std::move(what);
}

void Progress::run() {
  std::unique_lock lock(mutex_);
  for (std::chrono::milliseconds pause = kMoment; !ends_.wait_for(lock, pause, [this] { return ended_; });
       pause = kAgain) {
    if (is_terminal_ && (!log_.may_use_terminal || log_.may_use_terminal())) {
      show();
    } else if (!told_ && log_.tell && Clock::now() - begin_ >= kUntilTheLog) {
      told_ = true;
      log_.tell(what_);
    }
  }
}

void Progress::show() {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(Clock::now() - begin_);
  const std::string time = fmt::format(" ({} s)", seconds.count());
  const std::string text = core::printable(what_);
  const size_t room = columns() - 1 - std::min<size_t>(time.size(), 20);
  std::fprintf(stderr, "\r\033[K%s%s", text.substr(0, room).c_str(), time.c_str());
  shown_ = true;
}

}  // namespace rlk::loader
