// A file per device, mapped twice: device addresses belong to a mapping that is closed while no kernel runs.
#include "memory.hpp"

#include "streams.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

namespace fake {
namespace {

constexpr size_t kRedZone = 256;
constexpr unsigned char kRed = 0xa5;
// To open and close takes time for every page that was touched: now and then those that a large call has left are
// forgotten, and what is still used comes back by itself. The bytes are the file's.
constexpr unsigned kClosingsPerForgetting = 16;

struct Arena {
  uintptr_t device = 0;
  std::byte* host = nullptr;
  size_t capacity = 0, used = 0;
  std::map<uintptr_t, size_t> live;

  explicit Arena(size_t bytes) : capacity(bytes) {
    const int file = memfd_create("fake_device", MFD_CLOEXEC);
    if (file < 0 || ftruncate(file, static_cast<off_t>(bytes)) != 0) std::abort();
    device = reinterpret_cast<uintptr_t>(mmap(nullptr, bytes, PROT_NONE, MAP_SHARED | MAP_NORESERVE, file, 0));
    host = static_cast<std::byte*>(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, 0));
    close(file);
  }
  bool contains(uintptr_t address) const { return address - device < capacity; }
  std::byte* at(uintptr_t address) const { return host + (address - device); }
};

struct Memory {
  std::mutex mutex;
  std::map<int, std::unique_ptr<Arena>> arenas;
  std::map<uintptr_t, size_t> pinned;
  int open = 0;
  unsigned closings = 0;
};
Memory& memory() {
  static auto* const only = new Memory;
  return *only;
}

size_t rounded(size_t bytes) {
  return (bytes + runtime().alignment - 1) / runtime().alignment * runtime().alignment;
}
// Before and after each allocation; the next one is aligned again.
size_t spacing() {
  return std::max(kRedZone, runtime().alignment);
}
std::string hex(uintptr_t address) {
  char text[32];
  std::snprintf(text, sizeof(text), "0x%zx", static_cast<size_t>(address));
  return text;
}

Arena& arena_of(int device) {
  auto& slot = memory().arenas[device];
  if (slot == nullptr) {
    // Room for red zones beside what is promised.
    slot = std::make_unique<Arena>(2 * memory_bytes());
    if (memory().open > 0) mprotect(reinterpret_cast<void*>(slot->device), slot->capacity, PROT_READ | PROT_WRITE);
  }
  return *slot;
}
Arena* arena_at(uintptr_t address) {
  for (auto& [device, arena] : memory().arenas) {
    if (arena->contains(address)) return arena.get();
  }
  return nullptr;
}

void require_red(const std::byte* zone, const char* call) {
  for (size_t i = 0; i < kRedZone; ++i) {
    if (static_cast<unsigned char>(zone[i]) != kRed) {
      violation("WROTE_OUTSIDE", std::string(call) + ": something wrote beside the allocation that is freed");
    }
  }
}

// Two integers of 32 bits, such as strides of rows, may look like an address: then nothing is there.
bool is_mapped(uintptr_t address) {
  static const uintptr_t page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  unsigned char in_core = 0;
  return mincore(reinterpret_cast<void*>(address / page * page), page, &in_core) == 0;
}

// The live allocation that holds the address or ends there.
bool find_range(const std::map<uintptr_t, size_t>& live, uintptr_t address, Range* out) {
  auto after = live.upper_bound(address);
  if (after == live.begin()) return false;
  --after;
  *out = {after->first, after->first + after->second};
  return address <= out->end;
}

}  // namespace

size_t memory_bytes() {
  return static_cast<size_t>(knob("MEMORY_MB", runtime().memory_mb)) << 20;
}
size_t used_bytes(int device) {
  const std::lock_guard lock(memory().mutex);
  return arena_of(device).used;
}

int allocate(int device, size_t bytes, void** out) {
  const std::lock_guard lock(memory().mutex);
  Arena& arena = arena_of(device);
  if (bytes == 0) return *out = nullptr, 0;
  if (bytes > memory_bytes() - std::min(arena.used, memory_bytes())) {
    return fail(runtime().out_of_memory, "no room for " + std::to_string(bytes) + " bytes");
  }
  uintptr_t at = arena.device + spacing();
  for (const auto& [begin, size] : arena.live) {
    if (at + rounded(bytes) + 2 * spacing() <= begin) break;
    at = begin + rounded(size) + 2 * spacing();
  }
  if (at + rounded(bytes) + spacing() > arena.device + arena.capacity) {
    return fail(runtime().out_of_memory, "no gap of " + std::to_string(bytes) + " bytes");
  }
  arena.live.emplace(at, bytes);
  arena.used += bytes;
  std::memset(arena.at(at) - kRedZone, kRed, kRedZone);
  std::memset(arena.at(at), 0xff, bytes);
  std::memset(arena.at(at) + bytes, kRed, kRedZone);
  return *out = reinterpret_cast<void*>(at), 0;
}

int allocate_pinned(size_t bytes, void** out) {
  if (bytes == 0) return *out = nullptr, 0;
  auto* const block = static_cast<std::byte*>(std::aligned_alloc(4096, (bytes + 8191) / 4096 * 4096));
  if (block == nullptr) return fail(runtime().out_of_memory, "no room for " + std::to_string(bytes) + " bytes");
  std::memset(block + bytes, kRed, kRedZone);
  const std::lock_guard lock(memory().mutex);
  memory().pinned.emplace(reinterpret_cast<uintptr_t>(block), bytes);
  return *out = block, 0;
}

