// Memory of one kind of one device, kept after it is freed: a vendor's allocation costs as much as many kernels.
#pragma once

#include <rlk/abi.h>

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "core/dispatch/device/fence.hpp"

namespace rlk::core {

// The embedder's allocator for device memory, as rlk_device_allocator of rlk.h describes it.
struct DeviceAllocator {
  void* context = nullptr;
  rlk_status (*allocate)(void* context, const char* backend, uint32_t ordinal, void* native_stream, uint64_t bytes,
                         void** out, rlk_error* error) = nullptr;
  rlk_status (*deallocate)(void* context, const char* backend, uint32_t ordinal, void* native_stream, void* memory,
                           uint64_t bytes, rlk_error* error) = nullptr;
};

struct MemoryStatistics {
  uint64_t in_use_bytes = 0, cached_bytes = 0, peak_bytes = 0, allocations = 0, cache_hits = 0,
           out_of_memory_retries = 0;
};

// Device memory is stream-ordered: later work of the stream in whose order a block was freed may have it at once, other
// streams when that stream has passed the point. Pinned memory is also touched by the host, which knows no
// stream's order: it is given out again only when the point is passed.
// With an embedder's allocator nothing is cached: blocks go back to it at once, in the order of the stream that they
// were asked for on; those that another stream used wait until that stream has passed.
// [thread-safe]
class CachingAllocator {
public:
  // `embedder` lives as long as this; nullptr: none.
  CachingAllocator(const rlk_plugin* api, rlk_plugin_device* device, int32_t kind, std::string backend,
                   uint32_t ordinal, const DeviceAllocator* embedder = nullptr)
      : api_(*api),
        device_(device),
        kind_(kind),
        backend_(std::move(backend)),
        ordinal_(ordinal),
        embedder_(embedder) {}
  ~CachingAllocator();
  CachingAllocator(const CachingAllocator&) = delete;
  CachingAllocator& operator=(const CachingAllocator&) = delete;

  // Aligned to 256 bytes; bytes may be 0, which gives a block of its own like any other size. When the device has none
  // left, everything cached is waited for, released, and the request made once more. The text of RLK_OUT_OF_MEMORY says
  // what was asked for, what rlk holds and what the device has.
  rlk_status allocate(const StreamClock& stream, uint64_t bytes, void** out, rlk_error* error);
  // While a stream captures: from the device itself, without a question to any event. An embedder's allocator must not
  // be asked then: RLK_CAPTURE_FORBIDS.
  rlk_status allocate_in_capture(const StreamClock& stream, uint64_t bytes, void** out, rlk_error* error);
  // The device's own memory, kept until this allocator dies and in no statistics. At any time.
  rlk_status allocate_for_good(uint64_t bytes, void** out, rlk_error* error);
  // `freed` is the end of the stream in whose order the block is freed. RLK_INVALID_ARGUMENT for a foreign pointer.
  // Needs no host memory.
  rlk_status deallocate(void* memory, Fence freed, rlk_error* error) noexcept;
  // Another stream uses the block up to the fence.
  rlk_status record_use(void* memory, Fence use, rlk_error* error);
  bool owns(const void* memory) const;  // the address of a live block
  // Gives back to the device what no work uses any more; with wait, what in-flight work uses too.
  void release_cached(bool wait);
  MemoryStatistics statistics() const;

private:
  struct Block {
    enum class State { live, cached, waiting };
    void* memory = nullptr;
    uint64_t size = 0;
    State state = State::live;
    std::vector<Fence> uses;  // while live: other streams. Once freed: every point that must be passed
    std::shared_ptr<const StreamClock> stream;  // of an embedder's block: whose order it is in
  };
  using Blocks = std::map<const void*, Block>;
  static uint64_t rounded(uint64_t bytes);
  bool usable(Block& block, const StreamClock& stream) const;
  // nullptr: none fits.
  Block* take_cached(const StreamClock& stream, uint64_t size);
  void release_locked(bool wait);
  rlk_status out_of_memory(uint64_t bytes, rlk_error* error) const;
  // A place for one more block: made first, so that nothing is lost that the device gives. [locked]
  Blocks::node_type make_place(uint64_t size);
  rlk_status hand_out_new(Blocks::node_type place, void** out, rlk_error* error);
  void* hand_out(Block& block);
  rlk_status allocate_from_embedder(const StreamClock& stream, uint64_t bytes, void** out, rlk_error* error);
  rlk_status give_to_embedder(const Block& block, rlk_error* error) noexcept;
  // Blocks that other streams have passed by now.
  void give_waiting_to_embedder(bool wait);
  std::string name() const { return backend_ + ":" + std::to_string(ordinal_); }

  const rlk_plugin& api_;
  rlk_plugin_device* device_;
  const int32_t kind_;
  const std::string backend_;
  const uint32_t ordinal_;
  const DeviceAllocator* const embedder_;
  mutable std::mutex mutex_;  // of everything below
  Blocks blocks_;             // in any state
  // Both have room for every block.
  std::vector<Block*> cached_;   // the smallest first
  std::vector<Block*> waiting_;  // freed blocks of the embedder that another stream may still use
  std::vector<void*> for_good_;
  MemoryStatistics statistics_;
};

}  // namespace rlk::core
