// Watchdog for plugin calls that cannot be abandoned (enqueue, synchronize): the call stays on its thread, since it may
// still write into the caller's memory; another thread reports which plugin hangs, and switches it off for other calls.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "core/declaration/declaration.hpp"
#include "core/dispatch/call/registry.hpp"

namespace rlk::core {

class Stream;

// One per dispatcher, which outlives no call. Its thread begins with the first call of a plugin.
class Watchdog {
public:
  // After that long inside a plugin a call hangs. 0 watches nothing.
  Watchdog(Registry& registry, double seconds);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  // What a thread is inside of.
  struct Place {
    const char* doing = "";          // "enqueue", in words that live for ever
    const Stream* stream = nullptr;  // which the thread uses; nullptr: none
    const PluginBinding* plugin = nullptr;
    const Candidate* candidate = nullptr;  // whose code it is; nullptr: the plugin's own, in which any work may show
    Dtype dtype = Dtype::f32;
    uint64_t allowed_ns = 0;  // what was asked for beyond the limit, such as a time to wait
  };

  // The thread's own. Written by the thread while `turn` is even; while it is odd, read by the thread that holds it.
  struct Slot {
    static constexpr uint64_t kHeld = uint64_t{1} << 63;
    std::atomic<uint64_t> turn{0};  // odd: inside
    Place place;
    int64_t thread = 0;  // as the kernel numbers it
    // The watching thread's own.
    uint64_t seen = 0;
    double inside_seconds = 0;
    bool told = false;
  };

  // A thread is inside a plugin while this lives. Neither locks nor asks for the time. Code of the built-in
  // plugin is not watched. Nested ones count as the outermost.
  class Inside {
  public:
    Inside(Watchdog* watchdog, const Place& place) {
      if (watchdog == nullptr || watchdog->seconds_ <= 0 || place.plugin->built_in) return;
      slot_ = watchdog->slot_of_thread();
      if (slot_ == nullptr) return;
      const uint64_t turn = slot_->turn.load(std::memory_order_relaxed);
      if ((turn & 1) != 0) {
        slot_ = nullptr;
        return;
      }
      slot_->place = place;
      slot_->turn.store(turn + 1, std::memory_order_release);
    }
    ~Inside() {
      if (slot_ == nullptr) return;
      uint64_t turn = slot_->turn.load(std::memory_order_relaxed) & ~Slot::kHeld;
      // A thread that reads the place needs what it names a moment longer.
      for (uint64_t expected = turn; !slot_->turn.compare_exchange_weak(expected, turn + 1, std::memory_order_acq_rel);
           expected = turn)
        std::this_thread::yield();
    }
    Inside(const Inside&) = delete;
    Inside& operator=(const Inside&) = delete;

  private:
    Slot* slot_ = nullptr;
  };

private:
  struct Shared;
  // nullptr where there is no memory for one.
  Slot* slot_of_thread() noexcept;
  std::shared_ptr<Slot> add_slot();
  void work();
  void tell(Slot& slot);

  Registry& registry_;
  const double seconds_;
  const uint64_t id_;
  const int process_;  // a forked one has the memory and not the thread
  std::unique_ptr<Shared> shared_;
};

}  // namespace rlk::core
