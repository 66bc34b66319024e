// Memory of one kind of one device, kept after it is freed.
#include "core/dispatch/caching_allocator.hpp"

#include <algorithm>

#include "core/declaration/error.hpp"
#include "core/dispatch/release.hpp"

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
  for (const auto& [memory, block] : live_) {
    if (block->stream != nullptr) {
      give_to_embedder(*block, nullptr);
    } else {
      release_by(api_, "deallocate", api_.device->deallocate, device_, kind_, block->memory);
    }
  }
  for (void* memory : for_good_) release_by(api_, "deallocate", api_.device->deallocate, device_, kind_, memory);
}

// Marks that are reached are dropped on the way.
bool CachingAllocator::usable(Block& block, const StreamClock& stream) const {
  auto& uses = block.uses;
  const auto harmless = [&](Mark& use) {
    const bool same_order = kind_ == RLK_MEMORY_DEVICE && use.clock() == &stream;
    return same_order || use.reached();
  };
  while (!uses.empty() && harmless(uses.back())) uses.pop_back();
  return uses.empty();
}

std::unique_ptr<CachingAllocator::Block> CachingAllocator::take_cached(const StreamClock& stream, uint64_t size) {
  const uint64_t largest = size > UINT64_MAX / 5 * 4 ? UINT64_MAX : std::max(size / 4 * 5, size + 4 * kSmallStep);
  int looked_at = 0;
  for (auto it = cached_.lower_bound(size); it != cached_.end() && it->first <= largest; ++it) {
    if (++looked_at > kBlocksLookedAt) break;
    if (!usable(*it->second, stream)) continue;
    std::unique_ptr<Block> block = std::move(it->second);
    cached_.erase(it);
    return block;
  }
  return nullptr;
}

rlk_status CachingAllocator::allocate(const StreamClock& stream, uint64_t bytes, void** out, rlk_error* error) {
  if (embedder_ != nullptr) return allocate_from_embedder(stream, bytes, out, error);
  const uint64_t size = rounded(bytes);
  const std::lock_guard lock(mutex_);
  std::unique_ptr<Block> block = take_cached(stream, size);
  if (block != nullptr) {
    statistics_.cached_bytes -= block->size;
    ++statistics_.cache_hits;
  } else {
    block = std::make_unique<Block>();
    block->size = size;
    rlk_status status = call_of(api_, "allocate", api_.device->allocate, device_, kind_, size, &block->memory, error);
    if (status == RLK_OUT_OF_MEMORY) {
      ++statistics_.out_of_memory_retries;
      release_locked(/*wait=*/true);
      status = call_of(api_, "allocate", api_.device->allocate, device_, kind_, size, &block->memory, error);
      if (status == RLK_OUT_OF_MEMORY) return out_of_memory(bytes, error);
    }
    if (status != RLK_OK) return status;
  }
  *out = hand_out(std::move(block));
  return RLK_OK;
}

void* CachingAllocator::hand_out(std::unique_ptr<Block> block) {
  ++statistics_.allocations;
  statistics_.in_use_bytes += block->size;
  statistics_.peak_bytes = std::max(statistics_.peak_bytes, statistics_.in_use_bytes);
  void* memory = block->memory;
  live_.emplace(memory, std::move(block));
  return memory;
}

rlk_status CachingAllocator::allocate_in_capture(const StreamClock&, uint64_t bytes, void** out, rlk_error* error) {
  if (embedder_ != nullptr) {
    return failf(error, RLK_CAPTURE_FORBIDS,
                 "%s: %llu bytes of device memory are needed, and the embedder's allocator must not be asked while a "
                 "graph is captured. Make the call once on this stream before each capture",
                 name().c_str(), static_cast<unsigned long long>(bytes));
  }
  auto block = std::make_unique<Block>();
  block->size = rounded(bytes);
  const std::lock_guard lock(mutex_);
  const rlk_status status =
      call_of(api_, "allocate", api_.device->allocate, device_, kind_, block->size, &block->memory, error);
  if (status == RLK_OUT_OF_MEMORY) return out_of_memory(bytes, error);
  if (status != RLK_OK) return status;
  *out = hand_out(std::move(block));
  return RLK_OK;
}

rlk_status CachingAllocator::allocate_for_good(uint64_t bytes, void** out, rlk_error* error) {
  const std::lock_guard lock(mutex_);
  const rlk_status status = call_of(api_, "allocate", api_.device->allocate, device_, kind_, bytes, out, error);
  if (status == RLK_OK) for_good_.push_back(*out);
  return status;
}

// ---- the embedder's memory

