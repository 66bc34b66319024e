// Waiting with a deadline, copies and fills, and what a capture forbids.
#include "stream.hpp"

namespace rlk::simt::host {
namespace {

// What a graph holds for the host; the driver ends it on a thread of its own.
struct Tie {
  rlk_host_function release;
  void* user;
  static void end(void* self) {
    const std::unique_ptr<Tie> tie(static_cast<Tie*>(self));
    if (tie->release != nullptr) tie->release(tie->user);
  }
};

}  // namespace

Event::Event(Device& device, bool timing) : device_(device), owned_(true), timing_(timing) {
  const RelaxedScope scope(device_.place());
  check(driver().event_create(&handle_, timing ? 0 : kEventDisableTiming), "creating an event");
}

// Only the driver knows whether the event keeps time; it tells when it is asked for one.
Event::Event(Device& device, EventHandle borrowed) : device_(device), handle_(borrowed), owned_(false), timing_(true) {}

Event::~Event() {
  if (!owned_) return;
  try {
    const RelaxedScope scope(device_.place());
    driver().event_destroy(handle_);
  } catch (...) {
    // A lost device has no events any more.
  }
}

void Event::record(sdk::Stream& stream) {
  const PlaceScope scope(device_.place());
  check(driver().event_record(handle_, static_cast<Stream&>(stream).handle()), "recording an event");
}

rlk_status Event::query() {
  const RelaxedScope scope(device_.place());
  const Result code = driver().event_query(handle_);
  if (code == kNotReady) return RLK_NOT_READY;
  check(code, "the work before an event");
  return RLK_OK;
}

rlk_status Event::synchronize(uint64_t timeout_ns) {
  if (timeout_ns != UINT64_MAX) return sdk::poll(timeout_ns, [&] { return query(); });
  const RelaxedScope scope(device_.place());
  check(driver().event_synchronize(handle_), "the work before an event");
  return RLK_OK;
}

double Event::elapsed_ms(sdk::Event& start) {
  const Event& from = static_cast<Event&>(start);
  if (!timing_ || !from.timing_) {
    throw sdk::Error(RLK_INVALID_ARGUMENT, "an event was created without RLK_EVENT_TIMING: it has no time");
  }
  const RelaxedScope scope(device_.place());
  float ms = 0;
  check(driver().event_elapsed(&ms, from.handle_, handle_), "asking for the time between events");
  return static_cast<double>(ms);
}

Stream::Stream(Device& device, StreamHandle handle, bool owned) : device_(device), handle_(handle), owned_(owned) {}

Stream::~Stream() {
  if (!owned_) return;
  try {
    const RelaxedScope scope(device_.place());
    abandon_capture();
    driver().stream_synchronize(handle_);
    driver().stream_destroy(handle_);
  } catch (...) {
    // A lost device has no streams any more.
  }
}

// Ending a capture may have failed; drivers do not destroy a stream that captures.
void Stream::abandon_capture() noexcept {
  const Driver& table = driver();
  int status = kCaptureNone;
  if (table.stream_is_capturing == nullptr || table.end_capture == nullptr || table.graph_destroy == nullptr) return;
  if (table.stream_is_capturing(handle_, &status) != kSuccess || status == kCaptureNone) return;
  GraphHandle graph = nullptr;
  if (table.end_capture(handle_, &graph) == kSuccess && graph != nullptr) table.graph_destroy(graph);
}

void Stream::refuse_while_capturing(const char* what) {
  if (driver().stream_is_capturing == nullptr) return;  // nothing captures then
  int status = kCaptureNone;
  check(driver().stream_is_capturing(handle_, &status), "asking whether the stream captures");
  if (status == kCaptureNone) return;
  throw sdk::Error(RLK_CAPTURE_FORBIDS,
                   std::string("the stream is capturing a graph: ") + what + " would break the capture; end it first");
}

rlk_status Stream::query(rlk_data_error&) {
  const RelaxedScope scope(device_.place());
  refuse_while_capturing("a query");
  const Result code = driver().stream_query(handle_);
  if (code == kNotReady) return RLK_NOT_READY;
  check(code, "the stream's work");
  return RLK_OK;
}

rlk_status Stream::synchronize(uint64_t timeout_ns, rlk_data_error& data_error) {
  if (timeout_ns != UINT64_MAX) return sdk::poll(timeout_ns, [&] { return query(data_error); });
  const RelaxedScope scope(device_.place());
  refuse_while_capturing("a synchronization");
  check(driver().stream_synchronize(handle_), "the stream's work");
  return RLK_OK;
}

void Stream::wait(sdk::Event& event) {
  const PlaceScope scope(device_.place());
  check(driver().stream_wait_event(handle_, static_cast<Event&>(event).handle(), 0), "waiting for an event");
}

void Stream::copy(void* destination, const void* source, uint64_t bytes, int32_t kind) {
  if (kind != RLK_COPY_HOST_TO_DEVICE && kind != RLK_COPY_DEVICE_TO_HOST && kind != RLK_COPY_DEVICE_TO_DEVICE) {
    throw sdk::Error(RLK_INVALID_ARGUMENT, sdk::format("copy kind %d; the kinds are 1, 2 and 3", kind));
  }
  if (bytes == 0) return;
  const PlaceScope scope(device_.place());
  host::copy(destination, source, bytes, kind, handle_);
}

void Stream::fill(void* memory, uint8_t value, uint64_t bytes) {
  if (bytes == 0) return;
  const PlaceScope scope(device_.place());
  host::fill(memory, value, bytes, handle_);
}

void Stream::enqueue_host_function(rlk_host_function function, void* user) {
  if (driver().launch_host_function == nullptr) {
    throw sdk::Error(RLK_UNSUPPORTED,
                     "this driver runs no host functions in stream order; wait for the stream instead");
  }
  const PlaceScope scope(device_.place());
  check(driver().launch_host_function(handle_, function, user), "enqueueing a host function");
}

void* Stream::allocate_async(uint64_t bytes) {
  if (!device_.has_memory_pools()) {
    throw sdk::Error(RLK_UNSUPPORTED, "this driver has no stream-ordered allocation; use the device's allocate");
  }
  const RelaxedScope scope(device_.place());
  void* memory = nullptr;
  check(driver().allocate_async(&memory, bytes, handle_), "allocating device memory in stream order");
  return memory;
}

void Stream::deallocate_async(void* memory) {
  if (memory == nullptr) return;
  if (!device_.has_memory_pools()) throw sdk::Error(RLK_UNSUPPORTED, "this driver has no stream-ordered allocation");
  const RelaxedScope scope(device_.place());
  check(driver().free_async(memory, handle_), "freeing device memory in stream order");
}

void Stream::copy_peer(void* to, sdk::Device& to_device, const void* from, sdk::Device& from_device, uint64_t bytes) {
  if (bytes == 0) return;
  const PlaceScope scope(device_.place());
  host::copy_peer(to, static_cast<Device&>(to_device).place(), from, static_cast<Device&>(from_device).place(), bytes,
                  handle_);
}

uint64_t Stream::capture_id() {
  if (driver().capture_info == nullptr) {
    throw sdk::Error(RLK_UNSUPPORTED, "this driver does not tell which capture a stream is part of; a newer one may");
  }
  const PlaceScope scope(device_.place());
  int status = kCaptureNone;
  uint64_t id = 0;
  check(driver().capture_info(handle_, &status, &id), "asking which capture the stream is part of");
  if (status == kCaptureNone) return 0;
  if (status == kCaptureActive) return id;
  throw sdk::Error(RLK_CAPTURE_FORBIDS,
                   "the capture that the stream is part of has been broken by an earlier call; end it and begin again");
}

void Stream::capture_retain(rlk_host_function release, void* user) {
  const Driver& table = driver();
  if (table.capture_info_v2 == nullptr || table.user_object_create == nullptr || table.graph_retain == nullptr ||
      table.user_object_release == nullptr) {
    throw sdk::Error(RLK_UNSUPPORTED, "this driver ties nothing to the life of a graph; a newer one may");
  }
  const RelaxedScope scope(device_.place());
  int status = kCaptureNone;
  uint64_t id = 0;
  GraphHandle graph = nullptr;
  check(table.capture_info_v2(handle_, &status, &id, &graph, nullptr, nullptr), "asking for the captured graph");
  if (status != kCaptureActive) {
    throw sdk::Error(RLK_INVALID_ARGUMENT, "the stream captures no graph that anything could be tied to");
  }
  auto tie = std::make_unique<Tie>(Tie{release, user});
  UserObjectHandle object = nullptr;
  check(table.user_object_create(&object, tie.get(), &Tie::end, 1, kUserObjectNoDestructorSync),
        "creating a user object");
  Tie* const tied = tie.release();
  const Result code = table.graph_retain(graph, object, 1, kGraphUserObjectMove);
  if (code == kSuccess) return;
  tied->release = nullptr;  // what failed is not released: `user` is still the caller's
  table.user_object_release(object, 1);
  check(code, "tying memory to a graph");
}

}  // namespace rlk::simt::host