void release(void* pointer, bool pinned, const char* call) {
  if (pointer == nullptr) return;
  const auto at = reinterpret_cast<uintptr_t>(pointer);
  std::unique_lock lock(memory().mutex);
  Arena* const arena = pinned ? nullptr : arena_at(at);
  auto& live = pinned ? memory().pinned : arena != nullptr ? arena->live : memory().pinned;
  if (!pinned && arena == nullptr) {
    violation("NOT_DEVICE_MEMORY", std::string(call) + ": " + hex(at) + " is not device memory");
  }
  const auto found = live.find(at);
  if (found == live.end()) {
    violation("INVALID_FREE", std::string(call) + ": no live allocation of this kind begins at " + hex(at));
  }
  const Range range{at, at + found->second};
  lock.unlock();
  std::string user;
  while (!(user = pending_use(range)).empty()) {
    if (!runtime().free_waits) violation("FREED_IN_USE", std::string(call) + " of memory that " + user + " still uses");
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  if (runtime().graphs_hold_memory && !(user = recorded_use(range)).empty()) {
    violation("FREED_IN_USE", std::string(call) + " of memory that " + user + " of a live graph uses");
  }
  lock.lock();
  std::byte* const bytes = pinned ? static_cast<std::byte*>(pointer) : arena->at(at);
  if (!pinned) require_red(bytes - kRedZone, call);
  require_red(bytes + found->second, call);
  if (pinned) {
    live.erase(found);
    std::free(pointer);
    return;
  }
  std::memset(bytes, 0xdd, found->second);
  arena->used -= found->second;
  live.erase(found);
}

Kind kind_of(const void* pointer) {
  const auto at = reinterpret_cast<uintptr_t>(pointer);
  const std::lock_guard lock(memory().mutex);
  if (arena_at(at) != nullptr) return Kind::kDevice;
  Range range;
  return find_range(memory().pinned, at, &range) && at < range.end ? Kind::kPinned : Kind::kUnknown;
}

int device_at(const void* pointer) {
  const std::lock_guard lock(memory().mutex);
  for (const auto& [device, arena] : memory().arenas) {
    if (arena->contains(reinterpret_cast<uintptr_t>(pointer))) return device;
  }
  return -1;
}

void require_aligned(const void* pointer, size_t alignment, const Argument& what) {
  if (reinterpret_cast<uintptr_t>(pointer) % alignment == 0) return;
  violation("MISALIGNED", what.text() + " is no multiple of " + std::to_string(alignment) + " bytes");
}

void require_device(const void* pointer, size_t bytes, const Argument& what) {
  const auto at = reinterpret_cast<uintptr_t>(pointer);
  const std::lock_guard lock(memory().mutex);
  Arena* const arena = arena_at(at);
  if (arena == nullptr) violation("NOT_DEVICE_MEMORY", what.text() + " " + hex(at) + " is not device memory");
  Range range;
  if (find_range(arena->live, at, &range) && bytes <= range.end - at) return;
  violation("OUT_OF_BOUNDS",
            what.text() + " [" + hex(at) + ", " + hex(at + bytes) + ") leaves " +
                (range.end == 0 ? "every live allocation"
                                : "the allocation [" + hex(range.begin) + ", " + hex(range.end) + ")"));
}

void require_addresses(const void* arguments, size_t bytes, const std::string& kernel) {
  const std::lock_guard lock(memory().mutex);
  for (size_t i = 0; i + 8 <= bytes; i += 8) {
    uintptr_t word = 0;
    std::memcpy(&word, static_cast<const char*>(arguments) + i, 8);
    // Above everything that counts elements (attention says "no window" by 2^40), below every double: an address.
    if (word < uintptr_t{1} << 44 || word >= uintptr_t{1} << 47) continue;
    Range range;
    const Arena* const arena = arena_at(word);
    if (arena != nullptr ? find_range(arena->live, word, &range) : find_range(memory().pinned, word, &range)) continue;
    if (arena == nullptr && !is_mapped(word)) continue;
    violation(arena != nullptr ? "OUT_OF_BOUNDS" : "NOT_DEVICE_MEMORY",
              kernel + ": the argument at byte " + std::to_string(i) + " leads to " +
                  (arena != nullptr ? "no live allocation" : "memory that the device cannot reach"));
  }
}

std::byte* bytes_at(const void* pointer) {
  const auto at = reinterpret_cast<uintptr_t>(pointer);
  const std::lock_guard lock(memory().mutex);
  Arena* const arena = arena_at(at);
  return arena != nullptr ? arena->at(at) : static_cast<std::byte*>(const_cast<void*>(pointer));
}

OpenMemory::OpenMemory() {
  const std::lock_guard lock(memory().mutex);
  if (memory().open++ > 0) return;
  for (auto& [device, arena] : memory().arenas) {
    mprotect(reinterpret_cast<void*>(arena->device), arena->capacity, PROT_READ | PROT_WRITE);
  }
}
OpenMemory::~OpenMemory() {
  const std::lock_guard lock(memory().mutex);
  if (--memory().open > 0) return;
  const bool forgets = ++memory().closings % kClosingsPerForgetting == 0;
  for (auto& [device, arena] : memory().arenas) {
    void* const view = reinterpret_cast<void*>(arena->device);
    mprotect(view, arena->capacity, PROT_NONE);
    if (forgets) madvise(view, arena->capacity, MADV_DONTNEED);
  }
}

}  // namespace fake
