// Memory of one kind of one device, kept after it is freed.
#include "core/dispatch/device/caching_allocator.hpp"

#include <algorithm>

#include "core/declaration/error.hpp"
#include "core/dispatch/trust/release.hpp"

namespace rlk::core {
namespace {

// Sizes are rounded so that similar requests share blocks: up to 512 bytes below a MiB, an eighth of the power of two
// below above it. A block serves requests down to four fifths of its size: more would waste, less would hoard.
constexpr uint64_t kSmallStep = 512;
constexpr uint64_t kLarge = uint64_t{1} << 20;
constexpr int kBlocksLookedAt = 16;

}  // namespace

uint64_t CachingAllocator::rounded(uint64_t bytes) {
  bytes = std::max<uint64_t>(bytes, 1);
  uint64_t step = kSmallStep;
  if (bytes > kLarge) step = (uint64_t{1} << (63 - __builtin_clzll(bytes))) / 8;
  return bytes > UINT64_MAX - step ? bytes : (bytes + step - 1) / step * step;
}

CachingAllocator::~CachingAllocator() {
  release_cached(true);
  for (const auto& [memory, block] : blocks_) {
    if (block.state != Block::State::live) continue;
    if (block.stream != nullptr) {
      give_to_embedder(block, nullptr);
    } else {
      release_by(api_, "deallocate", api_.device->deallocate, device_, kind_, block.memory);
    }
  }
  for (void* memory : for_good_) release_by(api_, "deallocate", api_.device->deallocate, device_, kind_, memory);
}

// Marks that are reached are dropped on the way.
bool CachingAllocator::usable(Block& block, const StreamClock& stream) const {
  auto& uses = block.uses;
  const auto harmless = [&](Fence& use) {
    const bool same_order = kind_ == RLK_MEMORY_DEVICE && use.clock() == &stream;
    return same_order || use.reached();
  };
  while (!uses.empty() && harmless(uses.back())) uses.pop_back();
  return uses.empty();
}

CachingAllocator::Block* CachingAllocator::take_cached(const StreamClock& stream, uint64_t size) {
  const uint64_t largest = size > UINT64_MAX / 5 * 4 ? UINT64_MAX : std::max(size / 4 * 5, size + 4 * kSmallStep);
  int looked_at = 0;
  auto it = std::lower_bound(cached_.begin(), cached_.end(), size,
                             [](const Block* block, uint64_t wanted) { return block->size < wanted; });
  for (; it != cached_.end() && (*it)->size <= largest; ++it) {
    if (++looked_at > kBlocksLookedAt) break;
    if (!usable(**it, stream)) continue;
    Block* block = *it;
    cached_.erase(it);
    return block;
  }
  return nullptr;
}

CachingAllocator::Blocks::node_type CachingAllocator::make_place(uint64_t size) {
  const size_t count = blocks_.size() + 1;
  for (std::vector<Block*>* list : {&cached_, &waiting_}) {
    if (list->capacity() < count) list->reserve(2 * count);
  }
  Blocks one;
  Block& block = one[nullptr];
  block.size = size;
  block.uses.reserve(1);  // the point at which it will be freed
  return one.extract(one.begin());
}

rlk_status CachingAllocator::allocate(const StreamClock& stream, uint64_t bytes, void** out, rlk_error* error) {
  if (embedder_ != nullptr) return allocate_from_embedder(stream, bytes, out, error);
  const uint64_t size = rounded(bytes);
  const std::lock_guard lock(mutex_);
  if (Block* cached = take_cached(stream, size)) {
    statistics_.cached_bytes -= cached->size;
    ++statistics_.cache_hits;
    *out = hand_out(*cached);
    return RLK_OK;
  }
  Blocks::node_type place = make_place(size);
  void** const memory = &place.mapped().memory;
  rlk_status status = call_of(api_, "allocate", api_.device->allocate, device_, kind_, size, memory, error);
  if (status == RLK_OUT_OF_MEMORY) {
    ++statistics_.out_of_memory_retries;
    release_locked(/*wait=*/true);
    status = call_of(api_, "allocate", api_.device->allocate, device_, kind_, size, memory, error);
    if (status == RLK_OUT_OF_MEMORY) return out_of_memory(bytes, error);
  }
  return status != RLK_OK ? status : hand_out_new(std::move(place), out, error);
}

rlk_status CachingAllocator::hand_out_new(Blocks::node_type place, void** out, rlk_error* error) {
  place.key() = place.mapped().memory;
  const auto put = blocks_.insert(std::move(place));
  if (!put.inserted) {
    return failf(error, RLK_INTERNAL, "%s: an allocation gave %p, which is in use already; the allocator is wrong",
                 name().c_str(), put.position->second.memory);
  }
  *out = hand_out(put.position->second);
  return RLK_OK;
}

void* CachingAllocator::hand_out(Block& block) {
  ++statistics_.allocations;
  statistics_.in_use_bytes += block.size;
  statistics_.peak_bytes = std::max(statistics_.peak_bytes, statistics_.in_use_bytes);
  block.state = Block::State::live;
  return block.memory;
}

rlk_status CachingAllocator::allocate_in_capture(const StreamClock&, uint64_t bytes, void** out, rlk_error* error) {
  if (embedder_ != nullptr) {
    return failf(error, RLK_CAPTURE_FORBIDS,
                 "%s: %llu bytes of device memory are needed, and the embedder's allocator must not be asked while a "
                 "graph is captured. Make the call once on this stream before each capture",
                 name().c_str(), static_cast<unsigned long long>(bytes));
  }
  const std::lock_guard lock(mutex_);
  Blocks::node_type place = make_place(rounded(bytes));
  const rlk_status status = call_of(api_, "allocate", api_.device->allocate, device_, kind_, place.mapped().size,
                                    &place.mapped().memory, error);
  if (status == RLK_OUT_OF_MEMORY) return out_of_memory(bytes, error);
  return status != RLK_OK ? status : hand_out_new(std::move(place), out, error);
}

rlk_status CachingAllocator::allocate_for_good(uint64_t bytes, void** out, rlk_error* error) {
  const std::lock_guard lock(mutex_);
  for_good_.reserve(for_good_.size() + 1);
  const rlk_status status = call_of(api_, "allocate", api_.device->allocate, device_, kind_, bytes, out, error);
  if (status == RLK_OK) for_good_.push_back(*out);
  return status;
}

// ---- the embedder's memory

rlk_status CachingAllocator::allocate_from_embedder(const StreamClock& stream, uint64_t bytes, void** out,
                                                    rlk_error* error) {
  const uint64_t size = std::max<uint64_t>(bytes, 1);
  Blocks::node_type place;
  {
    const std::lock_guard lock(mutex_);
    // Other threads may take the room while rlk asks the embedder, outside the lock; the code below checks again.
    place = make_place(size);
  }
  Block& block = place.mapped();
  block.stream = stream.shared_from_this();
  give_waiting_to_embedder(/*wait=*/false);
  const auto ask = [&] {
    return call_plugin(embedder_->allocate, embedder_->context, backend_.c_str(), ordinal_, stream.native, size,
                       &block.memory, error);
  };
  rlk_status status = ask();
  if (status == RLK_OUT_OF_MEMORY) {
    give_waiting_to_embedder(/*wait=*/true);
    status = ask();
    const std::lock_guard lock(mutex_);
    ++statistics_.out_of_memory_retries;
  }
  if (status != RLK_OK) return status < 0 ? status : RLK_INTERNAL;
  if (block.memory == nullptr || reinterpret_cast<uintptr_t>(block.memory) % 256 != 0) {
    return failf(error, RLK_INTERNAL,
                 "%s: the embedder's allocator answered OK with %p; expected memory aligned to 256", name().c_str(),
                 block.memory);
  }
  const std::lock_guard lock(mutex_);
  try {
    static_cast<void>(make_place(0));
  } catch (const std::bad_alloc&) {
    give_to_embedder(block, nullptr);
    throw;
  }
  return hand_out_new(std::move(place), out, error);
}

rlk_status CachingAllocator::give_to_embedder(const Block& block, rlk_error* error) noexcept {
  return call_plugin(embedder_->deallocate, embedder_->context, backend_.c_str(), ordinal_, block.stream->native,
                     block.memory, block.size, error);
}

void CachingAllocator::give_waiting_to_embedder(bool wait) {
  for (size_t i = 0;;) {
    Blocks::node_type passed;
    {
      const std::lock_guard lock(mutex_);
      for (; i < waiting_.size(); ++i) {
        auto& uses = waiting_[i]->uses;
        while (!uses.empty() && (uses.back().reached() || (wait && uses.back().wait()))) uses.pop_back();
        if (uses.empty()) break;
      }
      if (i >= waiting_.size()) return;
      passed = blocks_.extract(waiting_[i]->memory);
      waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(i));
    }
    give_to_embedder(passed.mapped(), nullptr);
  }
}

