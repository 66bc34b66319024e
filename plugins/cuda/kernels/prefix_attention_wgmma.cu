// The kernels of attention over a shared prefix on warpgroup products: prefix_attention_wgmma_<dtype>_<padded head
// size>. Compiled for sm_90a alone.
#include "attention_wgmma.cuh"

using namespace rlk::cuda_kernels;

#define RLK_PREFIX_WGMMA_KERNEL(T, head, turns)                                           \
  RLK_SIMT_KERNEL(rlk::cuda::kWgmmaThreads, 1)                                            \
  prefix_attention_wgmma_##T##_##head(RLK_SIMT_ARGUMENT(PrefixAttentionWgmmaArgs) args) { \
    attention_wgmma<T, WgmmaShape<head>, turns>(args);                                    \
  }
#define RLK_PREFIX_WGMMA_KERNELS(T)     \
  RLK_PREFIX_WGMMA_KERNEL(T, 64, false) \
  RLK_PREFIX_WGMMA_KERNEL(T, 128, true)
RLK_PREFIX_WGMMA_KERNELS(bf16)
RLK_PREFIX_WGMMA_KERNELS(f16)
