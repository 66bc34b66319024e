// How do simulated streams run? Each stream has a worker thread that executes its commands in order, after
// RLK_FAKE_ASCEND_DELAY_US microseconds each; nothing runs on the caller's thread.
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <thread>

#include "handles.h"
#include "runtime.h"

namespace fake_ascend {

using Clock = std::chrono::steady_clock;

class Stream {
public:
  Stream(int device, uint64_t context) : device_(device), context_(context) {}

  // The worker keeps its stream alive until it has left.
  static void start(const std::shared_ptr<Stream>& stream) {
    std::thread([stream] { stream->work(); }).detach();
  }

  int device() const { return device_; }
  uint64_t context() const { return context_; }

  void submit(Command command) {
    const std::lock_guard lock(mutex_);
    queue_.push_back(std::move(command));
    ++submitted_;
    changed_.notify_all();
  }

  // 0, a time-out code, or the error the stream carries.
  int synchronize(int64_t timeout_ms) {
    std::unique_lock lock(mutex_);
    const uint64_t target = submitted_;
    const auto done = [&] { return completed_ >= target; };
    if (timeout_ms < 0)
      changed_.wait(lock, done);
    else if (!changed_.wait_for(lock, std::chrono::milliseconds(timeout_ms), done)) {
      return fail(ACL_ERROR_RT_STREAM_SYNC_TIMEOUT, "stream not done after " + std::to_string(timeout_ms) + " ms");
    }
    return error_ == 0 ? 0 : fail(error_, "the stream carries the error of an earlier command: " + failed_command_);
  }

  bool idle() {
    const std::lock_guard lock(mutex_);
    return completed_ == submitted_;
  }

  int error() {
    const std::lock_guard lock(mutex_);
    return error_ == 0 ? 0 : fail(error_, "the stream carries the error of an earlier command: " + failed_command_);
  }

  std::string pending_use(const Range& range) {
    const std::lock_guard lock(mutex_);
    for (const Command& command : queue_) {
      for (const Range& use : command.uses) {
        if (use.overlaps(range)) return command.name;
      }
    }
    return {};
  }

  // Commands not begun yet are dropped; the worker ends.
  void stop() {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    changed_.notify_all();
  }

private:
  void work() {
    for (;;) {
      std::function<int()> run;
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return stopped_ || !queue_.empty(); });
        if (stopped_) return;
        // The command stays in the queue while it runs: its memory is in use.
        if (error_ == 0) run = queue_.front().run;
      }
      if (delay_.count() > 0) std::this_thread::sleep_for(delay_);
      const int code = run ? run() : 0;
      const std::lock_guard lock(mutex_);
      if (code != 0 && error_ == 0) {
        error_ = code;
        failed_command_ = queue_.front().name;
      }
      queue_.pop_front();
      ++completed_;
      changed_.notify_all();
    }
  }

  const int device_;
  const uint64_t context_;
  const std::chrono::microseconds delay_{env_number("RLK_FAKE_ASCEND_DELAY_US", 0)};
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Command> queue_;
  uint64_t submitted_ = 0;
  uint64_t completed_ = 0;
  int error_ = 0;
  std::string failed_command_;
  bool stopped_ = false;
};

namespace {

HandleTable<Stream>& streams() {
  static auto* const table = new HandleTable<Stream>(2, "stream");
  return *table;
}

struct DefaultStreams {
  std::mutex mutex;
  std::map<uint64_t, std::shared_ptr<Stream>> by_context;
};

DefaultStreams& default_streams() {
  static auto* const instance = new DefaultStreams;
  return *instance;
}

std::shared_ptr<Stream> new_stream(int device, uint64_t context) {
  auto stream = std::make_shared<Stream>(device, context);
  Stream::start(stream);
  return stream;
}

std::vector<std::shared_ptr<Stream>> all_streams() {
  std::vector<std::shared_ptr<Stream>> all;
  streams().for_each([&](const auto& stream) { all.push_back(stream); });
  const std::lock_guard lock(default_streams().mutex);
  for (const auto& [context, stream] : default_streams().by_context) all.push_back(stream);
  return all;
}

aclError create_stream(aclrtStream* stream) {
  *stream = streams().add(new_stream(current_device(), current_context()));
  return ACL_SUCCESS;
}

aclError destroy_stream(aclrtStream handle, const char* call, bool force) {
  const auto stream = streams().get(handle, call);
  if (stream == nullptr) return ACL_ERROR_RT_INVALID_HANDLE;
  if (!force && !stream->idle()) {
    if (const int code = violation("STREAM_BUSY", std::string(call) + " on a stream with unfinished commands")) {
      return code;
    }
  }
  streams().remove(handle);
  stream->stop();
  return ACL_SUCCESS;
}

}  // namespace

