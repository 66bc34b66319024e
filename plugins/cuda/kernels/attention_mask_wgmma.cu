// The kernels of attention on warpgroup products for key masks: attention_mask_wgmma_<dtype>_<padded head size>, with
// _cap behind it under a softcap. Compiled for sm_90a alone.
#include "attention_wgmma.cuh"

using namespace rlk::cuda_kernels;

#define RLK_WGMMA_KERNEL(T, head, turns, suffix, cap)                                            \
  RLK_SIMT_KERNEL(rlk::cuda::kWgmmaThreads, 1)                                                   \
  attention_mask_wgmma_##T##_##head##suffix(RLK_SIMT_ARGUMENT(AttentionOptionsWgmmaArgs) args) { \
    attention_wgmma<T, WgmmaShape<head>, turns, WgmmaOptions<cap, true>>(args);                  \
  }
#define RLK_WGMMA_KERNELS(T, suffix, cap)     \
  RLK_WGMMA_KERNEL(T, 64, false, suffix, cap) \
  RLK_WGMMA_KERNEL(T, 96, true, suffix, cap)  \
  RLK_WGMMA_KERNEL(T, 128, true, suffix, cap) \
  RLK_WGMMA_KERNEL(T, 192, true, suffix, cap) \
  RLK_WGMMA_KERNEL(T, 256, true, suffix, cap)
RLK_WGMMA_KERNELS(bf16, , false)
RLK_WGMMA_KERNELS(f16, , false)
RLK_WGMMA_KERNELS(bf16, _cap, true)
RLK_WGMMA_KERNELS(f16, _cap, true)
