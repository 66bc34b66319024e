// Memory that a thread keeps for its next task, so that tasks of some tens of microseconds need not allocate.
#pragma once

#include <cstddef>
#include <cstdint>

namespace rlk::cpu {

// At least `bytes` aligned to 64 bytes, until the thread's next call; nullptr when there is no memory. The memory is
// kept until the thread ends, so ask only for bounded amounts.
void* thread_scratch(size_t bytes);

// For tests: scratch is handed out full of NaN. Code that wrote in front of or behind what it had asked for ends the
// program, with a text, at the thread's next call.
void check_scratch_use();

// For tests: while it is denied no thread gets any. Returns how often that was so since the last call.
int64_t deny_scratch(bool denied);

// RLK_OUT_OF_MEMORY: what a kernel throws on its caller's thread, when all tasks have ended, if one had no scratch.
[[noreturn]] void throw_no_scratch();

}  // namespace rlk::cpu
