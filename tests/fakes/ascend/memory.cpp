// What is simulated device memory? One arena per device: a file mapped twice. Device addresses belong to a mapping
// without access rights; the simulator works through the second mapping. Allocations are 512-byte aligned with a red
// zone around each, so that a range that leaves its allocation meets none of its neighbours. Fresh memory is 0xFF bytes
// (NaN as floats, -1 as integers), freed memory 0xDD.
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <map>
#include <mutex>

#include "runtime.h"

namespace fake_ascend {
namespace {

constexpr uintptr_t kGranularity = 512;
constexpr uintptr_t kRedZone = 512;

class Arena {
public:
  explicit Arena(size_t capacity) : capacity_(capacity) {
    const int file = memfd_create("fake_ascend_device", MFD_CLOEXEC);
    if (file < 0 || ftruncate(file, static_cast<off_t>(capacity)) != 0) return;
    void* device = mmap(nullptr, capacity, PROT_NONE, MAP_SHARED | MAP_NORESERVE, file, 0);
    void* host = mmap(nullptr, capacity, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, 0);
    close(file);
    if (device == MAP_FAILED || host == MAP_FAILED) return;
    device_ = reinterpret_cast<uintptr_t>(device);
    host_ = static_cast<std::byte*>(host);
  }

  bool contains(uintptr_t address) const { return device_ != 0 && address - device_ < capacity_; }
  std::byte* bytes(uintptr_t address) const { return host_ + (address - device_); }

  uintptr_t allocate(size_t size) {
    if (device_ == 0 || size > capacity_) return 0;
    const uintptr_t block = (size + kGranularity - 1) / kGranularity * kGranularity;
    uintptr_t candidate = device_ + kRedZone;
    for (const auto& [begin, length] : live_) {
      if (candidate + block + kRedZone <= begin) break;
      candidate = begin + (length + kGranularity - 1) / kGranularity * kGranularity + kRedZone;
    }
    if (candidate + block + kRedZone > device_ + capacity_) return 0;
    live_.emplace(candidate, size);
    used_ += size;
    std::memset(bytes(candidate), 0xff, size);
    return candidate;
  }

  // The size freed; 0 when nothing begins there.
  size_t size_at(uintptr_t address) const {
    const auto found = live_.find(address);
    return found == live_.end() ? 0 : found->second;
  }

  void free(uintptr_t address) {
    const auto found = live_.find(address);
    std::memset(bytes(address), 0xdd, found->second);
    used_ -= found->second;
    live_.erase(found);
  }

  // The allocation that `address` lies in or just after; {0, 0} without one.
  Range allocation_of(uintptr_t address) const {
    auto after = live_.upper_bound(address);
    if (after == live_.begin()) return {};
    --after;
    return {after->first, after->first + after->second};
  }

