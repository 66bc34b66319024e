// A libcuda.so.1 without a device: memory is host memory, streams do their work when it is enqueued, and kernels are
// found by name among the emulated ones (emulation.hpp). Enough of the driver API for the plugin in plugins/cuda. While
// a thread captures in global mode, what is not work for a stream is refused to threads that are not in relaxed mode,
// and breaks the capture, as the driver does it. What it pretends to be: RLK_FAKE_CUDA_DEVICES (default 1),
// RLK_FAKE_CUDA_NAME (its device's), RLK_FAKE_CUDA_VERSION (13000), RLK_FAKE_CUDA_WIDTH (32), RLK_FAKE_CUDA_ARCH (90),
// RLK_FAKE_CUDA_UVA (1: pinned memory has one address), RLK_FAKE_CUDA_INIT (what cuInit returns, 0),
// RLK_FAKE_CUDA_LAUNCH (what launches return, 0), RLK_FAKE_CUDA_WORK (what a stream's work ends with, 0).
#include <dlfcn.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "emulation.hpp"
#include "plugins/simt/args.h"

namespace {

using rlk::simt::AddArgs;
using rlk::simt::AttentionArgs;
using rlk::simt::LogpArgs;
using rlk::simt::LogpBackwardArgs;

constexpr int kInvalidValue = 1, kOutOfMemory = 2, kInvalidDevice = 101, kNotFound = 500, kCaptureForbids = 900,
              kCaptureBroken = 901;
constexpr int kGlobal = 0, kRelaxed = 2;
constexpr size_t kDeviceBytes = size_t{16} << 30;

int knob(const char* name, int otherwise) {
  const char* text = std::getenv(name);
  return text != nullptr ? std::atoi(text) : otherwise;
}

struct Context {
  int retained = 0;
};
Context contexts[16];
// Never destroyed, like the memory table: a process may free its memory after the library's own destructors have run.
thread_local std::vector<Context*>& current = *new std::vector<Context*>;

struct UserObject {
  UserObject(void* pointer, void (*function)(void*)) : user(pointer), destroy(function) {}
  ~UserObject() { destroy(user); }
  UserObject(const UserObject&) = delete;
  UserObject& operator=(const UserObject&) = delete;
  void* user;
  void (*destroy)(void*);
};
// A user object before a graph takes it.
using Held = std::shared_ptr<UserObject>;
struct Graph {
  std::vector<std::function<void()>> work;
  std::vector<Held> held;
};
struct Capture {
  Graph* graph;
  uint64_t id;
  int mode;
  std::thread::id thread;
  bool broken = false;
};
struct Stream {
  Capture* capture = nullptr;
};

std::mutex& capture_mutex = *new std::mutex;
auto& captures = *new std::vector<Capture*>;
thread_local int capture_mode = kGlobal;

// Whether this thread may do what is not work for a stream; a refusal breaks the captures that are in the way.
bool safe() {
  if (capture_mode == kRelaxed) return true;
  const std::lock_guard<std::mutex> lock(capture_mutex);
  bool is_safe = true;
  for (Capture* capture : captures) {
    const bool own = capture->thread == std::this_thread::get_id() && capture->mode != kRelaxed;
    const bool other = capture->mode == kGlobal && capture_mode == kGlobal;
    if (!own && !other) continue;
    capture->broken = true;
    is_safe = false;
  }
  return is_safe;
}
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
    if (stream->capture->broken) return kCaptureBroken;
    stream->capture->graph->work.push_back(std::move(work));
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

// First in every function that may not run beside a capture in global mode.
#define UNSAFE \
  if (!safe()) return kCaptureForbids
// Another vendor's runtime (tests/fakes/wide) is made of the same functions and exports none of them.
#if !defined(RLK_FAKE_CUDA_VISIBILITY)
#define RLK_FAKE_CUDA_VISIBILITY "default"
#endif
#define API extern "C" __attribute__((visibility(RLK_FAKE_CUDA_VISIBILITY))) int

API cuInit(unsigned) {
  return knob("RLK_FAKE_CUDA_INIT", 0);
}
API cuDriverGetVersion(int* version) {
  return *version = knob("RLK_FAKE_CUDA_VERSION", 13000), 0;
}
API cuDeviceGetCount(int* count) {
  return *count = knob("RLK_FAKE_CUDA_DEVICES", 1), 0;
}
API cuDeviceGet(int* device, int ordinal) {
  if (ordinal < 0 || ordinal >= knob("RLK_FAKE_CUDA_DEVICES", 1)) return kInvalidDevice;
  return *device = ordinal, 0;
}
API cuDeviceGetName(char* name, int size, int) {
  const char* wanted = std::getenv("RLK_FAKE_CUDA_NAME");
  return std::snprintf(name, static_cast<size_t>(size), "%s", wanted != nullptr ? wanted : "Emulated device"), 0;
}
API cuDeviceGetUuid_v2(char* uuid, int device) {
  for (int i = 0; i < 16; ++i) uuid[i] = static_cast<char>(16 * device + i);
  return 0;
}
API cuDeviceTotalMem_v2(size_t* bytes, int) {
  return *bytes = kDeviceBytes, 0;
}
API cuDeviceGetAttribute(int* value, int attribute, int) {
  const int arch = knob("RLK_FAKE_CUDA_ARCH", 90);
  static const std::map<int, int> kFixed = {{16, 4},    {19, 1},        {33, 1},       {34, 0},      {36, 1000000},
                                            {37, 1024}, {38, 50 << 20}, {50, 0x10000}, {97, 232448}, {115, 1}};
  switch (attribute) {
    case 10:
      return *value = knob("RLK_FAKE_CUDA_WIDTH", 32), 0;
    case 41:
      return *value = knob("RLK_FAKE_CUDA_UVA", 1), 0;
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
  UNSAFE;
  ++contexts[device].retained;
  return *context = &contexts[device], 0;
}
API cuDevicePrimaryCtxRelease_v2(int device) {
  return --contexts[device].retained, 0;
}
API fakeCudaRetained(int device) {
  return contexts[device].retained;
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
  UNSAFE;
  return *available = kDeviceBytes / 2, *total = kDeviceBytes, 0;
}
API cuMemAlloc_v2(uint64_t* pointer, size_t bytes) {
  UNSAFE;
  void* block = allocate(bytes, 2);
  return *pointer = reinterpret_cast<uint64_t>(block), block != nullptr ? 0 : kOutOfMemory;
}
API cuMemFree_v2(uint64_t pointer) {
  UNSAFE;
  return release(reinterpret_cast<void*>(pointer), 2);
}
API cuMemHostAlloc(void** pointer, size_t bytes, unsigned) {
  UNSAFE;
  return *pointer = allocate(bytes, 1), *pointer != nullptr ? 0 : kOutOfMemory;
}
API cuMemFreeHost(void* pointer) {
  UNSAFE;
  return release(pointer, 1);
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
API cuMemcpyPeerAsync(uint64_t to, Context* to_context, uint64_t from, Context* from_context, size_t bytes,
                      Stream* stream) {
  if (to_context == nullptr || from_context == nullptr) return kInvalidValue;
  return cuMemcpyAsync(to, from, bytes, stream);
}
API cuMemsetD8Async(uint64_t to, unsigned char value, size_t bytes, Stream* stream) {
  return enqueue(stream, [=] { std::memset(reinterpret_cast<void*>(to), value, bytes); });
}
API cuStreamCreateWithPriority(Stream** stream, unsigned, int) {
  UNSAFE;
  return *stream = new Stream, 0;
}
API cuStreamDestroy_v2(Stream* stream) {
  UNSAFE;
  return delete stream, 0;
}
API cuStreamQuery(Stream* stream) {
  UNSAFE;
  return stream != nullptr && stream->capture != nullptr ? kCaptureForbids : knob("RLK_FAKE_CUDA_WORK", 0);
}
API cuStreamSynchronize(Stream* stream) {
  UNSAFE;
  return stream != nullptr && stream->capture != nullptr ? kCaptureForbids : knob("RLK_FAKE_CUDA_WORK", 0);
}
API cuStreamWaitEvent(Stream*, Event*, unsigned) {
  return 0;
}
API cuStreamIsCapturing(Stream* stream, int* status) {
  return *status = stream == nullptr || stream->capture == nullptr ? 0 : stream->capture->broken ? 2 : 1, 0;
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
  UNSAFE;
  return *event = new Event, 0;
}
API cuEventDestroy_v2(Event* event) {
  UNSAFE;
  return delete event, 0;
}
API cuEventQuery(Event*) {
  UNSAFE;
  return 0;
}
API cuEventSynchronize(Event*) {
  UNSAFE;
  return 0;
}
API cuEventElapsedTime(float* ms, Event* start, Event* end) {
  UNSAFE;
  return *ms = std::chrono::duration<float, std::milli>(end->time - start->time).count(), 0;
}
API cuModuleLoadData(int** module, const void* image) {
  UNSAFE;
  static int only;
  return *module = &only, image != nullptr ? 0 : kInvalidValue;
}
API cuModuleUnload(int*) {
  UNSAFE;
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
  void* block = allocate(bytes, 2);
  return *pointer = reinterpret_cast<uint64_t>(block), block != nullptr ? 0 : kOutOfMemory;
}
API cuMemFreeAsync(uint64_t pointer, Stream* stream) {
  return enqueue(stream, [=] { release(reinterpret_cast<void*>(pointer), 2); });
}
API cuThreadExchangeStreamCaptureMode(int* mode) {
  std::swap(capture_mode, *mode);
  return 0;
}
API cuStreamBeginCapture_v2(Stream* stream, int mode) {
  if (stream == nullptr || stream->capture != nullptr) return kCaptureForbids;
  static uint64_t ids = 0;
  const std::lock_guard<std::mutex> lock(capture_mutex);
  stream->capture = new Capture{new Graph, ++ids, mode, std::this_thread::get_id()};
  return captures.push_back(stream->capture), 0;
}
API cuStreamEndCapture(Stream* stream, Graph** graph) {
  if (stream == nullptr || stream->capture == nullptr) return kCaptureForbids;
  const std::lock_guard<std::mutex> lock(capture_mutex);
  const std::unique_ptr<Capture> capture(std::exchange(stream->capture, nullptr));
  std::erase(captures, capture.get());
  *graph = capture->broken ? (delete capture->graph, nullptr) : capture->graph;
  return capture->broken ? kCaptureBroken : 0;
}
API cuStreamGetCaptureInfo_v2(Stream* stream, int* status, uint64_t* id, Graph** graph, const void**, size_t*) {
  const Capture* capture = stream != nullptr ? stream->capture : nullptr;
  *status = capture == nullptr ? 0 : capture->broken ? 2 : 1;
  if (*status == 1 && id != nullptr) *id = capture->id;
  if (*status == 1 && graph != nullptr) *graph = capture->graph;
  return 0;
}
API cuStreamGetCaptureInfo(Stream* stream, int* status, uint64_t* id) {
  return cuStreamGetCaptureInfo_v2(stream, status, id, nullptr, nullptr, nullptr);
}
API cuUserObjectCreate(Held** object, void* user, void (*destroy)(void*), unsigned references, unsigned flags) {
  if (references != 1 || flags != 1) return kInvalidValue;
  return *object = new Held(std::make_shared<UserObject>(user, destroy)), 0;
}
API cuUserObjectRelease(Held* object, unsigned) {
  return delete object, 0;
}
API cuGraphRetainUserObject(Graph* graph, Held* object, unsigned count, unsigned flags) {
  if (count != 1 || flags != 1) return kInvalidValue;
  graph->held.push_back(std::move(*object));
  return delete object, 0;
}
API cuGraphInstantiateWithFlags(Graph** exec, Graph* graph, uint64_t) {
  UNSAFE;
  return *exec = new Graph(*graph), 0;
}
API cuGraphLaunch(Graph* exec, Stream* stream) {
  return enqueue(stream, [=] {
    for (const auto& work : exec->work) work();
  });
}
API cuGraphExecDestroy(Graph* exec) {
  UNSAFE;
  return delete exec, 0;
}
API cuGraphDestroy(Graph* graph) {
  UNSAFE;
  return delete graph, 0;
}
