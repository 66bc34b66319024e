// Independent pieces of work on several threads.
#pragma once

#include <atomic>
#include <cstddef>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace rlk::core::conformance {

// `work(next)` on up to `most` threads, this one among them. Each calls next() for the numbers below n that are still
// open, until it gives n. What one of them throws is thrown when all have ended.
template <class Work>
void on_threads(unsigned most, size_t n, const Work& work) {
  std::atomic<size_t> open{0};
  std::mutex mutex;
  std::exception_ptr thrown;
  const auto next = [&] {
    const size_t i = open.fetch_add(1);
    return i < n ? i : n;
  };
  const auto guarded = [&] {
    try {
      work(next);
    } catch (...) {
      open = n;
      const std::lock_guard lock(mutex);
      thrown = std::current_exception();
    }
  };
  std::vector<std::thread> threads;
  threads.reserve(most);
  try {
    while (threads.size() + 1 < most) threads.emplace_back(guarded);
  } catch (const std::exception&) {
    // No more threads, or no memory for one: those there are do the work.
  }
  guarded();
  for (std::thread& thread : threads) thread.join();
  if (thrown) std::rethrow_exception(thrown);
}

}  // namespace rlk::core::conformance
