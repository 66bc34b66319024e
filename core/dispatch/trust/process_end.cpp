// A handler of exit(), registered again and again, and a flag.
#include "core/dispatch/trust/process_end.hpp"

#include <atomic>
#include <cstdlib>
#include <exception>
#include <utility>

namespace rlk::core {
namespace {

std::atomic<bool> end_begun{false};

struct EndListener {
  std::function<void()> tell;
  EndListener* next;
};
std::atomic<EndListener*> end_listeners{nullptr};

thread_local bool hosts_thread = false;

void note_the_end() {
  if (end_begun.exchange(true)) return;
  for (const EndListener* one = end_listeners.load(std::memory_order_acquire); one != nullptr; one = one->next) {
    try {
      one->tell();
    } catch (const std::exception&) {  // no memory: the end goes on
    }
  }
}

}  // namespace

void watch_for_the_end() noexcept {
  // Without memory for one more, the end is seen a little later.
  static_cast<void>(std::atexit(note_the_end));
  static_cast<void>(std::at_quick_exit(note_the_end));
}

bool end_has_begun() noexcept {
  // What was read before this call is read before the flag.
  std::atomic_thread_fence(std::memory_order_acquire);
  return end_begun.load();
}

void when_the_end_begins(std::function<void()> tell) {
  auto* const one = new EndListener{std::move(tell), end_listeners.load(std::memory_order_relaxed)};
  while (!end_listeners.compare_exchange_weak(one->next, one, std::memory_order_acq_rel)) {
  }
}

void this_thread_is_the_hosts() noexcept {
  hosts_thread = true;
}

bool is_hosts_thread() noexcept {
  return hosts_thread;
}

}  // namespace rlk::core
