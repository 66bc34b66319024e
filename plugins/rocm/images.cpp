// The code objects, embedded by the assembler: images.inc, which the build writes, names one per kernels and target.
#include <cstring>

#include "hip.hpp"

// RLK_ROCM_IMAGES: where the build put the code objects and images.inc; not defined when it had no hipcc.
#ifdef RLK_ROCM_IMAGES
#define RLK_ROCM_EMBED(kernels, target)                     \
  asm(".section .rodata, \"a\", @progbits\n"                \
      ".balign 4096\n"                                      \
      ".globl rlk_rocm_" #kernels "_" #target               \
      "\n"                                                  \
      ".hidden rlk_rocm_" #kernels "_" #target              \
      "\n"                                                  \
      "rlk_rocm_" #kernels "_" #target                      \
      ":\n"                                                 \
      ".incbin \"" RLK_ROCM_IMAGES "/" #kernels "." #target \
      ".co\"\n"                                             \
      ".previous\n");                                       \
  extern "C" const unsigned char rlk_rocm_##kernels##_##target[] __attribute__((visibility("hidden")));
#define RLK_ROCM_IMAGE RLK_ROCM_EMBED
#include "images.inc"
#undef RLK_ROCM_IMAGE
#endif

namespace rlk::rocm {

const void* built_image([[maybe_unused]] const std::string& kernels, [[maybe_unused]] const std::string& architecture) {
#ifdef RLK_ROCM_IMAGES
#define RLK_ROCM_IMAGE(name, target) \
  if (kernels == #name && architecture == #target) return rlk_rocm_##name##_##target;
#include "images.inc"
#undef RLK_ROCM_IMAGE
#endif
  return nullptr;
}

const char* built_architectures() noexcept {
#ifdef RLK_ROCM_TARGETS
  return RLK_ROCM_TARGETS;
#else
  return "";
#endif
}

}  // namespace rlk::rocm
