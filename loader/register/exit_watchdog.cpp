// A function at exit starts a thread, which watches the one that ends the process by its context switches.
#include "loader/register/exit_watchdog.hpp"

#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <system_error>
#include <thread>
#include <utility>

#include "core/declaration/text.hpp"
#include "loader/store/file.hpp"

namespace rlk::loader {
namespace {

struct Hung {
  std::string plugin;
  double seconds;
  std::function<bool()> hangs;
};

// How often the thread was run by the kernel, in words; it stays the same while the thread waits for one thing.
std::string turns_of(long thread) {
  const std::string status = read_file("/proc/self/task/" + std::to_string(thread) + "/status", 16384).value_or("");
  const size_t at = status.find("voluntary_ctxt_switches");
  return at == std::string::npos ? std::string() : status.substr(at);
}

void watch(const Hung& hung, long thread, int status) {
  using Clock = std::chrono::steady_clock;
  std::string before = turns_of(thread);
  auto since = Clock::now();
  while (hung.hangs()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    std::string now = turns_of(thread);
    if (now.empty()) return;  // without /proc the turns are unknown
    if (now != before) {
      before = std::move(now);
      since = Clock::now();
    }
    if (Clock::now() - since < std::chrono::duration<double>(hung.seconds)) continue;
    std::fflush(nullptr);
    std::fprintf(stderr,
                 "rlk: plugin %s hangs while it is loaded and holds the dynamic linker's lock, which the end of this "
                 "process needs; it is ended without, with status %d. Remove the plugin\n",
                 core::printable(hung.plugin).c_str(), status);
    _exit(status);
  }
}

}  // namespace

void start_exit_watchdog(std::string plugin, double seconds, std::function<bool()> hangs) {
#ifdef __GLIBC__
  static std::atomic<bool> asked{false};
  if (asked.exchange(true)) return;
  // Never destroyed: it is needed at the very end.
  auto* const hung = new Hung{std::move(plugin), seconds, std::move(hangs)};
  on_exit(
      [](int status, void* of) {
        const auto& which = *static_cast<const Hung*>(of);
        const long thread = syscall(SYS_gettid);
        try {
          std::thread([&which, thread, status] { watch(which, thread, status); }).detach();
        } catch (const std::system_error&) {  // no thread can be started: then this end is not watched
        }
      },
      hung);
#else
  static_cast<void>(plugin), static_cast<void>(seconds), static_cast<void>(hangs);
#endif
}

}  // namespace rlk::loader
