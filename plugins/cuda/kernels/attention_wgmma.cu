// The kernels of attention on warpgroup products: attention_wgmma_<dtype>_<padded head size>. Compiled for sm_90a
// alone.
#include "attention_wgmma_narrow.cuh"

using namespace rlk::cuda_kernels;

#define RLK_WGMMA_KERNEL(T, head, turns)                                     \
  RLK_SIMT_KERNEL(rlk::cuda::kWgmmaThreads, 1)                               \
  attention_wgmma_##T##_##head(RLK_SIMT_ARGUMENT(AttentionWgmmaArgs) args) { \
    attention_wgmma<T, WgmmaShape<head>, turns>(args);                       \
  }
#define RLK_WGMMA_NARROW_KERNEL(T)                                       \
  RLK_SIMT_KERNEL(rlk::cuda::kWgmmaNarrowTiles.threads(), 1)             \
  attention_wgmma_##T##_64(RLK_SIMT_ARGUMENT(AttentionWgmmaArgs) args) { \
    attention_narrow<T>(args);                                           \
  }
#define RLK_WGMMA_KERNELS(T)     \
  RLK_WGMMA_NARROW_KERNEL(T)     \
  RLK_WGMMA_KERNEL(T, 96, true)  \
  RLK_WGMMA_KERNEL(T, 128, true) \
  RLK_WGMMA_KERNEL(T, 192, true) \
  RLK_WGMMA_KERNEL(T, 256, true)
RLK_WGMMA_KERNELS(bf16)
RLK_WGMMA_KERNELS(f16)
