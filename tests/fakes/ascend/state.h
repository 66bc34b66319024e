// What do the three simulated libraries share? The framework (../runtime) in libascendcl.so, which the others reach
// through these functions: none of them throws, and not 0 is for the caller.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

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

// Atlas A2 is Ascend910B and a digit (Ascend910B alone is a training device), A3 Ascend910_93.
FAKE_ASCEND_INTERNAL bool is_atlas_a2_or_a3(const std::string& soc);

// In every function of the runtime that is done at once: a capture forbids it to threads that are not in relaxed mode,
// and is broken by it. Not 0: return it.
int refuse_beside_capture(const char* call);

// libnnopbase.so registers what aclFinalize and the live counts ask it.
struct NnopbaseHooks {
  uint64_t (*live_descriptors)();
  uint64_t (*live_executors)();
};
FAKE_ASCEND_INTERNAL void set_nnopbase_hooks(NnopbaseHooks hooks);
uint64_t live_executors();

}  // namespace fake_ascend

// An indirect function: dlsym runs the resolver, and finds nothing where this version of CANN lacks it. is_there: by
// `version`.
#define FAKE_ASCEND_OF_VERSION(name, arguments, does, is_there)                     \
  extern "C" {                                                                      \
  aclError(*resolve_##name()) arguments {                                           \
    const char* text = std::getenv("RLK_FAKE_ASCEND_VERSION");                      \
    const std::string_view version = text != nullptr ? text : "8.1";                \
    return (is_there) ? does : nullptr;                                             \
  }                                                                                 \
  FAKE_ASCEND_API aclError name arguments __attribute__((ifunc("resolve_" #name))); \
  }

#define FAKE_ASCEND_ENTER(needs) \
  if (const int entered = fake_ascend::begin(__func__, fake_ascend::Needs::needs); entered != 0) return entered
