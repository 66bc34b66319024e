// The CUDA driver API as a table of functions, looked up in libcuda.so.1 at run time: building needs no CUDA headers
// and loading the plugin needs no driver. Names are those of the exports that carry today's signatures (the _v2 ones).
#pragma once

#include <rlk/sdk.hpp>

#include <cstdint>
#include <string>

namespace rlk::cuda {

using Result = int;
using DevicePointer = uint64_t;
using ContextHandle = struct ContextTag*;
using StreamHandle = struct StreamTag*;
using EventHandle = struct EventTag*;
using ModuleHandle = struct ModuleTag*;
using FunctionHandle = struct FunctionTag*;
using GraphHandle = struct GraphTag*;
using GraphExecHandle = struct GraphExecTag*;
using UserObjectHandle = struct UserObjectTag*;
using HostFunction = void (*)(void*);
struct Uuid {
  char bytes[16];
};

constexpr Result kSuccess = 0;
constexpr Result kOutOfMemory = 2;
constexpr Result kInvalidValue = 1;
constexpr Result kNotReady = 600;

// CU_DEVICE_ATTRIBUTE_*
constexpr int kAttributeWarpSize = 10;
constexpr int kAttributeMultiprocessors = 16;
constexpr int kAttributeMapsHostMemory = 19;
constexpr int kAttributePciBus = 33;
constexpr int kAttributePciDevice = 34;
constexpr int kAttributeMemoryClock = 36;  // kHz
constexpr int kAttributeBusWidth = 37;     // bits
constexpr int kAttributeL2Bytes = 38;
constexpr int kAttributeUnifiedAddressing = 41;
constexpr int kAttributePciDomain = 50;
constexpr int kAttributeMajor = 75;
constexpr int kAttributeMinor = 76;
constexpr int kAttributeSharedOptIn = 97;
constexpr int kAttributeMemoryPools = 115;

constexpr int kFunctionMaxDynamicShared = 8;  // CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
constexpr unsigned kStreamNonBlocking = 1;
constexpr unsigned kEventDisableTiming = 2;
constexpr unsigned kHostAllocPortableMapped = 3;
constexpr int kCaptureGlobal = 0;
constexpr int kCaptureThreadLocal = 1;
constexpr int kCaptureRelaxed = 2;
constexpr int kCaptureNone = 0;  // CU_STREAM_CAPTURE_STATUS_*
constexpr int kCaptureActive = 1;
constexpr unsigned kUserObjectNoDestructorSync = 1;
constexpr unsigned kGraphUserObjectMove = 1;
constexpr int kPointerMemoryType = 2;  // CU_POINTER_ATTRIBUTE_MEMORY_TYPE: 1 host, 2 device, 4 unified
constexpr int kPointerIsManaged = 8;

// member, export, parameters
#define RLK_CUDA_REQUIRED(X)                                                                                         \
  X(init, "cuInit", (unsigned flags))                                                                                \
  X(driver_version, "cuDriverGetVersion", (int* version))                                                            \
  X(device_count, "cuDeviceGetCount", (int* count))                                                                  \
  X(device_get, "cuDeviceGet", (int* device, int ordinal))                                                           \
  X(device_name, "cuDeviceGetName", (char* name, int size, int device))                                              \
  X(device_memory, "cuDeviceTotalMem_v2", (size_t * bytes, int device))                                              \
  X(device_attribute, "cuDeviceGetAttribute", (int* value, int attribute, int device))                               \
  X(device_can_access_peer, "cuDeviceCanAccessPeer", (int* can, int device, int peer))                               \
  X(context_retain, "cuDevicePrimaryCtxRetain", (ContextHandle * context, int device))                               \
  X(context_release, "cuDevicePrimaryCtxRelease_v2", (int device))                                                   \
  X(context_current, "cuCtxGetCurrent", (ContextHandle * context))                                                   \
  X(context_push, "cuCtxPushCurrent_v2", (ContextHandle context))                                                    \
  X(context_pop, "cuCtxPopCurrent_v2", (ContextHandle * context))                                                    \
  X(stream_priority_range, "cuCtxGetStreamPriorityRange", (int* least, int* greatest))                               \
  X(memory_info, "cuMemGetInfo_v2", (size_t * available, size_t * total))                                            \
  X(memory_allocate, "cuMemAlloc_v2", (DevicePointer * pointer, size_t bytes))                                       \
  X(memory_free, "cuMemFree_v2", (DevicePointer pointer))                                                            \
  X(host_allocate, "cuMemHostAlloc", (void** pointer, size_t bytes, unsigned flags))                                 \
  X(host_free, "cuMemFreeHost", (void* pointer))                                                                     \
  X(pointer_attribute, "cuPointerGetAttribute", (void* value, int attribute, DevicePointer pointer))                 \
  X(copy_async, "cuMemcpyAsync", (DevicePointer to, DevicePointer from, size_t bytes, StreamHandle stream))          \
  X(fill_async, "cuMemsetD8Async", (DevicePointer to, unsigned char value, size_t bytes, StreamHandle stream))       \
  X(stream_create, "cuStreamCreateWithPriority", (StreamHandle * stream, unsigned flags, int priority))              \
  X(stream_destroy, "cuStreamDestroy_v2", (StreamHandle stream))                                                     \
  X(stream_query, "cuStreamQuery", (StreamHandle stream))                                                            \
  X(stream_synchronize, "cuStreamSynchronize", (StreamHandle stream))                                                \
  X(stream_wait_event, "cuStreamWaitEvent", (StreamHandle stream, EventHandle event, unsigned flags))                \
  X(stream_is_capturing, "cuStreamIsCapturing", (StreamHandle stream, int* status))                                  \
  X(launch_host_function, "cuLaunchHostFunc", (StreamHandle stream, HostFunction function, void* user))              \
  X(event_create, "cuEventCreate", (EventHandle * event, unsigned flags))                                            \
  X(event_destroy, "cuEventDestroy_v2", (EventHandle event))                                                         \
  X(event_record, "cuEventRecord", (EventHandle event, StreamHandle stream))                                         \
  X(event_query, "cuEventQuery", (EventHandle event))                                                                \
  X(event_synchronize, "cuEventSynchronize", (EventHandle event))                                                    \
  X(event_elapsed, "cuEventElapsedTime", (float* ms, EventHandle start, EventHandle end))                            \
  X(module_load, "cuModuleLoadData", (ModuleHandle * module, const void* image))                                     \
  X(module_unload, "cuModuleUnload", (ModuleHandle module))                                                          \
  X(module_function, "cuModuleGetFunction", (FunctionHandle * function, ModuleHandle module, const char* name))      \
  X(function_set_attribute, "cuFuncSetAttribute", (FunctionHandle function, int attribute, int value))               \
  X(launch_kernel, "cuLaunchKernel",                                                                                 \
    (FunctionHandle function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y, \
     unsigned block_z, unsigned shared_bytes, StreamHandle stream, void** parameters, void** extra))                 \
  X(error_name, "cuGetErrorName", (Result code, const char** text))                                                  \
  X(error_string, "cuGetErrorString", (Result code, const char** text))

// Absent from older drivers; what needs them is offered only with them.
#define RLK_CUDA_OPTIONAL(X)                                                                                        \
  X(allocate_async, "cuMemAllocAsync", (DevicePointer * pointer, size_t bytes, StreamHandle stream))                \
  X(free_async, "cuMemFreeAsync", (DevicePointer pointer, StreamHandle stream))                                     \
  X(device_uuid, "cuDeviceGetUuid", (Uuid * uuid, int device))                                                      \
  X(device_uuid_v2, "cuDeviceGetUuid_v2", (Uuid * uuid, int device))                                                \
  X(copy_peer_async, "cuMemcpyPeerAsync",                                                                           \
    (DevicePointer to, ContextHandle to_context, DevicePointer from, ContextHandle from_context, size_t bytes,      \
     StreamHandle stream))                                                                                          \
  X(exchange_capture_mode, "cuThreadExchangeStreamCaptureMode", (int* mode))                                        \
  X(capture_info, "cuStreamGetCaptureInfo", (StreamHandle stream, int* status, uint64_t* id))                       \
  X(capture_info_v2, "cuStreamGetCaptureInfo_v2",                                                                   \
    (StreamHandle stream, int* status, uint64_t* id, GraphHandle* graph, const void** dependencies, size_t* count)) \
  X(user_object_create, "cuUserObjectCreate",                                                                       \
    (UserObjectHandle * out, void* pointer, HostFunction destroy, unsigned references, unsigned flags))             \
  X(user_object_release, "cuUserObjectRelease", (UserObjectHandle object, unsigned count))                          \
  X(graph_retain, "cuGraphRetainUserObject",                                                                        \
    (GraphHandle graph, UserObjectHandle object, unsigned count, unsigned flags))                                   \
  X(begin_capture, "cuStreamBeginCapture_v2", (StreamHandle stream, int mode))                                      \
  X(end_capture, "cuStreamEndCapture", (StreamHandle stream, GraphHandle * graph))                                  \
  X(graph_instantiate, "cuGraphInstantiateWithFlags", (GraphExecHandle * out, GraphHandle graph, uint64_t flags))   \
  X(graph_launch, "cuGraphLaunch", (GraphExecHandle graph, StreamHandle stream))                                    \
  X(graph_exec_destroy, "cuGraphExecDestroy", (GraphExecHandle graph))                                              \
  X(graph_destroy, "cuGraphDestroy", (GraphHandle graph))

struct Driver {
#define RLK_CUDA_MEMBER(member, symbol, parameters) Result(*member) parameters = nullptr;
  RLK_CUDA_REQUIRED(RLK_CUDA_MEMBER)
  RLK_CUDA_OPTIONAL(RLK_CUDA_MEMBER)
#undef RLK_CUDA_MEMBER

  sdk::Symbols symbols;
  std::string path;  // of the library that was loaded, links resolved

  bool usable() const noexcept {
    return symbols.complete();
  }
  // Why the table cannot be used.
  std::string problem() const {
    return path.empty() ? symbols.problem() : path + " lacks " + symbols.missing_functions();
  }
  bool has_graphs() const noexcept {
    return begin_capture && end_capture && graph_instantiate && graph_launch && graph_exec_destroy && graph_destroy &&
           capture_info;
  }
  // "CUDA_ERROR_NO_DEVICE (100): no CUDA-capable device is detected"
  std::string describe(Result code) const;
};

// Opens libcuda.so.1 once per process; it stays open. The table is unusable, never absent.
const Driver& driver();

// Throws for anything but success: what was attempted, the driver's own words, and the status that fits the code.
void check(Result code, const char* attempt);

}  // namespace rlk::cuda
