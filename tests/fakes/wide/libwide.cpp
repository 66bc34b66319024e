// A libwide.so.1 of no vendor: the runtime of ../cuda under other names, in the shape of HIP's and MACA's runtime APIs.
// A thread has a current device and no context, copies name their kind, texts of errors are returned, graphs are
// instantiated with a log, nothing can be tied to a graph, attributes and some error codes have numbers of their own.
// Its devices are harsh: waves of 64, 64 KiB of shared memory, at most 2^14 threads in a grid. It is strict: a stream
// or an event of another device than the thread's current one is refused. RLK_FAKE_WIDE_SHARED is another amount of
// shared memory; ../cuda/libcuda.cpp says what else can be set.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>

// The functions of ../cuda/libcuda.cpp, which this library does not export.
extern "C" {
int cuInit(unsigned flags);
int cuDriverGetVersion(int* version);
int cuDeviceGetCount(int* count);
int cuDeviceGetName(char* name, int size, int device);
int cuDeviceTotalMem_v2(size_t* bytes, int device);
int cuDeviceGetAttribute(int* value, int attribute, int device);
int cuDeviceCanAccessPeer(int* can, int device, int peer);
int cuDevicePrimaryCtxRetain(void** context, int device);
int cuCtxPushCurrent_v2(void* context);
int cuCtxPopCurrent_v2(void** context);
int cuMemGetInfo_v2(size_t* available, size_t* total);
int cuMemAlloc_v2(uint64_t* pointer, size_t bytes);
int cuMemFree_v2(uint64_t pointer);
int cuMemHostAlloc(void** pointer, size_t bytes, unsigned flags);
int cuMemFreeHost(void* pointer);
int cuPointerGetAttribute(void* value, int attribute, uint64_t pointer);
int cuMemcpyAsync(uint64_t to, uint64_t from, size_t bytes, void* stream);
int cuMemsetD8Async(uint64_t to, unsigned char value, size_t bytes, void* stream);
int cuStreamCreateWithPriority(void** stream, unsigned flags, int priority);
int cuStreamDestroy_v2(void* stream);
int cuStreamQuery(void* stream);
int cuStreamSynchronize(void* stream);
int cuStreamIsCapturing(void* stream, int* status);
int cuLaunchHostFunc(void* stream, void (*function)(void*), void* user);
int cuEventRecord(void* event, void* stream);
int cuEventCreate(void** event, unsigned flags);
int cuEventDestroy_v2(void* event);
int cuEventQuery(void* event);
int cuEventSynchronize(void* event);
int cuEventElapsedTime(float* ms, void* start, void* end);
int cuModuleLoadData(void** module, const void* image);
int cuModuleUnload(void* module);
int cuModuleGetFunction(void** function, void* module, const char* name);
int cuFuncSetAttribute(void* function, int attribute, int value);
int cuLaunchKernel(void* function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                   unsigned block_y, unsigned block_z, unsigned shared_bytes, void* stream, void** parameters,
                   void** extra);
int cuThreadExchangeStreamCaptureMode(int* mode);
int cuStreamBeginCapture_v2(void* stream, int mode);
int cuStreamEndCapture(void* stream, void** graph);
int cuStreamGetCaptureInfo(void* stream, int* status, uint64_t* id);
int cuGraphInstantiateWithFlags(void** exec, void* graph, uint64_t flags);
int cuGraphLaunch(void* exec, void* stream);
int cuGraphExecDestroy(void* exec);
int cuGraphDestroy(void* graph);
}

