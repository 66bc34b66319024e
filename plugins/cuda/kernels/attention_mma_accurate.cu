// The tensor core attention kernels that keep the weights in fp32.
#include "attention_mma_kernels.cuh"

using namespace rlk::cuda_kernels;

RLK_MMA_KERNELS(attention_mma_accurate, bf16, bf16, true)
RLK_MMA_KERNELS(attention_mma_accurate, f16, f16, true)
