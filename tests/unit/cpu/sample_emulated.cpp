// The vectorised steps of sample a second time, on Highway's emulated 128-bit vectors: what compilers other than this
// project's fall back to, and no processor here would ever choose.
#undef HWY_COMPILE_ONLY_STATIC
#define HWY_COMPILE_ONLY_EMU128
#define HWY_BROKEN_EMU128 0            // g++ 12.2's fault is in its vectoriser, which is off for this file
#define N_EMU128 N_EMU128_OF_THE_TEST  // where a compiler leaves no other target, the library has N_EMU128 too
#define sample_load emulated_sample_load
#define sample_top emulated_sample_top
#define sample_weights emulated_sample_weights
#define sample_kept_sum emulated_sample_kept_sum
#define sample_kept emulated_sample_kept
#include "core/cpu/sampling/sample_block.cpp"  // NOLINT(bugprone-suspicious-include): once more
