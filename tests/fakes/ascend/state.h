// What do the three simulated libraries share? The framework (../runtime) in libascendcl.so, which the others reach
// through these functions: none of them throws, and not 0 is for the caller.
#pragma once

#include <cstdint>
#include <string>

#include "acl_api.h"
#include "tests/fakes/runtime/streams.hpp"

#define FAKE_ASCEND_INTERNAL __attribute__((visibility("default")))

namespace fake_ascend {

using fake::Needs;
using fake::Range;

// Logs and counts the call, applies RLK_FAKE_ASCEND_FAIL, checks `needs`. Not 0: return it to the caller.
FAKE_ASCEND_INTERNAL int begin(const char* call, Needs needs);

// The number in RLK_FAKE_ASCEND_<name>, now.
FAKE_ASCEND_INTERNAL int64_t knob(const char* name, int64_t otherwise);

// A contract violation: one line on stderr, then abort; with RLK_FAKE_ASCEND_ON_VIOLATION=report the line is kept for
// fakeAscendLastViolation and the number to return to the caller comes back.
FAKE_ASCEND_INTERNAL int violation(const char* rule, const std::string& text);

// An error the vendor documents as a returned status: remembered for aclGetRecentErrMsg.
FAKE_ASCEND_INTERNAL int fail(int code, const std::string& text);

// Checks that `bytes` bytes at `address` lie inside one live device allocation.
FAKE_ASCEND_INTERNAL int check_device_range(const void* address, size_t bytes, const fake::Argument& what);
// Where simulator code reads and writes device memory.
FAKE_ASCEND_INTERNAL std::byte* device_bytes(const void* address);

FAKE_ASCEND_INTERNAL int check_stream(aclrtStream stream, const char* call);
FAKE_ASCEND_INTERNAL int submit(aclrtStream stream, const char* call, fake::Command command);

// libnnopbase.so registers what aclFinalize and the live counts ask it.
struct NnopbaseHooks {
  uint64_t (*live_descriptors)();
  uint64_t (*live_executors)();
};
FAKE_ASCEND_INTERNAL void set_nnopbase_hooks(NnopbaseHooks hooks);
uint64_t live_executors();

}  // namespace fake_ascend

#define FAKE_ASCEND_ENTER(needs) \
  if (const int entered = fake_ascend::begin(__func__, fake_ascend::Needs::needs); entered != 0) return entered
