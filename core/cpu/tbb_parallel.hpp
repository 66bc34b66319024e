// Parallel-for hooks for callers that have no service of their own: TBB's pool, or the calling thread alone.
#pragma once

#include "core/cpu/simd/kernel.hpp"

namespace rlk::cpu {

ParallelFor tbb_parallel();     // TBB's pool, in the arena of the calling thread
ParallelFor serial_parallel();  // one range on the calling thread

}  // namespace rlk::cpu
