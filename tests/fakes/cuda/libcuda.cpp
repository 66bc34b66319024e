// A libcuda.so.1 without a device: the driver API's names, numbers and contexts over the simulated runtime (../runtime,
// ../simt), whose rules and variables it has; kernels are found by name among the emulated ones (emulation.hpp). Enough
// of it for the plugin in plugins/cuda. A thread's device is that of the context on the top of its stack. A context
// that is not retained is gone: using it then, or leaving streams and events in it, breaks a rule. Beside ../runtime's
// variables: RLK_FAKE_CUDA_NAME (its devices'), _WIDTH (32), _SHARED (232448), _ARCH (90), _UVA (1: pinned memory has
// one address).
#include "tests/fakes/cuda/tensor_maps.hpp"
#include "tests/fakes/runtime/bridge.hpp"
#include "tests/fakes/simt/runtime.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

using namespace fake_simt;

const Runtime& fake::runtime() {
  static constexpr Runtime only = [] {
    Runtime numbers = shared_numbers("cuda", "RLK_FAKE_CUDA_", 13000);
    numbers.must_initialize = true;
    numbers.must_set_device = true;
    return numbers;
  }();
  return only;
}

const Vendor& fake_simt::vendor() {
  static const auto* const only = [] {
    auto* const made = new Vendor{
        "Emulated device",
        1,
        {{16, 4}, {19, 1}, {33, 1}, {34, 0}, {36, 1000000}, {37, 1024}, {38, 50 << 20}, {50, 0x10000}, {115, 1}},
        10,
        97,
        [](int code) { return code == 0 ? "CUDA_SUCCESS" : "CUDA_ERROR_EMULATED"; }};
    made->shared_bytes = 232448;
    made->plain_shared = 48 * 1024;
    made->grid_threads = UINT64_MAX;
    return made;
  }();
  return *only;
}

namespace {

constexpr int kInvalidContext = 201;
constexpr uint32_t kFatBinary = 0xba55ed50;

// The primary context of each device.
struct Primary {
  void* context = nullptr;
  int retained = 0;
};
std::mutex& primary_mutex = *new std::mutex;
auto& primaries = *new std::map<int, Primary>;

// Never destroyed: a process may free its memory after the library's own destructors have run.
thread_local std::vector<void*>& stack = *new std::vector<void*>;

void take_place() {
  enter_context(stack.empty() ? nullptr : stack.back());
}

// What is left in a context ends with it: its streams and events, and this.
void unload(int device) {
  const auto is_its = [&](const auto& object) { return object.device == device; };
  modules().take_if(is_its);
  functions().take_if(is_its);
}

Direction direction_of(const void* to, const void* from) {
  if (kind_of(to) != Kind::kDevice) return Direction::kToHost;
  return kind_of(from) == Kind::kDevice ? Direction::kOnDevice : Direction::kToDevice;
}

}  // namespace

#define API FAKE_EXPORT int
// What begins each: R asks for the runtime, E for a context of this thread; S also that no capture is in the way.
#define R(name) FAKE_ENTER(#name, kRuntime)
#define E(name) FAKE_ENTER(#name, kDevice)
#define S(name) FAKE_ENTER_SAFE(#name)

