// The tile unit of recent Xeons (AMX), for which Highway has no name.
#pragma once

#include <cstdint>

namespace rlk::cpu {

// A tile has so many rows, and a row so many numbers of a factor, or half as many sums.
constexpr int64_t kAmxRows = 16, kAmxDepth = 32;

// Whether the processor multiplies tiles of bf16, the operating system lets this process do so, and no test has turned
// it off; or a test has it emulated. [thread-safe]
bool has_amx();

// For tests: off, or on again where there is one. Not while kernels run.
void allow_amx(bool allowed);

// For tests: kernels take tiles, whether there is a unit or not, and compute their products number by number. Not while
// kernels run.
void emulate_amx(bool emulated);
bool amx_is_emulated();

}  // namespace rlk::cpu
