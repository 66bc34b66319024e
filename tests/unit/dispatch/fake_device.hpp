// A device that is none: its memory is the host's, its streams are threads that work their queues off in order, so that
// whatever is done too early or too late shows. Knobs and counts are public.
#pragma once

#include <rlk/abi/ext/draft/graph.h>
#include <rlk/sdk.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

namespace rlk::test {

using Work = std::function<void()>;

// What happened to all fake devices of a test. Reset by World.
struct FakeLog {
  std::atomic<uint64_t> allocations{0}, deallocations{0}, live_bytes{0}, host_functions{0}, copies{0}, waits{0};
  std::atomic<uint64_t> to_host{0}, most_bytes{0};  // copied from the device; that were allocated at once
  std::atomic<uint64_t> limit_bytes{UINT64_MAX};
  std::atomic<int> violations{0};                    // of the rules that the ABI gives the host
  std::atomic<int> delay_us{0};                      // before every piece of work
  std::atomic<int> opens{0}, attaches{0}, asked{0};  // asked: optional slots that answered UNSUPPORTED
  std::atomic<bool> fail_open{false};
  std::atomic<bool> lacks_optional{false};  // every optional slot answers UNSUPPORTED
  void reset() {
    opens = attaches = asked = 0;
    fail_open = lacks_optional = false;
    allocations = deallocations = live_bytes = host_functions = copies = waits = 0;
    to_host = most_bytes = 0;
    limit_bytes = UINT64_MAX;
    violations = 0;
    delay_us = 0;
  }
};
inline FakeLog& fake_log() {
  static FakeLog log;
  return log;
}

// An optional slot is called: is it there?
inline void answer_optional() {
  if (!fake_log().lacks_optional) return;
  ++fake_log().asked;
  throw sdk::Error(RLK_UNSUPPORTED, "the fake runtime has no such function");
}

// A queue and its thread.
class Worker {
public:
  Worker() : thread_([this] { run(); }) {}
  ~Worker() {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
      held_ = false;
    }
    wake_.notify_all();
    thread_.join();
  }
  uint64_t push(Work work) {
    const std::lock_guard lock(mutex_);
    queue_.push_back(std::move(work));
    wake_.notify_all();
    return ++pushed_;
  }
  uint64_t pushed() {
    const std::lock_guard lock(mutex_);
    return pushed_;
  }
  bool is_done(uint64_t sequence) {
    const std::lock_guard lock(mutex_);
    return done_ >= sequence;
  }
  bool wait(uint64_t sequence, uint64_t timeout_ns) {
    std::unique_lock lock(mutex_);
    const auto reached = [&] { return done_ >= sequence; };
    if (timeout_ns == UINT64_MAX) {
      done_changed_.wait(lock, reached);
      return true;
    }
    return done_changed_.wait_for(lock, std::chrono::nanoseconds(timeout_ns), reached);
  }
  // The device dies: what is queued is never worked off, and nothing is waited for any more.
  void die() {
    const std::lock_guard lock(mutex_);
    for (Work& work : queue_) never_run_.push_back(std::move(work));
    queue_.clear();
    done_ = UINT64_MAX;
    done_changed_.notify_all();
  }
  // While held, nothing is worked off.
  void hold(bool held) {
    const std::lock_guard lock(mutex_);
    held_ = held;
    wake_.notify_all();
  }

private:
  void run() {
    std::unique_lock lock(mutex_);
    for (;;) {
      wake_.wait(lock, [&] { return stop_ || (!queue_.empty() && !held_); });
      if (queue_.empty()) return;
      Work work = std::move(queue_.front());
      queue_.pop_front();
      lock.unlock();
      if (const int us = fake_log().delay_us; us > 0) std::this_thread::sleep_for(std::chrono::microseconds(us));
      work();
      work = nullptr;
      lock.lock();
      ++done_;
      done_changed_.notify_all();
    }
  }
  std::mutex mutex_;
  std::condition_variable wake_, done_changed_;
  std::deque<Work> queue_;
  std::vector<Work> never_run_;
  uint64_t pushed_ = 0, done_ = 0;
  bool stop_ = false, held_ = false;
  std::thread thread_;
};

