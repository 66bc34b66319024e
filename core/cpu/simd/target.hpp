// Which instruction set the kernels use on this machine.
#pragma once

namespace rlk::cpu {

// Highway's name: "AVX3" (AVX-512), "AVX2", "NEON", ... Lives as long as the process.
const char* target_name();
// The same with what kernels use beside it: "AVX3_AMX" where bf16 is multiplied by tiles. It names the variants of
// implementations, so that a verdict on one is none on the other.
const char* variant_name();
// Whether this processor has what the kernels were compiled for. False only where RLK_CPU_TARGETS was native and the
// library was carried to another processor.
bool runs_here();

}  // namespace rlk::cpu
