// The random numbers of sample. Internal to the kernel.
#pragma once

#include <rlk/formula/sample.hpp>

namespace rlk::cpu {

using formula::sample_random;

}  // namespace rlk::cpu
