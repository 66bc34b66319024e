#include "core/cpu/simd/amx.hpp"

#include <atomic>

#if defined(__x86_64__) && defined(__linux__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace rlk::cpu {
namespace {

std::atomic<bool> amx_allowed{true}, amx_emulated{false};

#if defined(__x86_64__) && defined(__linux__)
// The system saves tiles only for a process that asks for it; every thread may use them from then on.
bool find_amx() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0) return false;
  constexpr unsigned kBf16 = 1u << 22, kTile = 1u << 24, kAvx512f = 1u << 16, kAvx512bw = 1u << 30;
  if ((edx & kBf16) == 0 || (edx & kTile) == 0 || (ebx & kAvx512f) == 0 || (ebx & kAvx512bw) == 0) return false;
  constexpr long kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}
#else
bool find_amx() {
  return false;
}
#endif

}  // namespace

bool has_amx() {
  static const bool kFound = find_amx();
  return amx_is_emulated() || (kFound && amx_allowed.load(std::memory_order_relaxed));
}

void allow_amx(bool allowed) {
  amx_allowed.store(allowed, std::memory_order_relaxed);
}

void emulate_amx(bool emulated) {
  amx_emulated.store(emulated, std::memory_order_relaxed);
}
bool amx_is_emulated() {
  return amx_emulated.load(std::memory_order_relaxed);
}

}  // namespace rlk::cpu
