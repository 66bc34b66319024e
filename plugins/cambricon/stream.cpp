// Streams and events in terms of queues and notifiers. CNRT waits without a deadline, so a deadline is asked for.
#include "device.hpp"

namespace rlk::cambricon {
namespace {

constexpr uint64_t kForever = UINT64_MAX;

void require(bool is_here, const char* function) {
  if (!is_here) throw sdk::Error(RLK_UNSUPPORTED, sdk::format("this CNRT lacks %s", function));
}

}  // namespace

// The queue is still the caller's if this throws.
Lane::Lane(int device, CnrtQueue of, bool is_owned) : ordinal(device), queue(of), owned(is_owned) {
  const RelaxedDevice current(ordinal);
  check_cnnl(runtime().cnnlCreate(&handle), "cnnlCreate");
  const int status = runtime().cnnlSetQueue(handle, queue);
  if (status != 0) runtime().cnnlDestroy(handle);
  check_cnnl(status, "cnnlSetQueue");
}

Lane::~Lane() {
  try {
    const RelaxedDevice current(ordinal);
    runtime().cnnlDestroy(handle);
    if (owned) runtime().cnrtQueueDestroy(queue);
  } catch (const sdk::Error&) {
    // The device is gone and both with it.
  }
}

Stream::Stream(Device& device, std::shared_ptr<Lane> lane)
    : CapturedStream(device, lane->queue, device.ordinal()), lane_(std::move(lane)) {}

Stream::~Stream() {
  try {
    const RelaxedDevice current(place_);
    if (lane_->owned) {
      abandon_capture();
      runtime().cnrtQueueSync(native_);
    }
    give_back_record(lane_->owned);
  } catch (...) {
    // Without the notifier the plugin cannot know when the record is free: it is lost rather than reused too early.
  }
}

rlk_status Stream::query(rlk_data_error& data_error) {
  const RelaxedDevice current(place_);
  refuse_while_capturing("a query");
  return is_done(runtime().cnrtQueueQuery(native_), "cnrtQueueQuery") ? read_records(data_error) : RLK_NOT_READY;
}

rlk_status Stream::synchronize(uint64_t timeout_ns, rlk_data_error& data_error) {
  if (timeout_ns != kForever) return sdk::poll(timeout_ns, [&] { return query(data_error); });
  const RelaxedDevice current(place_);
  refuse_while_capturing("a synchronization");
  check(runtime().cnrtQueueSync(native_), "cnrtQueueSync");
  return read_records(data_error);
}

void Stream::wait(sdk::Event& event) {
  Event& other = static_cast<Event&>(event);
  if (!other.placed()) return;
  const CurrentDevice current(place_);
  check(runtime().cnrtQueueWaitNotifier(other.native(), native_, 0), "cnrtQueueWaitNotifier");
}

void Stream::copy(void* destination, const void* source, uint64_t bytes, int32_t kind) {
  if (bytes == 0) return;
  const CurrentDevice current(place_);
  const int direction = kind == RLK_COPY_HOST_TO_DEVICE   ? kToDevice
                        : kind == RLK_COPY_DEVICE_TO_HOST ? kToHost
                                                          : kOnDevice;
  check(runtime().cnrtMemcpyAsync(destination, const_cast<void*>(source), bytes, native_, direction),
        "cnrtMemcpyAsync");
}

void Stream::fill(void* memory, uint8_t value, uint64_t bytes) {
  if (bytes == 0) return;
  const CurrentDevice current(place_);
  check(runtime().cnrtMemsetAsync(memory, value, bytes, native_), "cnrtMemsetAsync");
}

void Stream::enqueue_host_function(rlk_host_function function, void* user) {
  require(runtime().cnrtInvokeHostFunc != nullptr, "cnrtInvokeHostFunc");
  const CurrentDevice current(place_);
  check(runtime().cnrtInvokeHostFunc(native_, function, user), "cnrtInvokeHostFunc");
}

void* Stream::allocate_async(uint64_t bytes) {
  require(runtime().cnrtMemAllocAsync != nullptr && runtime().cnrtMemFreeAsync != nullptr, "cnrtMemAllocAsync");
  const CurrentDevice current(place_);
  refuse_while_capturing("an allocation");  // task topologies have no node for one
  void* memory = nullptr;
  check(runtime().cnrtMemAllocAsync(&memory, bytes, native_), "cnrtMemAllocAsync");
  return memory;
}

void Stream::deallocate_async(void* memory) {
  require(runtime().cnrtMemFreeAsync != nullptr, "cnrtMemFreeAsync");
  const CurrentDevice current(place_);
  refuse_while_capturing("freeing memory");
  check(runtime().cnrtMemFreeAsync(memory, native_), "cnrtMemFreeAsync");
}

void Stream::copy_peer(void* to, sdk::Device& to_device, const void* from, sdk::Device& from_device, uint64_t bytes) {
  if (bytes == 0) return;
  require(runtime().cnrtMemcpyPeerAsync != nullptr, "cnrtMemcpyPeerAsync");
  const CurrentDevice current(place_);
  check(runtime().cnrtMemcpyPeerAsync(to, static_cast<Device&>(to_device).ordinal(), const_cast<void*>(from),
                                      static_cast<Device&>(from_device).ordinal(), bytes, native_),
        "cnrtMemcpyPeerAsync");
}

// --- event -----------------------------------------------------------------------------------------------------------

// Its owner may have placed it, and CNRT does not tell: it is taken for placed.
Event::Event(Device& device, CnrtNotifier borrowed)
    : device_(device), owned_(false), native_(borrowed), placed_(true) {}

Event::Event(Device& device, bool timing) : device_(device), owned_(true) {
  const CurrentDevice current(device_.ordinal());
  check(runtime().cnrtNotifierCreateWithFlags(&native_, timing ? 0 : kNoTiming), "cnrtNotifierCreateWithFlags");
}

Event::~Event() {
  if (!owned_) return;
  try {
    const CurrentDevice current(device_.ordinal());
    runtime().cnrtNotifierDestroy(native_);
  } catch (const sdk::Error&) {
    // The device is gone and the notifier with it.
  }
}

void Event::record(sdk::Stream& stream) {
  const CurrentDevice current(static_cast<Stream&>(stream).device().ordinal());
  check(runtime().cnrtPlaceNotifier(native_, stream.native()), "cnrtPlaceNotifier");
  placed_ = true;
}

rlk_status Event::query() {
  if (!placed_) return RLK_OK;
  const RelaxedDevice current(device_.ordinal());
  return is_done(runtime().cnrtQueryNotifier(native_), "cnrtQueryNotifier") ? RLK_OK : RLK_NOT_READY;
}

rlk_status Event::synchronize(uint64_t timeout_ns) {
  if (!placed_) return RLK_OK;
  if (timeout_ns != kForever) return sdk::poll(timeout_ns, [&] { return query(); });
  const RelaxedDevice current(device_.ordinal());
  check(runtime().cnrtWaitNotifier(native_), "cnrtWaitNotifier");
  return RLK_OK;
}

double Event::elapsed_ms(sdk::Event& start) {
  const CurrentDevice current(device_.ordinal());
  float ms = 0;
  check(runtime().cnrtNotifierElapsedTime(static_cast<Event&>(start).native_, native_, &ms), "cnrtNotifierElapsedTime");
  return ms;
}

}  // namespace rlk::cambricon
