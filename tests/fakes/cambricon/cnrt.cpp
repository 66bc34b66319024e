// libcnrt.so without Cambricon: CNRT's names, numbers and orders of parameters (6.14.1) over the simulated runtime.
#include <cstdio>
#include <cstdlib>

#include "tests/fakes/runtime/bridge.hpp"

#define API FAKE_EXPORT int
// E checks the device of the thread, R nothing, S that no capture forbids it too.
#define E(name) FAKE_ENTER(#name, kDevice)
#define S(name) FAKE_ENTER_SAFE(#name)
#define R(name) FAKE_ENTER(#name, kNothing)

namespace {

constexpr int kArgsInvalid = 100006, kBadDirection = 632013, kNoAttribute = 632009, kIsolation = 100365;

// Waits for the default queue, as calls without a queue do.
int finished(int code, const char* call) {
  return code != 0 ? code : fake::synchronize_stream(nullptr, call);
}

bool direction_of(int direction, fake::Direction* out) {
  if (direction < 0 || direction > 2) return false;
  constexpr fake::Direction kKinds[] = {fake::Direction::kToDevice, fake::Direction::kOnDevice,
                                        fake::Direction::kToHost};
  return *out = kKinds[direction], true;
}

// What necessarily conflicts with the queue's capture, in any mode.
int breaks(fake::Stream& queue) {
  return queue.capture->broken = true, fake::runtime().capture_forbids;
}

int version_of(int packed, int* major, int* minor, int* patch) {
  return *major = packed / 10000, *minor = packed / 100 % 100, *patch = packed % 100, 0;
}

}  // namespace

const fake::Runtime& fake::runtime() {
  static const fake::Runtime only = [] {
    fake::Runtime r{};
    r.name = "cnrt";
    r.variable = "RLK_FAKE_CNRT_";
    r.version = 61401;
    r.invalid_value = kArgsInvalid;
    r.out_of_memory = 100100;
    r.no_device = 100004;
    r.invalid_device = 100005;
    r.invalid_handle = 100014;
    r.not_ready = std::getenv("RLK_FAKE_CNRT_BUSY") == nullptr ? 1 : 632014;  // as older ones say it
    r.launch_failed = 100132;
    r.capture_forbids = 100360;
    r.capture_broken = 100361;
    r.event_in_capture = 100360;
    r.unjoined = 100364;
    r.graphs_hold_memory = true;
    r.is_sticky = [](int code) { return code == 100128 || code == 100132 || code == 100060; };
    r.must_set_device = true;
    return r;
  }();
  return only;
}

using namespace fake;

