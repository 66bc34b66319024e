// Attention in parts: kernels that keep the weights in fp32, those for few rows, which memory bounds, and what puts the
// parts together.
#include "attention_parts_mma_kernels.cuh"

using namespace rlk::cuda_kernels;

RLK_PARTS_KERNELS(attention_parts_mma_accurate, bf16, bf16, true)
RLK_PARTS_KERNELS(attention_parts_mma_accurate, f16, f16, true)

RLK_PARTS_KERNEL(attention_parts_mma_accurate_bf16_64_16, bf16, 64, 1, true, true, true)
RLK_PARTS_KERNEL(attention_parts_mma_accurate_bf16_128_16, bf16, 128, 1, true, true, true)
RLK_PARTS_KERNEL(attention_parts_mma_accurate_f16_64_16, f16, 64, 1, true, true, true)
RLK_PARTS_KERNEL(attention_parts_mma_accurate_f16_128_16, f16, 128, 1, true, true, true)

#define RLK_PARTS_MERGE(T)                                                             \
  RLK_SIMT_KERNEL(32 * rlk::cuda::kPartsMergeWarps, 4)                                 \
  attention_parts_mma_accurate_merge_##T(RLK_SIMT_ARGUMENT(AttentionPartsArgs) args) { \
    attention_parts_merge<T>(args);                                                    \
  }
RLK_PARTS_MERGE(bf16)
RLK_PARTS_MERGE(f16)
