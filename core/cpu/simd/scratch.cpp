// One block per thread, which only grows and is freed when the thread ends.
#include "core/cpu/simd/scratch.hpp"

#include <rlk/sdk/error.hpp>
#include <rlk/sdk/thread_own.hpp>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>

namespace rlk::cpu {
namespace {

struct Free {
  void operator()(void* memory) const { std::free(memory); }
};
struct Scratch {
  std::unique_ptr<void, Free> memory;
  size_t bytes = 0;
  size_t watched = 0;  // if not 0: the caller's bytes, around which it may not write
};

std::atomic<bool> is_checked{false}, is_denied{false};
std::atomic<int64_t> denials{0};
constexpr size_t kAround = 512;
constexpr unsigned char kOfNan = 0xff, kUntouched = 0xa5;

// When it is watched.
unsigned char* handed_out(const Scratch& scratch) {
  return static_cast<unsigned char*>(scratch.memory.get()) + kAround;
}
void* watch(Scratch& scratch, size_t bytes) {
  scratch.watched = bytes;
  std::memset(scratch.memory.get(), kUntouched, kAround);
  std::memset(handed_out(scratch), kOfNan, bytes);
  std::memset(handed_out(scratch) + bytes, kUntouched, kAround);
  return handed_out(scratch);
}
void check_what_is_around(const Scratch& scratch) {
  const auto bytes = static_cast<ptrdiff_t>(scratch.watched), around = static_cast<ptrdiff_t>(kAround);
  for (ptrdiff_t i = -around; i < bytes + around; i = i == -1 ? bytes : i + 1) {
    if (handed_out(scratch)[i] == kUntouched) continue;
    std::fprintf(stderr, "a task asked for %td bytes of scratch and wrote to byte %td\n", bytes, i);
    std::abort();
  }
}

}  // namespace

void check_scratch_use() {
  is_checked = true;
}

int64_t deny_scratch(bool denied) {
  is_denied = denied;
  return denials.exchange(0);
}

void* thread_scratch(size_t bytes) try {
  if (is_denied.load(std::memory_order_relaxed)) {
    ++denials;
    return nullptr;
  }
  Scratch& scratch = sdk::thread_own<Scratch>();
  if (scratch.watched != 0) check_what_is_around(scratch);
  scratch.watched = 0;
  const bool checked = is_checked.load(std::memory_order_relaxed);
  const size_t wanted = bytes + (checked ? 2 * kAround : 0);
  if (scratch.bytes < wanted) {
    const size_t rounded = (wanted + 4095) / 4096 * 4096;
    scratch.memory.reset();  // first, so that both never exist at once
    scratch.memory.reset(std::aligned_alloc(64, rounded));
    scratch.bytes = scratch.memory != nullptr ? rounded : 0;
  }
  if (checked && scratch.memory != nullptr && bytes > 0) return watch(scratch, bytes);
  return scratch.memory.get();
} catch (const std::bad_alloc&) {
  return nullptr;
}

void throw_no_scratch() {
  throw sdk::Error(RLK_OUT_OF_MEMORY,
                   "no host memory for the scratch of a thread (at most 3 MiB); the outputs are incomplete: free some "
                   "memory, or use fewer threads");
}

}  // namespace rlk::cpu