// --- devices ---------------------------------------------------------------------------------------------------------
API cnrtGetLibVersion(int* major, int* minor, int* patch) {
  R(cnrtGetLibVersion);
  return version_of(version(), major, minor, patch);
}
API cnrtDriverGetVersion(int* major, int* minor, int* patch) {
  R(cnrtDriverGetVersion);
  return version_of(51013, major, minor, patch);
}
API cnrtGetDeviceCount(unsigned* count) {
  R(cnrtGetDeviceCount);
  return *count = static_cast<unsigned>(device_count()), 0;
}
// A thread that has set no device is on device 0, without a context there.
API cnrtGetDevice(int* device) {
  R(cnrtGetDevice);
  if (device_count() == 0) return runtime().no_device;
  return *device = current_device() < 0 ? 0 : current_device(), 0;
}
API cnrtSetDevice(int device) {
  R(cnrtSetDevice);
  return set_device(device);
}
API cnrtSyncDevice() {
  S(cnrtSyncDevice);
  for (const auto& queue : streams().all()) {
    if (queue->capture != nullptr && queue->device == current_device()) return breaks(*queue);
  }
  return synchronize_device();
}
API cnrtDeviceGetAttribute(int* value, int attribute, int device) {
  R(cnrtDeviceGetAttribute);
  if (!is_device(device)) return runtime().invalid_device;
  switch (attribute) {
    case 0x205:
      return *value = 8, 0;
    case 0x206:
      return *value = 4, 0;
    case 0x20a:
      return *value = 592, 0;
    case 0x301:
      return *value = 48 << 20, 0;
    case 0x405:
      return *value = static_cast<int>(memory_bytes() >> 20), 0;
    default:
      return kNoAttribute;
  }
}
API cnrtDeviceGetPCIBusId(char* text, int size, int device) {
  R(cnrtDeviceGetPCIBusId);
  if (!is_device(device)) return runtime().invalid_device;
  return std::snprintf(text, static_cast<size_t>(size), "0000:%02x:00.0", 0xb0 + device), 0;
}
API cnrtDeviceGetQueuePriorityRange(int* least, int* greatest) {
  R(cnrtDeviceGetQueuePriorityRange);
  return *least = 7, *greatest = 0, 0;
}
API cnrtGetPeerAccessibility(unsigned* can, int device, int peer) {
  R(cnrtGetPeerAccessibility);
  return is_device(device) && is_device(peer) ? (*can = device != peer, 0) : runtime().invalid_device;
}
FAKE_EXPORT const char* cnrtGetErrorStr(int code) {
  return code == 100004   ? "no device is found"
         : code == 100006 ? "one of the parameters is invalid"
         : code == 100100 ? "insufficient device memory"
         : code == 100132 ? "a kernel trap"
         : code == 0      ? "no error"
                          : "another error";
}
API cnrtPeekAtLastError() {
  return lost();
}

// --- memory ----------------------------------------------------------------------------------------------------------
API cnrtMemGetInfo(size_t* available, size_t* total) {
  E(cnrtMemGetInfo);
  return *total = memory_bytes(), *available = *total - used_bytes(current_device()), 0;
}
API cnrtMalloc(void** pointer, size_t bytes) {
  S(cnrtMalloc);
  return bytes == 0 ? kArgsInvalid : allocate(current_device(), bytes, pointer);
}
API cnrtFree(void* pointer) {
  S(cnrtFree);
  return release(pointer, false, "cnrtFree"), 0;
}
API cnrtHostMalloc(void** pointer, size_t bytes) {
  S(cnrtHostMalloc);
  return bytes == 0 ? kArgsInvalid : allocate_pinned(bytes, pointer);
}
API cnrtFreeHost(void* pointer) {
  S(cnrtFreeHost);
  return release(pointer, true, "cnrtFreeHost"), 0;
}
#if !defined(RLK_FAKE_CNRT_6_0)
API cnrtMemAllocAsync(void** pointer, size_t bytes, void* queue) {
  E(cnrtMemAllocAsync);
  const auto own = stream_of(queue, "cnrtMemAllocAsync");
  if (own->capture != nullptr) return breaks(*own);
  return allocate(current_device(), bytes, pointer);
}
API cnrtMemFreeAsync(void* pointer, void* queue) {
  E(cnrtMemFreeAsync);
  require_device(pointer, 1, "cnrtMemFreeAsync");
  const auto own = stream_of(queue, "cnrtMemFreeAsync");
  if (own->capture != nullptr) return breaks(*own);
  own->wait();
  return release(pointer, false, "cnrtMemFreeAsync"), 0;
}
#endif
API cnrtMemcpy(void* to, void* from, size_t bytes, int direction) {
  S(cnrtMemcpy);
  Direction kind{};
  if (!direction_of(direction, &kind)) return kBadDirection;
  return finished(copy(to, from, bytes, kind, nullptr, "cnrtMemcpy"), "cnrtMemcpy");
}
API cnrtMemcpyAsync(void* to, void* from, size_t bytes, void* queue, int direction) {
  E(cnrtMemcpyAsync);
  Direction kind{};
  if (!direction_of(direction, &kind)) return kBadDirection;
  return bytes == 0 ? kArgsInvalid : copy(to, from, bytes, kind, queue, "cnrtMemcpyAsync");
}
#if !defined(RLK_FAKE_CNRT_6_0)
API cnrtMemcpyAsync_V3(void* to, void* from, size_t bytes, void* queue, int direction) {
  return cnrtMemcpyAsync(to, from, bytes, queue, direction);
}
#endif
API cnrtMemcpyPeerAsync(void* to, int to_device, void* from, int from_device, size_t bytes, void* queue) {
  E(cnrtMemcpyPeerAsync);
  if (!is_device(to_device) || !is_device(from_device)) return runtime().invalid_device;
  if (device_at(to) != to_device || device_at(from) != from_device)
    violation("WRONG_DEVICE", "cnrtMemcpyPeerAsync: an address is not of the device that is named for it");
  return copy(to, from, bytes, Direction::kOnDevice, queue, "cnrtMemcpyPeerAsync");
}
API cnrtMemset(void* to, int value, size_t bytes) {
  S(cnrtMemset);
  return finished(fill(to, value, bytes, nullptr, "cnrtMemset"), "cnrtMemset");
}
API cnrtMemsetAsync(void* to, int value, size_t bytes, void* queue) {
  E(cnrtMemsetAsync);
  return bytes == 0 ? kArgsInvalid : fill(to, value, bytes, queue, "cnrtMemsetAsync");
}