rlk_status CachingAllocator::allocate_from_embedder(const StreamClock& stream, uint64_t bytes, void** out,
                                                    rlk_error* error) {
  auto block = std::make_unique<Block>();
  block->size = std::max<uint64_t>(bytes, 1);
  block->stream = stream.shared_from_this();
  give_waiting_to_embedder(/*wait=*/false);
  const auto ask = [&] {
    return embedder_->allocate(embedder_->context, backend_.c_str(), ordinal_, stream.native, block->size,
                               &block->memory, error);
  };
  rlk_status status = ask();
  if (status == RLK_OUT_OF_MEMORY) {
    give_waiting_to_embedder(/*wait=*/true);
    status = ask();
    const std::lock_guard lock(mutex_);
    ++statistics_.out_of_memory_retries;
  }
  if (status != RLK_OK) return status < 0 ? status : RLK_INTERNAL;
  if (block->memory == nullptr || reinterpret_cast<uintptr_t>(block->memory) % 256 != 0) {
    return failf(error, RLK_INTERNAL,
                 "%s: the embedder's allocator answered OK with %p; expected memory aligned to 256", name().c_str(),
                 block->memory);
  }
  const std::lock_guard lock(mutex_);
  *out = hand_out(std::move(block));
  return RLK_OK;
}

rlk_status CachingAllocator::give_to_embedder(const Block& block, rlk_error* error) {
  return embedder_->deallocate(embedder_->context, backend_.c_str(), ordinal_, block.stream->native, block.memory,
                               block.size, error);
}

void CachingAllocator::give_waiting_to_embedder(bool wait) {
  std::vector<std::unique_ptr<Block>> passed;
  {
    const std::lock_guard lock(mutex_);
    for (auto& block : waiting_) {
      auto& uses = block->uses;
      while (!uses.empty() && (uses.back().reached() || (wait && uses.back().wait()))) uses.pop_back();
      if (uses.empty()) passed.push_back(std::move(block));
    }
    waiting_.erase(std::remove(waiting_.begin(), waiting_.end(), nullptr), waiting_.end());
  }
  for (const auto& block : passed) give_to_embedder(*block, nullptr);
}

rlk_status CachingAllocator::deallocate(void* memory, Mark freed, rlk_error* error) {
  std::unique_lock lock(mutex_);
  const auto it = live_.find(memory);
  if (it == live_.end()) {
    return failf(error, RLK_INVALID_ARGUMENT,
                 "%s: %p is not the address of a live block of rlk_allocate; expected one that was not freed yet",
                 name().c_str(), memory);
  }
  std::unique_ptr<Block> block = std::move(it->second);
  live_.erase(it);
  statistics_.in_use_bytes -= block->size;
  if (block->stream != nullptr) {
    if (freed.clock() != block->stream.get()) block->uses.push_back(std::move(freed));
    if (usable(*block, *block->stream)) {
      lock.unlock();
      return give_to_embedder(*block, error);
    }
    waiting_.push_back(std::move(block));
    return RLK_OK;
  }
  block->uses.push_back(std::move(freed));
  statistics_.cached_bytes += block->size;
  const uint64_t size = block->size;
  cached_.emplace(size, std::move(block));
  return RLK_OK;
}

rlk_status CachingAllocator::record_use(void* memory, Mark use, rlk_error* error) {
  const std::lock_guard lock(mutex_);
  const auto it = live_.find(memory);
  if (it == live_.end()) {
    return failf(error, RLK_INVALID_ARGUMENT, "%s: %p is not the address of a live block of rlk_allocate",
                 name().c_str(), memory);
  }
  // A later point of the same stream contains the earlier one.
  for (Mark& known : it->second->uses) {
    if (known.clock() != use.clock()) continue;
    known = std::move(use);
    return RLK_OK;
  }
  it->second->uses.push_back(std::move(use));
  return RLK_OK;
}

bool CachingAllocator::owns(const void* memory) const {
  const std::lock_guard lock(mutex_);
  return live_.count(memory) != 0;
}

void CachingAllocator::release_cached(bool wait) {
  give_waiting_to_embedder(wait);
  const std::lock_guard lock(mutex_);
  release_locked(wait);
}

void CachingAllocator::release_locked(bool wait) {
  for (auto it = cached_.begin(); it != cached_.end();) {
    auto& uses = it->second->uses;
    while (!uses.empty() && (uses.back().reached() || (wait && uses.back().wait()))) uses.pop_back();
    if (!uses.empty()) {
      ++it;
      continue;
    }
    release_by(api_, "deallocate", api_.device->deallocate, device_, kind_, it->second->memory);
    statistics_.cached_bytes -= it->second->size;
    it = cached_.erase(it);
  }
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
