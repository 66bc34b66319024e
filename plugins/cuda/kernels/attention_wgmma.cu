// The attention kernels on warpgroup products. Names: attention_wgmma_<dtype>_<padded head size>.
// Devices other than sm_90 get empty kernels, which the plugin does not launch.
#include "attention_wgmma.cuh"

using namespace rlk::cuda_kernels;

#if defined(__CUDA_ARCH__) && !defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define RLK_WGMMA_BODY(T, head)
#else
#define RLK_WGMMA_BODY(T, head) attention_wgmma<T, WgmmaShape<head>>(args);
#endif
#define RLK_WGMMA_KERNEL(name, T, head)                                   \
  extern "C" __global__ void __launch_bounds__(kWgmmaThreads, 1)          \
      name([[maybe_unused]] const __grid_constant__ AttentionArgs args) { \
    RLK_WGMMA_BODY(T, head)                                               \
  }
#define RLK_WGMMA_KERNELS(T, suffix)                       \
  RLK_WGMMA_KERNEL(attention_wgmma_##suffix##_64, T, 64)   \
  RLK_WGMMA_KERNEL(attention_wgmma_##suffix##_128, T, 128) \
  RLK_WGMMA_KERNEL(attention_wgmma_##suffix##_192, T, 192) \
  RLK_WGMMA_KERNEL(attention_wgmma_##suffix##_256, T, 256)

RLK_WGMMA_KERNELS(bf16, bf16)
RLK_WGMMA_KERNELS(f16, f16)
