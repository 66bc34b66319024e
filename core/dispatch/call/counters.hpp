// What happened, counted always: calls, plan cache, staged calls, fallbacks by reason, data errors.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/declaration/declaration.hpp"

namespace rlk::core {

using Counter = std::atomic<uint64_t>;

// What staged calls cost. On a device with host functions no thread waits for the copies: the time is the caller's,
// to hand the call over, and the CPU's, to compute.
struct StagedCost {
  Counter to_host_bytes{0}, to_device_bytes{0}, nanoseconds{0};
};

struct OpCounters {
  Counter calls{0};        // accepted calls: validated ones
  Counter plan_hits{0};    // served by a plan that was there
  Counter plan_misses{0};  // a plan had to be made
  Counter decisions{0};    // candidates had to be asked
  Counter staged{0};       // ran on the CPU for a device's stream
  Counter blocking{0};     // of these, on a device without host functions: the host waited
  StagedCost staged_cost;  // of these
  Counter host_copies{0};  // host-readable inputs that rlk copied from the device itself, which waits
  Counter data_errors{0};  // told to the caller
  Counter failures{0};     // an implementation failed at run time
  Counter not_ready{0};    // calls that another served, or that waited, while the plan of the best was being compiled
};

struct ImplementationCounter {
  std::string op, plugin, implementation;
  Counter calls{0};
};

// reason_code of calls that the CPU serves because the caller or the policy says so.
inline constexpr const char* kAskedFor = "STAGED";

struct FallbackCounter {
  std::string op, reason_code, reason;
  Counter calls{0};
  Counter staged{0};  // of these
  StagedCost staged_cost;
  // The first staged call is timed and logged with this text and this advice.
  enum Announcement : int { none, in_writing, ready, taken };
  std::atomic<int> announcement{none};
  std::string text, advice;
};

// [thread-safe; what is returned lives as long as this]
class Counters {
public:
  Counters();
  OpCounters& of(const OpDecl& decl) { return ops_[static_cast<size_t>(&decl - declarations().data())]; }
  ImplementationCounter* implementation(const OpDecl& decl, const std::string& plugin, const std::string& name);
  // is_new: the first time for this operator and reason.
  FallbackCounter* fallback(const OpDecl& decl, const std::string& reason_code, const std::string& reason,
                            bool* is_new);

  std::vector<const ImplementationCounter*> implementations(const OpDecl& decl) const;
  std::vector<const FallbackCounter*> fallbacks(const OpDecl& decl) const;

private:
  std::vector<OpCounters> ops_;  // by declaration
  mutable std::mutex mutex_;     // of the lists, not of the counts
  std::vector<std::unique_ptr<ImplementationCounter>> implementations_;
  std::vector<std::unique_ptr<FallbackCounter>> fallbacks_;
};

inline void count(Counter& counter) {
  counter.fetch_add(1, std::memory_order_relaxed);
}
inline void add_to(Counter& counter, uint64_t more) {
  counter.fetch_add(more, std::memory_order_relaxed);
}

}  // namespace rlk::core
