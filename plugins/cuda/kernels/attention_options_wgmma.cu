// The kernels of attention on warpgroup products for packed sequences and softcaps, and the plan of the former:
// attention_options_wgmma_<dtype>_<padded head size>, with _cap behind it under a softcap. Compiled for sm_90a alone.
#include "attention_wgmma.cuh"

using namespace rlk::cuda_kernels;

RLK_SIMT_KERNEL(rlk::simt::kPlanThreads)
attention_options_wgmma_plan(RLK_SIMT_ARGUMENT(AttentionOptionsWgmmaArgs) args) {
  attention_wgmma_plan(args);
}

#define RLK_WGMMA_KERNEL(T, head, turns, suffix, cap)                                               \
  RLK_SIMT_KERNEL(rlk::cuda::kWgmmaThreads, 1)                                                      \
  attention_options_wgmma_##T##_##head##suffix(RLK_SIMT_ARGUMENT(AttentionOptionsWgmmaArgs) args) { \
    attention_wgmma<T, WgmmaShape<head>, turns, WgmmaOptions<cap, false>>(args);                    \
  }
// A softcap makes weights take longer than products: measured, of D 64 turns then bring more than they cost (532 and
// 573 us), and of D 128 less (653 and 624).
#define RLK_WGMMA_KERNELS(T, suffix, cap)     \
  RLK_WGMMA_KERNEL(T, 64, cap, suffix, cap)   \
  RLK_WGMMA_KERNEL(T, 96, true, suffix, cap)  \
  RLK_WGMMA_KERNEL(T, 128, !cap, suffix, cap) \
  RLK_WGMMA_KERNEL(T, 192, true, suffix, cap) \
  RLK_WGMMA_KERNEL(T, 256, true, suffix, cap)
RLK_WGMMA_KERNELS(bf16, , false)
RLK_WGMMA_KERNELS(f16, , false)
RLK_WGMMA_KERNELS(bf16, _cap, true)
RLK_WGMMA_KERNELS(f16, _cap, true)
