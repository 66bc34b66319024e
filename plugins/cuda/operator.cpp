// Devices that no operator runs on.
#include "operator.hpp"

namespace rlk::cuda {

sdk::Refusal refuse_device(const CudaDevice& device) {
  if (!kernels_built()) {
    return sdk::Support::no("KERNELS_NOT_BUILT",
                            "this plugin was built without nvcc and holds no kernels; rebuild it with nvcc");
  }
  if (device.major() < 8) {
    return sdk::Support::no(
        "ARCH", sdk::format("the device is sm_%d; the kernels are built for sm_80 and later", device.arch()));
  }
  return std::nullopt;
}

}  // namespace rlk::cuda