// --- devices and contexts --------------------------------------------------------------------------------------------
API cuInit(unsigned flags) {
  FAKE_ENTER("cuInit", kNothing);
  if (flags != 0) return runtime().invalid_value;
  return initialize(), device_count() == 0 ? runtime().no_device : 0;
}
API cuDriverGetVersion(int* out) {
  FAKE_ENTER("cuDriverGetVersion", kNothing);
  return *out = version(), 0;
}
API cuDeviceGetCount(int* count) {
  R(cuDeviceGetCount);
  return *count = device_count(), 0;
}
API cuDeviceGet(int* device, int ordinal) {
  R(cuDeviceGet);
  return is_device(ordinal) ? (*device = ordinal, 0) : runtime().invalid_device;
}
API cuDeviceGetName(char* name, int size, int device) {
  R(cuDeviceGetName);
  if (!is_device(device)) return runtime().invalid_device;
  const char* wanted = std::getenv("RLK_FAKE_CUDA_NAME");
  return std::snprintf(name, static_cast<size_t>(size), "%s", wanted != nullptr ? wanted : vendor().device_name), 0;
}
API cuDeviceGetUuid_v2(char* uuid, int device) {
  R(cuDeviceGetUuid_v2);
  if (!is_device(device)) return runtime().invalid_device;
  for (int i = 0; i < 16; ++i) uuid[i] = static_cast<char>(16 * device + i);
  return 0;
}
API cuDeviceTotalMem_v2(size_t* bytes, int device) {
  R(cuDeviceTotalMem_v2);
  return is_device(device) ? (*bytes = memory_bytes(), 0) : runtime().invalid_device;
}
API cuDeviceGetAttribute(int* value, int attribute, int device) {
  R(cuDeviceGetAttribute);
  if (!is_device(device)) return runtime().invalid_device;
  if (attribute == 41) return *value = static_cast<int>(knob("UVA", 1)), 0;
  if (attribute == 75) return *value = static_cast<int>(knob("ARCH", 90) / 10), 0;
  if (attribute == 76) return *value = static_cast<int>(knob("ARCH", 90) % 10), 0;
  return attribute_of(device, attribute, value);
}
API cuDeviceCanAccessPeer(int* can, int device, int peer) {
  R(cuDeviceCanAccessPeer);
  return is_device(device) && is_device(peer) ? (*can = device != peer, 0) : runtime().invalid_device;
}
API cuDevicePrimaryCtxRetain(void** context, int device) {
  R(cuDevicePrimaryCtxRetain);
  if (!is_safe()) return runtime().capture_forbids;
  if (!is_device(device)) return runtime().invalid_device;
  const std::lock_guard lock(primary_mutex);
  Primary& primary = primaries[device];
  if (primary.retained++ == 0) primary.context = create_context(device);
  return *context = primary.context, 0;
}
API cuDevicePrimaryCtxRelease_v2(int device) {
  R(cuDevicePrimaryCtxRelease_v2);
  const std::lock_guard lock(primary_mutex);
  Primary& primary = primaries[device];
  if (primary.retained == 0) return kInvalidContext;
  if (primary.retained == 1) {
    destroy_context(primary.context, "cuDevicePrimaryCtxRelease_v2");
    unload(device);
  }
  return --primary.retained, take_place(), 0;
}
// For tests.
API fakeCudaRetained(int device) {
  const std::lock_guard lock(primary_mutex);
  return primaries[device].retained;
}
API cuCtxGetCurrent(void** context) {
  R(cuCtxGetCurrent);
  return *context = stack.empty() ? nullptr : stack.back(), 0;
}
API cuCtxPushCurrent_v2(void* context) {
  R(cuCtxPushCurrent_v2);
  if (context != nullptr) device_of_context(context, "cuCtxPushCurrent_v2");
  return stack.push_back(context), take_place(), 0;
}
API cuCtxPopCurrent_v2(void** context) {
  R(cuCtxPopCurrent_v2);
  if (stack.empty()) return kInvalidContext;
  *context = stack.back();
  return stack.pop_back(), take_place(), 0;
}
API cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  E(cuCtxGetStreamPriorityRange);
  return *least = 0, *greatest = -5, 0;
}

