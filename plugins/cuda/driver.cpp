// NVIDIA's part of the table: the exports of libcuda.so.1 that carry today's signatures (the _v2 ones), the numbers of
// attributes, and what an architecture is worth.
#include "driver.hpp"

#include "../simt/host/calls.hpp"
#include "images.hpp"
#include "probe.hpp"

// member of simt::host::Driver, export
#define RLK_CUDA_REQUIRED(X)                              \
  X(init, "cuInit")                                       \
  X(driver_version, "cuDriverGetVersion")                 \
  X(device_count, "cuDeviceGetCount")                     \
  X(device_get, "cuDeviceGet")                            \
  X(device_name, "cuDeviceGetName")                       \
  X(device_memory, "cuDeviceTotalMem_v2")                 \
  X(device_attribute, "cuDeviceGetAttribute")             \
  X(device_can_access_peer, "cuDeviceCanAccessPeer")      \
  X(context_retain, "cuDevicePrimaryCtxRetain")           \
  X(context_release, "cuDevicePrimaryCtxRelease_v2")      \
  X(context_current, "cuCtxGetCurrent")                   \
  X(context_push, "cuCtxPushCurrent_v2")                  \
  X(context_pop, "cuCtxPopCurrent_v2")                    \
  X(stream_priority_range, "cuCtxGetStreamPriorityRange") \
  X(memory_info, "cuMemGetInfo_v2")                       \
  X(memory_allocate, "cuMemAlloc_v2")                     \
  X(memory_free, "cuMemFree_v2")                          \
  X(host_allocate, "cuMemHostAlloc")                      \
  X(host_free, "cuMemFreeHost")                           \
  X(copy_async, "cuMemcpyAsync")                          \
  X(fill_async, "cuMemsetD8Async")                        \
  X(stream_create, "cuStreamCreateWithPriority")          \
  X(stream_destroy, "cuStreamDestroy_v2")                 \
  X(stream_query, "cuStreamQuery")                        \
  X(stream_synchronize, "cuStreamSynchronize")            \
  X(stream_wait_event, "cuStreamWaitEvent")               \
  X(stream_is_capturing, "cuStreamIsCapturing")           \
  X(launch_host_function, "cuLaunchHostFunc")             \
  X(event_create, "cuEventCreate")                        \
  X(event_destroy, "cuEventDestroy_v2")                   \
  X(event_record, "cuEventRecord")                        \
  X(event_query, "cuEventQuery")                          \
  X(event_synchronize, "cuEventSynchronize")              \
  X(event_elapsed, "cuEventElapsedTime")                  \
  X(module_load, "cuModuleLoadData")                      \
  X(module_unload, "cuModuleUnload")                      \
  X(module_function, "cuModuleGetFunction")               \
  X(function_set_attribute, "cuFuncSetAttribute")         \
  X(launch_kernel, "cuLaunchKernel")                      \
  X(error_name, "cuGetErrorName")                         \
  X(error_string, "cuGetErrorString")

// Absent from older drivers; what needs them is offered only with them.
#define RLK_CUDA_OPTIONAL(X)                                    \
  X(allocate_async, "cuMemAllocAsync")                          \
  X(free_async, "cuMemFreeAsync")                               \
  X(device_uuid, "cuDeviceGetUuid")                             \
  X(device_uuid_v2, "cuDeviceGetUuid_v2")                       \
  X(copy_peer_async, "cuMemcpyPeerAsync")                       \
  X(exchange_capture_mode, "cuThreadExchangeStreamCaptureMode") \
  X(capture_info, "cuStreamGetCaptureInfo")                     \
  X(capture_info_v2, "cuStreamGetCaptureInfo_v2")               \
  X(user_object_create, "cuUserObjectCreate")                   \
  X(user_object_release, "cuUserObjectRelease")                 \
  X(graph_retain, "cuGraphRetainUserObject")                    \
  X(begin_capture, "cuStreamBeginCapture_v2")                   \
  X(end_capture, "cuStreamEndCapture")                          \
  X(graph_instantiate, "cuGraphInstantiateWithFlags")           \
  X(graph_launch, "cuGraphLaunch")                              \
  X(graph_exec_destroy, "cuGraphExecDestroy")                   \
  X(graph_destroy, "cuGraphDestroy")

