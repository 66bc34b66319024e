// Streams and what is enqueued on them.
#include "streams.hpp"

#include <iterator>
#include <map>
#include <utility>

namespace fake {

FAKE_HANDLES(Stream, streams, 1, "stream")

Stream::Stream(int on_device, void* in_context) : device(on_device), context(in_context), delay_(knob("DELAY_US", 0)) {}

std::shared_ptr<Stream> Stream::start() {
  auto stream = std::make_shared<Stream>(current_device(), current_context());
  std::thread([stream] { stream->work(); }).detach();
  return stream;
}
void Stream::stop() {
  const std::lock_guard lock(mutex_);
  stopped_ = true;
  work_.notify_one();
}
void Stream::drop() {
  const std::lock_guard lock(mutex_);
  stopped_ = dropped_ = true;
  work_.notify_one();
}
void Stream::submit(Command command) {
  const std::lock_guard lock(mutex_);
  queue_.push_back(std::move(command));
  ++submitted_;
  if (sleeps_) work_.notify_one();
}
int Stream::wait(int64_t timeout_ms) {
  std::unique_lock lock(mutex_);
  const auto awaited = awaited_.insert(submitted_);
  const auto is_done = [&] { return completed_ >= *awaited; };
  bool in_time = true;
  if (timeout_ms < 0) {
    done_.wait(lock, is_done);
  } else {
    in_time = done_.wait_for(lock, std::chrono::milliseconds(timeout_ms), is_done);
  }
  awaited_.erase(awaited);
  return in_time ? failure()
                 : fail(runtime().stream_timeout, "stream not done after " + std::to_string(timeout_ms) + " ms");
}
int Stream::failure() const {
  return error_ == 0 ? 0 : fail(error_, "the stream carries the error of an earlier command: " + failed_);
}
int Stream::state() {
  const std::lock_guard lock(mutex_);
  return error_ != 0 ? failure() : queue_.empty() ? 0 : runtime().not_ready;
}
int Stream::error() {
  const std::lock_guard lock(mutex_);
  return error_;
}
bool Stream::is_busy() {
  const std::lock_guard lock(mutex_);
  return !queue_.empty();
}
bool Stream::uses(const Range& range, std::string* by) {
  const std::lock_guard lock(mutex_);
  for (const Command& command : queue_) {
    for (const Range& use : command.uses) {
      if (use.overlaps(range)) return *by = command.name, true;
    }
  }
  return false;
}

// With the lock: until there is a command, or there will be none. To wake a thread takes longer than most commands, so
// it looks again for a while before it sleeps.
void Stream::wait_for_work(std::unique_lock<std::mutex>& lock) {
  for (int looks = 0; queue_.empty() && !stopped_ && looks < 20; ++looks) {
    lock.unlock();
    std::this_thread::yield();
    lock.lock();
  }
  sleeps_ = true;
  work_.wait(lock, [&] { return stopped_ || !queue_.empty(); });
  sleeps_ = false;
}

void Stream::work() {
  for (;;) {
    Command* command = nullptr;
    int code = 0;
    bool begins = true;
    {
      std::unique_lock lock(mutex_);
      wait_for_work(lock);
      if (queue_.empty()) return;
      command = &queue_.front();  // stays in the queue while it runs: its memory is in use
      // What comes after a failure may build on what was not done.
      if (!command->always) code = error_;
      begins = !dropped_ || command->always;
    }
    if (begins && delay_.count() > 0) std::this_thread::sleep_for(delay_);
    if (begins && code == 0 && !command->always) code = lost();
    if (begins && code == 0) code = injected_async(command->name);
    if (begins && (code == 0 || command->always)) {
      int done = runtime().launch_failed;
      try {
        done = command->run();
      } catch (const Reported&) {
        // The rule's line is kept; the stream carries an error.
      }
      if (code == 0) code = done;
    }
    Command ended;  // what it held ends without the lock
    const std::lock_guard lock(mutex_);
    if (error_ == 0 && code != 0) {
      error_ = code;
      failed_ = queue_.front().name;
    }
    std::swap(ended, queue_.front());
    queue_.pop_front();
    ++completed_;
    if (!awaited_.empty() && completed_ >= *awaited_.begin()) done_.notify_all();
  }
}

namespace {

std::mutex& default_mutex() {
  static auto* const only = new std::mutex;
  return *only;
}
std::map<std::pair<int, void*>, std::shared_ptr<Stream>>& default_streams() {
  static auto* const only = new std::map<std::pair<int, void*>, std::shared_ptr<Stream>>;
  return *only;
}
std::vector<std::shared_ptr<Stream>> every_stream() {
  std::vector<std::shared_ptr<Stream>> all = streams().all();
  const std::lock_guard lock(default_mutex());
  for (const auto& [place, stream] : default_streams()) all.push_back(stream);
  return all;
}

// What a stream that captures answers to a question about its work.
int refuse(Capture& capture) {
  return capture.broken = true, runtime().capture_forbids;
}

}  // namespace

std::shared_ptr<Stream> stream_of(void* handle, const char* call) {
  if (handle == nullptr) {
    const std::lock_guard lock(default_mutex());
    auto& slot = default_streams()[{current_device(), current_context()}];
    if (slot == nullptr) slot = Stream::start();
    return slot;
  }
  std::shared_ptr<Stream> stream = streams().get(handle, call);
  if (stream->device != current_device()) {
    violation("WRONG_DEVICE", std::string(call) + ": a stream of device " + std::to_string(stream->device) +
                                  " while device " + std::to_string(current_device()) + " is current");
  }
  if (stream->context != current_context()) {
    violation("STREAM_CONTEXT", std::string(call) + ": the stream belongs to another context than the thread's");
  }
  return stream;
}

void forget_default_streams() {
  const std::lock_guard lock(default_mutex());
  for (const auto& [place, stream] : default_streams()) stream->stop();
  default_streams().clear();
}

std::string pending_use(const Range& range) {
  std::string by;
  for (const auto& stream : every_stream()) {
    if (stream->uses(range, &by)) return by;
  }
  return {};
}

int enqueue(void* handle, const char* call, Command command) {
  const auto stream = stream_of(handle, call);
  if (stream->capture != nullptr) {
    if (stream->capture->broken) return runtime().capture_broken;
    stream->capture->graph->work.push_back(std::move(command));
    ++stream->capture->captured[stream.get()];
    return 0;
  }
  stream->submit(std::move(command));
  return 0;
}

int create_stream(void** out) {
  return *out = streams().add(Stream::start()), 0;
}

int destroy_stream(void* handle, const char* call) {
  if (handle == nullptr) return runtime().invalid_handle;
  const auto stream = stream_of(handle, call);
  if (stream->capture != nullptr) violation("CAPTURING", std::string(call) + ": the stream captures");
  if (runtime().destroy_waits) {
    stream->wait();
  } else if (stream->is_busy()) {
    violation("STREAM_BUSY", std::string(call) + " on a stream with unfinished commands");
  }
  stream->stop();
  streams().take(handle, call);
  return 0;
}

int abandon_stream(void* handle, const char* call) {
  if (handle == nullptr) return runtime().invalid_handle;
  stream_of(handle, call);
  streams().take(handle, call)->drop();
  return 0;
}

void end_streams_of(void* context) {
  std::vector<std::shared_ptr<Stream>> its =
      streams().take_if([&](const Stream& stream) { return stream.context == context; });
  {
    const std::lock_guard lock(default_mutex());
    for (auto at = default_streams().begin(); at != default_streams().end();) {
      const bool is_its = at->first.second == context;
      if (is_its) its.push_back(at->second);
      at = is_its ? default_streams().erase(at) : std::next(at);
    }
  }
  for (const auto& stream : its) {
    if (runtime().destroy_waits) stream->wait();
    runtime().destroy_waits ? stream->stop() : stream->drop();
  }
}

int query_stream(void* handle, const char* call) {
  const auto stream = stream_of(handle, call);
  return stream->capture != nullptr ? refuse(*stream->capture) : stream->state();
}

int synchronize_stream(void* handle, const char* call, int64_t timeout_ms) {
  const auto stream = stream_of(handle, call);
  return stream->capture != nullptr ? refuse(*stream->capture) : stream->wait(timeout_ms);
}

int synchronize_device() {
  int code = 0;
  for (const auto& stream : every_stream()) {
    if (stream->device != current_device()) continue;
    if (const int failed = stream->wait()) code = failed;
  }
  return code;
}

int call_host(void* stream, void (*function)(void*), void* user, const char* call) {
  if (function == nullptr) return runtime().invalid_value;
  return enqueue(stream, call,
                 {call,
                  [=] {
                    const InHostFunction here;
                    return function(user), 0;
                  },
                  {}});
}

}  // namespace fake
