// Attention over fixed shares of keys, in the accuracy that keeps the weights in fp32. Names:
// attention_fixed_mma_<dtype>_<padded head size>_<rows of a block>; attention_fixed_mma_merge_<dtype>.
#include "attention_fixed_mma.cuh"
#include "attention_parts_merge.cuh"

using namespace rlk::cuda_kernels;

template <int kHead>
using FixedShape = MmaShape<kHead, 4, 1, MmaLayout::swizzled>;

// Three blocks of few rows of a multiprocessor: 8 x 1 x 32768 took 260 us on an H200, with two 268, and split keys 248.
#define RLK_FIXED_KERNEL(name, T, head, blocks, few, parts)                       \
  RLK_SIMT_KERNEL(128, blocks) name(RLK_SIMT_ARGUMENT(AttentionPartsArgs) args) { \
    attention_parts_mma<T, FixedShape<head>, true, true, few, parts<T>>(args);    \
  }
#define RLK_FIXED_KERNELS(T)                                                       \
  RLK_FIXED_KERNEL(attention_fixed_mma_##T##_64_16, T, 64, 3, true, FixedShares)   \
  RLK_FIXED_KERNEL(attention_fixed_mma_##T##_128_16, T, 128, 3, true, FixedShares) \
  RLK_FIXED_KERNEL(attention_fixed_mma_##T##_64_64, T, 64, 2, false, FixedRows)    \
  RLK_FIXED_KERNEL(attention_fixed_mma_##T##_128_64, T, 128, 2, false, FixedRows)  \
  RLK_SIMT_KERNEL(32 * rlk::cuda::kPartsMergeWarps, 4)                             \
  attention_fixed_mma_merge_##T(RLK_SIMT_ARGUMENT(AttentionPartsArgs) args) {      \
    attention_parts_merge<T, true>(args);                                          \
  }
RLK_FIXED_KERNELS(bf16)
RLK_FIXED_KERNELS(f16)
