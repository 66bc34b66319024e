// A libcuda.so.1 without a device: memory is host memory, streams do their work when it is enqueued, and kernels are
// found by name among the emulated ones (emulation.hpp). Enough of the driver API for the plugin in plugins/cuda. What
// it pretends to be: RLK_FAKE_CUDA_DEVICES (default 1), RLK_FAKE_CUDA_WIDTH (32), RLK_FAKE_CUDA_ARCH (90),
// RLK_FAKE_CUDA_INIT (what cuInit returns, 0), RLK_FAKE_CUDA_LAUNCH (what launches return, 0).
#include <dlfcn.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <vector>

#include "emulation.hpp"
#include "plugins/simt/args.h"

namespace {

using rlk::simt::AddArgs;
using rlk::simt::AttentionArgs;
using rlk::simt::LogpArgs;
using rlk::simt::LogpBackwardArgs;

constexpr int kInvalidValue = 1, kOutOfMemory = 2, kInvalidDevice = 101, kNotFound = 500, kCaptureForbids = 900;
constexpr size_t kDeviceBytes = size_t{16} << 30;

int knob(const char* name, int otherwise) {
  const char* text = std::getenv(name);
  return text != nullptr ? std::atoi(text) : otherwise;
}

struct Context {
  int device;
};
Context contexts[16] = {{0}, {1}, {2}, {3}, {4}, {5}, {6}, {7}, {8}, {9}, {10}, {11}, {12}, {13}, {14}, {15}};
// Never destroyed, like the memory table: a process may free its memory after the library's own destructors have run.
thread_local std::vector<Context*>& current = *new std::vector<Context*>;

struct Graph {
  std::vector<std::function<void()>> work;
};
struct Stream {
  Graph* capture = nullptr;
};
struct Event {
  std::chrono::steady_clock::time_point time;
};
struct Function {
  std::string name;
  void* entry;
  int dynamic_shared = 48 * 1024;
};

std::mutex& memory_mutex = *new std::mutex;
auto& memory = *new std::map<uintptr_t, std::pair<size_t, unsigned>>;  // base -> bytes, 1 host or 2 device

void* allocate(size_t bytes, unsigned type) {
  const std::lock_guard<std::mutex> lock(memory_mutex);
  if (bytes == 0 || bytes > kDeviceBytes) return nullptr;
  void* block = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  if (block != nullptr) memory[reinterpret_cast<uintptr_t>(block)] = {bytes, type};
  return block;
}
int release(void* block, unsigned type) {
  const std::lock_guard<std::mutex> lock(memory_mutex);
  const auto found = memory.find(reinterpret_cast<uintptr_t>(block));
  if (found == memory.end() || found->second.second != type) return kInvalidValue;
  memory.erase(found);
  std::free(block);
  return 0;
}

// Now, or when the captured graph is launched. The default stream cannot be captured.
int enqueue(Stream* stream, std::function<void()> work) {
  if (current.empty()) return 201;  // no context on this thread
  if (stream != nullptr && stream->capture != nullptr) {
    stream->capture->work.push_back(std::move(work));
  } else {
    work();
  }
  return 0;
}

template <class Args>
std::function<void()> bind(void* entry, const void* arguments) {
  const Args args = *static_cast<const Args*>(arguments);
  return [entry, args] { reinterpret_cast<void (*)(Args)>(entry)(args); };
}

std::function<void()> bind(const Function& function, const void* arguments) {
  const auto starts = [&](const char* prefix) { return function.name.rfind(prefix, 0) == 0; };
  if (starts("logp_backward_")) return bind<LogpBackwardArgs>(function.entry, arguments);
  if (starts("logp_")) return bind<LogpArgs>(function.entry, arguments);
  if (starts("attention_")) return bind<AttentionArgs>(function.entry, arguments);
  return bind<AddArgs>(function.entry, arguments);
}

}  // namespace

#define API extern "C" __attribute__((visibility("default"))) int

