// The tensor core attention kernels. Names: attention_mma_<dtype>_<padded head size>_<rows of a block>, and _options
// for those that know softcap and key_mask.
#include "attention_mma.cuh"

using namespace rlk::cuda_kernels;

#define RLK_MMA_KERNEL(name, T, head, warps, row_tiles, blocks, options)            \
  RLK_SIMT_KERNEL((warps)*32, blocks) name(RLK_SIMT_ARGUMENT(AttentionArgs) args) { \
    attention_mma<T, MmaShape<head, warps, row_tiles>, options>(args);              \
  }

// Blocks of both sizes walk over the same key tiles: a row's bits are the same in either.
#define RLK_MMA_KERNELS(T, suffix)                                               \
  RLK_MMA_KERNEL(attention_mma_##suffix##_64_64, T, 64, 4, 1, 3, false)          \
  RLK_MMA_KERNEL(attention_mma_##suffix##_64_128, T, 64, 4, 2, 2, false)         \
  RLK_MMA_KERNEL(attention_mma_##suffix##_96_64, T, 96, 4, 1, 3, false)          \
  RLK_MMA_KERNEL(attention_mma_##suffix##_96_128, T, 96, 4, 2, 2, false)         \
  RLK_MMA_KERNEL(attention_mma_##suffix##_128_64, T, 128, 4, 1, 3, false)        \
  RLK_MMA_KERNEL(attention_mma_##suffix##_128_128, T, 128, 4, 2, 2, false)       \
  RLK_MMA_KERNEL(attention_mma_##suffix##_192_64, T, 192, 4, 1, 2, false)        \
  RLK_MMA_KERNEL(attention_mma_##suffix##_192_128, T, 192, 8, 1, 1, false)       \
  RLK_MMA_KERNEL(attention_mma_##suffix##_256_64, T, 256, 4, 1, 2, false)        \
  RLK_MMA_KERNEL(attention_mma_##suffix##_256_128, T, 256, 8, 1, 1, false)       \
  RLK_MMA_KERNEL(attention_mma_##suffix##_64_64_options, T, 64, 4, 1, 2, true)   \
  RLK_MMA_KERNEL(attention_mma_##suffix##_96_64_options, T, 96, 4, 1, 2, true)   \
  RLK_MMA_KERNEL(attention_mma_##suffix##_128_64_options, T, 128, 4, 1, 2, true) \
  RLK_MMA_KERNEL(attention_mma_##suffix##_192_64_options, T, 192, 4, 1, 2, true) \
  RLK_MMA_KERNEL(attention_mma_##suffix##_256_64_options, T, 256, 4, 1, 2, true)

RLK_MMA_KERNELS(bf16, bf16)
RLK_MMA_KERNELS(f16, f16)
