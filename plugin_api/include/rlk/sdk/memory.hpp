// Memory of one of the two kinds, as rlk_device_api.allocate promises it.
#pragma once

#include <rlk/abi.h>
#include <rlk/sdk/error.hpp>

#include <cstdint>

namespace rlk::sdk {

// on_device() or pinned(), as the kind says; what is not aligned to 256 bytes is given to free(memory) and refused.
template <class OnDevice, class Pinned, class Free>
void* allocate_of_kind(int32_t kind, OnDevice&& on_device, Pinned&& pinned, Free&& free) {
  if (kind != RLK_MEMORY_DEVICE && kind != RLK_MEMORY_PINNED) {
    throw Error(RLK_INVALID_ARGUMENT, format("memory kind %d; the kinds are 0 (device) and 1 (pinned)", kind));
  }
  void* const memory = kind == RLK_MEMORY_PINNED ? pinned() : on_device();
  if (reinterpret_cast<uintptr_t>(memory) % 256 == 0) return memory;
  free(memory);
  throw Error(RLK_BACKEND_ERROR, format("the runtime gave memory at %p, which is not aligned to 256 bytes", memory));
}

}  // namespace rlk::sdk