API cuInit(unsigned) {
  return knob("RLK_FAKE_CUDA_INIT", 0);
}
API cuDriverGetVersion(int* version) {
  return *version = 13000, 0;
}
API cuDeviceGetCount(int* count) {
  return *count = knob("RLK_FAKE_CUDA_DEVICES", 1), 0;
}
API cuDeviceGet(int* device, int ordinal) {
  if (ordinal < 0 || ordinal >= knob("RLK_FAKE_CUDA_DEVICES", 1)) return kInvalidDevice;
  return *device = ordinal, 0;
}
API cuDeviceGetName(char* name, int size, int) {
  return std::snprintf(name, static_cast<size_t>(size), "Emulated device"), 0;
}
API cuDeviceTotalMem_v2(size_t* bytes, int) {
  return *bytes = kDeviceBytes, 0;
}
API cuDeviceGetAttribute(int* value, int attribute, int) {
  const int arch = knob("RLK_FAKE_CUDA_ARCH", 90);
  static const std::map<int, int> kFixed = {{16, 4},        {33, 1}, {34, 0},      {36, 1000000}, {37, 1024},
                                            {38, 50 << 20}, {50, 0}, {97, 232448}, {115, 1}};
  switch (attribute) {
    case 10:
      return *value = knob("RLK_FAKE_CUDA_WIDTH", 32), 0;
    case 75:
      return *value = arch / 10, 0;
    case 76:
      return *value = arch % 10, 0;
    default:
      break;
  }
  const auto found = kFixed.find(attribute);
  if (found == kFixed.end()) return kInvalidValue;
  return *value = found->second, 0;
}
API cuDeviceCanAccessPeer(int* can, int device, int peer) {
  return *can = device != peer ? 1 : 0, 0;
}
API cuDevicePrimaryCtxRetain(Context** context, int device) {
  return *context = &contexts[device], 0;
}
API cuDevicePrimaryCtxRelease_v2(int) {
  return 0;
}
API cuCtxGetCurrent(Context** context) {
  return *context = current.empty() ? nullptr : current.back(), 0;
}
API cuCtxPushCurrent_v2(Context* context) {
  return current.push_back(context), 0;
}
API cuCtxPopCurrent_v2(Context** context) {
  if (current.empty()) return 201;
  *context = current.back();
  return current.pop_back(), 0;
}
API cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  return *least = 0, *greatest = -5, 0;
}
API cuMemGetInfo_v2(size_t* available, size_t* total) {
  return *available = kDeviceBytes / 2, *total = kDeviceBytes, 0;
}
API cuMemAlloc_v2(uint64_t* pointer, size_t bytes) {
  void* block = allocate(bytes, 2);
  return *pointer = reinterpret_cast<uint64_t>(block), block != nullptr ? 0 : kOutOfMemory;
}
API cuMemFree_v2(uint64_t pointer) {
  return release(reinterpret_cast<void*>(pointer), 2);
}
API cuMemHostAlloc(void** pointer, size_t bytes, unsigned) {
  return *pointer = allocate(bytes, 1), *pointer != nullptr ? 0 : kOutOfMemory;
}
API cuMemFreeHost(void* pointer) {
  return release(pointer, 1);
}
API cuMemHostGetDevicePointer_v2(uint64_t* device, void* host, unsigned) {
  return *device = reinterpret_cast<uint64_t>(host), 0;
}
API cuPointerGetAttribute(void* value, int attribute, uint64_t pointer) {
  const std::lock_guard<std::mutex> lock(memory_mutex);
  auto found = memory.upper_bound(pointer);
  if (found == memory.begin() || pointer >= (--found)->first + found->second.first) return kInvalidValue;
  *static_cast<unsigned*>(value) = attribute == 2 ? found->second.second : 0;
  return 0;
}
API cuMemcpyAsync(uint64_t to, uint64_t from, size_t bytes, Stream* stream) {
  return enqueue(stream, [=] { std::memmove(reinterpret_cast<void*>(to), reinterpret_cast<void*>(from), bytes); });
}
API cuMemsetD8Async(uint64_t to, unsigned char value, size_t bytes, Stream* stream) {
  return enqueue(stream, [=] { std::memset(reinterpret_cast<void*>(to), value, bytes); });
}
API cuStreamCreateWithPriority(Stream** stream, unsigned, int) {
  return *stream = new Stream, 0;
}
API cuStreamDestroy_v2(Stream* stream) {
  return delete stream, 0;
}
API cuStreamQuery(Stream* stream) {
  return stream != nullptr && stream->capture != nullptr ? kCaptureForbids : 0;
}
API cuStreamSynchronize(Stream* stream) {
  return stream != nullptr && stream->capture != nullptr ? kCaptureForbids : 0;
}
API cuStreamWaitEvent(Stream*, Event*, unsigned) {
  return 0;
}
API cuStreamIsCapturing(Stream* stream, int* status) {
  return *status = stream != nullptr && stream->capture != nullptr ? 1 : 0, 0;
}
#ifndef RLK_FAKE_CUDA_OLD
API cuLaunchHostFunc(Stream* stream, void (*function)(void*), void* user) {
  return enqueue(stream, [=] { function(user); });
}
API cuEventRecord(Event* event, Stream* stream) {
  return enqueue(stream, [=] { event->time = std::chrono::steady_clock::now(); });
}
#endif
API cuEventCreate(Event** event, unsigned) {
  return *event = new Event, 0;
}
API cuEventDestroy_v2(Event* event) {
  return delete event, 0;
}
API cuEventQuery(Event*) {
  return 0;
}
API cuEventSynchronize(Event*) {
  return 0;
}
API cuEventElapsedTime(float* ms, Event* start, Event* end) {
  return *ms = std::chrono::duration<float, std::milli>(end->time - start->time).count(), 0;
}
API cuModuleLoadData(int** module, const void* image) {
  static int only;
  return *module = &only, image != nullptr ? 0 : kInvalidValue;
}
API cuModuleUnload(int*) {
  return 0;
}
API cuModuleGetFunction(Function** function, int*, const char* name) {
  Dl_info self;
  dladdr(reinterpret_cast<void*>(&cuInit), &self);
  void* library = dlopen(self.dli_fname, RTLD_NOW | RTLD_NOLOAD);
  void* entry = library != nullptr ? dlsym(library, name) : nullptr;
  if (entry == nullptr) return kNotFound;
  return *function = new Function{name, entry}, 0;
}
API cuFuncSetAttribute(Function* function, int attribute, int value) {
  if (attribute != 8 || value > 232448) return kInvalidValue;
  return function->dynamic_shared = value, 0;
}
API cuLaunchKernel(Function* function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                   unsigned block_y, unsigned block_z, unsigned shared_bytes, Stream* stream, void** parameters,
                   void**) {
  const int result = knob("RLK_FAKE_CUDA_LAUNCH", 0);
  if (result != 0) return result;
  if (grid_x == 0 || grid_y != 1 || grid_z != 1 || block_x == 0 || block_x > 1024 || block_y != 1 || block_z != 1 ||
      static_cast<int>(shared_bytes) > function->dynamic_shared) {
    return kInvalidValue;
  }
  std::function<void()> thread = bind(*function, parameters[0]);
  return enqueue(stream, [=] { rlk::emulation::run_grid({grid_x, 1, 1}, {block_x, 1, 1}, shared_bytes, thread); });
}
API cuGetErrorName(int code, const char** text) {
  return *text = code == 0 ? "CUDA_SUCCESS" : "CUDA_ERROR_EMULATED", 0;
}
API cuGetErrorString(int, const char** text) {
  return *text = "an error of the emulated driver", 0;
}
API cuMemAllocAsync(uint64_t* pointer, size_t bytes, Stream*) {
  return cuMemAlloc_v2(pointer, bytes);
}
API cuMemFreeAsync(uint64_t pointer, Stream* stream) {
  return enqueue(stream, [=] { release(reinterpret_cast<void*>(pointer), 2); });
}
API cuThreadExchangeStreamCaptureMode(int* mode) {
  static thread_local int mine = 0;
  std::swap(mine, *mode);
  return 0;
}
API cuStreamBeginCapture_v2(Stream* stream, int) {
  if (stream == nullptr || stream->capture != nullptr) return kCaptureForbids;
  return stream->capture = new Graph, 0;
}
API cuStreamEndCapture(Stream* stream, Graph** graph) {
  if (stream == nullptr || stream->capture == nullptr) return kCaptureForbids;
  *graph = stream->capture;
  return stream->capture = nullptr, 0;
}
API cuGraphInstantiateWithFlags(Graph** exec, Graph* graph, uint64_t) {
  return *exec = new Graph(*graph), 0;
}
API cuGraphLaunch(Graph* exec, Stream* stream) {
  return enqueue(stream, [=] {
    for (const auto& work : exec->work) work();
  });
}
API cuGraphExecDestroy(Graph* exec) {
  return delete exec, 0;
}
API cuGraphDestroy(Graph* graph) {
  return delete graph, 0;
}
