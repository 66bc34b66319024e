// The CUDA plugin as a host sees it, on the simulated driver, and that driver as an embedder calls it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "framework/plugin_fixture.hpp"

// What an embedder calls, and what the emulation tells (tests/fakes/cuda).
extern "C" {
int cuDevicePrimaryCtxRetain(void** context, int device);
int cuDevicePrimaryCtxRelease_v2(int device);
int cuInit(unsigned flags);
int cuCtxGetCurrent(void** context);
int cuCtxPushCurrent_v2(void* context);
int cuCtxPopCurrent_v2(void** context);
int cuMemAlloc_v2(void** pointer, size_t bytes);
int cuStreamCreateWithPriority(void** stream, unsigned flags, int priority);
int cuStreamDestroy_v2(void* stream);
int cuStreamBeginCapture_v2(void* stream, int mode);
int cuStreamEndCapture(void* stream, void** graph);
int cuGraphInstantiateWithFlags(void** exec, void* graph, uint64_t flags);
int cuGraphExecDestroy(void* exec);
int cuGraphDestroy(void* graph);
int cuEventCreate(void** event, unsigned flags);
int cuEventDestroy_v2(void* event);
int fakeCudaRetained(int device);
void fakeResetCalls();
}

namespace cuda_plugin {

using rlk::test::no_error;
using rlk::test::Variable;
using Fixture = rlk::test::PluginFixture;

// What an embedder's thread works in: device 0's context.
class EmbeddersContext {
public:
  EmbeddersContext() {
    void* context = nullptr;
    cuDevicePrimaryCtxRetain(&context, 0);
    cuCtxPushCurrent_v2(context);
  }
  ~EmbeddersContext() {
    void* context = nullptr;
    cuCtxPopCurrent_v2(&context);
    cuDevicePrimaryCtxRelease_v2(0);
  }
  EmbeddersContext(const EmbeddersContext&) = delete;
  EmbeddersContext& operator=(const EmbeddersContext&) = delete;
};

}  // namespace cuda_plugin
