#include "core/cpu/simd/past_caches.hpp"

#include <unistd.h>

#include <algorithm>

namespace rlk::cpu {

bool exceeds_caches(double bytes) {
  // 0 or -1 where it is not known. A virtual machine may tell less than there is, and share it with other machines.
  static const auto cache = static_cast<double>(std::max(sysconf(_SC_LEVEL3_CACHE_SIZE), 32L << 20));
  return bytes > cache;
}

}  // namespace rlk::cpu
