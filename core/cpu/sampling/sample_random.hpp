// The random numbers of sample. Internal to the kernel.
#pragma once

#include <cstdint>

namespace rlk::cpu {

// 64 random bits of Philox4x32-10: key `seed`, counter (row_id, step), the first two of its four words.
uint64_t sample_random(uint64_t seed, uint64_t row_id, uint64_t step);

}  // namespace rlk::cpu
