// How are calls logged, failures injected and violations reported? State of the process and of the thread.
#include "state.h"

#include <pthread.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>

#include "runtime.h"

namespace fake_ascend {
namespace {

// Never destroyed: worker threads may outlive static destructors.
struct State {
  std::mutex mutex;
  std::map<std::string, uint64_t> calls;
  std::map<std::string, uint64_t> async_calls;
  uint64_t violations = 0;
  std::string last_violation;
  NnopbaseHooks hooks{nullptr, nullptr};
};

State& state() {
  static State* const instance = new State;
  return *instance;
}

// Opened by the first call, not at load, so that a program may still set the variable.
FILE* log_file() {
  static FILE* const file = [] {
    const char* path = std::getenv("RLK_FAKE_ASCEND_LOG");
    return path == nullptr || *path == '\0' ? nullptr : std::fopen(path, "a");
  }();
  return file;
}

thread_local std::string recent_error;
thread_local std::string recent_error_returned;

uint64_t count_call(const std::string& line) {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  if (FILE* const log = log_file(); log != nullptr) {
    std::fprintf(log, "%s\n", line.c_str());
    std::fflush(log);
  }
  return ++s.calls[line];
}

// `list` is "call[:nth[:code]],...": nth counts from 1, 0 is every call.
int injected(const char* list, const std::string& call, uint64_t nth_now, int default_code) {
  if (list == nullptr) return 0;
  std::string text = list;
  size_t begin = 0;
  while (begin <= text.size()) {
    size_t end = text.find(',', begin);
    if (end == std::string::npos) end = text.size();
    const std::string item = text.substr(begin, end - begin);
    begin = end + 1;
    const size_t first = item.find(':');
    if (item.substr(0, first) != call) continue;
    uint64_t nth = 0;
    int code = default_code;
    if (first != std::string::npos) {
      nth = std::strtoull(item.c_str() + first + 1, nullptr, 10);
      const size_t second = item.find(':', first + 1);
      if (second != std::string::npos) code = std::atoi(item.c_str() + second + 1);
    }
    if (nth == 0 || nth == nth_now) return code;
  }
  return 0;
}

}  // namespace

int enter(const char* call, Needs needs) {
  const uint64_t nth = count_call(call);
  if (const int code = injected(std::getenv("RLK_FAKE_ASCEND_FAIL"), call, nth, ACL_ERROR_INVALID_PARAM); code != 0) {
    return fail(code, std::string("injected failure of ") + call);
  }
  if (needs == Needs::kNothing) return 0;
  if (!initialized()) return violation("NOT_INITIALIZED", std::string(call) + " before aclInit or after aclFinalize");
  if (needs == Needs::kDevice && current_device() < 0) {
    return violation("NO_DEVICE_ON_THREAD", std::string(call) + " on a thread that has not called aclrtSetDevice");
  }
  return 0;
}

int violation(const char* rule, const std::string& text) {
  const std::string line = std::string(rule) + ": " + text;
  std::fprintf(stderr, "fake ascend: violation: %s\n", line.c_str());
  std::fflush(stderr);
  const char* mode = std::getenv("RLK_FAKE_ASCEND_ON_VIOLATION");
  if (mode == nullptr || std::string(mode) != "report") std::abort();
  State& s = state();
  const std::lock_guard lock(s.mutex);
  ++s.violations;
  s.last_violation = line;
  recent_error = line;
  return ACL_ERROR_RT_PARAM_INVALID;
}

int fail(int code, const std::string& text) {
  recent_error = std::to_string(code) + ": " + text;
  return code;
}

void log_call(const std::string& line) {
  count_call(line);
}

int injected_async_failure(const std::string& call) {
  const char* list = std::getenv("RLK_FAKE_ASCEND_ASYNC_FAIL");
  if (list == nullptr) return 0;
  uint64_t nth = 0;
  {
    State& s = state();
    const std::lock_guard lock(s.mutex);
    nth = ++s.async_calls[call];
  }
  return injected(list, call, nth, ACL_ERROR_RT_AICORE_EXCEPTION);
}

int64_t env_number(const char* name, int64_t fallback) {
  const char* text = std::getenv(name);
  return text == nullptr || *text == '\0' ? fallback : std::strtoll(text, nullptr, 10);
}

void set_nnopbase_hooks(NnopbaseHooks hooks) {
  state().hooks = hooks;
}

uint64_t live_executors() {
  return state().hooks.live_executors == nullptr ? 0 : state().hooks.live_executors();
}

}  // namespace fake_ascend

using fake_ascend::state;

const char* aclGetRecentErrMsg() {
  fake_ascend::recent_error_returned = fake_ascend::recent_error;
  fake_ascend::recent_error.clear();
  return fake_ascend::recent_error_returned.empty() ? nullptr : fake_ascend::recent_error_returned.c_str();
}

uint64_t fakeAscendViolationCount() {
  const std::lock_guard lock(state().mutex);
  return state().violations;
}

const char* fakeAscendLastViolation() {
  thread_local std::string copy;
  const std::lock_guard lock(state().mutex);
  copy = state().last_violation;
  return copy.c_str();
}

uint64_t fakeAscendCallCount(const char* call) {
  const std::lock_guard lock(state().mutex);
  const auto found = state().calls.find(call);
  return found == state().calls.end() ? 0 : found->second;
}

uint64_t fakeAscendLiveDescriptors() {
  return state().hooks.live_descriptors == nullptr ? 0 : state().hooks.live_descriptors();
}

uint64_t fakeAscendLiveExecutors() {
  return fake_ascend::live_executors();
}
