// The fat binaries, embedded by the assembler.
#include "images.hpp"

#include <cstring>

// RLK_CUDA_IMAGE_FOLDER: where the build put the compiled kernels, and images.inc, which names them; not defined when
// it had no nvcc.
#ifdef RLK_CUDA_IMAGE_FOLDER
#define RLK_CUDA_IMAGE(name)                       \
  asm(".section .rodata, \"a\", @progbits\n"       \
      ".balign 64\n"                               \
      ".globl rlk_cuda_image_" #name               \
      "\n"                                         \
      ".hidden rlk_cuda_image_" #name              \
      "\n"                                         \
      "rlk_cuda_image_" #name                      \
      ":\n"                                        \
      ".incbin \"" RLK_CUDA_IMAGE_FOLDER "/" #name \
      ".fatbin\"\n"                                \
      ".previous\n");                              \
  extern "C" const unsigned char rlk_cuda_image_##name[] __attribute__((visibility("hidden")));
#include "images.inc"
#undef RLK_CUDA_IMAGE
#endif

namespace rlk::cuda {

bool images_built() noexcept {
#ifdef RLK_CUDA_IMAGE_FOLDER
  return true;
#else
  return false;
#endif
}

int first_waiting_architecture() noexcept {
#ifdef RLK_CUDA_FIRST_WAITING
  return RLK_CUDA_FIRST_WAITING;
#else
  return 0;
#endif
}

const void* image_of([[maybe_unused]] const char* name, int) {
#ifdef RLK_CUDA_IMAGE_FOLDER
#define RLK_CUDA_IMAGE(image) \
  if (std::strcmp(name, #image) == 0) return rlk_cuda_image_##image;
#include "images.inc"
#undef RLK_CUDA_IMAGE
#endif
  return nullptr;
}

}  // namespace rlk::cuda
