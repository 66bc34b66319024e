// The slots of all threads, and the thread that looks at them.
#include "core/dispatch/trust/watchdog.hpp"

#include <fmt/core.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <rlk/sdk/thread_own.hpp>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <exception>
#include <memory>
#include <new>
#include <utility>

#include "core/dispatch/call/planning.hpp"
#include "core/dispatch/device/stream.hpp"
#include "core/dispatch/log.hpp"
#include "core/dispatch/trust/process_end.hpp"

namespace rlk::core {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kLongestTickSeconds = 1.0;
constexpr char kCode[] = "TIMEOUT";

std::atomic<uint64_t> watchdogs_made{0};

// A thread's slots, one for each watchdog that it met.
struct OfThread {
  uint64_t last_id = 0;
  Watchdog::Slot* last = nullptr;
  std::vector<std::pair<uint64_t, std::shared_ptr<Watchdog::Slot>>> all;
};

std::string who(const Candidate& candidate) {
  return fmt::format("{}/{} of plugin {}", candidate.decl->name, candidate.implementation->name, candidate.plugin->id);
}

std::string dtype_of(const Suspect& suspect) {
  return suspect.candidate->decl->dtypes.empty() ? "" : name_of(suspect.dtype);
}

}  // namespace

struct Watchdog::Shared {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::shared_ptr<Slot>> slots;
  std::thread thread;
  bool stopping = false;
};

Watchdog::Watchdog(Registry& registry, double seconds)
    : registry_(registry),
      seconds_(seconds),
      id_(++watchdogs_made),
      process_(getpid()),
      shared_(std::make_unique<Shared>()) {}

Watchdog::~Watchdog() {
  if (process_ != getpid()) {
    static_cast<void>(shared_.release());
    return;
  }
  {
    const std::lock_guard lock(shared_->mutex);
    shared_->stopping = true;
  }
  shared_->changed.notify_all();
  if (shared_->thread.joinable()) shared_->thread.join();
}

Watchdog::Slot* Watchdog::slot_of_thread() noexcept {
  try {
    auto& mine = sdk::thread_own<OfThread>();
    if (mine.last_id == id_) return mine.last;
    auto found = std::find_if(mine.all.begin(), mine.all.end(), [&](const auto& one) { return one.first == id_; });
    if (found == mine.all.end()) {
      if (process_ != getpid()) return nullptr;
      // Slots of destroyed watchdogs, which no thread holds any more.
      std::erase_if(mine.all, [](const auto& one) { return one.second.use_count() == 1; });
      mine.all.emplace_back(id_, add_slot());
      found = mine.all.end() - 1;
    }
    mine.last = found->second.get();
    mine.last_id = id_;
    return mine.last;
  } catch (const std::exception&) {
    return nullptr;  // no memory, or no thread can be started: the call is not watched
  }
}

std::shared_ptr<Watchdog::Slot> Watchdog::add_slot() {
  auto slot = std::make_shared<Slot>();
  slot->thread = syscall(SYS_gettid);
  const std::lock_guard lock(shared_->mutex);
  // Of threads that ended.
  std::erase_if(shared_->slots, [](const auto& one) { return one.use_count() == 1; });
  if (!shared_->thread.joinable()) shared_->thread = std::thread([this] { work(); });
  shared_->slots.push_back(slot);
  return slot;
}

void Watchdog::work() {
  const std::chrono::duration<double> tick(std::min(kLongestTickSeconds, seconds_ / 4));
  std::unique_lock lock(shared_->mutex);
  for (auto before = Clock::now(); !shared_->stopping;) {
    shared_->changed.wait_for(lock, tick);
    const auto now = Clock::now();
    // At most two ticks: a process that was stopped, by a debugger say, has not hung.
    const double passed = std::min(std::chrono::duration<double>(now - before).count(), 2 * tick.count());
    before = now;
    std::vector<std::shared_ptr<Slot>> slots;
    try {
      slots = shared_->slots;
    } catch (const std::bad_alloc&) {
      continue;  // looked at again after the next tick
    }
    lock.unlock();
    for (const std::shared_ptr<Slot>& slot : slots) {
      const uint64_t turn = slot->turn.load(std::memory_order_acquire);
      if (turn != slot->seen) {
        slot->seen = turn;
        slot->inside_seconds = 0;
        slot->told = false;
        continue;
      }
      if ((turn & 1) == 0 || slot->told) continue;
      slot->inside_seconds += passed;
      if (slot->inside_seconds < seconds_) continue;
      try {
        tell(*slot);
      } catch (const std::bad_alloc&) {
        slot->told = false;  // reported after the next tick
      }
    }
    lock.lock();
  }
}

