// The compiled kernels inside this plugin, one fat binary per file of kernels.
#pragma once

namespace rlk::cuda {

// Whether nvcc was there when this plugin was built.
bool images_built() noexcept;

// By the file's name; nullptr when there is none. One fat binary serves every device.
const void* image_of(const char* name, int device);

}  // namespace rlk::cuda
