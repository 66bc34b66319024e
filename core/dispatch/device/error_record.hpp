// Where kernels write data errors: records of the host's, one for every stream and every captured graph.
#pragma once

#include <rlk/abi.h>

#include <memory>
#include <mutex>
#include <vector>

#include "core/dispatch/device/caching_allocator.hpp"

namespace rlk::core {

// The error in the record, which is empty afterwards. False when there is none, or no record. Nothing writes it
// meanwhile.
bool take_data_error(rlk_data_error_record* record, rlk_data_error* out);

// Records in memory that the kernels of a device reach: the host's own on unified memory, pinned memory where that is
// mapped. Other devices have none; their plugins tell data errors themselves. Records are recycled as soon as they are
// given back. [thread-safe]
class RecordPool {
public:
  // flags: RLK_DEVICE_*. The allocator outlives the pool.
  RecordPool(uint32_t flags, CachingAllocator& pinned) : flags_(flags), pinned_(pinned) {}
  RecordPool(const RecordPool&) = delete;
  RecordPool& operator=(const RecordPool&) = delete;

  // An empty record, nullptr for a device without.
  rlk_status take(rlk_data_error_record** out, rlk_error* error);
  // No work that writes it can run any more. nullptr is accepted.
  void give(rlk_data_error_record* record) noexcept;
  size_t in_use() const;

private:
  // A cache line each: the device's writes to one must not touch its neighbours.
  struct alignas(64) Slot {
    rlk_data_error_record record;
  };
  static constexpr size_t kSlotsPerBlock = 64;

  const uint32_t flags_;
  CachingAllocator& pinned_;
  mutable std::mutex mutex_;  // of everything below
  std::vector<std::unique_ptr<Slot[]>> blocks_;
  std::vector<rlk_data_error_record*> free_;
  size_t in_use_ = 0;
};

}  // namespace rlk::core