  size_t capacity() const { return capacity_; }
  size_t used() const { return used_; }

private:
  size_t capacity_;
  size_t used_ = 0;
  uintptr_t device_ = 0;
  std::byte* host_ = nullptr;
  std::map<uintptr_t, size_t> live_;
};

struct Memory {
  std::mutex mutex;
  std::map<int, std::unique_ptr<Arena>> arenas;
  std::map<uintptr_t, size_t> pinned;
};

Memory& memory() {
  static Memory* const instance = new Memory;
  return *instance;
}

// The caller holds the mutex.
Arena& arena_of(int device) {
  auto& slot = memory().arenas[device];
  if (slot == nullptr) {
    slot = std::make_unique<Arena>(static_cast<size_t>(env_number("RLK_FAKE_ASCEND_MEMORY_MB", 4096)) << 20);
  }
  return *slot;
}

Arena* find_arena(uintptr_t address) {
  for (auto& [device, arena] : memory().arenas) {
    if (arena->contains(address)) return arena.get();
  }
  return nullptr;
}

std::string hex(uintptr_t value) {
  char text[32];
  std::snprintf(text, sizeof text, "0x%zx", static_cast<size_t>(value));
  return text;
}

bool pinned_range(uintptr_t address, size_t bytes) {
  const std::lock_guard lock(memory().mutex);
  auto after = memory().pinned.upper_bound(address);
  if (after == memory().pinned.begin()) return false;
  --after;
  return address + bytes <= after->first + after->second;
}

int check_host_pointer(const void* address, const std::string& what) {
  if (!is_device_address(address)) return 0;
  return violation("NOT_HOST_MEMORY", what + " " + hex(reinterpret_cast<uintptr_t>(address)) + " is device memory");
}

struct Copy {
  std::byte* dst;
  const std::byte* src;
  size_t count;
  bool pageable;
  std::vector<Range> uses;
};

Range range_of(const void* address, size_t bytes) {
  const auto begin = reinterpret_cast<uintptr_t>(address);
  return {begin, begin + bytes};
}

// Checks the arguments all copies share; not 0: return it.
int prepare_copy(const char* call, void* dst, size_t dest_max, const void* src, size_t count, int32_t kind,
                 Copy* copy) {
  if (count > dest_max) {
    return violation("DEST_MAX", std::string(call) + ": count " + std::to_string(count) + " exceeds destMax " +
                                     std::to_string(dest_max));
  }
  if (kind < ACL_MEMCPY_HOST_TO_HOST || kind > ACL_MEMCPY_DEVICE_TO_DEVICE) {
    return fail(ACL_ERROR_RT_PARAM_INVALID, std::string(call) + ": memcpy kind " + std::to_string(kind));
  }
  if (count == 0) return fail(ACL_ERROR_RT_PARAM_INVALID, std::string(call) + ": count is 0");
  if (dst == nullptr || src == nullptr) return fail(ACL_ERROR_RT_PARAM_INVALID, std::string(call) + ": null pointer");
  const bool to_device = kind == ACL_MEMCPY_HOST_TO_DEVICE || kind == ACL_MEMCPY_DEVICE_TO_DEVICE;
  const bool from_device = kind == ACL_MEMCPY_DEVICE_TO_HOST || kind == ACL_MEMCPY_DEVICE_TO_DEVICE;
  const std::string dst_name = std::string(call) + ": dst";
  const std::string src_name = std::string(call) + ": src";
  // The capacity the caller states is a promise too, so the whole of it is checked.
  if (const int code = to_device ? check_device_range(dst, dest_max, dst_name) : check_host_pointer(dst, dst_name)) {
    return code;
  }
  if (const int code = from_device ? check_device_range(src, count, src_name) : check_host_pointer(src, src_name)) {
    return code;
  }
  copy->dst = to_device ? device_bytes(dst) : static_cast<std::byte*>(dst);
  copy->src = from_device ? device_bytes(src) : static_cast<const std::byte*>(src);
  copy->count = count;
  copy->pageable = (!to_device && !pinned_range(reinterpret_cast<uintptr_t>(dst), count)) ||
                   (!from_device && !pinned_range(reinterpret_cast<uintptr_t>(src), count));
  copy->uses = {range_of(dst, count), range_of(src, count)};
  return 0;
}

int prepare_set(const char* call, void* pointer, size_t max_count, size_t count) {
  if (count > max_count) {
    return violation("DEST_MAX", std::string(call) + ": count " + std::to_string(count) + " exceeds maxCount " +
                                     std::to_string(max_count));
  }
  if (count == 0) return fail(ACL_ERROR_RT_PARAM_INVALID, std::string(call) + ": count is 0");
  return check_device_range(pointer, max_count, std::string(call) + ": devPtr");
}

}  // namespace

std::byte* device_bytes(const void* address) {
  const std::lock_guard lock(memory().mutex);
  const auto value = reinterpret_cast<uintptr_t>(address);
  Arena* arena = find_arena(value);
  return arena == nullptr ? nullptr : arena->bytes(value);
}

bool is_device_address(const void* address) {
  return device_bytes(address) != nullptr;
}

int check_device_range(const void* address, size_t bytes, const std::string& what) {
  const auto value = reinterpret_cast<uintptr_t>(address);
  Range allocation;
  {
    const std::lock_guard lock(memory().mutex);
    Arena* arena = find_arena(value);
    if (arena != nullptr)
      allocation = arena->allocation_of(value);
    else
      allocation = {1, 0};
  }
  if (allocation.begin > allocation.end) {
    return violation("NOT_DEVICE_MEMORY", what + " " + hex(value) + " is not device memory");
  }
  if (value < allocation.begin || value + bytes > allocation.end) {
    return violation("OUT_OF_BOUNDS", what + " [" + hex(value) + ", " + hex(value + bytes) +
                                          ") leaves the allocation [" + hex(allocation.begin) + ", " +
                                          hex(allocation.end) + ")");
  }
  return 0;
}

}  // namespace fake_ascend

using namespace fake_ascend;

aclError aclrtMalloc(void** pointer, size_t size, int32_t policy) {
  FAKE_ASCEND_ENTER(kDevice);
  if (pointer == nullptr || size == 0 || policy < 0 || policy > 6) {
    return fail(ACL_ERROR_RT_PARAM_INVALID, "aclrtMalloc: null pointer, size 0 or unknown policy");
  }
  const std::lock_guard lock(memory().mutex);
  const uintptr_t address = arena_of(current_device()).allocate(size);
  if (address == 0) {
    return fail(ACL_ERROR_RT_MEMORY_ALLOCATION, "aclrtMalloc: no room for " + std::to_string(size) + " bytes");
  }
  *pointer = reinterpret_cast<void*>(address);
  return ACL_SUCCESS;
}

