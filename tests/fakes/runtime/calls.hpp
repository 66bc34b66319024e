// The first part of a strict simulated runtime: what a vendor's library says of itself, and what each of its functions
// does first. The other parts are handles.hpp, memory.hpp and streams.hpp; README.md says how a vendor uses them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace fake {

// Defined once by each vendor's library: its name, and its numbers where runtimes differ.
struct Runtime {
  const char* name;      // "hip": in messages
  const char* variable;  // "RLK_FAKE_HIP_": of environment variables
  int version;           // unless ..._VERSION says otherwise

  int invalid_value, out_of_memory, no_device, invalid_device, invalid_handle, not_ready;
  int launch_failed;                  // what an injected asynchronous failure is, unless it says
  int stream_timeout, event_timeout;  // a deadline passed
  int broken_rule;                    // what call() returns when a rule was broken and the process goes on
  int capture_forbids, capture_broken, event_in_capture;  // answers in and around a capture
  int unjoined = 0;             // a stream that joined it has not come back at its end; 0: that is not looked for
  bool (*is_sticky)(int code);  // after such an error every call and every command returns it

  bool must_initialize = false;     // a call that needs a device before initialize() breaks a rule
  bool must_set_device = false;     // and so does a thread before set_device(); otherwise device 0 is current
  bool free_waits = true;           // for commands that use the memory; otherwise freeing it breaks a rule
  bool graphs_hold_memory = false;  // freeing what a live graph uses breaks a rule
  bool destroy_waits = true;        // for what is in the stream; otherwise destroying it then breaks a rule
  bool pageable_waits = false;      // a copy from host memory that is not pinned; otherwise that is copied away at once
  bool events_are_strict = false;   // using an event before it is recorded, or for what it was not made, breaks a rule
  size_t alignment = 256;           // of device memory
  int64_t memory_mb = 2048;         // of each device, unless ..._MEMORY_MB says otherwise
};
const Runtime& runtime();

// The number in the variable of that name behind the vendor's prefix, or `otherwise`.
int64_t knob(const char* name, int64_t otherwise);
int version();

// One line on stderr, then the end of the process. With ..._ON_VIOLATION=report, which is for tests of many rules in
// one process, it returns, and the line is kept.
void report_violation(const char* rule, const std::string& text);
uint64_t violations();
std::string last_violation();
// The same, and throws where report_violation returns.
[[noreturn]] void violation(const char* rule, const std::string& text);
struct Reported {};

// Keeps the text of an error for a vendor that has a call for it; take_error() is that of this thread, once.
int fail(int code, const std::string& text);
std::string take_error();

enum class Needs { kNothing, kRuntime, kDevice };
// Counts and logs the call, fails it when ..._FAIL says so, checks what it needs. Not 0: return it.
int enter(const char* call, Needs needs);
// What one call does, for a vendor whose calls return when they break a rule and the process goes on.
template <class Body>
int call(const char* name, Needs needs, const Body& body) {
  try {
    if (const int code = enter(name, needs)) return code;
    return body();
  } catch (const Reported&) {
    return runtime().broken_rule;
  }
}
// The code that ..._ASYNC_FAIL gives this command of a stream; 0: none.
int injected_async(const std::string& command);
// Counts and logs what is no call.
void count(const std::string& line);
uint64_t count_of(const std::string& line);  // "*": of all calls
// The code that the lost device answers with; 0 while there is none.
int lost();

// While one lives on a thread, a call from it that needs the runtime breaks a rule: a host function waits for its
// stream, and the runtime may wait for it.
class InHostFunction {
public:
  InHostFunction();
  ~InHostFunction();
  InHostFunction(const InHostFunction&) = delete;
  InHostFunction& operator=(const InHostFunction&) = delete;
};

void initialize(bool now = true);
bool is_initialized();
int device_count();
// Of the calling thread. -1: none.
int current_device();
// The vendor's code for a device that is not there.
int set_device(int device);
void leave_device();  // as a thread begins

// Contexts, for a vendor that has them: each is of a device, and the streams and events made in it die with it. Another
// vendor's threads are in none (nullptr).
void* create_context(int device);
void destroy_context(void* context, const char* call);
int device_of_context(void* context, const char* call);
// The thread is in it, and its device is current. One that is gone, or nullptr: in none, and without a device.
void enter_context(void* context);
void* current_context();
bool is_context(void* context);
bool is_device(int device);

// A capture forbids to other threads, or to this one, what is no work for a stream (streams.hpp).
bool is_safe();

}  // namespace fake

#define FAKE_EXPORT extern "C" __attribute__((visibility("default")))
// First in every function.
#define FAKE_ENTER(call, needs) \
  if (const int entered = fake::enter(call, fake::Needs::needs); entered != 0) return entered
// In one that is unsafe beside a capture in global mode.
#define FAKE_ENTER_SAFE(call) \
  FAKE_ENTER(call, kDevice);  \
  if (!fake::is_safe()) return fake::runtime().capture_forbids
