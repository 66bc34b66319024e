// The host's thread pool as plugins see it: oneTBB, or what the embedding program gives; limited by RLK_NUM_THREADS.
#include "loader/host/parallel.hpp"

#include <pthread.h>
#include <tbb/blocked_range.h>
#include <tbb/parallel_for.h>
#include <tbb/task_arena.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <exception>
#include <new>
#include <string>
#include <utility>

#include "core/dispatch/log.hpp"
#include "core/dispatch/trust/process_end.hpp"
#include "loader/host/embedder_threads.hpp"
#include "loader/host/processors.hpp"

namespace rlk::loader {
namespace {

// 0: no limit of our own; `wrong` becomes a text that is none.
int limit_from_environment(const char** wrong) {
  const char* text = std::getenv("RLK_NUM_THREADS");
  if (text == nullptr || *text == '\0') return 0;
  char* end = nullptr;
  const long value = std::strtol(text, &end, 10);
  if (*end == '\0' && value >= 1 && value <= 4096) return static_cast<int>(value);
  *wrong = text;
  return 0;
}

int limit_from_environment() {
  const char* text = nullptr;
  const int wanted = limit_from_environment(&text);
  if (text == nullptr) return wanted;
  core::log_line(
      RLK_LOG_WARN, "threads",
      "RLK_NUM_THREADS is \"" + std::string(text) + "\"; expected a number from 1 to 4096. Using all processors");
  return 0;
}

// 0: no limit but the affinity, which the pool follows by itself; also where there is no memory to find out, which is
// asked again.
int limit() try {
  static const int value = [] {
    if (const int wanted = limit_from_environment(); wanted > 0) return wanted;
    const Processors found = processors();
    return found.is_quota ? found.count : 0;
  }();
  return value;
} catch (const std::bad_alloc&) {
  return 0;
}

// Never destroyed: plugins may still compute while the process ends.
tbb::task_arena& limited_arena() {
  static auto* arena = new tbb::task_arena(limit());
  return *arena;
}

// True in a process that was forked from one whose pool had started. It has the pool's memory and none of its threads:
// a loop that waited for them would wait for ever.
std::atomic<bool> forked{false};

// True once the pool could not start a thread (`ulimit -u`, a container's limit of processes): it then refuses every
// loop.
std::atomic<bool> no_threads{false};

void run_alone_from_now_on(const char* why) {
  if (no_threads.exchange(true)) return;
  core::log_line(RLK_LOG_WARN, "threads",
                 std::string("no thread of the pool can be started: ") + why +
                     ". Every loop runs on its caller's thread until the process ends; raise the limit of processes "
                     "(ulimit -u, or the container's pids limit)");
}

}  // namespace

ThreadLimit thread_limit() {
  const char* wrong = nullptr;  // told where loops begin
  if (const int wanted = limit_from_environment(&wrong); wanted > 0)
    return {wanted, "RLK_NUM_THREADS is " + std::to_string(wanted)};
  Processors found = processors();
  return {found.count, std::move(found.why)};
}

void watch_forks() {
  static const int watched = pthread_atfork(nullptr, nullptr, [] { forked.store(true, std::memory_order_relaxed); });
  static_cast<void>(watched);  // it fails when there is no memory; then a fork goes unnoticed
}

void parallel_for(int64_t n, int64_t grain, rlk_parallel_body body, void* user) {
  if (n <= 0) return;
  grain = std::max<int64_t>(grain, 1);
  // The pool's own statics die while the process ends.
  if (n <= grain || forked.load(std::memory_order_relaxed) || no_threads.load(std::memory_order_relaxed) ||
      limit() == 1 || core::end_has_begun()) {
    body(user, 0, n);
    return;
  }
  watch_forks();
  if (const ThreadPool* const given = embedder_pool(); given != nullptr) {
    parallel_for_on(*given, limit(), n, grain, body, user);
    return;
  }
  // Over whole grains, so that no range but the last is shorter than one.
  const int64_t grains = (n - 1) / grain + 1;
  std::atomic<bool> begun{false};
  const auto work = [&] {
    // Isolated: while a nested loop waits, its thread must not start a piece of the outer one, whose scratch memory it
    // is still using.
    tbb::this_task_arena::isolate([&] {
      tbb::parallel_for(tbb::blocked_range<int64_t>(0, grains), [&](const tbb::blocked_range<int64_t>& range) {
        begun.store(true, std::memory_order_relaxed);
        body(user, range.begin() * grain, range.end() == grains ? n : range.end() * grain);
      });
    });
  };
  try {
    limit() == 0 ? work() : limited_arena().execute(work);
  } catch (const std::bad_alloc&) {
    // Before the first piece: the pool had no memory for this loop, and may have some for the next.
    if (begun.load(std::memory_order_relaxed)) throw;
    body(user, 0, n);
  } catch (const std::exception& e) {
    // The pool's own, before the first piece: a loop that has begun cannot begin again, it may write in place.
    if (begun.load(std::memory_order_relaxed)) throw;
    run_alone_from_now_on(e.what());
    body(user, 0, n);
  }
}

uint32_t thread_count() {
  if (forked.load(std::memory_order_relaxed) || no_threads.load(std::memory_order_relaxed)) return 1;
  if (const ThreadPool* const given = embedder_pool(); given != nullptr) return thread_count_of(*given, limit());
  const int available = tbb::this_task_arena::max_concurrency();
  return static_cast<uint32_t>(limit() == 0 ? available : limit());
}

}  // namespace rlk::loader