// --- queues and notifiers --------------------------------------------------------------------------------------------
API cnrtQueueCreate(void** queue) {
  E(cnrtQueueCreate);
  return create_stream(queue);
}
API cnrtQueueCreateWithPriority(void** queue, unsigned flags, int priority) {
  E(cnrtQueueCreateWithPriority);
  return flags != 0 || priority < 0 || priority > 7 ? kArgsInvalid : create_stream(queue);
}
API cnrtQueueDestroy(void* queue) {
  E(cnrtQueueDestroy);
  return destroy_stream(queue, "cnrtQueueDestroy");
}
API cnrtQueueSync(void* queue) {
  S(cnrtQueueSync);
  return synchronize_stream(queue, "cnrtQueueSync");
}
#if !defined(RLK_FAKE_WITHOUT_QUEUE_QUERY)
API cnrtQueueQuery(void* queue) {
  S(cnrtQueueQuery);
  return query_stream(queue, "cnrtQueueQuery");
}
#endif
API cnrtQueueWaitNotifier(void* notifier, void* queue, unsigned flag) {
  E(cnrtQueueWaitNotifier);
  if (flag != 0) return kArgsInvalid;
  const auto capture = stream_of(queue, "cnrtQueueWaitNotifier")->capture;
  if (capture != nullptr && events().get(notifier, "cnrtQueueWaitNotifier")->capture != capture) return kIsolation;
  return wait_for_event(queue, notifier, "cnrtQueueWaitNotifier");
}
API cnrtInvokeHostFunc(void* queue, void (*function)(void*), void* user) {
  E(cnrtInvokeHostFunc);
  return call_host(queue, function, user, "cnrtInvokeHostFunc");
}
API cnrtNotifierCreateWithFlags(void** notifier, unsigned flags) {
  E(cnrtNotifierCreateWithFlags);
  return flags != 0 && flags != 4 ? kArgsInvalid : create_event(notifier, flags == 0 ? kEveryUse : kUntimed);
}
API cnrtNotifierDestroy(void* notifier) {
  E(cnrtNotifierDestroy);
  return destroy_event(notifier, "cnrtNotifierDestroy");
}
API cnrtPlaceNotifier(void* notifier, void* queue) {
  E(cnrtPlaceNotifier);
  return record_event(notifier, queue, "cnrtPlaceNotifier");
}
API cnrtQueryNotifier(void* notifier) {
  S(cnrtQueryNotifier);
  return query_event(notifier, "cnrtQueryNotifier");
}
API cnrtWaitNotifier(void* notifier) {
  S(cnrtWaitNotifier);
  return synchronize_event(notifier, "cnrtWaitNotifier");
}
API cnrtNotifierElapsedTime(void* start, void* end, float* ms) {
  E(cnrtNotifierElapsedTime);
  return elapsed(start, end, ms, "cnrtNotifierElapsedTime");
}
