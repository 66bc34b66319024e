// A plugin's code in this process that may never come back: on a thread of its own, for as long as a phase may take.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "loader/probe/load.hpp"

namespace rlk::loader {

struct Patience {
  double scale = 1.0;                         // of the phases' budgets (RLK_PROBE_TIMEOUT)
  const std::atomic<bool>* cancel = nullptr;  // gives up at once when it becomes true

  static Patience of_process();  // by this process's environment
};

// Shared by the thread that works and the one that waits for it. [thread-safe]
class Attempt {
public:
  // The work enters a phase, whose budget begins. [the working thread]
  void enter(const char* phase);
  // The work is at its end: `why` is empty when it returned.
  void end(std::string why);

  bool has_ended() const;
  // What the work was doing when it was asked.
  std::string phase() const;
  // Nothing when the work returned, otherwise why it is given up.
  std::optional<Failure> wait(const Patience& patience);

private:
  using Clock = std::chrono::steady_clock;
  mutable std::mutex mutex_;  // of what follows
  std::condition_variable changed_;
  const char* phase_ = "start";
  Clock::time_point entered_ = Clock::now();
  bool ended_ = false;
  std::string why_;
};

// Runs `work` and waits for it. Work that is given up goes on in the background: it must own all that it uses. If no
// thread can be started, it runs on this one.
std::optional<Failure> attempt(const std::shared_ptr<Attempt>& shared, std::function<void(Attempt&)> work,
                               const Patience& patience);

}  // namespace rlk::loader
