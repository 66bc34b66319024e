// The CUDA plugin as a host sees it, on the emulated driver, and that driver as an embedder calls it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "framework/plugin_fixture.hpp"

// What an embedder calls, and what the emulation tells (tests/fakes/cuda).
extern "C" {
int cuDevicePrimaryCtxRetain(void** context, int device);
int cuDevicePrimaryCtxRelease_v2(int device);
int cuCtxGetCurrent(void** context);
int cuCtxPushCurrent_v2(void* context);
int cuCtxPopCurrent_v2(void** context);
int cuMemAlloc_v2(uint64_t* pointer, size_t bytes);
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
}

namespace cuda_plugin {

using rlk::test::no_error;
using rlk::test::Variable;
using Fixture = rlk::test::PluginFixture;

}  // namespace cuda_plugin
