// The tensor core kernels of attention's gradients. Names: attention_gradients_mma_<rows or keys>_<dtype>_<padded
// head>.
#include "attention_gradients_mma.cuh"

using namespace rlk::cuda_kernels;

#define RLK_GRADIENTS_MMA(kind, suffix, T, head)                                                      \
  RLK_SIMT_KERNEL(kGradientThreads, 2)                                                                \
  attention_gradients_mma_##kind##_##suffix##_##head(RLK_SIMT_ARGUMENT(AttentionGradientArgs) args) { \
    attention_gradients_mma_##kind<T, head>(args);                                                    \
  }
#define RLK_GRADIENTS_MMA_OF(suffix, T)   \
  RLK_GRADIENTS_MMA(rows, suffix, T, 64)  \
  RLK_GRADIENTS_MMA(keys, suffix, T, 64)  \
  RLK_GRADIENTS_MMA(rows, suffix, T, 128) \
  RLK_GRADIENTS_MMA(keys, suffix, T, 128)

RLK_GRADIENTS_MMA_OF(bf16, bf16)
RLK_GRADIENTS_MMA_OF(f16, f16)
