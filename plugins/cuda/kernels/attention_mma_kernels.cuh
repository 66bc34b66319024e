// The kernels of one accuracy. Names: <family>_<dtype>_<padded head size>_<rows of a block>, and _options for those
// that know softcap and key_mask.
#pragma once

#include "attention_mma.cuh"

#define RLK_MMA_KERNEL(name, T, head, warps, row_tiles, blocks, accurate, options)  \
  RLK_SIMT_KERNEL((warps)*32, blocks) name(RLK_SIMT_ARGUMENT(AttentionArgs) args) { \
    attention_mma<T, MmaShape<head, warps, row_tiles>, accurate, options>(args);    \
  }

// Blocks of both sizes walk over the same key tiles: a row's bits are the same in either.
#define RLK_MMA_KERNELS(family, T, suffix, accurate)                                  \
  RLK_MMA_KERNEL(family##_##suffix##_64_64, T, 64, 4, 1, 3, accurate, false)          \
  RLK_MMA_KERNEL(family##_##suffix##_64_128, T, 64, 4, 2, 2, accurate, false)         \
  RLK_MMA_KERNEL(family##_##suffix##_96_64, T, 96, 4, 1, 3, accurate, false)          \
  RLK_MMA_KERNEL(family##_##suffix##_96_128, T, 96, 4, 2, 2, accurate, false)         \
  RLK_MMA_KERNEL(family##_##suffix##_128_64, T, 128, 4, 1, 3, accurate, false)        \
  RLK_MMA_KERNEL(family##_##suffix##_128_128, T, 128, 4, 2, 2, accurate, false)       \
  RLK_MMA_KERNEL(family##_##suffix##_192_64, T, 192, 4, 1, 2, accurate, false)        \
  RLK_MMA_KERNEL(family##_##suffix##_192_128, T, 192, 8, 1, 1, accurate, false)       \
  RLK_MMA_KERNEL(family##_##suffix##_256_64, T, 256, 4, 1, 2, accurate, false)        \
  RLK_MMA_KERNEL(family##_##suffix##_256_128, T, 256, 8, 1, 1, accurate, false)       \
  RLK_MMA_KERNEL(family##_##suffix##_64_64_options, T, 64, 4, 1, 2, accurate, true)   \
  RLK_MMA_KERNEL(family##_##suffix##_96_64_options, T, 96, 4, 1, 2, accurate, true)   \
  RLK_MMA_KERNEL(family##_##suffix##_128_64_options, T, 128, 4, 1, 2, accurate, true) \
  RLK_MMA_KERNEL(family##_##suffix##_192_64_options, T, 192, 4, 1, 2, accurate, true) \
  RLK_MMA_KERNEL(family##_##suffix##_256_64_options, T, 256, 4, 1, 2, accurate, true)
