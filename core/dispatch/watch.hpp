// Is what was verified what runs? When an implementation first serves a class of sizes that no test had, some rows of
// the call are compared with the golden reference, in the background: the caller's thread enqueues a few copies and
// goes on. A share of the later calls may be compared too (the policy says which).
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <unordered_set>

#include "core/conformance/sample.hpp"
#include "core/dispatch/call.hpp"
#include "core/dispatch/fetch.hpp"
#include "core/dispatch/registry.hpp"

namespace rlk::core {

class Policy;

// One call that is compared: its part, and where the part's values are.
class WatchedCall;
struct WatchedCallDeleter {
  void operator()(WatchedCall* call) const;
};
using WatchedCallPtr = std::unique_ptr<WatchedCall, WatchedCallDeleter>;

struct WatchStatistics {
  uint64_t compared = 0;  // right
  uint64_t wrong = 0;     // the implementation was quarantined
  // Nothing of the call can be judged alone within the limits, there was no memory, it failed or has data errors, or it
  // differed with numbers that no test tries.
  uint64_t passed_over = 0;
};

class Watcher {
public:
  Watcher(Registry& registry, const Policy& policy);
  ~Watcher();  // after the streams; what waits is given up
  Watcher(const Watcher&) = delete;
  Watcher& operator=(const Watcher&) = delete;

  // Before the call is enqueued: nullptr when there is nothing to compare, which is nearly always; otherwise the copies
  // of its inputs are enqueued. `fresh` is not nullptr for a first use: it becomes true when this call gave no verdict,
  // so that the next one shall be compared. [the stream's thread]
  WatchedCallPtr begin(const Call& call, const Candidate& candidate, const char* variant,
                       const std::shared_ptr<std::atomic<bool>>& fresh);
  // After it was enqueued, or was not: the copies of its outputs. [the stream's thread]
  void finish(WatchedCallPtr watched, const Call& call, rlk_status status);
  // Whether a call that is no first use is to be compared.
  bool draws();

  // Waits until everything that was begun is judged. For tests and for the end of short programs.
  void settle();
  WatchStatistics statistics() const;

private:
  bool claim_class(const Candidate& candidate, const Call& call, const char* variant, uint32_t size_class);
  void leave_undecided(const std::string& class_name, const std::shared_ptr<std::atomic<bool>>& again);
  void leave_undecided(const WatchedCall& watched);
  void work();
  void judge(WatchedCall& watched);
  void judge_silence(const WatchedCall& watched, const conformance::Fault& fault);

  Registry& registry_;
  const bool first_uses_;
  const double rate_;  // of later calls
  // On the heap: in a forked process the thread is not there, and its condition variable cannot be destroyed, because
  // that would wait for who waits on it.
  struct Sync {
    std::mutex mutex;
    std::condition_variable changed;
    std::thread thread;  // started with the first call that is compared
  };
  std::unique_ptr<Sync> sync_ = std::make_unique<Sync>();
  std::unordered_set<std::string> known_;           // unit and size class: verified, compared or being compared
  std::unordered_map<std::string, int> undecided_;  // of the classes, how often a call gave no verdict
  std::deque<WatchedCallPtr> waiting_;
  uint64_t bytes_waiting_ = 0;
  bool busy_ = false, stopping_ = false;
  WatchStatistics statistics_;
  const int process_;  // a forked process compares nothing
};

}  // namespace rlk::core