aclError aclrtFree(void* pointer) {
  FAKE_ASCEND_ENTER(kDevice);
  const auto address = reinterpret_cast<uintptr_t>(pointer);
  size_t size = 0;
  bool ours = false;
  {
    const std::lock_guard lock(memory().mutex);
    Arena* arena = find_arena(address);
    ours = arena != nullptr;
    if (ours) size = arena->size_at(address);
  }
  if (!ours) return violation("NOT_DEVICE_MEMORY", "aclrtFree: " + hex(address) + " is not device memory");
  if (size == 0) return violation("INVALID_FREE", "aclrtFree: no live allocation begins at " + hex(address));
  if (const std::string user = pending_use({address, address + size}); !user.empty()) {
    if (const int code = violation("FREED_IN_USE", "aclrtFree of memory that " + user + " still uses")) return code;
  }
  const std::lock_guard lock(memory().mutex);
  find_arena(address)->free(address);
  return ACL_SUCCESS;
}

aclError aclrtMallocHost(void** pointer, size_t size) {
  FAKE_ASCEND_ENTER(kDevice);
  if (pointer == nullptr || size == 0) return fail(ACL_ERROR_RT_PARAM_INVALID, "aclrtMallocHost: null or size 0");
  void* block = std::aligned_alloc(4096, (size + 4095) / 4096 * 4096);
  if (block == nullptr) return fail(ACL_ERROR_RT_MEMORY_ALLOCATION, "aclrtMallocHost: out of memory");
  const std::lock_guard lock(memory().mutex);
  memory().pinned.emplace(reinterpret_cast<uintptr_t>(block), size);
  *pointer = block;
  return ACL_SUCCESS;
}

aclError aclrtFreeHost(void* pointer) {
  FAKE_ASCEND_ENTER(kDevice);
  const auto address = reinterpret_cast<uintptr_t>(pointer);
  size_t size = 0;
  {
    const std::lock_guard lock(memory().mutex);
    const auto found = memory().pinned.find(address);
    if (found != memory().pinned.end()) size = found->second;
  }
  if (size == 0) return violation("INVALID_FREE", "aclrtFreeHost: no live pinned block begins at " + hex(address));
  if (const std::string user = pending_use({address, address + size}); !user.empty()) {
    if (const int code = violation("FREED_IN_USE", "aclrtFreeHost of memory that " + user + " still uses")) return code;
  }
  const std::lock_guard lock(memory().mutex);
  memory().pinned.erase(address);
  std::free(pointer);
  return ACL_SUCCESS;
}

aclError aclrtMemcpy(void* dst, size_t dest_max, const void* src, size_t count, int32_t kind) {
  FAKE_ASCEND_ENTER(kDevice);
  Copy copy{};
  if (const int code = prepare_copy(__func__, dst, dest_max, src, count, kind, &copy)) return code;
  std::memmove(copy.dst, copy.src, copy.count);
  return ACL_SUCCESS;
}

aclError aclrtMemcpyAsync(void* dst, size_t dest_max, const void* src, size_t count, int32_t kind, aclrtStream stream) {
  FAKE_ASCEND_ENTER(kDevice);
  int code = 0;
  const auto target = stream_of(stream, __func__, &code);
  if (target == nullptr) return code;
  Copy copy{};
  if ((code = prepare_copy(__func__, dst, dest_max, src, count, kind, &copy)) != 0) return code;
  submit(*target, {"aclrtMemcpyAsync",
                   [copy] {
                     std::memmove(copy.dst, copy.src, copy.count);
                     return 0;
                   },
                   copy.uses});
  // Pageable host memory degrades the call to a synchronous one.
  return copy.pageable ? synchronize(*target, -1) : ACL_SUCCESS;
}

aclError aclrtMemset(void* pointer, size_t max_count, int32_t value, size_t count) {
  FAKE_ASCEND_ENTER(kDevice);
  if (const int code = prepare_set(__func__, pointer, max_count, count)) return code;
  std::memset(device_bytes(pointer), value, count);
  return ACL_SUCCESS;
}

aclError aclrtMemsetAsync(void* pointer, size_t max_count, int32_t value, size_t count, aclrtStream stream) {
  FAKE_ASCEND_ENTER(kDevice);
  int code = 0;
  const auto target = stream_of(stream, __func__, &code);
  if (target == nullptr) return code;
  if ((code = prepare_set(__func__, pointer, max_count, count)) != 0) return code;
  std::byte* const bytes = device_bytes(pointer);
  submit(*target, {"aclrtMemsetAsync",
                   [bytes, value, count] {
                     std::memset(bytes, value, count);
                     return 0;
                   },
                   {range_of(pointer, count)}});
  return ACL_SUCCESS;
}

aclError aclrtGetMemInfo(int32_t attribute, size_t* free, size_t* total) {
  FAKE_ASCEND_ENTER(kDevice);
  if (attribute != ACL_HBM_MEM || free == nullptr || total == nullptr) {
    return fail(ACL_ERROR_RT_PARAM_INVALID, "aclrtGetMemInfo: this device has HBM (1) only");
  }
  const std::lock_guard lock(memory().mutex);
  const Arena& arena = arena_of(current_device());
  *total = arena.capacity();
  *free = arena.capacity() - arena.used();
  return ACL_SUCCESS;
}
