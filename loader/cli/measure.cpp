// Timing loops.
#include "loader/cli/measure.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

namespace rlk::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kMinRepeats = 5;
constexpr int kMaxRepeats = 100000;
constexpr uint64_t kCopyBytes = uint64_t{256} << 20;  // more than any cache

double microseconds_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
}

// A pair of events around work on the session's stream; without `usable` the host's clock serves.
class EventTimer {
public:
  explicit EventTimer(Session* session) : session_(session) {
    if ((session->properties().flags & RLK_DEVICE_INLINE_STREAMS) != 0) return;
    for (rlk_event** event : {&start_, &end_}) {
      if (rlk_event_create(session->runtime(), session->backend().c_str(), 0, RLK_EVENT_TIMING, event, nullptr) !=
          RLK_OK)
        return;
    }
    // elapsed_ms is optional: two records of nothing tell whether it is there.
    usable_ = record(start_) && record(end_) && elapsed_us().has_value();
  }
  ~EventTimer() {
    for (rlk_event* event : {start_, end_}) {
      if (event != nullptr) rlk_event_destroy(event, nullptr);
    }
  }
  EventTimer(const EventTimer&) = delete;
  EventTimer& operator=(const EventTimer&) = delete;

  template <class Work>
  double time_us(const Work& work) {
    session_->synchronize();
    const Clock::time_point begin = Clock::now();
    if (usable_) record(start_);
    work();
    if (usable_) record(end_);
    session_->synchronize();
    const double by_clock = microseconds_since(begin);
    return usable_ ? elapsed_us().value_or(by_clock) : by_clock;
  }

private:
  bool record(rlk_event* event) { return rlk_event_record(event, session_->stream(), nullptr) == RLK_OK; }
  std::optional<double> elapsed_us() {
    session_->synchronize();
    double ms = 0;
    if (rlk_event_elapsed_ms(start_, end_, &ms, nullptr) != RLK_OK) return std::nullopt;
    return ms * 1e3;
  }

  Session* session_;
  rlk_event* start_ = nullptr;
  rlk_event* end_ = nullptr;
  bool usable_ = false;
};

// Copies on every hardware thread, each its own part, so that the whole memory system is busy.
double host_copy_seconds(std::byte* to, const std::byte* from, uint64_t bytes) {
  const unsigned threads = std::max(1u, std::thread::hardware_concurrency());
  const uint64_t part = bytes / threads;
  const Clock::time_point begin = Clock::now();
  std::vector<std::thread> workers;
  for (unsigned i = 0; i < threads; ++i)
    workers.emplace_back([=] { std::memcpy(to + i * part, from + i * part, part); });
  for (std::thread& worker : workers) worker.join();
  return microseconds_since(begin) * 1e-6 * static_cast<double>(bytes) / static_cast<double>(part * threads);
}

}  // namespace

Timing time_calls(Session* session, Execution* execution, double seconds) {
  const auto begin = Clock::now();
  for (int i = 0; i < 3 && (i == 0 || microseconds_since(begin) < seconds * 1e6); ++i) {
    execution->enqueue();
    if (const std::string error = execution->finish(); !error.empty()) throw Failure(error);
  }
  EventTimer timer(session);
  std::vector<double> times;
  const auto measured = Clock::now();
  while (static_cast<int>(times.size()) < kMinRepeats ||
         (static_cast<int>(times.size()) < kMaxRepeats && microseconds_since(measured) < seconds * 1e6)) {
    times.push_back(timer.time_us([&] { execution->enqueue(); }));
  }
  std::sort(times.begin(), times.end());
  return {times[times.size() / 2], times.front(), static_cast<int>(times.size())};
}

double copy_bytes_per_second(Session* session) {
  constexpr int kTries = 5;
  double best = 0;
  const auto keep = [&best](double seconds) {
    if (seconds > 0) best = std::max(best, 2.0 * static_cast<double>(kCopyBytes) / seconds);
  };
  if (session->unified_memory()) {
    const auto memory = std::make_unique<std::byte[]>(2 * kCopyBytes);  // zeroed: the pages are there
    for (int i = 0; i < kTries; ++i) keep(host_copy_seconds(memory.get() + kCopyBytes, memory.get(), kCopyBytes));
    return best;
  }
  void* from = session->allocate(kCopyBytes);
  void* to = session->allocate(kCopyBytes);
  EventTimer timer(session);
  for (int i = 0; i < kTries; ++i) {
    keep(1e-6 * timer.time_us([&] {
      rlk_error error = RLK_ERROR_INIT;
      check(rlk_copy(session->stream(), to, from, kCopyBytes, RLK_COPY_DEVICE_TO_DEVICE, &error), error);
    }));
  }
  session->deallocate(from);
  session->deallocate(to);
  return best;
}

}  // namespace rlk::cli