std::shared_ptr<Stream> stream_of(aclrtStream handle, const char* call, int* code) {
  if (handle == nullptr) {
    const std::lock_guard lock(default_streams().mutex);
    auto& slot = default_streams().by_context[current_context()];
    if (slot == nullptr) slot = new_stream(current_device(), current_context());
    return slot;
  }
  *code = ACL_ERROR_RT_INVALID_HANDLE;
  auto stream = streams().get(handle, call);
  if (stream != nullptr && stream->context() != current_context()) {
    *code = violation("STREAM_CONTEXT", std::string(call) + ": the stream belongs to another context (device " +
                                            std::to_string(stream->device()) + ") than the thread's (device " +
                                            std::to_string(current_device()) + ")");
    return nullptr;
  }
  return stream;
}

void submit(Stream& stream, Command command) {
  stream.submit(std::move(command));
}
int synchronize(Stream& stream, int64_t timeout_ms) {
  return stream.synchronize(timeout_ms);
}

int synchronize_all_of_device(int device) {
  int first = 0;
  for (const auto& stream : all_streams()) {
    if (stream->device() != device) continue;
    const int code = stream->synchronize(-1);
    if (first == 0) first = code;
  }
  return first;
}

std::string pending_use(const Range& range) {
  for (const auto& stream : all_streams()) {
    if (std::string user = stream->pending_use(range); !user.empty()) return user;
  }
  return {};
}

void forget_streams_of_context(uint64_t context) {
  const std::lock_guard lock(default_streams().mutex);
  const auto found = default_streams().by_context.find(context);
  if (found == default_streams().by_context.end()) return;
  found->second->stop();
  default_streams().by_context.erase(found);
}

}  // namespace fake_ascend

using namespace fake_ascend;

aclError aclrtCreateStream(aclrtStream* stream) {
  FAKE_ASCEND_ENTER(kDevice);
  return create_stream(stream);
}

aclError aclrtCreateStreamWithConfig(aclrtStream* stream, uint32_t priority, uint32_t flag) {
  FAKE_ASCEND_ENTER(kDevice);
  if (priority > 7 || flag > 3) {
    return fail(ACL_ERROR_RT_PARAM_INVALID, "aclrtCreateStreamWithConfig: priority 0..7, flag bits 1 and 2");
  }
  return create_stream(stream);
}

aclError aclrtDestroyStream(aclrtStream stream) {
  FAKE_ASCEND_ENTER(kDevice);
  return destroy_stream(stream, __func__, false);
}

aclError aclrtDestroyStreamForce(aclrtStream stream) {
  FAKE_ASCEND_ENTER(kDevice);
  return destroy_stream(stream, __func__, true);
}

aclError aclrtSynchronizeStream(aclrtStream stream) {
  FAKE_ASCEND_ENTER(kDevice);
  int code = 0;
  const auto target = stream_of(stream, __func__, &code);
  return target == nullptr ? code : target->synchronize(-1);
}

aclError aclrtSynchronizeStreamWithTimeout(aclrtStream stream, int32_t timeout_ms) {
  FAKE_ASCEND_ENTER(kDevice);
  int code = 0;
  const auto target = stream_of(stream, __func__, &code);
  return target == nullptr ? code : target->synchronize(timeout_ms);
}

aclError aclrtStreamQuery(aclrtStream stream, int32_t* status) {
  FAKE_ASCEND_ENTER(kDevice);
  int code = 0;
  const auto target = stream_of(stream, __func__, &code);
  if (target == nullptr) return code;
  *status = target->idle() ? ACL_STREAM_STATUS_COMPLETE : ACL_STREAM_STATUS_NOT_READY;
  return target->error();
}
