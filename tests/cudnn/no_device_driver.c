/* libcuda.so.1 of a machine without a device, as far as cuDNN looks: cuDNN checks and compiles for a described device
   only when these functions are there. Nothing can be launched: whatever needs a device answers that there is none. */
#include <stddef.h>

#define API __attribute__((visibility("default"))) int
enum { kSuccess = 0, kInvalidValue = 1, kNoDevice = 100 };

#define WITHOUT_DEVICE(name) \
  API name(void);            \
  API name(void) {           \
    return kNoDevice;        \
  }

WITHOUT_DEVICE(cuInit)
WITHOUT_DEVICE(cuCtxGetLimit)
WITHOUT_DEVICE(cuCtxPopCurrent)
WITHOUT_DEVICE(cuCtxPopCurrent_v2)
WITHOUT_DEVICE(cuCtxPushCurrent)
WITHOUT_DEVICE(cuCtxPushCurrent_v2)
WITHOUT_DEVICE(cuDeviceGet)
WITHOUT_DEVICE(cuKernelGetAttribute)
WITHOUT_DEVICE(cuKernelSetAttribute)
WITHOUT_DEVICE(cuLaunchCooperativeKernel)
WITHOUT_DEVICE(cuLaunchKernel)
WITHOUT_DEVICE(cuLaunchKernelEx)
WITHOUT_DEVICE(cuLibraryGetKernel)
WITHOUT_DEVICE(cuLibraryLoadData)
WITHOUT_DEVICE(cuLibraryLoadFromFile)
WITHOUT_DEVICE(cuLibraryUnload)
WITHOUT_DEVICE(cuLinkAddData)
WITHOUT_DEVICE(cuLinkComplete)
WITHOUT_DEVICE(cuLinkCreate)
WITHOUT_DEVICE(cuLinkDestroy)
WITHOUT_DEVICE(cuOccupancyMaxPotentialClusterSize)
WITHOUT_DEVICE(cuStreamGetCtx)

API cuDeviceGetCount(int* count);
API cuDeviceGetCount(int* count) {
  *count = 0;
  return kSuccess;
}

API cuCtxGetCurrent(void** context);
API cuCtxGetCurrent(void** context) {
  *context = NULL;
  return kSuccess;
}

API cuDriverGetVersion(int* version);
API cuDriverGetVersion(int* version) {
  *version = 13000;
  return kSuccess;
}

API cuGetErrorName(int code, const char** text);
API cuGetErrorName(int code, const char** text) {
  *text = code == kNoDevice ? "CUDA_ERROR_NO_DEVICE" : NULL;
  return code == kNoDevice ? kSuccess : kInvalidValue;
}

API cuGetErrorString(int code, const char** text);
API cuGetErrorString(int code, const char** text) {
  *text = code == kNoDevice ? "no device" : NULL;
  return code == kNoDevice ? kSuccess : kInvalidValue;
}