void Watchdog::tell(Slot& slot) {
  if (end_has_begun()) return;  // a call may well wait for what has ended
  uint64_t turn = slot.seen;
  if (!slot.turn.compare_exchange_strong(turn, turn | Slot::kHeld, std::memory_order_acq_rel)) return;
  // The slot is given back whatever happens: its thread waits for it.
  const auto give_back = [&turn](Slot* held) { held->turn.store(turn, std::memory_order_release); };
  std::unique_ptr<Slot, decltype(give_back)> held(&slot, give_back);
  const Place place = slot.place;
  const bool in_time = slot.inside_seconds < seconds_ + static_cast<double>(place.allowed_ns) * 1e-9;
  std::vector<Suspect> suspects;
  std::string stream;
  // The caller holds the plugin and the candidate while it is inside, and may leave as soon as the slot is given back.
  const std::shared_ptr<const Candidate> candidate =
      place.candidate != nullptr ? place.candidate->shared_from_this() : nullptr;
  const std::string plugin = place.plugin->id;
  const rlk_plugin* const api = place.plugin->api;
  if (!in_time && place.stream != nullptr) {
    stream = place.stream->name();
    if (place.candidate == nullptr) place.stream->add_suspects_to(&suspects);
  }
  held.reset();
  if (in_time) return;
  if (is_planning(*api)) {  // which it may wait for; the plan has a limit of its own
    slot.inside_seconds = 0;
    return;
  }
  slot.told = true;
  char seconds[32];
  std::snprintf(seconds, sizeof(seconds), "%.3g s", slot.inside_seconds);
  const std::string where = fmt::format(
      "{}{} by plugin {} has not returned for {} (RLK_CALL_TIMEOUT); "
      "thread {} of process {} is still inside it",
      place.doing, stream.empty() ? "" : " on " + stream, plugin, seconds, slot.thread, getpid());
  if (candidate != nullptr) {
    const Candidate& one = *candidate;
    registry_.quarantine(*one.plugin, one.decl->name, one.implementation->name,
                         one.decl->dtypes.empty() ? "" : name_of(place.dtype), kCode, where);
    return;
  }
  if (suspects.empty()) {
    registry_.quarantine({plugin, "", "", "", kCode, where + "; no call was under way there", api});
    return;
  }
  const Suspect& only = suspects.front();
  if (suspects.size() == 1 && only.candidate != nullptr) {
    registry_.quarantine(*only.candidate->plugin, only.candidate->decl->name, only.candidate->implementation->name,
                         dtype_of(only), kCode,
                         fmt::format("{}; {} alone was under way there", where, who(*only.candidate)));
    return;
  }
  // It may be waiting for other work, also of another process.
  std::string under_way;
  std::vector<Quarantined> evidence;
  for (const Suspect& suspect : suspects) {
    under_way += (under_way.empty() ? "; under way there: " : ", ") +
                 (suspect.candidate != nullptr ? who(*suspect.candidate) : std::string("work that rlk does not know"));
  }
  log_line(RLK_LOG_WARN, "watchdog", where + under_way);
  for (const Suspect& suspect : suspects) {
    if (suspect.candidate == nullptr) continue;
    const Candidate& one = *suspect.candidate;
    evidence.push_back({one.plugin->id, one.decl->name, one.implementation->name, dtype_of(suspect), kCode,
                        where + under_way, one.plugin->api});
  }
  if (!evidence.empty()) registry_.suspect(std::move(evidence));
}

}  // namespace rlk::core
