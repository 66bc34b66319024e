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

// Whether `is_true` became true within the time. A time of 0 asks once.
template <typename IsTrue>
bool wait_until(std::condition_variable& changed, std::unique_lock<std::mutex>& lock, uint64_t timeout_ns,
                IsTrue is_true) {
  // The longest times do not fit the clock.
  if (timeout_ns > uint64_t{1} << 62) {
    changed.wait(lock, is_true);
    return true;
  }
  return changed.wait_for(lock, std::chrono::nanoseconds(timeout_ns), is_true);
}

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
    return wait_until(changed_, lock, timeout_ns, [this] { return passed_; });
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
    ++enqueued_;
    changed_.notify_all();
  }

  void* native() override { return this; }
  rlk_status query(rlk_data_error&) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    tell_failure();
    return done_ == enqueued_ ? RLK_OK : RLK_NOT_READY;
  }
  // Waits for what was enqueued before it and for nothing later: other threads may go on enqueueing. A stream that has
  // done all of it answers RLK_OK at once, whatever the time, without a turn of the thread.
  rlk_status synchronize(uint64_t timeout_ns, rlk_data_error&) override {
    std::unique_lock<std::mutex> lock(mutex_);
    const uint64_t last = enqueued_;
    if (!wait_until(changed_, lock, timeout_ns, [this, last] { return done_ >= last; })) return RLK_TIMEOUT;
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
      lock.unlock();
      std::string failure;
      try {
        work();
      } catch (const std::exception& error) {  // out of a thread it would end the process
        failure = error.what();
      }
      lock.lock();
      if (failure_.empty()) failure_ = failure;
      ++done_;
      changed_.notify_all();
    }
  }
  // The next question tells what failed behind the caller, as a device tells an asynchronous failure.
  void tell_failure() {
    if (!failure_.empty()) throw rlk::sdk::Error(RLK_BACKEND_ERROR, std::exchange(failure_, {}), 0, "queue");
  }

  std::mutex mutex_;  // of what follows
  std::condition_variable changed_;
  std::deque<Work> work_;
  uint64_t enqueued_ = 0, done_ = 0;  // pieces of work since the stream is there
  std::string failure_;
  std::thread thread_;
};

inline void Event::record(rlk::sdk::Stream& stream) {
  const auto mark = mark_ = std::make_shared<Mark>();
  static_cast<Stream&>(stream).enqueue([mark] { mark->pass(); });
}

}  // namespace queue
