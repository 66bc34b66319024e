// The kernels of attention on warpgroup products whose weights keep fp32: attention_accurate_wgmma_<dtype>_<padded head
// size>. Compiled for sm_90a alone.
#include "attention_wgmma.cuh"

using namespace rlk::cuda_kernels;

// Turns cost more than they bring: of D 128, 2 x 4096 took 709 us on an H200 without and 732 with them.
#define RLK_WGMMA_KERNEL(T, head)                                                     \
  RLK_SIMT_KERNEL(rlk::cuda::kWgmmaThreads, 1)                                        \
  attention_accurate_wgmma_##T##_##head(RLK_SIMT_ARGUMENT(AttentionWgmmaArgs) args) { \
    attention_wgmma<T, WgmmaShape<head, WgmmaForm::accurate>, false>(args);           \
  }
#define RLK_WGMMA_KERNELS(T) \
  RLK_WGMMA_KERNEL(T, 64)    \
  RLK_WGMMA_KERNEL(T, 96)    \
  RLK_WGMMA_KERNEL(T, 128)
RLK_WGMMA_KERNELS(bf16)
RLK_WGMMA_KERNELS(f16)
