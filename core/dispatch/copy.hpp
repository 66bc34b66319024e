// Copies between the host and a device, for memory of any kind.
#pragma once

#include "core/dispatch/stream.hpp"

namespace rlk::core {

// Asynchronous when the host side is pinned memory (or both sides are the device's), else done when this returns.
// [stream]
rlk_status copy(Stream& stream, void* destination, const void* source, uint64_t bytes, int32_t kind, rlk_error* error);

}  // namespace rlk::core