// --- memory ----------------------------------------------------------------------------------------------------------
API cuMemGetInfo_v2(size_t* available, size_t* total) {
  S(cuMemGetInfo_v2);
  return *total = memory_bytes(), *available = *total - used_bytes(current_device()), 0;
}
API cuMemAlloc_v2(void** pointer, size_t bytes) {
  S(cuMemAlloc_v2);
  return bytes == 0 ? runtime().invalid_value : allocate(current_device(), bytes, pointer);
}
API cuMemFree_v2(void* pointer) {
  S(cuMemFree_v2);
  return release(pointer, false, "cuMemFree_v2"), 0;
}
API cuMemHostAlloc(void** pointer, size_t bytes, unsigned flags) {
  S(cuMemHostAlloc);
  return bytes == 0 || flags > 7 ? runtime().invalid_value : allocate_pinned(bytes, pointer);
}
API cuMemFreeHost(void* pointer) {
  S(cuMemFreeHost);
  return release(pointer, true, "cuMemFreeHost"), 0;
}
API cuPointerGetAttributes(unsigned count, int* attributes, void** values, void* pointer) {
  R(cuPointerGetAttributes);
  const Kind kind = kind_of(pointer);
  const unsigned type = kind == Kind::kUnknown ? 0 : kind == Kind::kPinned ? 1 : 2;
  for (unsigned i = 0; i < count; ++i) *static_cast<unsigned*>(values[i]) = attributes[i] == 2 ? type : 0;
  return 0;
}
API cuMemcpyAsync(void* to, const void* from, size_t bytes, void* stream) {
  E(cuMemcpyAsync);
  return copy(to, from, bytes, direction_of(to, from), stream, "cuMemcpyAsync");
}
API cuMemcpyPeerAsync(void* to, void* to_context, const void* from, void* from_context, size_t bytes, void* stream) {
  E(cuMemcpyPeerAsync);
  const int to_device = device_of_context(to_context, "cuMemcpyPeerAsync");
  const int from_device = device_of_context(from_context, "cuMemcpyPeerAsync");
  if (bytes != 0 && (device_at(to) != to_device || device_at(from) != from_device)) {
    violation("WRONG_DEVICE", "cuMemcpyPeerAsync: an address is not of the context that is named for it");
  }
  return copy(to, from, bytes, Direction::kOnDevice, stream, "cuMemcpyPeerAsync");
}
API cuMemsetD8Async(void* to, unsigned char value, size_t bytes, void* stream) {
  E(cuMemsetD8Async);
  return fill(to, value, bytes, stream, "cuMemsetD8Async");
}
API cuMemAllocAsync(void** pointer, size_t bytes, void* stream) {
  E(cuMemAllocAsync);
  stream_of(stream, "cuMemAllocAsync");
  return bytes == 0 ? runtime().invalid_value : allocate(current_device(), bytes, pointer);
}
API cuMemFreeAsync(void* pointer, void* stream) {
  E(cuMemFreeAsync);
  require_device(pointer, 1, "cuMemFreeAsync");
  // Not by way of release(): this stream is what the memory would be waited for.
  stream_of(stream, "cuMemFreeAsync")->wait();
  return release(pointer, false, "cuMemFreeAsync"), 0;
}

// --- streams and events ----------------------------------------------------------------------------------------------
API cuStreamCreateWithPriority(void** stream, unsigned flags, int) {
  S(cuStreamCreateWithPriority);
  return flags > 1 ? runtime().invalid_value : create_stream(stream);
}
API cuStreamDestroy_v2(void* stream) {
  S(cuStreamDestroy_v2);
  return destroy_stream(stream, "cuStreamDestroy_v2");
}
API cuStreamQuery(void* stream) {
  S(cuStreamQuery);
  return query_stream(stream, "cuStreamQuery");
}
API cuStreamSynchronize(void* stream) {
  S(cuStreamSynchronize);
  return synchronize_stream(stream, "cuStreamSynchronize");
}
API cuStreamWaitEvent(void* stream, void* event, unsigned flags) {
  E(cuStreamWaitEvent);
  return flags != 0 ? runtime().invalid_value : wait_for_event(stream, event, "cuStreamWaitEvent");
}
API cuEventCreate(void** event, unsigned flags) {
  S(cuEventCreate);
  return flags > 7 ? runtime().invalid_value : create_event(event, (flags & 2) == 0 ? kEveryUse : kUntimed);
}
API cuEventDestroy_v2(void* event) {
  S(cuEventDestroy_v2);
  return destroy_event(event, "cuEventDestroy_v2");
}
#ifndef RLK_FAKE_CUDA_OLD
API cuLaunchHostFunc(void* stream, void (*function)(void*), void* user) {
  E(cuLaunchHostFunc);
  return call_host(stream, function, user, "cuLaunchHostFunc");
}
API cuEventRecord(void* event, void* stream) {
  E(cuEventRecord);
  return record_event(event, stream, "cuEventRecord");
}
#endif
API cuEventQuery(void* event) {
  S(cuEventQuery);
  return query_event(event, "cuEventQuery");
}
API cuEventSynchronize(void* event) {
  S(cuEventSynchronize);
  return synchronize_event(event, "cuEventSynchronize");
}
API cuEventElapsedTime(float* ms, void* start, void* end) {
  S(cuEventElapsedTime);
  return elapsed(start, end, ms, "cuEventElapsedTime");
}