namespace {

constexpr int kInvalidValue = 1, kInvalidDevice = 101, kWrongDevice = 400;
constexpr int kOutOfMemory = 10007;  // beside the shared code 2
constexpr unsigned kMostThreads = 1 << 14;

int shared_bytes_of_a_block() {
  const char* text = std::getenv("RLK_FAKE_WIDE_SHARED");
  return text != nullptr ? std::atoi(text) : 65536;
}

thread_local int current_device = 0;

// The device of every stream and event.
std::mutex& mutex = *new std::mutex;
auto& owners = *new std::map<void*, int>;

int created(int code, void** handle) {
  const std::lock_guard<std::mutex> lock(mutex);
  if (code == 0) owners[*handle] = current_device;
  return code;
}
void destroyed(void* handle) {
  const std::lock_guard<std::mutex> lock(mutex);
  owners.erase(handle);
}
// The default stream is every device's own.
bool is_elsewhere(void* handle) {
  const std::lock_guard<std::mutex> lock(mutex);
  const auto found = owners.find(handle);
  return found != owners.end() && found->second != current_device;
}

// The emulation underneath wants a context for what it enqueues.
class Context {
public:
  Context() {
    void* context = nullptr;
    int relaxed = 2;  // retaining is this library's own doing
    cuThreadExchangeStreamCaptureMode(&relaxed);
    cuDevicePrimaryCtxRetain(&context, current_device);
    cuThreadExchangeStreamCaptureMode(&relaxed);
    cuCtxPushCurrent_v2(context);
  }
  ~Context() {
    void* context = nullptr;
    cuCtxPopCurrent_v2(&context);
  }
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
};

uint64_t address(const void* pointer) {
  return reinterpret_cast<uint64_t>(pointer);
}

}  // namespace

#define API extern "C" __attribute__((visibility("default"))) int
#define TEXT extern "C" __attribute__((visibility("default"))) const char*
// First in every function that works on a stream or an event.
#define HERE(handle) \
  if (is_elsewhere(handle)) return kWrongDevice

