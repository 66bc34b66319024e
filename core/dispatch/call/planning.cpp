// How long each plan was made alone, and the wait.
#include "core/dispatch/call/planning.hpp"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <exception>  // and with it the library's own macros
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#if defined(__GLIBCXX__)
#include <cxxabi.h>
#endif

#include "core/declaration/no_cancel.hpp"
#include "core/dispatch/trust/process_end.hpp"
#include "core/dispatch/trust/timeout.hpp"

namespace rlk::core {

size_t PlanTimes::active() const {
  return static_cast<size_t>(
      std::count_if(plans_.begin(), plans_.end(), [](const auto& one) { return !one.second.given_up; }));
}

void PlanTimes::settle(double now) {
  if (active() == 1) {
    for (auto& [plan, one] : plans_)
      if (!one.given_up) one.own += now - changed_;
  }
  changed_ = now;
}

uint64_t PlanTimes::begin(double now) {
  settle(now);
  One mine;
  mine.begun = now;
  for (auto& [plan, one] : plans_) {
    if (one.given_up) continue;
    ++one.others;
    ++mine.others;
  }
  plans_.emplace(++last_, mine);
  return last_;
}

void PlanTimes::end(uint64_t plan, double now) {
  settle(now);
  plans_.erase(plan);
}

void PlanTimes::give_up(uint64_t plan, double now) {
  settle(now);
  plans_.at(plan).given_up = true;
}

double PlanTimes::deadline(uint64_t plan, double limit, double now) const {
  const One& one = plans_.at(plan);
  if (active() != 1) return one.begun + limit * (1 + one.others);
  return now + limit - (one.own + now - changed_);
}

namespace {

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

struct Makers {
  std::mutex mutex;  // of what follows
  std::condition_variable changed;
  PlanTimes times;
  int held_up = 0;  // that are inside
};

// Never destroyed: threads that were left behind may come back at any time.
struct AllMakers {
  std::mutex mutex;
  std::map<const rlk_plugin*, std::shared_ptr<Makers>> by_plugin;
};
AllMakers& all_makers() {
  static auto& all = *new AllMakers;
  return all;
}

std::shared_ptr<Makers> makers_of(const rlk_plugin& plugin) {
  AllMakers& all = all_makers();
  const std::lock_guard lock(all.mutex);
  std::shared_ptr<Makers>& mine = all.by_plugin[&plugin];
  if (mine == nullptr) mine = std::make_shared<Makers>();
  return mine;
}

// nullptr while it has made no plan. Needs no memory.
std::shared_ptr<Makers> find_makers(const rlk_plugin& plugin) {
  AllMakers& all = all_makers();
  const std::lock_guard lock(all.mutex);
  const auto found = all.by_plugin.find(&plugin);
  return found != all.by_plugin.end() ? found->second : nullptr;
}

class Visit final : public PlanPhases {
public:
  explicit Visit(std::shared_ptr<Makers> makers) : makers_(std::move(makers)), since_(seconds_now()) {}

  void begin_plan() override {
    const std::lock_guard lock(makers_->mutex);
    if (left_behind_ || plan_ != 0) return;
    plan_ = makers_->times.begin(seconds_now());
    makers_->changed.notify_all();  // a plan that was made alone is not any more
  }
  void end_plan() override {
    const std::lock_guard lock(makers_->mutex);
    leave();
  }
  void next() override {
    const std::lock_guard lock(makers_->mutex);
    since_ = seconds_now();
  }
  // What the work threw, for the thread that waits. [before end]
  void note(std::exception_ptr thrown) {
    const std::lock_guard lock(makers_->mutex);
    thrown_ = std::move(thrown);
  }
  // Set also when the plugin ends the thread instead of returning (pthread_exit).
  void end() {
    const std::lock_guard lock(makers_->mutex);
    leave();
    over_ = true;
    makers_->changed.notify_all();
  }

  Ended wait(PhaseSeconds limits) {
    std::unique_lock lock(makers_->mutex);
    for (;;) {
      if (over_ && thrown_ != nullptr) std::rethrow_exception(thrown_);
      if (over_) return Ended::returned;
      const double now = seconds_now();
      const double until = plan_ != 0 ? makers_->times.deadline(plan_, limits.plan * patience(), now)
                                      : since_ + limits.other * patience();
      if (now >= until) break;
      makers_->changed.wait_for(lock, std::chrono::duration<double>(until - now));
    }
    left_behind_ = true;
    if (plan_ == 0) return Ended::late;
    held_up_ = !makers_->times.is_alone(plan_);
    makers_->held_up += held_up_ ? 1 : 0;
    makers_->times.give_up(plan_, seconds_now());
    makers_->changed.notify_all();
    return held_up_ ? Ended::held_up : Ended::late;
  }

private:
  void leave() {
    if (plan_ == 0) return;
    makers_->times.end(std::exchange(plan_, 0), since_ = seconds_now());
    if (std::exchange(held_up_, false)) --makers_->held_up;
    makers_->changed.notify_all();
  }

  const std::shared_ptr<Makers> makers_;
  uint64_t plan_ = 0;  // that is being made; 0: none
  double since_;       // of what else is done
  bool over_ = false;
  std::exception_ptr thrown_;
  bool left_behind_ = false, held_up_ = false;
};

}  // namespace

Ended within_phases(const rlk_plugin& plugin, PhaseSeconds limits, std::function<void(PlanPhases&)> work) {
  const NoCancel whole;
  const auto visit = std::make_shared<Visit>(makers_of(plugin));
  const auto run = [visit, work = std::move(work)] {
    const NoCancel also;
    struct Over {
      Visit& of;
      ~Over() { of.end(); }
    } over{*visit};
    try {
      work(*visit);
    }
#ifdef __GLIBCXX__
    catch (const abi::__forced_unwind&) {  // the plugin ends the thread
      throw;
    }
#endif
    catch (...) {
      visit->note(std::current_exception());
    }
  };
  try {
    std::thread([run] {
      this_thread_is_the_hosts();
      run();
    }).detach();
  } catch (const std::system_error&) {
    run();
  }
  return visit->wait(limits);
}

bool is_planning(const rlk_plugin& plugin) {
  const auto makers = find_makers(plugin);
  if (makers == nullptr) return false;
  const std::lock_guard lock(makers->mutex);
  return makers->times.active() > 0;
}

bool is_held_up(const rlk_plugin& plugin) {
  const auto makers = find_makers(plugin);
  if (makers == nullptr) return false;
  const std::lock_guard lock(makers->mutex);
  return makers->held_up > 0;
}

}  // namespace rlk::core