// --- kernels ---------------------------------------------------------------------------------------------------------
API cuModuleLoadData(void** module, const void* image) {
  S(cuModuleLoadData);
  uint32_t magic = 0;
  if (image != nullptr) std::memcpy(&magic, image, sizeof(magic));
  if (magic != kFatBinary) return kInvalidImage;
  return *module = modules().add(std::make_shared<Module>(Module{current_device(), ""})), 0;
}
API cuModuleUnload(void* module) {
  S(cuModuleUnload);
  return modules().take(module, "cuModuleUnload"), 0;
}
API cuModuleGetFunction(void** function, void* module, const char* name) {
  E(cuModuleGetFunction);
  return find_function(*modules().get(module, "cuModuleGetFunction"), name, function);
}
API cuFuncSetAttribute(void* function, int attribute, int value) {
  E(cuFuncSetAttribute);
  if (attribute != 8 || value < 0 || static_cast<unsigned>(value) > shared_bytes()) return runtime().invalid_value;
  return functions().get(function, "cuFuncSetAttribute")->shared_limit = static_cast<unsigned>(value), 0;
}
API cuLaunchKernel(void* function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                   unsigned block_y, unsigned block_z, unsigned shared, void* stream, void** parameters, void** extra) {
  E(cuLaunchKernel);
  if (parameters == nullptr || extra != nullptr) return runtime().invalid_value;
  const unsigned grid[] = {grid_x, grid_y, grid_z}, block[] = {block_x, block_y, block_z};
  return launch(*functions().get(function, "cuLaunchKernel"), grid, block, shared, stream, parameters,
                "cuLaunchKernel");
}
// With one attribute, that the kernel may begin early.
struct LaunchConfig {
  unsigned grid[3], block[3], shared;
  void* stream;
  const int* attributes;
  unsigned count;
};
API cuLaunchKernelEx(const LaunchConfig* config, void* function, void** parameters, void** extra) {
  E(cuLaunchKernelEx);
  constexpr int kProgrammaticStreamSerialization = 6;
  if (parameters == nullptr || extra != nullptr || config->count != 1 ||
      config->attributes[0] != kProgrammaticStreamSerialization) {
    return runtime().invalid_value;
  }
  return launch(*functions().get(function, "cuLaunchKernelEx"), config->grid, config->block, config->shared,
                config->stream, parameters, "cuLaunchKernelEx", config->attributes[2] != 0);
}
#ifdef RLK_FAKE_CUDA_MAPS
// Matrices of 16-bit elements as tensors of one head, a sequence each: boxes of 64 columns and up to 256 rows of one of
// them, in swizzled lines.
API cuTensorMapEncodeTiled(void* map, int type, uint32_t rank, void* data, const uint64_t* sizes,
                           const uint64_t* strides, const uint32_t* box, const uint32_t* steps, int interleave,
                           int swizzle, int promotion, int fill) {
  E(cuTensorMapEncodeTiled);
  constexpr int kF16 = 6, kBf16 = 9, kSwizzle128 = 3;
  require_device(data, 1, "cuTensorMapEncodeTiled");
  const auto is_stride = [](uint64_t bytes) { return bytes % 16 == 0 && bytes < uint64_t{1} << 40; };
  const auto is_size = [](uint64_t size) { return size > 0 && size <= uint64_t{1} << 32; };
  if ((type != kF16 && type != kBf16) || rank != 4 || reinterpret_cast<uintptr_t>(map) % 64 != 0 ||
      reinterpret_cast<uintptr_t>(data) % 16 != 0 || !std::all_of(sizes, sizes + 4, is_size) ||
      !std::all_of(strides, strides + 3, is_stride) || interleave != 0 || swizzle != kSwizzle128 || promotion > 3 ||
      fill != 0 || std::any_of(steps, steps + 4, [](uint32_t step) { return step != 1; }) ||
      box[0] != fake_cuda::kBoxColumns || box[2] == 0 || box[2] > 256) {
    return runtime().invalid_value;
  }
  if (sizes[1] != 1 || box[1] != 1 || box[3] != 1) return 801;  // no copy here has more dimensions
  const fake_cuda::TensorMap made{data,
                                  static_cast<int64_t>(sizes[0]),
                                  static_cast<int64_t>(sizes[2]),
                                  static_cast<int64_t>(strides[1]),
                                  box[2],
                                  0,
                                  static_cast<int64_t>(sizes[3]),
                                  static_cast<int64_t>(strides[2]),
                                  {}};
  std::memcpy(map, &made, sizeof(made));
  return 0;
}
#endif
API cuGetErrorName(int code, const char** text) {
  return *text = vendor().name_of(code), 0;
}
API cuGetErrorString(int, const char** text) {
  return *text = "an error of the emulated driver", 0;
}

