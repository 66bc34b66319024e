// Streams and what is enqueued on them.
#include "streams.hpp"

#include <cstring>

namespace fake {

FAKE_HANDLES(Stream, streams, 1, "stream")

std::shared_ptr<Stream> Stream::start(int device) {
  auto stream = std::make_shared<Stream>(device);
  std::thread([stream] { stream->work(); }).detach();
  return stream;
}
void Stream::stop() {
  const std::lock_guard lock(mutex_);
  stopped_ = true;
  changed_.notify_all();
}
void Stream::submit(Command command) {
  const std::lock_guard lock(mutex_);
  queue_.push_back(std::move(command));
  changed_.notify_all();
}
int Stream::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return queue_.empty(); });
  return error_;
}
int Stream::state() {
  const std::lock_guard lock(mutex_);
  return error_ != 0 ? error_ : queue_.empty() ? 0 : runtime().not_ready;
}
int Stream::error() {
  const std::lock_guard lock(mutex_);
  return error_;
}
bool Stream::uses(const Range& range, std::string* by) {
  const std::lock_guard lock(mutex_);
  for (const Command& command : queue_) {
    for (const Range& use : command.uses) {
      if (use.begin < range.end && range.begin < use.end) return *by = command.name, true;
    }
  }
  return false;
}

void Stream::work() {
  const auto delay = std::chrono::microseconds(knob("DELAY_US", 0));
  for (;;) {
    Command* command = nullptr;
    int code = 0;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return stopped_ || !queue_.empty(); });
      if (queue_.empty()) return;
      command = &queue_.front();  // stays in the queue while it runs: its memory is in use
      // What comes after a failure may build on what was not done.
      if (!command->always) code = error_;
    }
    if (delay.count() > 0) std::this_thread::sleep_for(delay);
    if (code == 0 && !command->always) code = lost();
    if (code == 0) code = injected_async(command->name);
    if (code == 0 || command->always) {
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
    if (error_ == 0) error_ = code;
    std::swap(ended, queue_.front());
    queue_.pop_front();
    changed_.notify_all();
  }
}

namespace {

std::mutex& default_mutex() {
  static auto* const only = new std::mutex;
  return *only;
}
std::vector<std::shared_ptr<Stream>>& default_streams() {
  static auto* const only = new std::vector<std::shared_ptr<Stream>>(64);
  return *only;
}
std::vector<std::shared_ptr<Stream>> every_stream() {
  std::vector<std::shared_ptr<Stream>> all = streams().all();
  const std::lock_guard lock(default_mutex());
  for (const auto& stream : default_streams()) {
    if (stream != nullptr) all.push_back(stream);
  }
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
    auto& slot = default_streams()[static_cast<size_t>(current_device())];
    if (slot == nullptr) slot = Stream::start(current_device());
    return slot;
  }
  std::shared_ptr<Stream> stream = streams().get(handle, call);
  if (stream->device != current_device()) {
    violation("WRONG_DEVICE", std::string(call) + ": a stream of device " + std::to_string(stream->device) +
                                  " while device " + std::to_string(current_device()) + " is current");
  }
  return stream;
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
    return 0;
  }
  stream->submit(std::move(command));
  return 0;
}

int create_stream(void** out) {
  return *out = streams().add(Stream::start(current_device())), 0;
}

int destroy_stream(void* handle, const char* call) {
  if (handle == nullptr) return runtime().invalid_handle;
  const auto stream = stream_of(handle, call);
  if (stream->capture != nullptr) violation("CAPTURING", std::string(call) + ": the stream captures");
  stream->wait();
  stream->stop();
  streams().take(handle, call);
  return 0;
}

int query_stream(void* handle, const char* call) {
  const auto stream = stream_of(handle, call);
  return stream->capture != nullptr ? refuse(*stream->capture) : stream->state();
}

int synchronize_stream(void* handle, const char* call) {
  const auto stream = stream_of(handle, call);
  return stream->capture != nullptr ? refuse(*stream->capture) : stream->wait();
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

int copy(void* to, const void* from, size_t bytes, Direction direction, void* handle, const char* call) {
  if (direction < Direction::kToDevice || direction > Direction::kOnDevice) return runtime().invalid_value;
  if (bytes == 0) return 0;
  const std::string name = call;
  const bool to_device = direction != Direction::kToHost, from_device = direction != Direction::kToDevice;
  const Kind to_kind = kind_of(to), from_kind = kind_of(from);
  if (to_device) require_device(to, bytes, name + ": the destination");
  if (from_device) require_device(from, bytes, name + ": the source");
  if (!to_device && to_kind == Kind::kDevice) violation("NOT_HOST_MEMORY", name + ": the destination is device memory");
  if (!from_device && from_kind == Kind::kDevice) violation("NOT_HOST_MEMORY", name + ": the source is device memory");
  Command command;
  command.name = name;
  const auto begin_to = reinterpret_cast<uintptr_t>(to), begin_from = reinterpret_cast<uintptr_t>(from);
  command.uses = {{begin_to, begin_to + bytes}, {begin_from, begin_from + bytes}};
  // Memory that is not pinned is copied away at once, or waited for.
  const auto stream = stream_of(handle, call);
  const bool pageable_from = from_kind == Kind::kUnknown, pageable_to = to_kind == Kind::kUnknown;
  if ((pageable_from || pageable_to) && stream->capture != nullptr) {
    violation("PAGEABLE_IN_CAPTURE", name + " of host memory that is not pinned while the stream captures");
  }
  auto staged = std::make_shared<std::vector<std::byte>>();
  if (pageable_from) {
    const auto* first = static_cast<const std::byte*>(from);
    staged->assign(first, first + bytes);
  }
  command.run = [=] {
    std::memmove(bytes_at(to), staged->empty() ? bytes_at(from) : staged->data(), bytes);
    return 0;
  };
  if (const int code = enqueue(handle, call, std::move(command))) return code;
  return pageable_to ? stream->wait() : 0;
}

int fill(void* to, int value, size_t bytes, void* stream, const char* call) {
  if (bytes == 0) return 0;
  require_device(to, bytes, call);
  const auto begin = reinterpret_cast<uintptr_t>(to);
  return enqueue(stream, call,
                 {call, [=] { return std::memset(bytes_at(to), value & 0xff, bytes), 0; }, {{begin, begin + bytes}}});
}

}  // namespace fake
