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
#include "core/dispatch/call/call.hpp"
#include "core/dispatch/call/registry.hpp"
#include "core/dispatch/trust/uncompared.hpp"

namespace rlk::core {

class Policy;

class ShadowCall;  // one that is compared
struct ShadowCallDeleter {
  void operator()(ShadowCall* call) const;
};
using ShadowCallPtr = std::unique_ptr<ShadowCall, ShadowCallDeleter>;

struct ShadowStatistics {
  uint64_t compared = 0;     // right
  uint64_t wrong = 0;        // the implementation was quarantined
  uint64_t passed_over = 0;  // for any reason that WhyNot lists
  std::vector<UncomparedClass> uncompared{};
};

class ShadowCheck {
public:
  ShadowCheck(Registry& registry, const Policy& policy);
  ~ShadowCheck();  // after the streams; what waits is given up
  ShadowCheck(const ShadowCheck&) = delete;
  ShadowCheck& operator=(const ShadowCheck&) = delete;

  // Before the call is enqueued: nullptr when there is nothing to compare, which is nearly always; otherwise the copies
  // of its inputs are enqueued. `fresh` is not nullptr for a first use: it becomes true when this call gave no verdict,
  // so that the next one shall be compared. [the stream's thread]
  ShadowCallPtr begin(const Call& call, const Candidate& candidate, const char* variant,
                      const std::shared_ptr<std::atomic<bool>>& fresh);
  // After it was enqueued, or was not: the copies of its outputs. [the stream's thread]
  void finish(ShadowCallPtr shadow, const Call& call, rlk_status status);
  // Whether a call that is no first use is to be compared.
  bool draws();
  // A first use that the CPU serves for a device's stream, of which nothing is compared.
  void pass_staged(const Call& call, const Candidate& candidate, const char* variant);

  // Waits until everything that was begun is judged. For tests and for the end of short programs.
  void settle();
  ShadowStatistics statistics() const;

private:
  // Whether a later call of a class that was passed over is looked at.
  enum class Again : uint8_t { no, some_times, always };
  using Freshness = std::shared_ptr<std::atomic<bool>>;

  bool is_proved(const CallClass& of, const Candidate& candidate) const;
  bool claim_class(const CallClass& of, const Candidate& candidate);
  ShadowCallPtr begin(const Call& call, const Candidate& candidate, const CallClass& of,
                      const conformance::ConcreteCall& whole, const Freshness& fresh);
  bool has_room(const ShadowCall& shadow);
  void hand_over(ShadowCallPtr shadow, const Call& call, rlk_status status);
  void pass_over(const CallClass& of, WhyNot why, const std::string& reason, Again again, const Freshness& fresh);
  void pass_over(const ShadowCall& shadow, WhyNot why, const std::string& reason);
  void work();
  void judge(ShadowCall& shadow);
  void judge_silence(const ShadowCall& shadow, const conformance::Fault& fault);

  Registry& registry_;
  const bool first_uses_;
  const double rate_;  // of later calls
  // On the heap: in a forked process the thread is not there, and its condition variable cannot be destroyed, because
  // that would wait for the thread that waits on it.
  struct Sync {
    std::mutex mutex;
    std::condition_variable changed;
    std::thread thread;  // started with the first call that is compared
  };
  std::unique_ptr<Sync> sync_ = std::make_unique<Sync>();
  std::unordered_set<std::string> known_;           // unit and size class: verified, compared or being compared
  std::unordered_map<std::string, int> undecided_;  // of the classes, how often a call gave no verdict
  std::unordered_set<std::string> decided_;         // classes of which a call gave one
  Uncompared uncompared_;                           // the others
  std::deque<ShadowCallPtr> waiting_;
  uint64_t bytes_waiting_ = 0;
  bool busy_ = false, stopping_ = false;
  ShadowStatistics statistics_;
  const int process_;  // a forked process compares nothing
};

}  // namespace rlk::core
