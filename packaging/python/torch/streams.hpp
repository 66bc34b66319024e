// The rlk stream that stands for torch's current one.
#pragma once

#include "rlk_torch.h"

namespace rlk::torch {

struct Device {
  int32_t type = 0, index = 0;  // torch's
  bool operator==(const Device& other) const = default;
};

void set_resolver(rlk_torch_resolve given);

// Of the calling thread. On the CPU a stream of its own, elsewhere one around torch's current stream of the device;
// kept for the thread until plugins are reloaded. nullptr with the error filled when no backend serves such memory.
rlk_stream* current_stream(Device device, rlk_error* error);

// Streams made before, and what was said of a device's backend, are of plugins that may have been replaced.
void note_reload();

}  // namespace rlk::torch
