// What do the simulated libraries know of memory, streams and the process? Owned by libascendcl.so.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "state.h"

namespace fake_ascend {

// --- process ---------------------------------------------------------------------------------------------------------
bool initialized();
uint64_t live_executors();
int device_count();

// --- memory ----------------------------------------------------------------------------------------------------------
struct Range {
  uintptr_t begin = 0;
  uintptr_t end = 0;
  bool overlaps(const Range& other) const { return begin < other.end && other.begin < end; }
};

// Where simulator code reads and writes device memory. Device addresses themselves are mapped without access, so a host
// that follows one faults, as it would with a real device. Null when `address` is in no arena.
FAKE_ASCEND_INTERNAL std::byte* device_bytes(const void* address);

bool is_device_address(const void* address);

// Checks that `bytes` bytes at `address` lie inside one live device allocation; `what` names the argument. 0 or the
// number a violation gave.
FAKE_ASCEND_INTERNAL int check_device_range(const void* address, size_t bytes, const std::string& what);

// --- streams ---------------------------------------------------------------------------------------------------------
// A command runs on the stream's worker thread; not 0: the stream carries this error from then on. While it is pending,
// freeing memory in `uses` is a violation.
struct Command {
  std::string name;
  std::function<int()> run;
  std::vector<Range> uses;
};

class Stream;

// The stream of a handle (null is the default stream of the current device), checked against the calling thread's
// context. Null: return `code`.
FAKE_ASCEND_INTERNAL std::shared_ptr<Stream> stream_of(aclrtStream handle, const char* call, int* code);

FAKE_ASCEND_INTERNAL void submit(Stream& stream, Command command);

// Waits for what the stream holds now; a negative timeout waits for ever. 0, a time-out code or the stream's error.
int synchronize(Stream& stream, int64_t timeout_ms);
int synchronize_all_of_device(int device);

// Text naming a pending command that uses the range; empty when none does.
std::string pending_use(const Range& range);

// Streams die with their context.
void forget_streams_of_context(uint64_t context);

}  // namespace fake_ascend
