// Is this machine's hardware NVIDIA's, and what speaks for and against it?
#pragma once

#include "driver.hpp"

namespace rlk::cuda {

sdk::Verdict probe(sdk::Evidence& evidence);

// Devices that the driver shows, 0 when there is no usable driver. Initialises the driver.
int device_count();

// The version of the kernel module ("580.159.04"), empty when it cannot be read.
std::string kernel_driver_version();

}  // namespace rlk::cuda
