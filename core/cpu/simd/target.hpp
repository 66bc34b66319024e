// Which instruction set the kernels use on this machine.
#pragma once

namespace rlk::cpu {

// Highway's name: "AVX3" (AVX-512), "AVX2", "SSE4", "NEON", ... Lives as long as the process.
const char* target_name();

}  // namespace rlk::cpu
