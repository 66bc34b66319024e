#include "core/declaration/processor_wait.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cstdio>

#include "rlk/sdk/descriptor.hpp"

namespace rlk::core {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::nanoseconds;

// The shortest limit is one: it does not become none by rounding.
nanoseconds limit_of(double seconds) {
  constexpr double kLongest = 1e6;
  if (!(seconds > 0)) return {};
  const auto limit =
      std::chrono::duration_cast<nanoseconds>(std::chrono::duration<double>(std::min(seconds, kLongest)));
  return std::max(limit, nanoseconds(1));
}

}  // namespace

nanoseconds waited_for_processor(pid_t process) {
  const std::string path = process == 0 ? "/proc/thread-self/schedstat" : fmt::format("/proc/{}/schedstat", process);
  long long waited = 0;  // "time on a processor, time in its queue, turns"
  if (std::sscanf(sdk::read_text(path, 256).c_str(), "%*s %lld", &waited) != 1) return {};
  return nanoseconds(waited);
}

Budget::Budget(double seconds)
    : begin_(Clock::now()), limit_(limit_of(seconds)), waited_before_(waited_for_processor()) {}

bool Budget::is_used_up() const {
  const nanoseconds passed = Clock::now() - begin_;
  if (limit_.count() == 0 || passed <= limit_) return false;  // the kernel need not be asked
  return core::is_used_up(limit_, passed, waited_for_processor() - waited_before_);
}

}  // namespace rlk::core