API wideInit(unsigned flags) {
  return cuInit(flags);
}
API wideDriverGetVersion(int* version) {
  return *version = 50221153, 0;
}
API wideGetDeviceCount(int* count) {
  return cuDeviceGetCount(count);
}
API wideGetDevice(int* device) {
  return *device = current_device, 0;
}
API wideSetDevice(int device) {
  int count = 0;
  cuDeviceGetCount(&count);
  if (device < 0 || device >= count) return kInvalidDevice;
  return current_device = device, 0;
}
API wideDeviceGetName(char* name, int size, int device) {
  const int code = cuDeviceGetName(name, size, device);
  return std::strncpy(name, "Wide device", static_cast<size_t>(size)), code;
}
API wideDeviceTotalMem(size_t* bytes, int device) {
  return cuDeviceTotalMem_v2(bytes, device);
}
API wideDeviceGetPCIBusId(char* text, int size, int) {
  return std::strncpy(text, "0000:AB:00.0", static_cast<size_t>(size)), 0;
}
API wideDeviceGetAttribute(int* value, int attribute, int device) {
  switch (attribute) {
    case 74:  // shared memory of a block
      return *value = shared_bytes_of_a_block(), 0;
    case 87:  // width of a wave
      return *value = 64, 0;
    case 63:  // multiprocessors
      return cuDeviceGetAttribute(value, 16, device);
    default:
      return kInvalidValue;
  }
}
API wideDeviceCanAccessPeer(int* can, int device, int peer) {
  return cuDeviceCanAccessPeer(can, device, peer);
}
API wideMemGetInfo(size_t* available, size_t* total) {
  return cuMemGetInfo_v2(available, total);
}
API wideMalloc(void** pointer, size_t bytes) {
  uint64_t memory = 0;
  const int code = cuMemAlloc_v2(&memory, bytes);
  *pointer = reinterpret_cast<void*>(memory);
  return code == 2 ? kOutOfMemory : code;
}
API wideFree(void* pointer) {
  return cuMemFree_v2(address(pointer));
}
API wideMallocHost(void** pointer, size_t bytes) {
  return cuMemHostAlloc(pointer, bytes, 0);
}
API wideFreeHost(void* pointer) {
  return cuMemFreeHost(pointer);
}
API wideMemcpyAsync(void* to, const void* from, size_t bytes, int kind, void* stream) {
  HERE(stream);
  // What memory the table knows must be what the kind says; anything else is the host's own.
  const auto is_device = [](const void* pointer) {
    unsigned type = 0;
    return cuPointerGetAttribute(&type, 2, address(pointer)) == 0 && type == 2;
  };
  if (kind < 1 || kind > 3 || is_device(to) != (kind != 2) || is_device(from) != (kind != 1)) return kInvalidValue;
  const Context context;
  return cuMemcpyAsync(address(to), address(from), bytes, stream);
}
API wideMemcpyPeerAsync(void* to, int to_device, const void* from, int from_device, size_t bytes, void* stream) {
  HERE(stream);
  int count = 0;
  cuDeviceGetCount(&count);
  if (to_device < 0 || to_device >= count || from_device < 0 || from_device >= count) return kInvalidDevice;
  const Context context;
  return cuMemcpyAsync(address(to), address(from), bytes, stream);
}
API wideMemsetAsync(void* to, int value, size_t bytes, void* stream) {
  HERE(stream);
  const Context context;
  return cuMemsetD8Async(address(to), static_cast<unsigned char>(value), bytes, stream);
}
API wideStreamCreateWithFlags(void** stream, unsigned flags) {
  return created(cuStreamCreateWithPriority(stream, flags, 0), stream);
}
API wideStreamDestroy(void* stream) {
  HERE(stream);
  return destroyed(stream), cuStreamDestroy_v2(stream);
}
API wideStreamQuery(void* stream) {
  HERE(stream);
  return cuStreamQuery(stream);
}
API wideStreamSynchronize(void* stream) {
  HERE(stream);
  return cuStreamSynchronize(stream);
}
API wideStreamWaitEvent(void* stream, void*, unsigned) {
  HERE(stream);  // the event may be another device's
  return 0;
}
API wideStreamIsCapturing(void* stream, int* status) {
  return cuStreamIsCapturing(stream, status);
}
API wideLaunchHostFunc(void* stream, void (*function)(void*), void* user) {
  HERE(stream);
  const Context context;
  return cuLaunchHostFunc(stream, function, user);
}
API wideEventCreateWithFlags(void** event, unsigned flags) {
  return created(cuEventCreate(event, flags), event);
}
API wideEventDestroy(void* event) {
  HERE(event);
  return destroyed(event), cuEventDestroy_v2(event);
}
API wideEventRecord(void* event, void* stream) {
  HERE(event);
  HERE(stream);
  const Context context;
  return cuEventRecord(event, stream);
}
API wideEventQuery(void* event) {
  return cuEventQuery(event);
}
API wideEventSynchronize(void* event) {
  return cuEventSynchronize(event);
}
API wideEventElapsedTime(float* ms, void* start, void* end) {
  return cuEventElapsedTime(ms, start, end);
}
API wideModuleLoadData(void** module, const void* image) {
  return cuModuleLoadData(module, image);
}
API wideModuleUnload(void* module) {
  return cuModuleUnload(module);
}
API wideModuleGetFunction(void** function, void* module, const char* name) {
  const int code = cuModuleGetFunction(function, module, name);
  return code != 0 ? code : cuFuncSetAttribute(*function, 8, shared_bytes_of_a_block());
}
API wideModuleLaunchKernel(void* function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                           unsigned block_y, unsigned block_z, unsigned shared_bytes, void* stream, void** parameters,
                           void** extra) {
  HERE(stream);
  if (uint64_t{grid_x} * block_x > kMostThreads) return kInvalidValue;
  const Context context;
  return cuLaunchKernel(function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, stream, parameters,
                        extra);
}
API wideThreadExchangeStreamCaptureMode(int* mode) {
  return cuThreadExchangeStreamCaptureMode(mode);
}
API wideStreamBeginCapture(void* stream, int mode) {
  HERE(stream);
  return cuStreamBeginCapture_v2(stream, mode);
}
API wideStreamEndCapture(void* stream, void** graph) {
  HERE(stream);
  return cuStreamEndCapture(stream, graph);
}
API wideStreamGetCaptureInfo(void* stream, int* status, uint64_t* id) {
  return cuStreamGetCaptureInfo(stream, status, id);
}
API wideGraphInstantiate(void** exec, void* graph, void** error_node, char* log, size_t size) {
  if (error_node != nullptr || (log != nullptr && size == 0)) return kInvalidValue;
  return cuGraphInstantiateWithFlags(exec, graph, 0);
}
API wideGraphLaunch(void* exec, void* stream) {
  HERE(stream);
  const Context context;
  return cuGraphLaunch(exec, stream);
}
API wideGraphExecDestroy(void* exec) {
  return cuGraphExecDestroy(exec);
}
API wideGraphDestroy(void* graph) {
  return cuGraphDestroy(graph);
}
TEXT wideGetErrorName(int code) {
  return code == 0 ? "wideSuccess" : code == kOutOfMemory ? "wideErrorNoMemory" : "wideErrorEmulated";
}
TEXT wideGetErrorString(int) {
  return "an error of the emulated runtime";
}
