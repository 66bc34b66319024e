// How are calls logged, failures injected and violations reported? By the framework; what CANN adds is its texts of
// errors and what each call needs.
#include "state.h"

#include <cstdlib>

#include "runtime.h"
#include "tests/fakes/runtime/calls.hpp"

const fake::Runtime& fake::runtime() {
  static constexpr Runtime only = [] {
    Runtime numbers{};
    numbers.name = "ascend";
    numbers.variable = "RLK_FAKE_ASCEND_";
    numbers.invalid_value = ACL_ERROR_INVALID_PARAM;
    numbers.launch_failed = ACL_ERROR_RT_AICORE_EXCEPTION;
    numbers.is_sticky = [](int) { return false; };
    return numbers;
  }();
  return only;
}

namespace fake_ascend {
namespace {

NnopbaseHooks& hooks() {
  static NnopbaseHooks only{nullptr, nullptr};
  return only;
}

thread_local std::string recent_error;
thread_local std::string recent_error_returned;

}  // namespace

int enter(const char* call, Needs needs) {
  if (const int code = fake::admit(call); code != 0) return fail(code, std::string("injected failure of ") + call);
  if (needs == Needs::kNothing) return 0;
  if (!initialized()) return violation("NOT_INITIALIZED", std::string(call) + " before aclInit or after aclFinalize");
  if (needs == Needs::kDevice && current_device() < 0) {
    return violation("NO_DEVICE_ON_THREAD", std::string(call) + " on a thread that has not called aclrtSetDevice");
  }
  return 0;
}

int violation(const char* rule, const std::string& text) {
  fake::report_violation(rule, text);
  recent_error = fake::last_violation();
  return ACL_ERROR_RT_PARAM_INVALID;
}

int fail(int code, const std::string& text) {
  recent_error = std::to_string(code) + ": " + text;
  return code;
}

void log_call(const std::string& line) {
  fake::count(line);
}

int injected_async_failure(const std::string& call) {
  return fake::injected_async(call);
}

int64_t env_number(const char* name, int64_t fallback) {
  const char* text = std::getenv(name);
  return text == nullptr || *text == '\0' ? fallback : std::strtoll(text, nullptr, 10);
}

void set_nnopbase_hooks(NnopbaseHooks given) {
  hooks() = given;
}

uint64_t live_executors() {
  return hooks().live_executors == nullptr ? 0 : hooks().live_executors();
}

}  // namespace fake_ascend

using fake_ascend::hooks;

const char* aclGetRecentErrMsg() {
  fake_ascend::recent_error_returned = fake_ascend::recent_error;
  fake_ascend::recent_error.clear();
  return fake_ascend::recent_error_returned.empty() ? nullptr : fake_ascend::recent_error_returned.c_str();
}

uint64_t fakeAscendViolationCount() {
  return fake::violations();
}

const char* fakeAscendLastViolation() {
  thread_local std::string copy;
  copy = fake::last_violation();
  return copy.c_str();
}

uint64_t fakeAscendCallCount(const char* call) {
  return fake::count_of(call);
}

uint64_t fakeAscendLiveDescriptors() {
  return hooks().live_descriptors == nullptr ? 0 : hooks().live_descriptors();
}

uint64_t fakeAscendLiveExecutors() {
  return fake_ascend::live_executors();
}
