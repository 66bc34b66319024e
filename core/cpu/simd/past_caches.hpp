// Outputs that no cache holds are written past the caches: through them, every line of memory would be read before it
// is written.
#pragma once

#include <cstdint>

namespace rlk::cpu {

constexpr int64_t kCacheLine = 64;  // bytes

// Whether a tensor of so many bytes is larger than the last cache.
bool exceeds_caches(double bytes);

}  // namespace rlk::cpu
