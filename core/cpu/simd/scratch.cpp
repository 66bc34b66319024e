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
  size_t watched = 0;  // behind so many bytes nobody may write, if it is not 0
};

std::atomic<bool> is_checked{false};
constexpr size_t kBehind = 512;
constexpr unsigned char kOfNan = 0xff, kUntouched = 0xa5;

unsigned char* behind(const Scratch& scratch) {
  return static_cast<unsigned char*>(scratch.memory.get()) + scratch.watched;
}
void watch(Scratch& scratch, size_t bytes) {
  scratch.watched = bytes;
  std::memset(scratch.memory.get(), kOfNan, bytes);
  std::memset(behind(scratch), kUntouched, kBehind);
}
void check_what_is_behind(const Scratch& scratch) {
  for (size_t i = 0; i < kBehind; ++i) {
    if (behind(scratch)[i] == kUntouched) continue;
    std::fprintf(stderr, "a task asked for %zu bytes of scratch and wrote to byte %zu\n", scratch.watched,
                 scratch.watched + i);
    std::abort();
  }
}

}  // namespace

void check_scratch_use() {
  is_checked = true;
}

void* thread_scratch(size_t bytes) try {
  Scratch& scratch = sdk::thread_own<Scratch>();
  if (scratch.watched != 0) check_what_is_behind(scratch);
  scratch.watched = 0;
  const bool checked = is_checked.load(std::memory_order_relaxed);
  const size_t wanted = bytes + (checked ? kBehind : 0);
  if (scratch.bytes < wanted) {
    const size_t rounded = (wanted + 4095) / 4096 * 4096;
    scratch.memory.reset();  // first, so that both never exist at once
    scratch.memory.reset(std::aligned_alloc(64, rounded));
    scratch.bytes = scratch.memory != nullptr ? rounded : 0;
  }
  if (checked && scratch.memory != nullptr && bytes > 0) watch(scratch, bytes);
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
