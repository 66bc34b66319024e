// Queues, events and memory, with their lies.
#include "conformance/liar/device.hpp"

#include <rlk/abi/ext/draft/graph.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <string>

namespace rlk::liar {
namespace {

using Clock = std::chrono::steady_clock;

std::string g_lie;
bool g_inline = false;
constexpr uint64_t kMemory = uint64_t{1} << 32;
const std::thread::id g_first_thread = std::this_thread::get_id();

}  // namespace

void set_lie(std::string_view name) {
  g_lie = name;
}
bool lie(std::string_view name) {
  return g_lie == name;
}
void set_inline(bool is_inline) {
  g_inline = is_inline;
}
bool is_inline() {
  return g_inline;
}

// ---- queues ---------------------------------------------------------------------------------------------------------

Queue::Queue() : thread_([this] { run(); }) {}

Queue::~Queue() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
    changed_.notify_all();
  }
  thread_.join();
}

uint64_t Queue::submit(Work work) {
  const std::lock_guard lock(mutex_);
  if (lie("order_last_first")) {
    works_.push_front(std::move(work));
  } else {
    works_.push_back(std::move(work));
  }
  changed_.notify_all();
  return ++submitted_;
}

bool Queue::is_done() {
  const std::lock_guard lock(mutex_);
  return done_ == submitted_;
}

bool Queue::wait(uint64_t timeout_ns) {
  std::unique_lock lock(mutex_);
  const uint64_t target = submitted_;
  const auto reached = [&] { return done_ >= target; };
  const auto longest = static_cast<uint64_t>(std::chrono::nanoseconds(std::chrono::hours(1)).count());
  return changed_.wait_for(lock, std::chrono::nanoseconds(std::min(timeout_ns, longest)), reached);
}

void Queue::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return !works_.empty() || ends_; });
    if (works_.empty()) return;
    const Work work = std::move(works_.front());
    works_.pop_front();
    lock.unlock();
    work();
    lock.lock();
    ++done_;
    changed_.notify_all();
  }
}

// ---- streams --------------------------------------------------------------------------------------------------------

LiarStream::~LiarStream() {
  static std::deque<std::shared_ptr<Queue>> left_running;
  if (lie("destroy_does_not_wait")) {
    left_running.push_back(queue_);
  } else if (owned_) {
    queue_->wait(UINT64_MAX);
  }
}

void LiarStream::submit(Queue::Work work) {
  if (!is_inline()) {
    queue_->submit(std::move(work));
  } else if (lie("inline_but_later")) {
    queue_->submit([work] {
      std::this_thread::sleep_for(std::chrono::microseconds(100));
      work();
    });
  } else {
    work();
  }
}

rlk_status LiarStream::query(rlk_data_error& data_error) {
  if (!lie("query_always_ready") && !queue_->is_done()) return RLK_NOT_READY;
  return synchronize(0, data_error);
}

rlk_status LiarStream::synchronize(uint64_t timeout_ns, rlk_data_error&) {
  const bool waits = !lie("synchronize_does_not_wait") && !(lie("query_always_ready") && timeout_ns == 0);
  if (waits && !queue_->wait(lie("deadline_ignored") ? UINT64_MAX : timeout_ns)) return RLK_TIMEOUT;
  return RLK_OK;
}

void LiarStream::wait(sdk::Event& event) {
  if (lie("wait_event_ignored")) return;
  submit(static_cast<LiarEvent&>(event).waiter());
}

void LiarStream::copy(void* destination, const void* source, uint64_t bytes, int32_t kind) {
  if (lie("copy_drops_the_last_byte") && bytes > 4096) --bytes;
  if (lie("copy_one_too_many") && bytes == 31) ++bytes;
  if (lie("copy_within_device_missing") && kind == RLK_COPY_DEVICE_TO_DEVICE) return;
  if (lie("copy_by_a_second_thread_missing") && std::this_thread::get_id() != g_first_thread) return;
  submit([=] { std::memmove(destination, source, bytes); });
}

void LiarStream::fill(void* memory, uint8_t value, uint64_t bytes) {
  if (lie("fill_by_words")) bytes = bytes / 4 * 4;
  if (lie("fill_with_zero")) value = 0;
  submit([=] { std::memset(memory, value, bytes); });
}

void LiarStream::enqueue_host_function(rlk_host_function function, void* user) {
  if (lie("host_function_never")) return;
  if (lie("host_function_at_once")) return function(user);
  submit([=] {
    function(user);
    if (lie("host_function_twice")) function(user);
  });
}

// ---- events ---------------------------------------------------------------------------------------------------------

struct LiarEvent::State {
  std::mutex mutex;
  std::condition_variable changed;
  bool reached = false;
  Clock::time_point time{};
};

void LiarEvent::record(sdk::Stream& stream) {
  state_ = std::make_shared<State>();
  static_cast<LiarStream&>(stream).submit([state = state_] {
    const std::lock_guard lock(state->mutex);
    state->time = Clock::now();
    state->reached = !lie("event_never_reached");
    state->changed.notify_all();
  });
}

rlk_status LiarEvent::query() {
  if (state_ == nullptr || lie("event_always_reached")) return RLK_OK;
  const std::lock_guard lock(state_->mutex);
  return state_->reached ? RLK_OK : RLK_NOT_READY;
}