// --- graphs ----------------------------------------------------------------------------------------------------------
API cuThreadExchangeStreamCaptureMode(int* mode) {
  R(cuThreadExchangeStreamCaptureMode);
  return std::swap(capture_mode(), *mode), 0;
}
API cuStreamIsCapturing(void* stream, int* status) {
  E(cuStreamIsCapturing);
  return capture_info(stream, status, nullptr, "cuStreamIsCapturing");
}
API cuStreamBeginCapture_v2(void* stream, int mode) {
  E(cuStreamBeginCapture_v2);
  return begin_capture(stream, mode, "cuStreamBeginCapture_v2");
}
API cuStreamEndCapture(void* stream, void** graph) {
  E(cuStreamEndCapture);
  return end_capture(stream, graph, "cuStreamEndCapture");
}
API cuStreamGetCaptureInfo_v2(void* stream, int* status, uint64_t* id, void** graph, const void**, size_t*) {
  E(cuStreamGetCaptureInfo_v2);
  return capture_info(stream, status, id, "cuStreamGetCaptureInfo_v2", graph);
}
API cuStreamGetCaptureInfo(void* stream, int* status, uint64_t* id) {
  E(cuStreamGetCaptureInfo);
  return capture_info(stream, status, id, "cuStreamGetCaptureInfo");
}
API cuUserObjectCreate(void** object, void* user, void (*destroy)(void*), unsigned references, unsigned flags) {
  R(cuUserObjectCreate);
  return create_user_object(object, user, destroy, references, flags);
}
API cuUserObjectRelease(void* object, unsigned) {
  R(cuUserObjectRelease);
  return user_objects().take(object, "cuUserObjectRelease"), 0;
}
API cuGraphRetainUserObject(void* graph, void* object, unsigned count, unsigned flags) {
  R(cuGraphRetainUserObject);
  return retain_user_object(graph, object, count, flags, "cuGraphRetainUserObject");
}
API cuGraphInstantiateWithFlags(void** executable, void* graph, uint64_t flags) {
  S(cuGraphInstantiateWithFlags);
  return flags != 0 ? runtime().invalid_value : instantiate(graph, executable, "cuGraphInstantiateWithFlags");
}
API cuGraphLaunch(void* executable, void* stream) {
  E(cuGraphLaunch);
  return launch_graph(executable, stream, "cuGraphLaunch");
}
API cuGraphExecDestroy(void* executable) {
  R(cuGraphExecDestroy);
  if (!is_safe()) return runtime().capture_forbids;
  return destroy_executable(executable, "cuGraphExecDestroy");
}
API cuGraphDestroy(void* graph) {
  R(cuGraphDestroy);
  if (!is_safe()) return runtime().capture_forbids;
  return destroy_graph(graph, "cuGraphDestroy");
}
