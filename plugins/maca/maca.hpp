// What the plugin takes from MACA, whose headers are not public, and how each is known:
//   site      called so in published code that runs on MetaX devices
//   listed    in a published re-declaration of MetaX's header, by MetaX's own people
//   analogy   as CUDA and HIP have it; no published code was found that shows it
// Whatever is wrong here, the smoke test of the device meets it in a child process before any user does.
#pragma once

#include <string>
#include <vector>

#include "../simt/host/runtime_api.hpp"

// X(member of Driver, function): what MACA calls otherwise than HIP.
#define RLK_MACA_REQUIRED(X)                      \
  X(host_allocate_plain, mcMallocHost) /* site */ \
  X(host_free, mcFreeHost)             /* site */
// Not bound: mcPointerGetAttribute (site), whose numbers of attributes are not known, and a wrong answer is worse than
// none; user objects of graphs, of which nothing is known; mcFuncSetAttribute, which takes no mcFunction_t (site).
#define RLK_MACA_OPTIONAL(X) X(device_uuid, mcDeviceGetUuid) /* exported (site), parameters by analogy */

// X(member of Attributes, mcDeviceAttribute..., number), all listed: the order there, from 0. Neither CUDA's nor HIP's.
#define RLK_MACA_ATTRIBUTES(X)                \
  X(shared_bytes, MaxSharedMemoryPerBlock, 7) \
  X(warp_size, WaveSize, 10)                  \
  X(memory_clock, MemoryClockRate, 14)        \
  X(bus_width, MemoryBusWidth, 15)            \
  X(multiprocessors, MultiProcessorCount, 16) \
  X(l2_bytes, L2CacheSize, 18)                \
  X(pci_bus, PciBusId, 24)                    \
  X(pci_device, PciDeviceId, 25)              \
  X(memory_pools, MemoryPoolsSupported, 63)

namespace rlk::maca {

// Where a MACA installation puts its libraries, for processes whose loader does not know.
std::vector<std::string> folders();

constexpr int kAttributeMajor = 21, kAttributeMinor = 22;  // listed

// "3050", as mcDriverGetVersion says it: how a release is written in that number is not known.
std::string runtime_version();

}  // namespace rlk::maca
