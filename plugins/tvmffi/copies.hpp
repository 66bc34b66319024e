// A copy within the device's memory, in the order of a stream, by the runtime that the backend's plugin has loaded.
#pragma once

#include <dlfcn.h>
#include <rlk/sdk/error.hpp>

#include <cstddef>
#include <cstring>
#include <initializer_list>
#include <string>

#include "plugins/tvmffi/abi.hpp"

namespace rlk::tvmffi {

class Copies {
public:
  // Throws where the runtime is not there.
  explicit Copies(int32_t device) : device_(device) {
    if (device == kDlCuda) {
      void* driver = runtime({"libcuda.so.1"});
      find(driver, "cuStreamGetCtx", &context_of_);
      find(driver, "cuCtxPushCurrent_v2", &push_);
      find(driver, "cuCtxPopCurrent_v2", &pop_);
      find(driver, "cuMemcpyDtoDAsync_v2", &copy_);
    } else if (device == kDlRocm) {
      find(runtime({"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5", "libamdhip64.so"}),
           "hipMemcpyDtoDAsync", &copy_);
    }
  }

  void run(void* stream, void* to, const void* from, size_t bytes) const {
    if (bytes == 0) return;
    if (copy_ == nullptr) {
      std::memcpy(to, from, bytes);
      return;
    }
    void* context = nullptr;
    int code = 0;
    if (context_of_ != nullptr) code = context_of_(stream, &context);
    if (code == 0 && push_ != nullptr) code = push_(context);
    if (code == 0) {
      code = copy_(to, const_cast<void*>(from), bytes, stream);
      if (pop_ != nullptr) pop_(&context);
    }
    if (code != 0)
      throw sdk::Error(RLK_BACKEND_ERROR, "copying what a kernel writes over failed", code,
                       device_ == kDlCuda ? "cuda" : "hip");
  }

private:
  static void* runtime(std::initializer_list<const char*> names) {
    for (const int flags : {RTLD_NOW | RTLD_NOLOAD, RTLD_NOW}) {
      for (const char* name : names) {
        void* found = dlopen(name, flags);
        if (found != nullptr) return found;
      }
    }
    throw sdk::Error(RLK_NOT_FOUND,
                     std::string(*names.begin()) + " is not here, which copies what a kernel writes over");
  }
  template <class F>
  static void find(void* library, const char* name, F* out) {
    *out = reinterpret_cast<F>(dlsym(library, name));
    if (*out == nullptr) throw sdk::Error(RLK_NOT_FOUND, std::string("the runtime has no ") + name);
  }

  const int32_t device_;
  int (*context_of_)(void* stream, void** context) = nullptr;
  int (*push_)(void* context) = nullptr;
  int (*pop_)(void** context) = nullptr;
  int (*copy_)(void* to, void* from, size_t bytes, void* stream) = nullptr;  // an address is as wide as CUdeviceptr
};

}  // namespace rlk::tvmffi
