// What does every simulated call check first, and how is a broken rule reported?
//
// Shared by the three simulated libraries; libascendcl.so owns the state, the others call into it.
#pragma once

#include <cstdint>
#include <string>

#include "acl_api.h"

#define FAKE_ASCEND_INTERNAL __attribute__((visibility("default")))

namespace fake_ascend {

// What a call needs before it may run.
enum class Needs { kNothing, kInit, kDevice };

// Logs and counts the call, applies RLK_FAKE_ASCEND_FAIL, checks `needs`. Not 0: return it to the caller.
FAKE_ASCEND_INTERNAL int enter(const char* call, Needs needs);

// A contract violation: one line on stderr, then abort; with RLK_FAKE_ASCEND_ON_VIOLATION=report the line is kept for
// fakeAscendLastViolation and the number to return to the caller comes back.
FAKE_ASCEND_INTERNAL int violation(const char* rule, const std::string& text);

// An error the vendor documents as a returned status: remembered for aclGetRecentErrMsg.
FAKE_ASCEND_INTERNAL int fail(int code, const std::string& text);

// Logs and counts a line without checks.
FAKE_ASCEND_INTERNAL void log_call(const std::string& line);

// The code RLK_FAKE_ASCEND_ASYNC_FAIL injects into this execution of `call` on a stream; 0 is none.
FAKE_ASCEND_INTERNAL int injected_async_failure(const std::string& call);

// The device and context of the calling thread; -1 without one.
FAKE_ASCEND_INTERNAL int current_device();
FAKE_ASCEND_INTERNAL uint64_t current_context();

// The number in an environment variable, or `fallback`.
FAKE_ASCEND_INTERNAL int64_t env_number(const char* name, int64_t fallback);

// libnnopbase.so registers what aclFinalize and the live counts ask it.
struct NnopbaseHooks {
  uint64_t (*live_descriptors)();
  uint64_t (*live_executors)();
};
FAKE_ASCEND_INTERNAL void set_nnopbase_hooks(NnopbaseHooks hooks);

}  // namespace fake_ascend

#define FAKE_ASCEND_ENTER(needs) \
  if (const int entered = fake_ascend::enter(__func__, fake_ascend::Needs::needs); entered != 0) return entered
