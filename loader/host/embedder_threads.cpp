// Every worker begins with a share of its own, which is the same one in loops over as much: what it touched in the last
// may be in its core's cache. Then it takes pieces of the others' shares, the caller too: a pool that starts fewer
// threads than it said, or none, makes a loop slower and not wrong.
#include "loader/host/embedder_threads.hpp"

#include <fmt/core.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <exception>
#include <string_view>
#include <utility>

#include "core/declaration/float_environment.hpp"
#include "core/dispatch/log.hpp"
#include "loader/host/parallel.hpp"

namespace rlk::loader {
namespace {

constexpr int64_t kPiecesPerThread = 4;  // neither threads nor pieces are equally fast
constexpr uint32_t kMostShares = 64;
constexpr size_t kLeastStack = size_t{1} << 20;  // kernels keep blocks there

std::atomic<const ThreadPool*> current{nullptr};
thread_local bool is_inside_loop = false;

bool wants_own_pool() {
  static const bool wants = [] {
    const char* text = std::getenv("RLK_THREAD_POOL");
    const std::string_view value = text != nullptr ? text : "";
    if (!value.empty() && value != "own") {
      core::log_line(
          RLK_LOG_WARN, "threads",
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
    core::log_line(
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
    workers_ = static_cast<uint32_t>(std::min<int64_t>(threads, grains_));
    shares_ = std::min(workers_, kMostShares);
    // In whole grains, the first of them one more where they do not come out even.
    const int64_t even = grains_ / shares_, more = grains_ % shares_;
    for (int64_t i = 0; i < shares_; ++i) {
      share_[i].next.store(i * even + std::min(i, more), std::memory_order_relaxed);
      share_[i].end = (i + 1) * even + std::min(i + 1, more);
    }
  }
  uint32_t workers() const { return workers_; }

  // Takes pieces until there are none.
  void work(uint32_t worker) noexcept {
    if (pthread_equal(caller_, pthread_self()) == 0 && !has_stack()) return;
    const bool was_inside = std::exchange(is_inside_loop, true);
    const core::KeepFloatControl keep;
    control_.apply();
    for (uint32_t i = 0; i < shares_; ++i) work_on(share_[(worker + i) % shares_]);
    is_inside_loop = was_inside;
  }
  void rethrow() const {
    if (failure_) std::rethrow_exception(failure_);
  }

private:
  struct alignas(64) Share {  // a line of the cache each
    std::atomic<int64_t> next{0};
    int64_t end = 0;
  };

  void work_on(Share& share) noexcept {
    while (!has_failed_.load(std::memory_order_relaxed)) {
      const int64_t first = share.next.fetch_add(step_, std::memory_order_relaxed);
      if (first >= share.end) return;
      const int64_t last = std::min(first + step_, share.end);
      try {
        body_(user_, first * grain_, last == grains_ ? n_ : last * grain_);
      } catch (...) {
        if (!has_failed_.exchange(true)) failure_ = std::current_exception();
      }
    }
  }

  const int64_t n_, grain_, grains_;
  int64_t step_ = 1;
  uint32_t workers_ = 1, shares_ = 1;
  const rlk_parallel_body body_;
  void* const user_;
  const pthread_t caller_;
  const core::FloatControl control_ =
      core::FloatControl::of_thread();  // rounding and denormals are the caller's on every thread
  std::atomic<bool> has_failed_{false};
  std::exception_ptr failure_;
  Share share_[kMostShares];
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
  if (threads <= 1 || n <= grain) {
    body(user, 0, n);
    return;
  }
  Loop loop(n, grain, threads, body, user);
  pool.run(
      pool.context, loop.workers(), [](void* shared, uint32_t i) { static_cast<Loop*>(shared)->work(i); }, &loop);
  loop.work(0);  // what the pool left
  loop.rethrow();
}

}  // namespace rlk::loader
