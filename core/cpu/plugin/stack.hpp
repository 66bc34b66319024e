// Kernels keep blocks of numbers on the stack, up to some hundred KiB of them. A caller's thread may have less: those
// of interpreters, and of languages with schedulers of their own, often have 64 KiB.
#pragma once

#include <functional>

namespace rlk::cpu {

// Calls work here, or, where the calling thread was made with less than 1 MiB of stack, on a thread made for it (tens
// of microseconds), and waits. What work throws is thrown here; OUT_OF_MEMORY when no thread can be made.
// [thread-safe]
void with_enough_stack(const std::function<void()>& work);

}  // namespace rlk::cpu
