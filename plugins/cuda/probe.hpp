// Is this machine's hardware NVIDIA's, and what speaks for and against it?
#pragma once

#include <rlk/sdk.hpp>

#include <string>

namespace rlk::cuda {

sdk::Verdict probe(sdk::Evidence& evidence);

// The version of the kernel module ("580.159.04"), empty when it cannot be read.
std::string kernel_driver_version();

// Of CUDA, as the driver supports it ("13.0"), empty when it does not say.
std::string cuda_version();

}  // namespace rlk::cuda
