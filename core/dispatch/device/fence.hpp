// Fences: has a stream passed a point? Everything that must outlive work in flight (memory, plans) waits on them.
#pragma once

#include <rlk/abi.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

namespace rlk::core {

// Counts what a stream was given and how much of it is known to be done. Outlives the stream.
struct StreamClock : std::enable_shared_from_this<StreamClock> {
  explicit StreamClock(bool inline_stream) : runs_inline(inline_stream) {}
  const bool runs_inline;                 // work is done when it was given
  void* native = nullptr;                 // the vendor's stream, for an embedder's allocator
  std::atomic<uint64_t> issued{0};        // written by the stream's thread
  std::atomic<uint64_t> known_passed{0};  // grows only

  // The number of the next point. Made for fences too: the vendor's own work may stand before them unseen.
  uint64_t issue() {
    const uint64_t next = issued.load(std::memory_order_relaxed) + 1;
    issued.store(next, std::memory_order_release);
    return next;
  }
  bool has_passed(uint64_t sequence) const {
    return runs_inline || known_passed.load(std::memory_order_acquire) >= sequence;
  }
  void pass(uint64_t sequence) {
    uint64_t before = known_passed.load(std::memory_order_relaxed);
    while (before < sequence && !known_passed.compare_exchange_weak(before, sequence, std::memory_order_release)) {
    }
  }
};

// A device's events, reused: creating one costs more than recording it. [thread-safe]
class EventPool {
public:
  EventPool(const rlk_plugin& api, rlk_plugin_device* device) : api_(api), device_(device) {}
  ~EventPool();
  EventPool(const EventPool&) = delete;
  EventPool& operator=(const EventPool&) = delete;

  // nullptr when the device has none to give, or the host no memory.
  rlk_plugin_event* take() noexcept;
  void give(rlk_plugin_event* event) noexcept;
  const rlk_event_api& api() const { return *api_.event; }
  const rlk_plugin& plugin() const { return api_; }

private:
  const rlk_plugin& api_;
  rlk_plugin_device* device_;
  std::mutex mutex_;
  std::vector<rlk_plugin_event*> idle_;  // with room for every event that was made
  size_t made_ = 0;
};

// A point in a stream. Movable; one thread at a time.
class Fence {
public:
  Fence() = default;
  // The stream's present end. With an event it can be asked for and waited on by any thread; without, it is known to be
  // passed only after the caller or rlk has synchronized the stream.
  Fence(std::shared_ptr<StreamClock> clock, EventPool* events, const rlk_plugin* api, rlk_plugin_stream* stream,
        bool with_event) noexcept;
  Fence(Fence&& other) noexcept { *this = std::move(other); }
  Fence& operator=(Fence&& other) noexcept;
  ~Fence() { drop_event(); }

  // A device that failed has nothing in flight any more: that counts as reached.
  bool reached();
  // The same without asking the device.
  bool known_reached() const { return clock_ == nullptr || clock_->has_passed(sequence_); }
  // Later work of the stream waits for the point. False when there is no event to wait for.
  bool hold_back(const rlk_plugin& api, rlk_plugin_stream* stream);
  // RLK_OK, RLK_NOT_READY, or the failure of the work before the point.
  rlk_status ask();
  // Waits on the event. False when there is none and the point is not known to be passed.
  bool wait();
  const StreamClock* clock() const { return clock_.get(); }
  const std::shared_ptr<StreamClock>& shared_clock() const { return clock_; }

private:
  void drop_event();
  std::shared_ptr<StreamClock> clock_;
  uint64_t sequence_ = 0;
  EventPool* events_ = nullptr;
  rlk_plugin_event* event_ = nullptr;
};

}  // namespace rlk::core
