// How does the simulator notice a destroyed or foreign handle? A handle is a number that is never used twice, carries
// its kind, and is no address: reading through it faults, as through a vendor's opaque pointer.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "state.h"

namespace fake_ascend {

template <typename T>
class HandleTable {
public:
  HandleTable(uint64_t kind, const char* noun) : base_(0x00ac000000000000u | (kind << 40)), noun_(noun) {}

  void* add(std::shared_ptr<T> object) {
    const std::lock_guard lock(mutex_);
    const uint64_t id = base_ + 16 * next_++;
    live_.emplace(id, std::move(object));
    return reinterpret_cast<void*>(id);
  }

  // Null and one violation when the handle is not live.
  std::shared_ptr<T> get(const void* handle, const char* call) const {
    if (auto object = find(handle)) return object;
    const uint64_t id = reinterpret_cast<uint64_t>(handle);
    const bool was_ours = id >= base_ && id < base_ + 16 * next_ && id % 16 == 0;
    violation(was_ours ? "DESTROYED_HANDLE" : "INVALID_HANDLE",
              std::string(call) + ": " + (was_ours ? "destroyed " : "not a ") + noun_ + " " + std::to_string(id));
    return nullptr;
  }

  std::shared_ptr<T> find(const void* handle) const {
    const std::lock_guard lock(mutex_);
    const auto found = live_.find(reinterpret_cast<uint64_t>(handle));
    return found == live_.end() ? nullptr : found->second;
  }

  void remove(const void* handle) {
    const std::lock_guard lock(mutex_);
    live_.erase(reinterpret_cast<uint64_t>(handle));
  }

  uint64_t size() const {
    const std::lock_guard lock(mutex_);
    return live_.size();
  }

  template <typename Visit>
  void for_each(Visit visit) const {
    const std::lock_guard lock(mutex_);
    for (const auto& [id, object] : live_) visit(object);
  }

private:
  mutable std::mutex mutex_;
  uint64_t base_;
  std::string noun_;
  uint64_t next_ = 1;
  std::unordered_map<uint64_t, std::shared_ptr<T>> live_;
};

}  // namespace fake_ascend
