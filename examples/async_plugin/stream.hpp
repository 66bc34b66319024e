// A stream that works behind its caller: a thread that does what is enqueued, in order. In a plugin of yours the
// vendor's runtime has such streams; what the host expects of them is the same.
#pragma once

#include <rlk/sdk.hpp>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

namespace queue {

using Clock = std::chrono::steady_clock;

// A point of a stream, once the stream has passed it.
class Mark {
public:
  void pass() {
    const std::lock_guard<std::mutex> lock(mutex_);
    time_ = Clock::now();
    passed_ = true;
    changed_.notify_all();
  }
  bool is_passed() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return passed_;
  }
  // False when the time is over first.
  bool wait(uint64_t timeout_ns) {
    std::unique_lock<std::mutex> lock(mutex_);
    const auto is_passed = [this] { return passed_; };
    // The longest times do not fit the clock.
    if (timeout_ns > uint64_t{1} << 62) {
      changed_.wait(lock, is_passed);
      return true;
    }
    return changed_.wait_for(lock, std::chrono::nanoseconds(timeout_ns), is_passed);
  }
  Clock::time_point time() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return time_;
  }

private:
  std::mutex mutex_;  // of what follows
  std::condition_variable changed_;
  Clock::time_point time_;
  bool passed_ = false;
};

class Stream;

class Event : public rlk::sdk::Event {
public:
  void record(rlk::sdk::Stream& stream) override;
  // An event that was never recorded has nothing to wait for.
  rlk_status query() override { return mark_ == nullptr || mark_->is_passed() ? RLK_OK : RLK_NOT_READY; }
  rlk_status synchronize(uint64_t timeout_ns) override {
    return mark_ == nullptr || mark_->wait(timeout_ns) ? RLK_OK : RLK_TIMEOUT;
  }
  double elapsed_ms(rlk::sdk::Event& start) override {
    const auto& from = static_cast<Event&>(start).mark_;
    if (mark_ == nullptr || from == nullptr) throw rlk::sdk::Error(RLK_INVALID_ARGUMENT, "an event was not recorded");
    return std::chrono::duration<double, std::milli>(mark_->time() - from->time()).count();
  }
  std::shared_ptr<Mark> mark() const { return mark_; }

private:
  // A record that came later does not change what earlier waits are for: each has a mark of its own.
  std::shared_ptr<Mark> mark_;
};

class Stream : public rlk::sdk::Stream {
public:
  using Work = std::function<void()>;

  Stream() : thread_([this] { run(); }) {}
  // Does what it was given first.
  ~Stream() override {
    enqueue(nullptr);
    thread_.join();
  }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  // Returns at once. Work keeps whatever it needs: the caller's structs are gone when it runs. (Memory of tensors is
  // the caller's business, and there until the stream has passed.)
  void enqueue(Work work) {
    const std::lock_guard<std::mutex> lock(mutex_);
    work_.push_back(std::move(work));
    changed_.notify_all();
  }

  void* native() override { return this; }
  rlk_status query(rlk_data_error&) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    tell_failure();
    return is_idle() ? RLK_OK : RLK_NOT_READY;
  }
  rlk_status synchronize(uint64_t timeout_ns, rlk_data_error&) override {
    const auto mark = std::make_shared<Mark>();
    enqueue([mark] { mark->pass(); });
    if (!mark->wait(timeout_ns)) return RLK_TIMEOUT;
    const std::lock_guard<std::mutex> lock(mutex_);
    tell_failure();
    return RLK_OK;
  }
  void wait(rlk::sdk::Event& event) override {
    if (const auto mark = static_cast<Event&>(event).mark()) enqueue([mark] { mark->wait(UINT64_MAX); });
  }
  void copy(void* destination, const void* source, uint64_t bytes, int32_t) override {
    if (bytes > 0) enqueue([=] { std::memcpy(destination, source, bytes); });
  }
  void fill(void* memory, uint8_t value, uint64_t bytes) override {
    if (bytes > 0) enqueue([=] { std::memset(memory, value, bytes); });
  }
  void enqueue_host_function(rlk_host_function function, void* user) override {
    enqueue([=] { function(user); });
  }

private:
  void run() {
    for (;;) {
      std::unique_lock<std::mutex> lock(mutex_);
      changed_.wait(lock, [this] { return !work_.empty(); });
      const Work work = std::move(work_.front());
      work_.pop_front();
      if (work == nullptr) return;
      is_working_ = true;
      lock.unlock();
      std::string failure;
      try {
        work();
      } catch (const std::exception& error) {  // out of a thread it would end the process
        failure = error.what();
      }
      lock.lock();
      is_working_ = false;
      if (failure_.empty()) failure_ = failure;
    }
  }
  bool is_idle() const { return work_.empty() && !is_working_; }
  // What failed behind is told by the next question, as an asynchronous failure of a device is.
  void tell_failure() {
    if (!failure_.empty()) throw rlk::sdk::Error(RLK_BACKEND_ERROR, std::exchange(failure_, {}), 0, "queue");
  }

  std::mutex mutex_;  // of what follows
  std::condition_variable changed_;
  std::deque<Work> work_;
  bool is_working_ = false;
  std::string failure_;
  std::thread thread_;
};

inline void Event::record(rlk::sdk::Stream& stream) {
  const auto mark = mark_ = std::make_shared<Mark>();
  static_cast<Stream&>(stream).enqueue([mark] { mark->pass(); });
}

}  // namespace queue
