// Streams (queues), events (notifiers), captures and graphs. Streams are threads: nothing runs on the caller's. The
// functions are what runtimes have in common; each checks its handles before it enqueues anything, and returns a code
// of the vendor's (0: done).
#pragma once

#include "handles.hpp"
#include "memory.hpp"

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <set>
#include <thread>

namespace fake {

struct Mark {  // the end of what was in a stream when an event was recorded
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
  int code = 0;  // the stream's error at that time
  std::chrono::steady_clock::time_point time;
  void finish(int with);
  int wait(int64_t timeout_ms = -1);  // below 0: for ever; the vendor's event_timeout
};
// Not 0: the stream carries this error from then on. While it is pending, `uses` is in use.
struct Command {
  std::string name;
  std::function<int()> run;
  std::vector<Range> uses;
  bool always = false;         // also after a failure: a thread waits for it
  const void* with = nullptr;  // the handle of a library whose call it is
};
struct Held {  // what a graph keeps for its owner
  void* user;
  void (*destroy)(void*);
  ~Held() { destroy(user); }
};
struct Graph {
  std::vector<Command> work;
  std::vector<std::shared_ptr<Held>> held;
};
// How much of the work that was captured on each stream one place knows to be before it.
using Covered = std::map<const void*, uint64_t>;
struct Capture {
  uint64_t id = 0;
  const void* origin = nullptr;  // the stream that began it
  Covered captured;
  bool broken = false;
  std::thread::id thread;
  int mode = 0;                                              // 0 global, 1 of the thread, 2 relaxed
  std::shared_ptr<Graph> graph = std::make_shared<Graph>();  // until the capture ends
  void* handle = nullptr;                                    // of the graph, once a caller has asked
};
// What an event is made for.
enum Use : unsigned { kOrder = 1, kQuery = 2, kTime = 4, kUntimed = kOrder | kQuery, kEveryUse = kUntimed | kTime };
struct Event {
  int device = 0;
  void* context = nullptr;
  unsigned uses = kEveryUse;
  std::mutex mutex;
  std::shared_ptr<Mark> mark;        // of the last record outside a capture
  std::shared_ptr<Capture> capture;  // that the last record was part of
  Covered covers;                    // in it
};

class Stream {
public:
  // Its thread holds it until it is stopped.
  static std::shared_ptr<Stream> start();  // of the thread's device and context
  Stream(int on_device, void* in_context);
  void stop();  // after what is in it
  void drop();  // what has not begun does not begin, but for what a thread waits for
  void submit(Command command);
  // For what is in it now; below 0: for ever. The error of what failed, or the vendor's stream_timeout.
  int wait(int64_t timeout_ms = -1);
  int state();  // 0, not ready, or that error
  int error();
  bool is_busy();
  bool uses(const Range& range, std::string* by);

  const int device;
  void* const context;
  std::shared_ptr<Capture> capture;
  Covered covers;  // in its capture, of other streams

private:
  void work();
  void wait_for_work(std::unique_lock<std::mutex>& lock);
  int failure() const;  // with the lock
  std::mutex mutex_;
  std::condition_variable work_, done_;
  bool sleeps_ = false;  // its thread, until work_
  std::deque<Command> queue_;
  uint64_t submitted_ = 0, completed_ = 0;
  std::multiset<uint64_t> awaited_;  // the numbers of completed commands that callers wait for
  int error_ = 0;
  std::string failed_;  // the command that it is of
  bool stopped_ = false, dropped_ = false;
  const std::chrono::microseconds delay_;
};

Handles<Stream>& streams();
Handles<Event>& events();
Handles<Graph>& graphs();
Handles<Graph>& executables();

// Also of the default stream (nullptr), which is each device's and each context's own. A stream of another one is a
// violation.
std::shared_ptr<Stream> stream_of(void* handle, const char* call);
void forget_default_streams();  // with the errors that they carry
int enqueue(void* handle, const char* call, Command command);
// The name of a command that uses the memory, or that a library's handle made; empty: none. Of what is in a stream, and
// of what graphs and executables hold.
std::string pending_use(const Range& range);
std::string recorded_use(const Range& range);
std::string recorded_with(const void* handle);

int create_stream(void** out);
int destroy_stream(void* handle, const char* call);  // see Runtime::destroy_waits
int abandon_stream(void* handle, const char* call);  // with what is in it
void end_streams_of(void* context);
int query_stream(void* handle, const char* call);
int synchronize_stream(void* handle, const char* call, int64_t timeout_ms = -1);
int synchronize_device();
int call_host(void* stream, void (*function)(void*), void* user, const char* call);

enum class Direction { kOnHost, kToDevice, kToHost, kOnDevice };
// capacity: what the caller says that the destination has; all of it must be there.
int copy_within(void* to, size_t capacity, const void* from, size_t bytes, Direction direction, void* handle,
                const char* call);
int fill_within(void* to, size_t capacity, int value, size_t bytes, void* stream, const char* call);
// On no stream: done when the call returns.
int copy_now(void* to, size_t capacity, const void* from, size_t bytes, Direction direction, const char* call);
int fill_now(void* to, size_t capacity, int value, size_t bytes, const char* call);
inline int copy(void* to, const void* from, size_t bytes, Direction direction, void* stream, const char* call) {
  return copy_within(to, bytes, from, bytes, direction, stream, call);
}
inline int fill(void* to, int value, size_t bytes, void* stream, const char* call) {
  return fill_within(to, bytes, value, bytes, stream, call);
}

int create_event(void** out, unsigned uses);
int destroy_event(void* event, const char* call);
int record_event(void* handle, void* stream_handle, const char* call);
int wait_for_event(void* stream_handle, void* handle, const char* call);
int query_event(void* handle, const char* call);
int synchronize_event(void* handle, const char* call, int64_t timeout_ms = -1);
// Of events that lack a time: the vendor's invalid handle.
int elapsed(void* start, void* end, float* ms, const char* call);

// Of the calling thread; see Capture.
int& capture_mode();
int begin_capture(void* handle, int mode, const char* call);
int end_capture(void* handle, void** graph, const char* call);
// status: 0 no capture, 1 one, 2 a broken one. id may be NULL; graph, the one that end_capture() will give, too.
int capture_info(void* handle, int* status, uint64_t* id, const char* call, void** graph = nullptr);
int instantiate(void* graph, void** out, const char* call);
int launch_graph(void* executable, void* stream, const char* call);
int destroy_executable(void* executable, const char* call);
int destroy_graph(void* graph, const char* call);
bool is_being_captured(const void* graph);

}  // namespace fake