namespace rlk::cuda {
namespace {

using namespace simt::host;

// CU_DEVICE_ATTRIBUTE_*
constexpr Attributes kAttributes = [] {
  Attributes at;
  at.warp_size = 10;
  at.multiprocessors = 16;
  at.maps_host_memory = 19;
  at.pci_bus = 33;
  at.pci_device = 34;
  at.memory_clock = 36;
  at.bus_width = 37;
  at.l2_bytes = 38;
  at.unified_addressing = 41;
  at.pci_domain = 50;
  at.shared_bytes = 97;  // that a block may opt in to
  at.memory_pools = 115;
  return at;
}();

// cuPointerGetAttribute would answer an address that CUDA does not know with an error, which compute-sanitizer tells as
// one of the program. The form for several attributes answers with success and zeros.
Result (*pointer_attributes)(unsigned count, int* attributes, void** values, const void* pointer);

Result pointer_attribute(void* value, int attribute, const void* pointer) {
  return pointer_attributes(1, &attribute, &value, pointer);
}

// CUlaunchConfig with CUlaunchAttribute, as CUDA 12 and 13 have them.
struct LaunchAttribute {
  int id, reserved;
  union {
    int value;
    char room[64];
  };
};
struct LaunchConfig {
  unsigned grid[3], block[3], shared_bytes;
  StreamHandle stream;
  LaunchAttribute* attributes;
  unsigned count;
};
static_assert(sizeof(LaunchAttribute) == 72 && sizeof(LaunchConfig) == 56);
constexpr int kProgrammaticStreamSerialization = 6;
Result (*launch_with_config)(const LaunchConfig* config, FunctionHandle function, void** parameters, void** extra);

Result launch_early(FunctionHandle function, unsigned blocks, unsigned threads, unsigned shared_bytes,
                    StreamHandle stream, void** parameters) {
  LaunchAttribute early{};
  early.id = kProgrammaticStreamSerialization;
  early.value = 1;
  const LaunchConfig config = {{blocks, 1, 1}, {threads, 1, 1}, shared_bytes, stream, &early, 1};
  return launch_with_config(&config, function, parameters, nullptr);
}

constexpr int kAttributeMajor = 75, kAttributeMinor = 76;

Profile profile_of(int device) {
  constexpr const char* kAsking = "asking for the device's compute capability";
  const int major = needed_attribute(device, kAttributeMajor, kAsking);
  const int arch = 10 * major + needed_attribute(device, kAttributeMinor, kAsking);
  Profile profile;
  profile.arch = sdk::format("sm_%d", arch);
  profile.driver_version = kernel_driver_version();
  profile.runtime_version = cuda_version();
  // Dense 16-bit tensor core rate per multiprocessor and us, as the mma.sync instructions reach it.
  profile.matrix_per_us = major >= 9 ? 2.4e6 : 1.8e6;
  profile.waits_in_kernels = first_waiting_architecture() != 0 && arch >= first_waiting_architecture();
  if (!images_built()) {
    profile.refusal = sdk::Support::no("KERNELS_NOT_BUILT",
                                       "this plugin was built without nvcc and holds no kernels; rebuild it with nvcc");
  } else if (major < 8) {
    profile.refusal =
        sdk::Support::no("ARCH", sdk::format("the device is sm_%d; the kernels are built for sm_80 and later", arch));
  }
  return profile;
}

}  // namespace

Driver open_driver() {
  Driver table;
  void* library = table.symbols.require_library({"libcuda.so.1"});
#define RLK_CUDA_NEED(member, symbol) table.symbols.require(library, symbol, table.member);
#define RLK_CUDA_FIND(member, symbol) table.symbols.find(library, symbol, table.member);
  RLK_CUDA_REQUIRED(RLK_CUDA_NEED)
  RLK_CUDA_OPTIONAL(RLK_CUDA_FIND)
#undef RLK_CUDA_NEED
#undef RLK_CUDA_FIND
  table.symbols.require(library, "cuPointerGetAttributes", pointer_attributes);
  table.symbols.find(library, "cuLaunchKernelEx", launch_with_config);
  if (launch_with_config != nullptr) table.launch_early = &launch_early;
  table.pointer_attribute = &pointer_attribute;
  table.path = sdk::Symbols::path_of(table.init);
  table.name = "CUDA";
  table.domain = "cuda";
  table.attributes = kAttributes;
  table.profile = &profile_of;
  table.image = &image_of;
  return table;
}

}  // namespace rlk::cuda
