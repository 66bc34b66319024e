// A piece of a loop is taken by whoever is free, the caller among them: a pool that starts fewer threads than it said,
// or none, makes a loop slower and not wrong.
#include "core/dispatch/embedder_threads.hpp"

#include <fmt/core.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <exception>
#include <string_view>
#include <utility>

#include "core/declaration/float_environment.hpp"
#include "core/dispatch/host.hpp"
#include "core/dispatch/parallel.hpp"

namespace rlk::core {
namespace {

constexpr int64_t kPiecesPerThread = 4;          // neither threads nor pieces are equally fast
constexpr size_t kLeastStack = size_t{1} << 20;  // kernels keep blocks there

std::atomic<const ThreadPool*> current{nullptr};
thread_local bool is_inside_loop = false;

bool wants_own_pool() {
  static const bool wants = [] {
    const char* text = std::getenv("RLK_THREAD_POOL");
    const std::string_view value = text != nullptr ? text : "";
    if (!value.empty() && value != "own") {
      log_line(RLK_LOG_WARN, "threads",
               fmt::format("RLK_THREAD_POOL is \"{}\"; expected own. Using the embedding program's threads", value));
    }
    return value == "own";
  }();
  return wants;
}

// Of a thread of the pool. OMP_STACKSIZE, say, makes them as small as its user likes.
bool has_stack() {
  static thread_local const bool enough = [] {
    pthread_attr_t attributes;
    if (pthread_getattr_np(pthread_self(), &attributes) != 0) return true;
    void* lowest = nullptr;
    size_t bytes = 0;
    pthread_attr_getstack(&attributes, &lowest, &bytes);
    pthread_attr_destroy(&attributes);
    return bytes >= kLeastStack;
  }();
  if (enough) return true;
  static std::atomic<bool> told{false};
  if (!told.exchange(true)) {
    log_line(
        RLK_LOG_WARN, "threads",
        "threads of the embedding program's pool have less than 1 MiB of stack: rlk's loops run without them. Raise "
        "it (OMP_STACKSIZE=8M for OpenMP), or set RLK_THREAD_POOL=own");
  }
  return false;
}

class Loop {
public:
  Loop(int64_t n, int64_t grain, uint32_t threads, rlk_parallel_body body, void* user)
      : n_(n), grain_(grain), grains_((n - 1) / grain + 1), body_(body), user_(user), caller_(pthread_self()) {
    step_ = std::max<int64_t>(1, grains_ / (int64_t{threads} * kPiecesPerThread));
  }
  int64_t grains() const { return grains_; }

  // Takes pieces until there are none.
  void work() noexcept {
    if (pthread_equal(caller_, pthread_self()) == 0 && !has_stack()) return;
    const bool was_inside = std::exchange(is_inside_loop, true);
    const KeepFloatControl keep;
    control_.apply();
    while (true) {
      const int64_t first = next_.fetch_add(step_, std::memory_order_relaxed);
      if (first >= grains_) break;
      const int64_t last = std::min(first + step_, grains_);
      try {
        body_(user_, first * grain_, last == grains_ ? n_ : last * grain_);
      } catch (...) {
        if (!has_failed_.exchange(true)) failure_ = std::current_exception();
        next_.store(grains_, std::memory_order_relaxed);
      }
    }
    is_inside_loop = was_inside;
  }
  void rethrow() const {
    if (failure_) std::rethrow_exception(failure_);
  }

private:
  const int64_t n_, grain_, grains_;
  int64_t step_ = 1;
  const rlk_parallel_body body_;
  void* const user_;
  const pthread_t caller_;
  const FloatControl control_ = FloatControl::of_thread();  // rounding and denormals are the caller's on every thread
  std::atomic<int64_t> next_{0};
  std::atomic<bool> has_failed_{false};
  std::exception_ptr failure_;
};

}  // namespace

void set_thread_pool(const ThreadPool* pool) {
  if (pool != nullptr && wants_own_pool()) return;
  watch_forks();  // the embedder may have used its threads already, and its own loops do not say when
  // Never freed: a loop may still run on it. Programs set one, once.
  current.store(pool != nullptr ? new ThreadPool(*pool) : nullptr, std::memory_order_release);
}

const ThreadPool* embedder_pool() {
  return current.load(std::memory_order_acquire);
}

uint32_t thread_count_of(const ThreadPool& pool, int limit) {
  const uint32_t count = std::max(pool.thread_count(pool.context), uint32_t{1});
  return limit > 0 ? std::min(count, static_cast<uint32_t>(limit)) : count;
}

void parallel_for_on(const ThreadPool& pool, int limit, int64_t n, int64_t grain, rlk_parallel_body body, void* user) {
  const uint32_t threads = is_inside_loop ? 1 : thread_count_of(pool, limit);
  Loop loop(n, grain, threads, body, user);
  const auto workers = static_cast<uint32_t>(std::min<int64_t>(threads, loop.grains()));
  if (workers <= 1) {
    body(user, 0, n);
    return;
  }
  pool.run(
      pool.context, workers, [](void* shared, uint32_t) { static_cast<Loop*>(shared)->work(); }, &loop);
  loop.work();  // what the pool left
  loop.rethrow();
}

}  // namespace rlk::core