// What a capture of the vendor's own calls made. Its death is told to the callers that asked for that.
struct VendorGraph {
  std::vector<Work> work;
  std::vector<std::pair<rlk_host_function, void*>> releases;
  VendorGraph() = default;
  VendorGraph(VendorGraph&&) = default;
  VendorGraph(const VendorGraph&) = delete;
  ~VendorGraph() {
    for (const auto& [release, user] : releases) release(user);
  }
};

class FakeStream : public sdk::Stream {
public:
  FakeStream() : worker(std::make_shared<Worker>()) {}
  ~FakeStream() override {
    if (wrapped) return;
    worker->hold(false);  // a test that fails while it holds its stream ends, too
    worker->wait(worker->pushed(), UINT64_MAX);
  }
  void* native() override { return this; }
  rlk_status query(rlk_data_error& error) override {
    forbid_in_capture();
    if (broken) throw sdk::Error(broken_status, "the fake device failed", 700, "fake");
    return worker->is_done(worker->pushed()) ? tell(error) : RLK_NOT_READY;
  }
  rlk_status synchronize(uint64_t timeout_ns, rlk_data_error& error) override {
    forbid_in_capture();
    ++fake_log().waits;
    if (!worker->wait(worker->pushed(), timeout_ns)) return RLK_TIMEOUT;
    if (broken) throw sdk::Error(broken_status, "the fake device failed", 700, "fake");
    return tell(error);
  }
  void wait(sdk::Event& event) override;
  void copy(void* to, const void* from, uint64_t bytes, int32_t kind) override {
    ++fake_log().copies;
    if (kind == RLK_COPY_DEVICE_TO_HOST) fake_log().to_host += bytes;
    push([=] { std::memcpy(to, from, bytes); });
  }
  void fill(void* memory, uint8_t value, uint64_t bytes) override {
    push([=] { std::memset(memory, value, bytes); });
  }
  void copy_peer(void* to, sdk::Device& to_device, const void* from, sdk::Device& from_device,
                 uint64_t bytes) override {
    answer_optional();
    peers = {&from_device, &to_device};
    push([=] { std::memcpy(to, from, bytes); });
  }
  uint64_t capture_id() override {
    answer_optional();
    return capturing ? capture : 0;
  }
  void capture_retain(rlk_host_function release, void* user) override {
    answer_optional();
    if (!capturing) ++fake_log().violations;
    releases.emplace_back(release, user);
  }
  // A capture by the vendor's own calls.
  void begin_capture() {
    static std::atomic<uint64_t> captures{0};
    capture = ++captures;
    capturing = true;
  }
  VendorGraph end_capture() {
    capturing = false;
    VendorGraph graph;
    graph.work.swap(captured);
    graph.releases.swap(releases);
    return graph;
  }

  void push(Work work) {
    if (capturing) {
      captured.push_back(std::move(work));
    } else {
      worker->push(std::move(work));
    }
  }
  // What a kernel does.
  static void write(rlk_data_error_record* record, int32_t kind, uint32_t tag, int64_t row, int64_t value) {
    if (record->state != 0) return;
    *record = {1, kind, tag, 0, row, value};
  }
  void forbid_in_capture() const {
    if (capturing) ++fake_log().violations;
  }

  std::shared_ptr<Worker> worker;
  // Of a device whose pinned memory is not mapped: touched by the worker and, when it is done, by the owner.
  rlk_data_error_record record{};
  std::atomic<bool> broken{false};
  rlk_status broken_status = RLK_BACKEND_ERROR;
  bool wrapped = false;
  std::pair<sdk::Device*, sdk::Device*> peers;  // of the last copy between devices: from, to
  bool capturing = false;
  uint64_t capture = 0;
  std::vector<Work> captured;
  std::vector<std::pair<rlk_host_function, void*>> releases;

private:
  rlk_status tell(rlk_data_error& error) {
    if (record.state == 0) return RLK_OK;
    error.kind = record.kind;
    error.tag = record.tag;
    error.row = record.row;
    error.value = record.value;
    record = {};
    return RLK_DATA_ERROR;
  }
};

