// attention on matrix units. Names: attention_mfma_<dtype>_<padded head size>_<rows of a block>, and _options for those
// that know softcap and key_mask. Blocks of both sizes walk over the same tiles: a row's bits are the same in either.
#include "attention_mfma.cuh"

using namespace rlk::rocm_kernels;

#define RLK_MFMA_KERNEL(name, T, head, row_tiles, options)                          \
  RLK_SIMT_KERNEL(rlk::rocm::kMfmaThreads)                                          \
  RLK_MFMA_TWO_WAVES attention_mfma_##name(RLK_SIMT_ARGUMENT(AttentionArgs) args) { \
    attention_mfma<T, MfmaShape<head, row_tiles>, options>(args);                   \
  }

#define RLK_MFMA_KERNELS(T)                            \
  RLK_MFMA_KERNEL(T##_64_64, T, 64, 1, false)          \
  RLK_MFMA_KERNEL(T##_64_128, T, 64, 2, false)         \
  RLK_MFMA_KERNEL(T##_64_64_options, T, 64, 1, true)   \
  RLK_MFMA_KERNEL(T##_96_64, T, 96, 1, false)          \
  RLK_MFMA_KERNEL(T##_96_128, T, 96, 2, false)         \
  RLK_MFMA_KERNEL(T##_96_64_options, T, 96, 1, true)   \
  RLK_MFMA_KERNEL(T##_128_64, T, 128, 1, false)        \
  RLK_MFMA_KERNEL(T##_128_128, T, 128, 2, false)       \
  RLK_MFMA_KERNEL(T##_128_64_options, T, 128, 1, true) \
  RLK_MFMA_KERNEL(T##_256_64, T, 256, 1, false)        \
  RLK_MFMA_KERNEL(T##_256_64_options, T, 256, 1, true)

RLK_MFMA_KERNELS(f16)
// gfx908 has no instruction of this shape for bf16.
#if !defined(__gfx908__)
RLK_MFMA_KERNELS(bf16)
#endif
