// One block per thread, which only grows and is freed when the thread ends.
#include "core/cpu/simd/scratch.hpp"

#include <rlk/sdk/error.hpp>
#include <rlk/sdk/thread_own.hpp>

#include <cstdlib>
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
};

}  // namespace

void* thread_scratch(size_t bytes) try {
  Scratch& scratch = sdk::thread_own<Scratch>();
  if (scratch.bytes < bytes) {
    const size_t rounded = (bytes + 4095) / 4096 * 4096;
    scratch.memory.reset();  // first, so that both never exist at once
    scratch.memory.reset(std::aligned_alloc(64, rounded));
    scratch.bytes = scratch.memory != nullptr ? rounded : 0;
  }
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