// The same with host functions.
class FakeStreamWithHostFunctions : public FakeStream {
public:
  void enqueue_host_function(rlk_host_function function, void* user) override {
    answer_optional();
    ++fake_log().host_functions;
    push([=] { function(user); });
  }
};

class FakeEvent : public sdk::Event {
public:
  void record(sdk::Stream& stream) override {
    auto& fake = static_cast<FakeStream&>(stream);
    if (fake.capturing) return;  // recorded into the graph
    worker = fake.worker;
    sequence = fake.worker->pushed();
  }
  rlk_status query() override { return worker == nullptr || worker->is_done(sequence) ? RLK_OK : RLK_NOT_READY; }
  rlk_status synchronize(uint64_t timeout_ns) override {
    return worker == nullptr || worker->wait(sequence, timeout_ns) ? RLK_OK : RLK_TIMEOUT;
  }
  std::shared_ptr<Worker> worker;
  uint64_t sequence = 0;
};

inline void FakeStream::wait(sdk::Event& event) {
  auto& fake = static_cast<FakeEvent&>(event);
  push([worker = fake.worker, sequence = fake.sequence] {
    if (worker != nullptr) worker->wait(sequence, UINT64_MAX);
  });
}

template <class StreamType>
class FakeDeviceOf : public sdk::Device {
public:
  static void describe(uint32_t ordinal, rlk_device_properties& out) {
    out.flags = RLK_DEVICE_MAPPED_PINNED;
    out.memory_bytes = uint64_t{1} << 30;
    out.uuid[15] = static_cast<uint8_t>(ordinal + 1);
    std::snprintf(out.name, sizeof(out.name), "Fake");
    std::snprintf(out.arch, sizeof(out.arch), "fake1");
    std::snprintf(out.pci_bus_id, sizeof(out.pci_bus_id), "00000000:%02x:00.0", ordinal);
  }
  explicit FakeDeviceOf(uint32_t number = 0) : ordinal(number) {}
  int32_t pointer_kind(const void*) override {
    answer_optional();
    return RLK_POINTER_UNKNOWN;
  }
  void native(rlk_native_device& out) override {
    answer_optional();
    out.ordinal = static_cast<int32_t>(ordinal);
    out.device = 100 + ordinal;
    out.context = this;
  }
  void* allocate(int32_t, uint64_t bytes) override {
    FakeLog& log = fake_log();
    if (bytes > log.limit_bytes || log.live_bytes > log.limit_bytes - bytes) {
      throw sdk::Error(RLK_OUT_OF_MEMORY, "the fake device is full");
    }
    ++log.allocations;
    log.live_bytes += bytes;
    log.most_bytes = std::max<uint64_t>(log.most_bytes, log.live_bytes);
    auto* block = static_cast<char*>(std::aligned_alloc(256, (bytes + 511) / 256 * 256 + 256));
    std::memcpy(block, &bytes, sizeof(bytes));
    return block + 256;
  }
  void deallocate(int32_t, void* memory) override {
    uint64_t bytes = 0;
    std::memcpy(&bytes, static_cast<char*>(memory) - 256, sizeof(bytes));
    ++fake_log().deallocations;
    fake_log().live_bytes -= bytes;
    std::free(static_cast<char*>(memory) - 256);
  }
  void memory_info(uint64_t& available, uint64_t& total) override {
    total = fake_log().limit_bytes;
    available = total - fake_log().live_bytes;
  }
  std::unique_ptr<sdk::Stream> create_stream(int32_t) override { return std::make_unique<StreamType>(); }
  std::unique_ptr<sdk::Stream> wrap_stream(void* native) override {
    auto stream = std::make_unique<StreamType>();
    stream->worker = static_cast<FakeStream*>(native)->worker;
    stream->wrapped = true;
    return stream;
  }
  std::unique_ptr<sdk::Event> create_event(bool) override { return std::make_unique<FakeEvent>(); }