rlk_status CachingAllocator::deallocate(void* memory, Fence freed, rlk_error* error) noexcept {
  std::unique_lock lock(mutex_);
  const auto it = blocks_.find(memory);
  if (it == blocks_.end() || it->second.state != Block::State::live) {
    return failf(error, RLK_INVALID_ARGUMENT,
                 "%s: %p is not the address of a live block of rlk_allocate; expected one that was not freed yet",
                 name().c_str(), memory);
  }
  Block& block = it->second;
  statistics_.in_use_bytes -= block.size;
  if (block.stream != nullptr) {
    if (freed.clock() != block.stream.get()) block.uses.push_back(std::move(freed));
    if (usable(block, *block.stream)) {
      const Blocks::node_type passed = blocks_.extract(it);
      lock.unlock();
      return give_to_embedder(passed.mapped(), error);
    }
    block.state = Block::State::waiting;
    waiting_.push_back(&block);
    return RLK_OK;
  }
  block.uses.push_back(std::move(freed));
  statistics_.cached_bytes += block.size;
  block.state = Block::State::cached;
  const auto behind = std::upper_bound(cached_.begin(), cached_.end(), block.size,
                                       [](uint64_t size, const Block* other) { return size < other->size; });
  cached_.insert(behind, &block);
  return RLK_OK;
}

