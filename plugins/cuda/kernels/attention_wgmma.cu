// The attention kernels on warpgroup products. Names: attention_wgmma_<dtype>_<padded head size>[_exact].
// Devices other than sm_90 get empty kernels, which the plugin does not launch.
#include "attention_wgmma.cuh"

using namespace rlk::cuda_kernels;

#if defined(__CUDA_ARCH__) && !defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define RLK_WGMMA_BODY(T, head, exact)
#else
#define RLK_WGMMA_BODY(T, head, exact) attention_wgmma<T, WgmmaShape<head>, exact>(args);
#endif
#define RLK_WGMMA_KERNEL(name, T, head, exact)                            \
  extern "C" __global__ void __launch_bounds__(kWgmmaThreads, 1)          \
      name([[maybe_unused]] const __grid_constant__ AttentionArgs args) { \
    RLK_WGMMA_BODY(T, head, exact)                                        \
  }
#define RLK_WGMMA_KERNELS(T, suffix, tail, exact)                       \
  RLK_WGMMA_KERNEL(attention_wgmma_##suffix##_64##tail, T, 64, exact)   \
  RLK_WGMMA_KERNEL(attention_wgmma_##suffix##_128##tail, T, 128, exact) \
  RLK_WGMMA_KERNEL(attention_wgmma_##suffix##_192##tail, T, 192, exact) \
  RLK_WGMMA_KERNEL(attention_wgmma_##suffix##_256##tail, T, 256, exact)

RLK_WGMMA_KERNELS(bf16, bf16, _exact, true)
RLK_WGMMA_KERNELS(f16, f16, _exact, true)
RLK_WGMMA_KERNELS(bf16, bf16, , false)
