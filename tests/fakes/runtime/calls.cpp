// Counts, logs, injected failures, rules about which threads may call.
#include "streams.hpp"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string_view>
#include <unordered_map>
#include <utility>

extern char** environ;

namespace fake {
namespace {

// Never destroyed, here and in the other parts: workers outlive static destructors.
struct Hash {
  using is_transparent = void;
  size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
};
class Counts {
public:
  uint64_t& operator[](std::string_view name) {
    const auto found = counts_.find(name);
    return found != counts_.end() ? found->second : counts_[std::string(name)];
  }
  void clear() { counts_.clear(); }

private:
  std::unordered_map<std::string, uint64_t, Hash, std::equal_to<>> counts_;
};
struct Calls {
  std::mutex mutex;
  Counts count, async_count;
  uint64_t all = 0, violations = 0;
  std::string last_violation;
  std::atomic<int> lost{0};
  std::atomic<bool> initialized{false};
};
Calls& calls() {
  static auto* const only = new Calls;
  return *only;
}

// The end of the text if it begins so.
const char* behind(const char* text, const char* beginning) {
  while (*beginning != '\0') {
    if (*text++ != *beginning++) return nullptr;
  }
  return text;
}
// As getenv, of a name in two parts, which are not put together: each call of a runtime asks several times.
const char* variable(const char* name) {
  const char* const beginning = runtime().variable;
  const size_t length = std::strlen(beginning);
  for (char** at = environ; at != nullptr && *at != nullptr; ++at) {
    if (**at != *beginning || std::strncmp(*at, beginning, length) != 0) continue;
    const char* const value = behind(*at + length, name);
    if (value != nullptr && *value == '=') return value + 1;
  }
  return nullptr;
}

// "call[:nth[:code]],...": the nth call (0: every one) of that name, or of any ("*"), returns the code.
int injected(const char* list, std::string_view call, uint64_t nth, uint64_t nth_of_all, int otherwise) {
  if (list == nullptr) return 0;
  std::string text = std::string(list) + ",";
  for (size_t end; (end = text.find(',')) != std::string::npos; text.erase(0, end + 1)) {
    const std::string item = text.substr(0, end);
    const size_t first = item.find(':'), second = first == std::string::npos ? first : item.find(':', first + 1);
    const std::string name = item.substr(0, first);
    if (name != call && name != "*") continue;
    const uint64_t wanted = first == std::string::npos ? 0 : std::strtoull(item.c_str() + first + 1, nullptr, 10);
    if (wanted != 0 && wanted != (name == "*" ? nth_of_all : nth)) continue;
    return second == std::string::npos ? otherwise : std::atoi(item.c_str() + second + 1);
  }
  return 0;
}

int remember(int code) {
  if (code != 0 && runtime().is_sticky(code)) calls().lost = code;
  return code;
}

thread_local int thread_device = -1;
thread_local void* thread_context = nullptr;
thread_local std::string thread_error;
thread_local bool in_host_function = false;

}  // namespace

int64_t knob(const char* name, int64_t otherwise) {
  const char* text = variable(name);
  return text != nullptr && *text != '\0' ? std::atoll(text) : otherwise;
}
int version() {
  return static_cast<int>(knob("VERSION", runtime().version));
}

void report_violation(const char* rule, const std::string& text) {
  const std::string line = std::string(rule) + ": " + text;
  std::fprintf(stderr, "fake %s: violation: %s\n", runtime().name, line.c_str());
  std::fflush(stderr);
  const char* mode = variable("ON_VIOLATION");
  if (mode == nullptr || std::string(mode) != "report") std::abort();
  thread_error = line;
  const std::lock_guard lock(calls().mutex);
  ++calls().violations;
  calls().last_violation = line;
}
void violation(const char* rule, const std::string& text) {
  report_violation(rule, text);
  throw Reported{};
}
int fail(int code, const std::string& text) {
  thread_error = std::to_string(code) + ": " + text;
  return code;
}
std::string take_error() {
  return std::exchange(thread_error, {});
}
uint64_t violations() {
  const std::lock_guard lock(calls().mutex);
  return calls().violations;
}
std::string last_violation() {
  const std::lock_guard lock(calls().mutex);
  return calls().last_violation;
}

namespace {

// With the lock. The number of the call among those of its name.
uint64_t count_locked(const char* line) {
  // Opened by the first call, not at load, so that a program may still set the variable.
  static FILE* const file = [] {
    const char* path = variable("LOG");
    return path == nullptr || *path == '\0' ? nullptr : std::fopen(path, "a");
  }();
  if (file != nullptr) std::fprintf(file, "%s\n", line), std::fflush(file);
  return ++calls().count[line];
}

}  // namespace

void count(const std::string& line) {
  const std::lock_guard lock(calls().mutex);
  count_locked(line.c_str());
}
uint64_t count_of(const std::string& line) {
  const std::lock_guard lock(calls().mutex);
  if (line == "*") return calls().all;
  return calls().count[line];
}

int enter(const char* call, Needs needs) {
  uint64_t nth = 0, all = 0;
  {
    const std::lock_guard lock(calls().mutex);
    nth = count_locked(call);
    all = ++calls().all;
  }
  if (const int code = calls().lost) return fail(code, std::string(call) + ": the device is lost");
  if (const int code = remember(injected(variable("FAIL"), call, nth, all, runtime().invalid_value))) {
    return fail(code, std::string("injected failure of ") + call);
  }
  if (needs == Needs::kNothing) return 0;
  if (in_host_function) violation("CALL_IN_HOST_FUNCTION", std::string(call) + " from a function of a stream");
  if (runtime().must_initialize && !is_initialized()) {
    violation("NOT_INITIALIZED", std::string(call) + " before the runtime is initialized");
  }
  if (needs == Needs::kRuntime) return 0;
  if (runtime().must_set_device && thread_device < 0) {
    violation("NO_DEVICE_ON_THREAD", std::string(call) + " on a thread that has no device");
  }
  if (device_count() == 0) return fail(runtime().no_device, std::string(call) + ": no device");
  if (thread_context != nullptr && !is_context(thread_context)) {
    violation("DESTROYED_HANDLE", std::string(call) + " on a thread whose context was destroyed");
  }
  return 0;
}

InHostFunction::InHostFunction() {
  in_host_function = true;
}
InHostFunction::~InHostFunction() {
  in_host_function = false;
}

int injected_async(const std::string& command) {
  const char* list = variable("ASYNC_FAIL");
  if (list == nullptr) return 0;
  uint64_t nth = 0, all = 0;
  {
    const std::lock_guard lock(calls().mutex);
    nth = ++calls().async_count[command];
    all = ++calls().async_count["*"];
  }
  return remember(injected(list, command, nth, all, runtime().launch_failed));
}

int lost() {
  return calls().lost;
}
void initialize(bool now) {
  calls().initialized = now;
}
bool is_initialized() {
  return calls().initialized || knob("PREINITIALIZED", 0) != 0;
}

int device_count() {
  return static_cast<int>(knob("DEVICES", 1));
}
bool is_device(int device) {
  return device >= 0 && device < device_count();
}
int current_device() {
  return thread_device < 0 && !runtime().must_set_device ? 0 : thread_device;
}
int set_device(int device) {
  if (!is_device(device)) return runtime().invalid_device;
  return thread_device = device, thread_context = nullptr, 0;
}
void leave_device() {
  thread_device = -1;
  thread_context = nullptr;
}
void* current_context() {
  return thread_context;
}
void enter_context(void* context) {
  leave_device();
  if (context == nullptr || !is_context(context)) return;
  thread_device = device_of_context(context, "enter_context");
  thread_context = context;
}

}  // namespace fake

// For tests in one process. As if it began: counts are 0, no device is lost, and the default streams have not failed.
FAKE_EXPORT void fakeResetCalls() {
  fake::forget_default_streams();
  const std::lock_guard lock(fake::calls().mutex);
  fake::calls().count.clear();
  fake::calls().all = 0;
  fake::calls().async_count.clear();
  fake::calls().lost = 0;
}
FAKE_EXPORT uint64_t fakeCallCount(const char* call) {
  return fake::count_of(call);
}
