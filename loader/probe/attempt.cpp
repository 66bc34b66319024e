// The wait, and the message when the code does not come back.
#include "loader/probe/attempt.hpp"

#include <fmt/core.h>

#include <cstdio>
#include <exception>
#include <system_error>
#include <thread>
#include <utility>

#include "core/declaration/no_cancel.hpp"
#include "core/dispatch/trust/process_end.hpp"
#include "loader/probe/child_probe.hpp"

namespace rlk::loader {
namespace {

// How soon a cancellation is noticed.
constexpr std::chrono::milliseconds kLook{50};

double budget_of(const std::string& phase, double scale) {
  for (const PhaseBudget& budget : phase_budgets(scale))
    if (budget.phase == phase) return budget.seconds;
  return kDefaultProbeTimeoutSeconds * scale;
}

// Set also when the plugin ends the thread instead of returning (pthread_exit).
class EndOfWork {
public:
  explicit EndOfWork(Attempt& attempt) : attempt_(attempt) {}
  ~EndOfWork() { attempt_.end(why); }
  EndOfWork(const EndOfWork&) = delete;
  EndOfWork& operator=(const EndOfWork&) = delete;
  std::string why = "the plugin ended its thread instead of returning";

private:
  Attempt& attempt_;
};

}  // namespace

Patience Patience::of_process() {
  return {timeout_scale_of(Environment::of_process()), nullptr};
}

void Attempt::enter(const char* phase) {
  const std::lock_guard lock(mutex_);
  phase_ = phase;
  entered_ = Clock::now();
  changed_.notify_all();
}

void Attempt::end(std::string why) {
  const std::lock_guard lock(mutex_);
  ended_ = true;
  why_ = std::move(why);
  changed_.notify_all();
}

bool Attempt::has_ended() const {
  const std::lock_guard lock(mutex_);
  return ended_;
}

std::string Attempt::phase() const {
  const std::lock_guard lock(mutex_);
  return phase_;
}

std::optional<Failure> Attempt::wait(const Patience& patience) {
  std::unique_lock lock(mutex_);
  while (!ended_) {
    if (patience.cancel != nullptr && patience.cancel->load(std::memory_order_relaxed))
      return Failure{&reason::kCancelled, std::string("stopped in phase ") + phase_, {}, {}};
    const double seconds = budget_of(phase_, patience.scale);
    if (Clock::now() - entered_ > std::chrono::duration<double>(seconds)) {
      char text[160];
      std::snprintf(text, sizeof(text),
                    "phase %s took longer than %.3g s in this process; the plugin is given up, and its thread left "
                    "behind",
                    phase_, seconds);
      return Failure{&reason::kTimedOut, text, {}, {}};
    }
    changed_.wait_for(lock, kLook);
  }
  if (why_.empty()) return std::nullopt;
  return Failure{&reason::kExited, fmt::format("{}, in phase {}", why_, phase_), {}, {}};
}

std::optional<Failure> attempt(const std::shared_ptr<Attempt>& shared, std::function<void(Attempt&)> work,
                               const Patience& patience) {
  const auto run = [shared, work = std::move(work)] {
    const core::NoCancel whole;
    EndOfWork end(*shared);
    try {
      work(*shared);
      end.why.clear();
    } catch (const std::exception& e) {
      end.why = e.what();
    }
  };
  try {
    std::thread([run] {
      core::this_thread_is_the_hosts();
      run();
    }).detach();
  } catch (const std::system_error&) {
    run();
  }
  return shared->wait(patience);
}

}  // namespace rlk::loader
