// Which instruction sets this processor has: the functions of Highway's dispatch that its headers leave to its library.
// With them here librlk needs no libhwy, whose version differs from one distribution to the next.
//
// A target is reported when the processor and the operating system have all that Highway's code for it uses. One that
// is not known here (a later Highway has more) is not reported: the next best serves.
#include <hwy/highway.h>

#if HWY_ARCH_X86
#include <cpuid.h>
#endif

namespace hwy {
namespace {

#if HWY_ARCH_X86
struct Cpuid {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  explicit Cpuid(unsigned leaf) { __get_cpuid_count(leaf, 0, &eax, &ebx, &ecx, &edx); }  // absent leaf: zeros
};

int64_t processor_targets() {
  // The compiler's own test also asks whether the system saves the wide registers. It does not know these three names
  // in clang 14.
  const bool f16c = (Cpuid(1).ecx & bit_F16C) != 0;
  const bool lzcnt = (Cpuid(0x80000001).ecx & bit_LZCNT) != 0;
  const bool vaes = (Cpuid(7).ecx & bit_VAES) != 0;

  int64_t targets = 0;
  if (!__builtin_cpu_supports("ssse3")) return targets;
  targets |= HWY_SSSE3;
  if (!__builtin_cpu_supports("sse4.1") || !__builtin_cpu_supports("sse4.2") || !__builtin_cpu_supports("pclmul") ||
      !__builtin_cpu_supports("aes")) {
    return targets;
  }
  targets |= HWY_SSE4;
  if (!__builtin_cpu_supports("avx") || !__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") ||
      !__builtin_cpu_supports("bmi") || !__builtin_cpu_supports("bmi2") || !f16c || !lzcnt) {
    return targets;
  }
  targets |= HWY_AVX2;
  if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512vl") ||
      !__builtin_cpu_supports("avx512dq") || !__builtin_cpu_supports("avx512bw") ||
      !__builtin_cpu_supports("avx512cd")) {
    return targets;
  }
  targets |= HWY_AVX3;
  if (!__builtin_cpu_supports("avx512vnni") || !__builtin_cpu_supports("vpclmulqdq") ||
      !__builtin_cpu_supports("avx512vbmi") || !__builtin_cpu_supports("avx512vbmi2") ||
      !__builtin_cpu_supports("avx512vpopcntdq") || !__builtin_cpu_supports("avx512bitalg") ||
      !__builtin_cpu_supports("gfni") || !vaes) {
    return targets;
  }
  return targets | HWY_AVX3_DL;
}
#else
int64_t processor_targets() {
  return 0;
}
#endif

int64_t targets_for_test = 0;  // 0: the processor's

}  // namespace

int64_t SupportedTargets() {
  if (targets_for_test != 0) return targets_for_test;
    // What this file was compiled for runs everywhere that rlk runs, unless it was for the processor that built it; so
    // does code without vectors.
#if defined(RLK_CPU_NATIVE) && HWY_ARCH_X86
  return processor_targets() | HWY_SCALAR | HWY_EMU128;
#else
  return processor_targets() | HWY_ENABLED_BASELINE | HWY_SCALAR | HWY_EMU128;
#endif
}

// For tests, which run one kernel after the other under every instruction set.
void SetSupportedTargetsForTest(int64_t targets) {
  targets_for_test = targets;
  GetChosenTarget().DeInit();
}

ChosenTarget& GetChosenTarget() {
  static ChosenTarget chosen;
  return chosen;
}

}  // namespace hwy
