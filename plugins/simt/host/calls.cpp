// One function per difference between the vendors' tables.
#include "calls.hpp"

namespace rlk::simt::host {

int device_of(int ordinal) {
  if (driver().device_get == nullptr) return ordinal;
  int device = 0;
  check(driver().device_get(&device, ordinal), "looking at the device");
  return device;
}

int attribute(int device, int which) {
  int value = 0;
  if (which == Attributes::kNone) return 0;
  return driver().device_attribute(&value, which, device) == kSuccess ? value : 0;
}

int needed_attribute(int device, int which, const char* what) {
  int value = 0;
  check(driver().device_attribute(&value, which, device), what);
  return value;
}

Place retain_place(int device) {
  if (driver().context_retain == nullptr) return {nullptr, device};
  Place place;
  check(driver().context_retain(&place.context, device), "retaining the device's primary context");
  return place;
}

void release_place(int device) noexcept {
  if (driver().context_release != nullptr) driver().context_release(device);
}

void* allocate_pinned(uint64_t bytes) {
  const Driver& table = driver();
  void* memory = nullptr;
  check(table.host_allocate != nullptr ? table.host_allocate(&memory, bytes, kHostAllocPortableMapped)
                                       : table.host_allocate_plain(&memory, bytes),
        "allocating pinned host memory");
  return memory;
}

StreamHandle create_stream(int priority) {
  const Driver& table = driver();
  StreamHandle handle = nullptr;
  if (table.stream_create == nullptr || table.stream_priority_range == nullptr) {
    check(table.stream_create_plain(&handle, kStreamNonBlocking), "creating a stream");
    return handle;
  }
  int least = 0, greatest = 0;  // greatest priority is the lowest number
  check(table.stream_priority_range(&least, &greatest), "asking for stream priorities");
  const int clamped = priority > least ? least : priority < greatest ? greatest : priority;
  check(table.stream_create(&handle, kStreamNonBlocking, clamped), "creating a stream");
  return handle;
}

void copy(void* to, const void* from, uint64_t bytes, int32_t kind, StreamHandle stream) {
  static_assert(RLK_COPY_HOST_TO_DEVICE == 1 && RLK_COPY_DEVICE_TO_HOST == 2 && RLK_COPY_DEVICE_TO_DEVICE == 3,
                "the vendors' numbers of the kinds of copies");
  const Driver& table = driver();
  // Without a kind the driver sees from the addresses which way the copy goes.
  check(table.copy_async != nullptr ? table.copy_async(to, from, bytes, stream)
                                    : table.copy_kind_async(to, from, bytes, kind, stream),
        "copying");
}

void copy_peer(void* to, const Place& to_place, const void* from, const Place& from_place, uint64_t bytes,
               StreamHandle stream) {
  const Driver& table = driver();
  if (table.copy_peer_async == nullptr && table.copy_peer_device_async == nullptr) {
    throw sdk::Error(RLK_UNSUPPORTED, "this driver cannot copy between devices; copy by way of host memory");
  }
  check(table.copy_peer_async != nullptr
            ? table.copy_peer_async(to, to_place.context, from, from_place.context, bytes, stream)
            : table.copy_peer_device_async(to, to_place.device, from, from_place.device, bytes, stream),
        "copying between devices");
}

void fill(void* to, uint8_t value, uint64_t bytes, StreamHandle stream) {
  const Driver& table = driver();
  check(table.fill_async != nullptr ? table.fill_async(to, value, bytes, stream)
                                    : table.fill_int_async(to, value, bytes, stream),
        "filling memory");
}

GraphExecHandle instantiate(GraphHandle graph) {
  const Driver& table = driver();
  GraphExecHandle exec = nullptr;
  check(table.graph_instantiate != nullptr ? table.graph_instantiate(&exec, graph, 0)
                                           : table.graph_instantiate_logged(&exec, graph, nullptr, nullptr, 0),
        "instantiating a graph");
  return exec;
}

Place ThreadPlace::current() {
  Place place;
  if (driver().context_current != nullptr) {
    check(driver().context_current(&place.context), "asking for the current context");
  } else {
    check(driver().device_current(&place.device), "asking for the current device");
  }
  return place;
}

void ThreadPlace::enter(Place wanted) {
  if (driver().context_push != nullptr) {
    check(driver().context_push(wanted.context), "making the device's context current");
  } else {
    check(driver().device_set(wanted.device), "making the device current");
  }
}

void ThreadPlace::leave(Place previous) noexcept {
  if (driver().context_pop != nullptr) {
    ContextHandle popped = nullptr;
    driver().context_pop(&popped);
  } else {
    driver().device_set(previous.device);
  }
}

RelaxedMode::RelaxedMode() {
  if (driver().exchange_capture_mode != nullptr) driver().exchange_capture_mode(&mode_);
}

RelaxedMode::~RelaxedMode() {
  if (driver().exchange_capture_mode != nullptr) driver().exchange_capture_mode(&mode_);
}

}  // namespace rlk::simt::host
