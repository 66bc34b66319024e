// Host work that waits in a stream's queue.
#include "core/dispatch/pending.hpp"

#include <algorithm>
#include <thread>

namespace rlk::core {

void PendingWork::run() noexcept {
  State expected = State::waiting;
  if (!state_.compare_exchange_strong(expected, State::running, std::memory_order_acq_rel)) return;
  work();
  end();
  state_.store(State::over, std::memory_order_release);
}

void PendingWork::drop() noexcept {
  State expected = State::waiting;
  if (state_.compare_exchange_strong(expected, State::running, std::memory_order_acq_rel)) {
    end();
    state_.store(State::over, std::memory_order_release);
    return;
  }
  while (!is_over()) std::this_thread::yield();
}

void PendingList::add(std::shared_ptr<PendingWork> work) {
  const std::lock_guard lock(mutex_);
  works_.erase(std::remove_if(works_.begin(), works_.end(), [](const auto& known) { return known->is_over(); }),
               works_.end());
  works_.push_back(std::move(work));
}

void PendingList::drop(const StreamClock* stream) {
  std::vector<std::shared_ptr<PendingWork>> dropped;
  {
    const std::lock_guard lock(mutex_);
    for (auto& work : works_) {
      if (stream == nullptr || work->stream() == stream) dropped.push_back(std::move(work));
    }
    works_.erase(std::remove(works_.begin(), works_.end(), nullptr), works_.end());
  }
  for (const auto& work : dropped) work->drop();
}

size_t PendingList::size() const {
  const std::lock_guard lock(mutex_);
  return static_cast<size_t>(
      std::count_if(works_.begin(), works_.end(), [](const auto& work) { return !work->is_over(); }));
}

}  // namespace rlk::core
