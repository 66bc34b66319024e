// The compiled kernels inside this plugin, one fat binary per file of kernels.
#pragma once

namespace rlk::cuda {

// Whether nvcc was there when this plugin was built.
bool images_built() noexcept;

// The least compute capability, "sm_90" is 90, for which kernels here wait for those ahead of them: what older ones
// have is made for any order of theirs. 0: none.
int first_waiting_architecture() noexcept;

// By the file's name; nullptr when there is none. One fat binary serves every device.
const void* image_of(const char* name, int device);

}  // namespace rlk::cuda
