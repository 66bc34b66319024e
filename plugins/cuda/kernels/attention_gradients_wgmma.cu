// The kernels of the gradients of attention on warpgroup products: attention_gradients_wgmma_<dtype>, the terms of
// queries before it, and the rows of grad_q behind it. Compiled for sm_90a alone.
#include "attention_gradients_wgmma.cuh"

using namespace rlk::cuda_kernels;

#define RLK_GRADIENT_WGMMA_KERNELS(T)                                                       \
  RLK_SIMT_KERNEL(rlk::cuda::kWgmmaThreads, 1)                                              \
  attention_gradients_wgmma_##T(RLK_SIMT_ARGUMENT(AttentionGradientWgmmaArgs) args) {       \
    attention_gradients_wgmma<T>(args);                                                     \
  }                                                                                         \
  RLK_SIMT_KERNEL(rlk::simt::kGradientThreads)                                              \
  attention_gradients_wgmma_terms_##T(RLK_SIMT_ARGUMENT(AttentionGradientWgmmaArgs) args) { \
    attention_gradients_wgmma_terms<T>(args);                                               \
  }                                                                                         \
  RLK_SIMT_KERNEL(rlk::simt::kGradientThreads)                                              \
  attention_gradients_wgmma_rows_##T(RLK_SIMT_ARGUMENT(AttentionGradientWgmmaArgs) args) {  \
    attention_gradients_wgmma_rows<T>(args);                                                \
  }
RLK_GRADIENT_WGMMA_KERNELS(bf16)
RLK_GRADIENT_WGMMA_KERNELS(f16)
