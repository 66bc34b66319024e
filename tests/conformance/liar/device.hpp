// A device whose streams are queues with a thread each, or which does its work in the call that asks for it; and which
// can be made to break one promise at a time, by name. Without a lie it is honest.
#pragma once

#include <rlk/sdk.hpp>

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string_view>
#include <thread>

namespace rlk::liar {

// The active lie; empty: none. Not thread-safe: set between conformance runs.
void set_lie(std::string_view name);
bool lie(std::string_view name);
// Streams do their work in the call, and say so.
void set_inline(bool is_inline);
bool is_inline();

// The vendor's stream.
class Queue : public std::enable_shared_from_this<Queue> {
public:
  using Work = std::function<void()>;
  Queue();
  ~Queue();
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;
  uint64_t submit(Work work);  // the number of the work
  bool is_done();
  bool wait(uint64_t timeout_ns);

private:
  void run();
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Work> works_;
  uint64_t submitted_ = 0, done_ = 0;
  bool ends_ = false;
  std::thread thread_;
};

class LiarStream : public sdk::Stream {
public:
  LiarStream(std::shared_ptr<Queue> queue, bool owned) : queue_(std::move(queue)), owned_(owned) {}
  ~LiarStream() override;
  void* native() override { return queue_.get(); }
  rlk_status query(rlk_data_error& data_error) override;
  rlk_status synchronize(uint64_t timeout_ns, rlk_data_error& data_error) override;
  void wait(sdk::Event& event) override;
  void copy(void* destination, const void* source, uint64_t bytes, int32_t kind) override;
  void fill(void* memory, uint8_t value, uint64_t bytes) override;
  void enqueue_host_function(rlk_host_function function, void* user) override;
  uint64_t capture_id() override { return lie("capture_id_of_no_capture") ? 7 : 0; }

  void submit(Queue::Work work);
  bool is_owned() const { return owned_; }

private:
  std::shared_ptr<Queue> queue_;
  bool owned_;
};

class LiarEvent : public sdk::Event {
public:
  void record(sdk::Stream& stream) override;
  rlk_status query() override;
  rlk_status synchronize(uint64_t timeout_ns) override;
  double elapsed_ms(sdk::Event& start) override;
  // A function that returns when what is recorded now has been reached.
  std::function<void()> waiter();

private:
  struct State;
  std::shared_ptr<State> state_;
};

class LiarDevice : public sdk::Device {
public:
  static void describe(rlk_device_properties& out);
  void* allocate(int32_t kind, uint64_t bytes) override;
  void deallocate(int32_t kind, void* memory) override;
  void memory_info(uint64_t& free_bytes, uint64_t& total_bytes) override;
  int32_t pointer_kind(const void* pointer) override;
  std::unique_ptr<sdk::Stream> create_stream(int32_t priority) override;
  std::unique_ptr<sdk::Stream> wrap_stream(void* native) override;
  std::unique_ptr<sdk::Event> create_event(bool timing) override;

private:
  std::mutex mutex_;
  std::deque<std::pair<void*, std::pair<uint64_t, int32_t>>> blocks_;  // address, bytes, kind
};

const void* liar_extension(std::string_view id);

}  // namespace rlk::liar
