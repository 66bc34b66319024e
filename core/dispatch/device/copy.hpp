// Copies between the host and a device, for memory of any kind.
#pragma once

#include "core/dispatch/device/stream.hpp"

namespace rlk::core {

// Asynchronous when the host side is pinned memory (or both sides are the device's), else done when this returns.
// [stream]
rlk_status copy(Stream& stream, void* destination, const void* source, uint64_t bytes, int32_t kind, rlk_error* error);

struct Place {
  void* memory = nullptr;
  DeviceState* device = nullptr;
};
// Between two devices of one backend; the stream belongs to one of them. Asynchronous. [stream]
rlk_status copy_peer(Stream& stream, const Place& to, const Place& from, uint64_t bytes, rlk_error* error);

}  // namespace rlk::core
