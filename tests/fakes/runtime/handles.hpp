// What a handle of the runtime leads to. A handle is a number that is never used twice, carries its kind, and is no
// address: reading through it faults, as through a vendor's opaque pointer.
#pragma once

#include "calls.hpp"

#include <map>
#include <memory>
#include <mutex>
#include <vector>

namespace fake {

template <class T>
class Handles {
public:
  // kind: another number for each table of a library.
  Handles(int kind, const char* noun) : base_(0x0051000000000000u + (static_cast<uint64_t>(kind) << 40)), noun_(noun) {}

  void* add(std::shared_ptr<T> object) {
    const std::lock_guard lock(mutex_);
    const uint64_t id = base_ + 16 * ++last_;
    live_.emplace(id, std::move(object));
    return reinterpret_cast<void*>(id);
  }
  // A handle that is not live is a violation.
  std::shared_ptr<T> get(const void* handle, const char* call) {
    if (std::shared_ptr<T> object = find(handle)) return object;
    const bool was_ours = was_live(handle);
    violation(was_ours ? "DESTROYED_HANDLE" : "INVALID_HANDLE",
              std::string(call) + ": " + (was_ours ? "a destroyed " : "not a ") + noun_);
  }
  std::shared_ptr<T> find(const void* handle) {
    const std::lock_guard lock(mutex_);
    const auto found = live_.find(reinterpret_cast<uint64_t>(handle));
    return found == live_.end() ? nullptr : found->second;
  }
  // It was given by this table, and may be gone.
  bool was_live(const void* handle) {
    const std::lock_guard lock(mutex_);
    const uint64_t id = reinterpret_cast<uint64_t>(handle);
    return id > base_ && id <= base_ + 16 * last_ && id % 16 == 0;
  }
  const char* noun() const { return noun_; }
  void remove(const void* handle) {
    const std::lock_guard lock(mutex_);
    live_.erase(reinterpret_cast<uint64_t>(handle));
  }
  // The objects of which that is true, which the table forgets.
  template <class Is>
  std::vector<std::shared_ptr<T>> take_if(const Is& is) {
    const std::lock_guard lock(mutex_);
    std::vector<std::shared_ptr<T>> taken;
    for (auto at = live_.begin(); at != live_.end();) {
      if (is(*at->second)) {
        taken.push_back(std::move(at->second));
        at = live_.erase(at);
      } else {
        ++at;
      }
    }
    return taken;
  }
  // Of a live handle: the object, which the table forgets.
  std::shared_ptr<T> take(const void* handle, const char* call) {
    std::shared_ptr<T> object = get(handle, call);
    remove(handle);
    return object;
  }
  size_t size() {
    const std::lock_guard lock(mutex_);
    return live_.size();
  }
  std::vector<std::shared_ptr<T>> all() {
    const std::lock_guard lock(mutex_);
    std::vector<std::shared_ptr<T>> objects;
    for (const auto& [id, object] : live_) objects.push_back(object);
    return objects;
  }

private:
  std::mutex mutex_;
  const uint64_t base_;
  const char* noun_;
  uint64_t last_ = 0;
  std::map<uint64_t, std::shared_ptr<T>> live_;
};

}  // namespace fake

// Handles<Type>& function(): a table that is never destroyed.
#define FAKE_HANDLES(Type, function, kind, noun)                    \
  fake::Handles<Type>& function() {                                 \
    static auto* const table = new fake::Handles<Type>(kind, noun); \
    return *table;                                                  \
  }