rlk_status LiarEvent::synchronize(uint64_t timeout_ns) {
  if (state_ == nullptr) return RLK_OK;
  std::unique_lock lock(state_->mutex);
  const auto most = std::min<uint64_t>(timeout_ns, 300'000'000u);
  return state_->changed.wait_for(lock, std::chrono::nanoseconds(most), [&] { return state_->reached; }) ? RLK_OK
                                                                                                         : RLK_TIMEOUT;
}

double LiarEvent::elapsed_ms(sdk::Event& start) {
  const double ms =
      std::chrono::duration<double, std::milli>(state_->time - static_cast<LiarEvent&>(start).state_->time).count();
  if (lie("elapsed_is_nothing")) return 0;
  if (lie("elapsed_in_microseconds")) return ms * 1e3 + 1e3;
  return lie("elapsed_is_negative") ? -ms - 1 : ms;
}

std::function<void()> LiarEvent::waiter() {
  return [state = state_] {
    if (state == nullptr) return;
    std::unique_lock lock(state->mutex);
    state->changed.wait_for(lock, std::chrono::seconds(1), [&] { return state->reached; });
  };
}

// ---- the device -----------------------------------------------------------------------------------------------------

void LiarDevice::describe(rlk_device_properties& out) {
  out.flags = RLK_DEVICE_MAPPED_PINNED | (is_inline() || lie("inline_claimed") ? RLK_DEVICE_INLINE_STREAMS : 0);
  out.memory_bytes = kMemory;
  sdk::detail::copy_text(out.name, "liar");
}

void* LiarDevice::allocate(int32_t kind, uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  const bool is_device = kind == RLK_MEMORY_DEVICE;
  for (const auto& [address, block] : blocks_) {
    const bool same = block.second == kind && block.first >= bytes;
    if (lie("one_block_twice") && same && bytes == 4096) return address;
    if (lie("blocks_overlap") && same && is_device && bytes == 64 * 1024 + 1) return static_cast<char*>(address) + 256;
  }
  if (lie("pinned_is_wild") && !is_device) return reinterpret_cast<void*>(uintptr_t{0x10000});
  void* memory = std::aligned_alloc(256, (bytes + 511) / 256 * 256);
  if (memory == nullptr) throw sdk::Error(RLK_OUT_OF_MEMORY, "host memory is exhausted");
  if (lie("unaligned") && bytes == 4099) memory = static_cast<char*>(memory) + 64;
  blocks_.push_back({memory, {bytes, kind}});
  return memory;
}

void LiarDevice::deallocate(int32_t, void* memory) {
  const std::lock_guard lock(mutex_);
  const auto found =
      std::find_if(blocks_.begin(), blocks_.end(), [&](const auto& block) { return block.first == memory; });
  if (found == blocks_.end()) return;
  blocks_.erase(found);
  const bool is_in_use = lie("writes_again_later") || lie("launched_on_another_stream");
  if (!is_in_use) std::free(reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(memory) / 256 * 256));
}

void LiarDevice::memory_info(uint64_t& free_bytes, uint64_t& total_bytes) {
  total_bytes = kMemory;
  free_bytes = lie("more_free_than_there_is") ? 2 * kMemory : kMemory;
  if (lie("total_in_kilobytes")) free_bytes = total_bytes = kMemory / 1024;
}

int32_t LiarDevice::pointer_kind(const void* pointer) {
  const std::lock_guard lock(mutex_);
  if (lie("every_pointer_is_pinned")) return RLK_POINTER_PINNED;
  for (const auto& [address, block] : blocks_) {
    if (address != pointer) continue;
    return block.second == RLK_MEMORY_DEVICE ? RLK_POINTER_DEVICE : RLK_POINTER_PINNED;
  }
  return RLK_POINTER_UNKNOWN;
}

std::unique_ptr<sdk::Stream> LiarDevice::create_stream(int32_t priority) {
  if (lie("priority_refused") && priority < -5) throw sdk::Error(RLK_INVALID_ARGUMENT, "no such priority");
  return std::make_unique<LiarStream>(std::make_shared<Queue>(), true);
}

std::unique_ptr<sdk::Stream> LiarDevice::wrap_stream(void* native) {
  if (native == nullptr) throw sdk::Error(RLK_UNSUPPORTED, "there is no default stream");
  auto queue = static_cast<Queue*>(native)->shared_from_this();
  if (lie("wrap_is_another_stream")) queue = std::make_shared<Queue>();
  return std::make_unique<LiarStream>(std::move(queue), false);
}

std::unique_ptr<sdk::Event> LiarDevice::create_event(bool) {
  return std::make_unique<LiarEvent>();
}

const void* liar_extension(std::string_view id) {
  static const rlk_graph_api empty = {sizeof(rlk_graph_api), 0, nullptr, nullptr, nullptr, nullptr};
  alignas(8) static const char text[] = "this is a text and no table of functions";
  if (lie("extension_of_any_id")) return &empty;
  if (id != RLK_EXT_GRAPH) return nullptr;
  if (lie("extension_is_wild")) return reinterpret_cast<const void*>(uintptr_t{0xdead0000});
  if (lie("extension_is_a_text")) return text;
  if (lie("extension_without_slots")) return &empty;
  return nullptr;
}

}  // namespace rlk::liar
