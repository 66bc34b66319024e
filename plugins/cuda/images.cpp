// The fat binaries, embedded by the assembler.
#include "images.hpp"

#include <cstring>

// RLK_CUDA_IMAGE_FOLDER: where the build put the compiled kernels; not defined when it had no nvcc.
#ifdef RLK_CUDA_IMAGE_FOLDER
#define RLK_CUDA_IMAGES(X) X(add) X(attention_mma) X(attention_mma_accurate) X(attention_simt) X(logp) X(logp_backward)
#define RLK_CUDA_EMBED(name)                       \
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
RLK_CUDA_IMAGES(RLK_CUDA_EMBED)
#endif

namespace rlk::cuda {

bool images_built() noexcept {
#ifdef RLK_CUDA_IMAGE_FOLDER
  return true;
#else
  return false;
#endif
}

const void* image_of([[maybe_unused]] const char* name, int) {
#ifdef RLK_CUDA_IMAGE_FOLDER
#define RLK_CUDA_FIND(image) \
  if (std::strcmp(name, #image) == 0) return rlk_cuda_image_##image;
  RLK_CUDA_IMAGES(RLK_CUDA_FIND)
#undef RLK_CUDA_FIND
#endif
  return nullptr;
}

}  // namespace rlk::cuda
