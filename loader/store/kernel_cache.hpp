// Plugins' compiled kernels, kept in the store: what the host service rlk.kernel_cache/1 stands on.
#pragma once

#include "loader/host/services.hpp"
#include "loader/store/store.hpp"

namespace rlk::loader {

// For set_kernel_cache. The store outlives the process's use of it. Entries are separate per plugin.
KernelCache kernel_cache(Store* store);

}  // namespace rlk::loader
