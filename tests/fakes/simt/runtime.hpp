// A strict, asynchronous runtime of SIMT devices that are not there: what the simulated runtimes of HIP's shape have in
// common. A vendor's library is a table of exported functions over it (functions.inc) and a few numbers (Vendor).
//
// Streams are threads. Device memory may be touched by kernels and copies alone: a host that follows a device address
// faults. Kernels are the shipped sources on fibers. Breaking a rule of the runtime ends the process with one line.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace fake_simt {

// Defined by each vendor's library.
struct Vendor {
  const char* name;      // "hip": in messages
  const char* variable;  // "RLK_FAKE_HIP_": of environment variables
  const char* device_name;
  int version;                            // of the runtime, unless ..._VERSION says otherwise
  std::map<int, int> attributes;          // number -> value
  int width_attribute, shared_attribute;  // numbers of those that can be set
  const char* (*name_of)(int code);
};
const Vendor& vendor();

constexpr int kInvalidValue = 1, kOutOfMemory = 2, kNotInitialized = 3, kNoDevice = 100, kInvalidDevice = 101,
              kInvalidImage = 200, kInvalidHandle = 400, kNotFound = 500, kNotReady = 600, kLaunchFailed = 719,
              kCaptureForbids = 900, kCaptureBroken = 901;

int64_t knob(const char* name, int64_t otherwise);

// First in every function: counts and logs the call and fails it when ..._FAIL says so. Not 0: return it.
int enter(const char* call, bool needs_device);
// As if the process began: counts are 0 and no device is lost.
void reset_calls();
[[noreturn]] void violation(const char* rule, const std::string& text);

int device_count();
int& current_device();

// What lives outside of a thread. Handles are numbers that are never used twice and no addresses.
template <class T>
class Handles {
public:
  Handles(int kind, const char* noun) : base_(0x0051000000000000u + (static_cast<uint64_t>(kind) << 40)), noun_(noun) {}
  void* add(std::shared_ptr<T> object) {
    const std::lock_guard lock(mutex_);
    const uint64_t id = base_ + 16 * ++last_;
    live_.emplace(id, std::move(object));
    return reinterpret_cast<void*>(id);
  }
  std::shared_ptr<T> get(const void* handle, const char* call) {
    const std::lock_guard lock(mutex_);
    const uint64_t id = reinterpret_cast<uint64_t>(handle);
    const auto found = live_.find(id);
    if (found != live_.end()) return found->second;
    const bool was_ours = id > base_ && id <= base_ + 16 * last_ && id % 16 == 0;
    violation(was_ours ? "DESTROYED_HANDLE" : "INVALID_HANDLE",
              std::string(call) + ": " + (was_ours ? "a destroyed " : "not a ") + noun_);
  }
  void remove(const void* handle) {
    const std::lock_guard lock(mutex_);
    live_.erase(reinterpret_cast<uint64_t>(handle));
  }
  std::vector<std::shared_ptr<T>> all() {
    const std::lock_guard lock(mutex_);
    std::vector<std::shared_ptr<T>> objects;
    for (const auto& [id, object] : live_) objects.push_back(object);
    return objects;
  }

private:
  std::mutex mutex_;
  const uint64_t base_;
  const char* noun_;
  uint64_t last_ = 0;
  std::map<uint64_t, std::shared_ptr<T>> live_;
};

// --- memory ----------------------------------------------------------------------------------------------------------
struct Range {
  uintptr_t begin = 0, end = 0;
};
int allocate(int device, size_t bytes, void** out);
int allocate_pinned(size_t bytes, void** out);
void release(void* pointer, bool pinned, const char* call);
size_t used_bytes(int device);
size_t memory_bytes();
// 0 host memory that the runtime does not know, 1 pinned, 2 device.
int kind_of(const void* pointer);
// [pointer, pointer + bytes) is inside one live allocation of device memory.
void require_device(const void* pointer, size_t bytes, const std::string& what);
// Every word that looks like an address leads into a live allocation.
void require_addresses(const void* arguments, size_t bytes, const std::string& kernel);
// Where the simulator reads and writes: device memory through its second mapping.
std::byte* bytes_at(const void* pointer);
// While one lives, kernels may follow device addresses.
class OpenMemory {
public:
  OpenMemory();
  ~OpenMemory();
  OpenMemory(const OpenMemory&) = delete;
  OpenMemory& operator=(const OpenMemory&) = delete;
};

// --- streams ---------------------------------------------------------------------------------------------------------
struct Mark {  // the end of what was in a stream when an event was recorded
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
  int code = 0;
  std::chrono::steady_clock::time_point time;
};
struct Command {
  std::string name;
  std::function<int()> run;
  std::vector<Range> uses;
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
struct Capture {
  uint64_t id = 0;
  bool broken = false;
  std::thread::id thread;
  int mode = 0;
  std::shared_ptr<Graph> graph = std::make_shared<Graph>();
};
struct Event {
  int device = 0;
  bool timing = true;
  std::mutex mutex;
  std::shared_ptr<Mark> mark;        // of the last record outside a capture
  std::shared_ptr<Capture> capture;  // that the last record was part of
};

class Stream {
public:
  // Its thread holds it until it is stopped.
  static std::shared_ptr<Stream> start(int device);
  explicit Stream(int on_device) : device(on_device) {}
  void stop();
  void submit(Command command);
  int wait();   // for everything, the error of what failed
  int state();  // 0, kNotReady or that error
  bool uses(const Range& range, std::string* by);

  const int device;
  std::shared_ptr<Capture> capture;

private:
  void work();
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Command> queue_;
  int error_ = 0;
  bool stopped_ = false;
};

Handles<Stream>& streams();
Handles<Event>& events();
// Also of the default stream (nullptr), which is each device's own. The stream must be of the current device.
std::shared_ptr<Stream> stream_of(void* handle, const char* call);
void begin_capture(Stream& stream, int mode);
int enqueue(void* stream, const char* call, Command command);
// Whether this thread may do what is no work for a stream; what is in the way is broken.
bool is_safe();
int& capture_mode();
std::string pending_use(const Range& range);

// --- kernels ---------------------------------------------------------------------------------------------------------
struct Module {
  int device;
  std::string kernels;  // "add"
};
struct Function {
  int device;
  std::string name;
  void* entry;
};
Handles<Module>& modules();
Handles<Function>& functions();
Handles<Graph>& graphs();
Handles<Graph>& executables();
Handles<std::shared_ptr<Held>>& user_objects();

int load_module(const void* image, void** out);
int find_function(Module& module, const char* name, void** out);
int launch(Function& function, const unsigned grid[3], const unsigned block[3], unsigned shared, void* stream,
           void** parameters, const char* call);
int copy(void* to, const void* from, size_t bytes, int kind, void* stream, const char* call);

// What a simulated run-time compiler makes of kernels, and a module is loaded from.
constexpr const char* kCodeMagic = "simulated code object of ";

}  // namespace fake_simt
