// CUDA's driver API as the table that plugins/simt/host asks for.
#pragma once

#include "../simt/host/driver.hpp"

namespace rlk::cuda {

// Opens libcuda.so.1, which stays open. The table is unusable where that is missing or lacks something.
simt::host::Driver open_driver();

}  // namespace rlk::cuda
