// A program whose allocations fail when a test says so: operator new of the whole process. Included by one source of a
// program alone.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>

namespace rlk::testing {

// Counts the allocations of every thread while it is armed.
class FailingAllocations {
public:
  // once: the n-th alone fails. from_there_on: that and all later ones, until disarmed.
  enum class Mode { once, from_there_on };
  static void arm(uint64_t n, Mode mode) {
    seen() = 0;
    failed() = false;
    only_once() = mode == Mode::once;
    at() = n;
  }
  // Whether one has failed.
  static bool disarm() {
    at() = 0;
    return failed();
  }
  // The rest of what is armed has memory again.
  static void relent() { at() = 0; }
  static bool fails_now() {
    const uint64_t n = at();
    if (n == 0) return false;
    const uint64_t now = ++seen();
    if (only_once() ? now != n : now < n) return false;
    failed() = true;
    return true;
  }

private:
  static std::atomic<uint64_t>& at() {
    static std::atomic<uint64_t> n{0};  // 0: not armed
    return n;
  }
  static std::atomic<uint64_t>& seen() {
    static std::atomic<uint64_t> n{0};
    return n;
  }
  static std::atomic<bool>& failed() {
    static std::atomic<bool> is{false};
    return is;
  }
  static std::atomic<bool>& only_once() {
    static std::atomic<bool> is{true};
    return is;
  }
};

inline void* allocate_or_null(std::size_t bytes, std::size_t alignment) noexcept {
  if (FailingAllocations::fails_now()) return nullptr;
  const std::size_t whole = bytes == 0 ? 1 : bytes;
  if (alignment <= alignof(std::max_align_t)) return std::malloc(whole);
  return std::aligned_alloc(alignment, (whole + alignment - 1) / alignment * alignment);
}
inline void* allocate_or_throw(std::size_t bytes, std::size_t alignment) {
  void* memory = allocate_or_null(bytes, alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace rlk::testing

#if defined(__GNUC__) && !defined(__clang__)
// g++ 13 warns where it inlines one of these and not its counterpart, although both are malloc's.
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"
#endif

// Of the program, in place of the library's.
void* operator new(std::size_t bytes) {
  return rlk::testing::allocate_or_throw(bytes, 1);
}
void* operator new[](std::size_t bytes) {
  return rlk::testing::allocate_or_throw(bytes, 1);
}
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return rlk::testing::allocate_or_throw(bytes, static_cast<std::size_t>(alignment));
}
void* operator new[](std::size_t bytes, std::align_val_t alignment) {
  return rlk::testing::allocate_or_throw(bytes, static_cast<std::size_t>(alignment));
}
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  return rlk::testing::allocate_or_null(bytes, 1);
}
void* operator new[](std::size_t bytes, const std::nothrow_t&) noexcept {
  return rlk::testing::allocate_or_null(bytes, 1);
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete[](void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}
void operator delete[](void* memory, std::size_t) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::align_val_t) noexcept {
  std::free(memory);
}
void operator delete[](void* memory, std::align_val_t) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
  std::free(memory);
}
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept {
  std::free(memory);
}
