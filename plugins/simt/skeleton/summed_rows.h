// What the host and the kernels of summed_rows.cuh both know of them.
#pragma once

#include "rows.h"

namespace rlk::simt {

// Shared memory of a block that has a chunk of rows, for the sums of its columns: so many bytes of each sum of a
// thread, none where all of them would take more than there is beside what the kernel has anyway.
constexpr int kBlockSumBytes = kRowSumColumns * 4, kBlockMostBytes = 32 * 1024;

}  // namespace rlk::simt
