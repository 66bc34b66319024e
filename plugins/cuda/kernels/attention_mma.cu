// The tensor core attention kernels that round the weights to the tensors' dtype.
#include "attention_mma_kernels.cuh"

using namespace rlk::cuda_kernels;

RLK_MMA_KERNELS(attention_mma, bf16, bf16, false)
RLK_MMA_KERNELS(attention_mma, f16, f16, false)
