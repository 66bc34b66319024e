// Plugins' compiled kernels, kept in the store: what the host service rlk.kernel_cache/1 stands on.
#pragma once

#include "core/dispatch/host.hpp"
#include "loader/store/store.hpp"

namespace rlk::loader {

// For core::set_kernel_cache. The store outlives the process's use of it. Entries are separate per plugin.
core::KernelCache kernel_cache(Store* store);

}  // namespace rlk::loader
