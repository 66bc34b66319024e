// The kernels of the gradients of attention on warpgroup products for packed sequences, softcaps and key masks:
// attention_gradients_options_wgmma_<dtype>_<padded head size>, with _cap behind it under a softcap, those before and
// behind it, and the plan of packed sequences. Compiled for sm_90a alone.
#include "attention_gradients_wgmma.cuh"

using namespace rlk::cuda_kernels;

RLK_SIMT_KERNEL(rlk::simt::kPlanThreads)
attention_gradients_options_wgmma_plan(RLK_SIMT_ARGUMENT(AttentionGradientOptionsWgmmaArgs) args) {
  attention_gradients_wgmma_plan(args);
}

#define RLK_GRADIENT_WGMMA_KERNEL(T, head, suffix, cap)                                                               \
  RLK_SIMT_KERNEL(rlk::cuda::kWgmmaThreads, 1)                                                                        \
  attention_gradients_options_wgmma_##T##_##head##suffix(RLK_SIMT_ARGUMENT(AttentionGradientOptionsWgmmaArgs) args) { \
    attention_gradients_wgmma<T, GradientShape<head>, cap>(args);                                                     \
  }
#define RLK_GRADIENT_WGMMA_ROWS(T, head)                                                                           \
  RLK_SIMT_KERNEL(rlk::simt::kGradientThreads)                                                                     \
  attention_gradients_options_wgmma_rows_##T##_##head(RLK_SIMT_ARGUMENT(AttentionGradientOptionsWgmmaArgs) args) { \
    attention_gradients_wgmma_rows<T, head>(args);                                                                 \
  }
#define RLK_GRADIENT_WGMMA_KERNELS(T)                                                                      \
  RLK_GRADIENT_WGMMA_KERNEL(T, 64, , false)                                                                \
  RLK_GRADIENT_WGMMA_KERNEL(T, 128, , false)                                                               \
  RLK_GRADIENT_WGMMA_KERNEL(T, 256, , false)                                                               \
  RLK_GRADIENT_WGMMA_KERNEL(T, 64, _cap, true)                                                             \
  RLK_GRADIENT_WGMMA_KERNEL(T, 128, _cap, true)                                                            \
  RLK_GRADIENT_WGMMA_KERNEL(T, 256, _cap, true)                                                            \
  RLK_GRADIENT_WGMMA_ROWS(T, 64)                                                                           \
  RLK_GRADIENT_WGMMA_ROWS(T, 128)                                                                          \
  RLK_GRADIENT_WGMMA_ROWS(T, 256)                                                                          \
  RLK_SIMT_KERNEL(rlk::simt::kGradientThreads)                                                             \
  attention_gradients_options_wgmma_terms_##T(RLK_SIMT_ARGUMENT(AttentionGradientOptionsWgmmaArgs) args) { \
    attention_gradients_wgmma_terms<T>(args);                                                              \
  }
RLK_GRADIENT_WGMMA_KERNELS(bf16)
RLK_GRADIENT_WGMMA_KERNELS(f16)
