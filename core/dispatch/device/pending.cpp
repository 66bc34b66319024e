// Host work that waits in a stream's queue.
#include "core/dispatch/device/pending.hpp"

#include <algorithm>
#include <thread>
#include <unordered_map>
#include <utility>

namespace rlk::core {
namespace {

struct Tickets {
  std::mutex mutex;
  uintptr_t last = 0;
  std::unordered_map<uintptr_t, std::shared_ptr<PendingWork>> works;

  std::shared_ptr<PendingWork> take(uintptr_t ticket) {
    const std::lock_guard lock(mutex);
    const auto found = works.find(ticket);
    if (found == works.end()) return nullptr;
    std::shared_ptr<PendingWork> work = std::move(found->second);
    works.erase(found);
    return work;
  }
};

// Never destroyed: a vendor's thread may still come while the process ends.
Tickets& all_tickets() {
  static Tickets& tickets = *new Tickets;
  return tickets;
}

}  // namespace

void* PendingWork::ticket_for(const std::shared_ptr<PendingWork>& work) {
  Tickets& tickets = all_tickets();
  const std::lock_guard lock(tickets.mutex);
  const uintptr_t ticket = ++tickets.last;
  tickets.works.emplace(ticket, work);
  work->ticket_ = ticket;
  return reinterpret_cast<void*>(ticket);
}

void PendingWork::run_ticket(void* ticket) noexcept {
  const std::shared_ptr<PendingWork> work = all_tickets().take(reinterpret_cast<uintptr_t>(ticket));
  if (work != nullptr) work->run();
}

size_t PendingWork::tickets() {
  Tickets& tickets = all_tickets();
  const std::lock_guard lock(tickets.mutex);
  return tickets.works.size();
}

void PendingWork::take_ticket_back() noexcept {
  if (const uintptr_t ticket = ticket_) all_tickets().take(ticket);
}

void PendingWork::run() noexcept {
  State expected = State::waiting;
  if (!state_.compare_exchange_strong(expected, State::running, std::memory_order_acq_rel)) return;
  work();
  end();
  state_.store(State::over, std::memory_order_release);
}

void PendingWork::drop() noexcept {
  take_ticket_back();
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
  // One at a time, without memory for a list: streams end here.
  for (;;) {
    std::shared_ptr<PendingWork> dropped;
    {
      const std::lock_guard lock(mutex_);
      const auto found = std::find_if(works_.begin(), works_.end(),
                                      [&](const auto& work) { return stream == nullptr || work->stream() == stream; });
      if (found == works_.end()) return;
      dropped = std::move(*found);
      works_.erase(found);
    }
    dropped->drop();
  }
}

size_t PendingList::size() const {
  const std::lock_guard lock(mutex_);
  return static_cast<size_t>(
      std::count_if(works_.begin(), works_.end(), [](const auto& work) { return !work->is_over(); }));
}

}  // namespace rlk::core
