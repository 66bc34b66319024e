// Host work that waits in a stream's queue: the queue of a device that dies is never worked off. The vendor's runtime
// is given a number and no pointer, so that work that was dropped is gone, and a queue that is worked off too late
// finds nothing.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "core/dispatch/device/fence.hpp"

namespace rlk::core {

// Runs once, or is dropped once; both at most once together. [thread-safe]
class PendingWork {
public:
  explicit PendingWork(std::shared_ptr<const StreamClock> stream) : stream_(std::move(stream)) {}
  virtual ~PendingWork() = default;
  PendingWork(const PendingWork&) = delete;
  PendingWork& operator=(const PendingWork&) = delete;

  // The `user` of a host function that calls run_ticket: the work is kept until that runs or the work is dropped.
  static void* ticket_for(const std::shared_ptr<PendingWork>& work);
  static void run_ticket(void* ticket) noexcept;
  static size_t tickets();  // that are not used yet, of the whole process

  void run() noexcept;
  // It will not run any more. Waits for a run that has begun.
  void drop() noexcept;
  bool is_over() const { return state_.load(std::memory_order_acquire) == State::over; }
  const StreamClock* stream() const { return stream_.get(); }

protected:
  virtual void work() noexcept = 0;
  // Lets go of what other threads wait for, after the work or instead of it.
  virtual void end() noexcept = 0;

private:
  enum class State : int { waiting, running, over };
  void take_ticket_back() noexcept;
  std::atomic<State> state_{State::waiting};
  std::atomic<uintptr_t> ticket_{0};
  const std::shared_ptr<const StreamClock> stream_;
};

// All of a device's. [thread-safe]
class PendingList {
public:
  void add(std::shared_ptr<PendingWork> work);
  // Drops what the stream (nullptr: every stream) still has waiting: it has passed its work or will never do it.
  void drop(const StreamClock* stream);
  size_t size() const;

private:
  mutable std::mutex mutex_;
  std::vector<std::shared_ptr<PendingWork>> works_;
};

}  // namespace rlk::core
