// What is CANN's own of calls: its numbers, and the texts of its errors.
#include "state.h"

const fake::Runtime& fake::runtime() {
  static constexpr Runtime only = [] {
    Runtime numbers{};
    numbers.name = "ascend";
    numbers.variable = "RLK_FAKE_ASCEND_";
    numbers.invalid_value = ACL_ERROR_INVALID_PARAM;
    numbers.out_of_memory = ACL_ERROR_RT_MEMORY_ALLOCATION;
    numbers.no_device = ACL_ERROR_RT_NO_DEVICE;
    numbers.invalid_device = ACL_ERROR_RT_INVALID_DEVICEID;
    numbers.invalid_handle = ACL_ERROR_RT_INVALID_HANDLE;
    numbers.not_ready = 1;  // CANN tells it by a status beside the code
    numbers.launch_failed = ACL_ERROR_RT_AICORE_EXCEPTION;
    numbers.stream_timeout = ACL_ERROR_RT_STREAM_SYNC_TIMEOUT;
    numbers.event_timeout = ACL_ERROR_RT_EVENT_SYNC_TIMEOUT;
    numbers.broken_rule = ACL_ERROR_RT_PARAM_INVALID;
    numbers.capture_forbids = ACL_ERROR_RT_STREAM_CAPTURED;
    numbers.capture_broken = ACL_ERROR_RT_STREAM_CAPTURE_INVALIDATED;
    numbers.event_in_capture = ACL_ERROR_RT_EVENT_CAPTURED;
    numbers.unjoined = ACL_ERROR_RT_STREAM_UNJOINED;
    // An exception of an AI core is its stream's; a device that has stopped answering is lost.
    numbers.is_sticky = [](int code) { return code == ACL_ERROR_RT_LOST_HEARTBEAT; };
    numbers.must_initialize = true;
    numbers.must_set_device = true;
    numbers.free_waits = false;
    numbers.graphs_hold_memory = true;
    numbers.destroy_waits = false;
    numbers.pageable_waits = true;
    numbers.events_are_strict = true;
    numbers.alignment = 512;
    numbers.memory_mb = 4096;
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

// A rule that is broken ends the call, not the process, where a test asks for it.
template <class Body>
int guarded(const Body& body) {
  try {
    return body();
  } catch (const fake::Reported&) {
    return fake::runtime().broken_rule;
  }
}

}  // namespace

int begin(const char* call, Needs needs) {
  return guarded([&] { return fake::enter(call, needs); });
}

int64_t knob(const char* name, int64_t otherwise) {
  return fake::knob(name, otherwise);
}

int violation(const char* rule, const std::string& text) {
  fake::report_violation(rule, text);
  return fake::runtime().broken_rule;
}

int fail(int code, const std::string& text) {
  return fake::fail(code, text);
}

int check_device_range(const void* address, size_t bytes, const fake::Argument& what) {
  return guarded([&] { return fake::require_device(address, bytes, what), 0; });
}

std::byte* device_bytes(const void* address) {
  return fake::bytes_at(address);
}

int check_stream(aclrtStream stream, const char* call) {
  return guarded([&] { return fake::stream_of(stream, call), 0; });
}

int submit(aclrtStream stream, const char* call, fake::Command command) {
  return guarded([&] { return fake::enqueue(stream, call, std::move(command)); });
}

bool is_atlas_a2_or_a3(const std::string& soc) {
  const std::string a2 = "Ascend910B";
  const bool is_a2 = soc.compare(0, a2.size(), a2) == 0 && soc.find_first_of("0123456789", a2.size()) == a2.size();
  return is_a2 || soc.rfind("Ascend910_93", 0) == 0;
}

void set_nnopbase_hooks(NnopbaseHooks given) {
  hooks() = given;
}

uint64_t live_executors() {
  return hooks().live_executors == nullptr ? 0 : hooks().live_executors();
}

}  // namespace fake_ascend

const char* aclGetRecentErrMsg() {
  thread_local std::string text;
  text = fake::take_error();
  return text.empty() ? nullptr : text.c_str();
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
  return fake_ascend::hooks().live_descriptors == nullptr ? 0 : fake_ascend::hooks().live_descriptors();
}

uint64_t fakeAscendLiveExecutors() {
  return fake_ascend::live_executors();
}
