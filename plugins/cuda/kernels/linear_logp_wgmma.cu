// The kernels of linear_logp by wgmma, linear_logp_wgmma_<dtype>_<form>, and of their tiles' merge,
// linear_logp_wgmma_merge_<dtype>. Compiled for sm_90a alone.
#include "linear_logp_wgmma.cuh"

using namespace rlk::cuda_kernels;
using namespace rlk::cuda;

// entropy, transform
#define RLK_LINEAR_LOGP_KERNEL(T, form, ...)                                    \
  RLK_SIMT_KERNEL(kLinearThreads, 1)                                            \
  linear_logp_wgmma_##T##_##form(RLK_SIMT_ARGUMENT(LinearLogpWgmmaArgs) args) { \
    linear_logp_wgmma<T, LinearForm<__VA_ARGS__>>(args);                        \
  }
// Beside a bias or a softcap the entropy costs little.
#define RLK_LINEAR_LOGP_KERNELS(T)                                           \
  RLK_LINEAR_LOGP_KERNEL(T, plain, false, false)                             \
  RLK_LINEAR_LOGP_KERNEL(T, entropy, true, false)                            \
  RLK_LINEAR_LOGP_KERNEL(T, transform, true, true)                           \
  RLK_SIMT_KERNEL(kLinearMergeThreads, 1)                                    \
  linear_logp_wgmma_merge_##T(RLK_SIMT_ARGUMENT(LinearLogpWgmmaArgs) args) { \
    linear_logp_merge<T>(args);                                              \
  }
RLK_LINEAR_LOGP_KERNELS(bf16)
RLK_LINEAR_LOGP_KERNELS(f16)