rlk_status CachingAllocator::record_use(void* memory, Fence use, rlk_error* error) {
  const std::lock_guard lock(mutex_);
  const auto it = blocks_.find(memory);
  if (it == blocks_.end() || it->second.state != Block::State::live) {
    return failf(error, RLK_INVALID_ARGUMENT, "%s: %p is not the address of a live block of rlk_allocate",
                 name().c_str(), memory);
  }
  auto& uses = it->second.uses;
  // A later point of the same stream contains the earlier one.
  for (Fence& known : uses) {
    if (known.clock() != use.clock()) continue;
    known = std::move(use);
    return RLK_OK;
  }
  uses.reserve(uses.size() + 2);  // and the point at which it will be freed
  uses.push_back(std::move(use));
  return RLK_OK;
}

bool CachingAllocator::owns(const void* memory) const {
  const std::lock_guard lock(mutex_);
  const auto it = blocks_.find(memory);
  return it != blocks_.end() && it->second.state == Block::State::live;
}

void CachingAllocator::release_cached(bool wait) {
  give_waiting_to_embedder(wait);
  const std::lock_guard lock(mutex_);
  release_locked(wait);
}

void CachingAllocator::release_locked(bool wait) {
  const auto is_released = [&](Block* block) {
    auto& uses = block->uses;
    while (!uses.empty() && (uses.back().reached() || (wait && uses.back().wait()))) uses.pop_back();
    if (!uses.empty()) return false;
    release_by(api_, "deallocate", api_.device->deallocate, device_, kind_, block->memory);
    statistics_.cached_bytes -= block->size;
    blocks_.erase(block->memory);
    return true;
  };
  cached_.erase(std::remove_if(cached_.begin(), cached_.end(), is_released), cached_.end());
}

rlk_status CachingAllocator::out_of_memory(uint64_t bytes, rlk_error* error) const {
  uint64_t available = 0, total = 0;
  const bool known = call_plugin(api_.device->memory_info, device_, &available, &total, nullptr) == RLK_OK;
  char device[96] = "";
  if (known) {
    std::snprintf(device, sizeof(device), "; the device has %llu bytes free of %llu",
                  static_cast<unsigned long long>(available), static_cast<unsigned long long>(total));
  }
  return failf(error, RLK_OUT_OF_MEMORY,
               "%s: no %llu bytes of %s memory left after rlk released its cache. rlk holds %llu bytes in use and %llu "
               "that work in flight still uses%s. Free memory or use smaller batches",
               name().c_str(), static_cast<unsigned long long>(bytes), kind_ == RLK_MEMORY_PINNED ? "pinned" : "device",
               static_cast<unsigned long long>(statistics_.in_use_bytes),
               static_cast<unsigned long long>(statistics_.cached_bytes), device);
}

MemoryStatistics CachingAllocator::statistics() const {
  const std::lock_guard lock(mutex_);
  return statistics_;
}

}  // namespace rlk::core
