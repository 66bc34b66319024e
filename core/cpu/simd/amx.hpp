// The tile unit of recent Xeons (AMX), for which Highway has no name.
#pragma once

namespace rlk::cpu {

// Whether the processor multiplies tiles of bf16, the operating system lets this process do so, and no test has turned
// it off. [thread-safe]
bool has_amx();

// For tests: off, or on again where there is one. Not while kernels run.
void allow_amx(bool allowed);

}  // namespace rlk::cpu
