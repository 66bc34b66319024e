// The kernels of one accuracy. Names: <family>_<dtype>_<padded head size>_<rows of a block>, and _options for those
// that know softcap and masks.
#pragma once

#include "attention_parts_merge.cuh"
#include "attention_parts_mma.cuh"

#define RLK_PARTS_KERNEL(name, T, head, row_tiles, accurate, options, few)                                             \
  RLK_SIMT_KERNEL(128, rlk::cuda::kPartsBlocks) name(RLK_SIMT_ARGUMENT(AttentionPartsArgs) args) {                     \
    attention_parts_mma<T, MmaShape<head, 4, row_tiles, MmaLayout::swizzled>, accurate, options, few, SampleParts<T>>( \
        args);                                                                                                         \
  }

#define RLK_PARTS_KERNELS(family, T, suffix, accurate)                                 \
  RLK_PARTS_KERNEL(family##_##suffix##_64_64_options, T, 64, 1, accurate, true, false) \
  RLK_PARTS_KERNEL(family##_##suffix##_128_64_options, T, 128, 1, accurate, true, false)