  const uint32_t ordinal;
};

struct FakeDevice : FakeDeviceOf<FakeStreamWithHostFunctions> {
  static constexpr const char* kPlugin = "fake";
  using FakeDeviceOf::FakeDeviceOf;
};
struct PlainDevice : FakeDeviceOf<FakeStream> {  // no host functions, no mapped memory
  static constexpr const char* kPlugin = "plain";
  using FakeDeviceOf::FakeDeviceOf;
  static void describe(uint32_t ordinal, rlk_device_properties& out) {
    FakeDeviceOf::describe(ordinal, out);
    out.flags = 0;
  }
};

// The CPU: unified memory, streams that run inline.
class FakeCpuStream : public sdk::Stream {
public:
  void* native() override { return this; }
  rlk_status query(rlk_data_error&) override { return RLK_OK; }
  rlk_status synchronize(uint64_t, rlk_data_error&) override { return RLK_OK; }
  void wait(sdk::Event&) override {}
  void copy(void* to, const void* from, uint64_t bytes, int32_t) override { std::memcpy(to, from, bytes); }
  void fill(void* memory, uint8_t value, uint64_t bytes) override { std::memset(memory, value, bytes); }
  void push(const Work& work) { work(); }
  rlk_data_error_record record{};
};
class FakeCpuEvent : public sdk::Event {
public:
  void record(sdk::Stream&) override {}
  rlk_status query() override { return RLK_OK; }
  rlk_status synchronize(uint64_t) override { return RLK_OK; }
};
class FakeCpuDevice : public FakeDevice {
public:
  static constexpr const char* kPlugin = "cpu";
  using FakeDevice::FakeDevice;
  static void describe(uint32_t ordinal, rlk_device_properties& out) {
    FakeDevice::describe(ordinal, out);
    out.flags = RLK_DEVICE_UNIFIED_MEMORY | RLK_DEVICE_INLINE_STREAMS;
  }
  std::unique_ptr<sdk::Stream> create_stream(int32_t) override { return std::make_unique<FakeCpuStream>(); }
  std::unique_ptr<sdk::Stream> wrap_stream(void*) override { return std::make_unique<FakeCpuStream>(); }
  std::unique_ptr<sdk::Event> create_event(bool) override { return std::make_unique<FakeCpuEvent>(); }
};

// ---- graphs

struct FakeGraph {
  std::vector<Work> work;
};

inline FakeStream& fake(rlk_plugin_stream* stream) {
  return static_cast<FakeStream&>(*reinterpret_cast<sdk::Stream*>(stream));
}

inline constexpr rlk_graph_api kFakeGraphs = {
    sizeof(rlk_graph_api),
    0,
    [](rlk_plugin_stream* s, rlk_error*) -> rlk_status {
      fake(s).begin_capture();
      return RLK_OK;
    },
    [](rlk_plugin_stream* s, rlk_plugin_graph** out, rlk_error*) -> rlk_status {
      fake(s).capturing = false;
      *out = reinterpret_cast<rlk_plugin_graph*>(new FakeGraph{std::move(fake(s).captured)});
      fake(s).captured.clear();
      return RLK_OK;
    },
    [](rlk_plugin_graph* graph, rlk_plugin_stream* s, rlk_error*) -> rlk_status {
      for (const Work& work : reinterpret_cast<FakeGraph*>(graph)->work) fake(s).push(work);
      return RLK_OK;
    },
    [](rlk_plugin_graph* graph, rlk_error*) -> rlk_status {
      delete reinterpret_cast<FakeGraph*>(graph);
      return RLK_OK;
    },
};

}  // namespace rlk::test
