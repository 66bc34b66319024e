// Attention in parts: kernels that round the weights to the tensors' dtype.
#include "attention_parts_mma_kernels.cuh"

using namespace rlk::cuda_kernels;

RLK_PARTS_KERNELS(attention_parts_mma, bf16, bf16, false)
RLK_PARTS_KERNELS(attention_parts_mma, f16, f16, false)
