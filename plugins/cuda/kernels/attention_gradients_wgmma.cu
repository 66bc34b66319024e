// The kernels of the gradients of attention on warpgroup products: attention_gradients_wgmma_<dtype>_<padded head
// size>, the terms of queries before them, and the rows of grad_q behind them. Compiled for sm_90a alone.
#include "attention_gradients_wgmma.cuh"

using namespace rlk::cuda_kernels;

#define RLK_GRADIENT_WGMMA_KERNEL(T, head, stages)                                             \
  RLK_SIMT_KERNEL(rlk::cuda::kWgmmaThreads, 1)                                                 \
  attention_gradients_wgmma_##T##_##head(RLK_SIMT_ARGUMENT(AttentionGradientWgmmaArgs) args) { \
    attention_gradients_wgmma<T, GradientShape<head, stages>>(args);                           \
  }
#define RLK_GRADIENT_WGMMA_ROWS(T, head)                                                            \
  RLK_SIMT_KERNEL(rlk::simt::kGradientThreads)                                                      \
  attention_gradients_wgmma_rows_##T##_##head(RLK_SIMT_ARGUMENT(AttentionGradientWgmmaArgs) args) { \
    attention_gradients_wgmma_rows<T, head>(args);                                                  \
  }
#define RLK_GRADIENT_WGMMA_KERNELS(T)                                                       \
  RLK_GRADIENT_WGMMA_KERNEL(T, 64, rlk::cuda::kGradientWgmmaAheadStages)                    \
  RLK_GRADIENT_WGMMA_KERNEL(T, 128, 2)                                                      \
  RLK_GRADIENT_WGMMA_KERNEL(T, 256, 2)                                                      \
  RLK_GRADIENT_WGMMA_ROWS(T, 64)                                                            \
  RLK_GRADIENT_WGMMA_ROWS(T, 128)                                                           \
  RLK_GRADIENT_WGMMA_ROWS(T, 256)                                                           \
  RLK_SIMT_KERNEL(rlk::simt::kGradientThreads)                                              \
  attention_gradients_wgmma_terms_##T(RLK_SIMT_ARGUMENT(AttentionGradientWgmmaArgs) args) { \
    attention_gradients_wgmma_terms<T>(args);                                               \
  }
RLK_GRADIENT_WGMMA_KERNELS(bf16)
RLK_GRADIENT_WGMMA_KERNELS(f16)
