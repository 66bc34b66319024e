// libcudnn and the three functions of libcuda that it needs, bound by name when a device is attached.
#pragma once

#include <cudnn_graph.h>
#include <rlk/sdk.hpp>

namespace cudnn_attention {

namespace sdk = rlk::sdk;

// NVIDIA's own frontend refuses attention by 9.10.0 and 9.10.1, and older ones need other graphs (the masked score is
// the lowest finite number, a single query takes no mask).
constexpr size_t kOldestVersion = 91002;

struct Libraries {
  decltype(&cudnnCreate) create = nullptr;
  decltype(&cudnnDestroy) destroy = nullptr;
  decltype(&cudnnSetStream) set_stream = nullptr;
  decltype(&cudnnGetErrorString) error_string = nullptr;
  decltype(&cudnnGetLastErrorString) last_error = nullptr;
  decltype(&cudnnGetVersion) version = nullptr;
  decltype(&cudnnBackendCreateDescriptor) create_descriptor = nullptr;
  decltype(&cudnnBackendDestroyDescriptor) destroy_descriptor = nullptr;
  decltype(&cudnnBackendSetAttribute) set_attribute = nullptr;
  decltype(&cudnnBackendGetAttribute) get_attribute = nullptr;
  decltype(&cudnnBackendFinalize) finalize = nullptr;
  decltype(&cudnnBackendExecute) execute = nullptr;

  int (*context_current)(void** context) = nullptr;
  int (*context_push)(void* context) = nullptr;
  int (*context_pop)(void** context) = nullptr;

  sdk::Symbols symbols;
};

// Opened on the first call. [thread-safe]
const Libraries& libraries();

// cuDNN has no kernel for what was asked.
bool is_unsupported(cudnnStatus_t status);

// Throws for anything but success; RLK_UNSUPPORTED where cuDNN has no kernel.
void check(cudnnStatus_t status, const char* attempt);

struct ContextStack {
  using Handle = void*;
  static Handle current();
  static void enter(Handle wanted);
  static void leave(Handle) noexcept;
};
using ContextScope = sdk::CurrentScope<ContextStack>;

}  // namespace cudnn_attention
