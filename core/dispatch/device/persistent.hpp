// Device memory that lives as long as a plan and that its first execution fills.
#pragma once

#include <rlk/abi.h>

#include <atomic>
#include <mutex>

#include "core/dispatch/device/fence.hpp"

namespace rlk::core {

class CachingAllocator;
class Stream;

class PersistentMemory {
public:
  PersistentMemory() = default;
  ~PersistentMemory() { release(); }
  PersistentMemory(const PersistentMemory&) = delete;
  PersistentMemory& operator=(const PersistentMemory&) = delete;

  // One execution's use of the memory.
  class Use {
  public:
    ~Use();
    void* memory() const { return memory_; }
    bool is_new() const { return filling_.owns_lock(); }
    // What fills it was enqueued. Without this the memory is let go of again.
    void set_filled();

  private:
    friend class PersistentMemory;
    PersistentMemory* of_ = nullptr;
    Stream* stream_ = nullptr;
    void* memory_ = nullptr;
    std::unique_lock<std::mutex> filling_;  // other executions wait until the first was enqueued
  };

  // The first execution allocates it; those of other streams are held back until that one is done. While capturing
  // nothing can be filled or waited for: RLK_CAPTURE_FORBIDS unless it is filled and in this stream's order or done.
  // [thread-safe]
  rlk_status use(uint64_t bytes, Stream& stream, bool capturing, Use* out, rlk_error* error);
  // No execution is in flight.
  void release();

private:
  std::atomic<bool> done_{false};  // the filling execution has ended: no other execution waits any more
  std::mutex mutex_;               // of what follows
  CachingAllocator* from_ = nullptr;
  void* memory_ = nullptr;
  bool filled_ = false;
  Fence filled_at_;
};

}  // namespace rlk::core
