// Calls that only an implementation can serve whose operator has not been tried yet: a pinned one, one that
// RLK_FALLBACK=strict keeps from every other. Strict forbids another implementation, not a delay.
#include <chrono>
#include <thread>
#include <vector>

#include "core/dispatch/call/dispatcher.hpp"
#include "core/dispatch/call/eligible.hpp"

namespace rlk::core {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::minutes kLongestTrial{10};
constexpr std::chrono::milliseconds kPause{5};

std::vector<const Candidate*> untried_for(const Snapshot& snapshot, const Call& call) {
  std::vector<const Candidate*> found;
  for (const Candidate& candidate : snapshot.candidates) {
    if (candidate.decl != &call.decl() || candidate.on != &call.stream.device().entry || !is_untried(candidate))
      continue;
    if (call.options.pin.empty() || call.options.pin.starts_with(candidate.plugin->id)) found.push_back(&candidate);
  }
  return found;
}

}  // namespace

bool Dispatcher::wait_for_trial(const Call& call, const Snapshot& snapshot) {
  if (call.capturing || untried_for(snapshot, call).empty()) return false;
  const auto deadline = Clock::now() + kLongestTrial;
  while (Clock::now() < deadline) {
    const std::shared_ptr<const Snapshot> now = registry_.current();
    const std::vector<const Candidate*> untried = untried_for(*now, call);
    if (untried.empty()) return true;
    bool will_be = false;
    for (const Candidate* candidate : untried) will_be = registry_.want(*candidate) || will_be;
    if (!will_be) return untried_for(*registry_.current(), call).empty();
    std::this_thread::sleep_for(kPause);
  }
  return false;
}

}  // namespace rlk::core
