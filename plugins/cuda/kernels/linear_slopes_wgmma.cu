// The kernels of linear_logp_backward by wgmma: of its rows, linear_slopes_wgmma_rows_bf16, and of the scores' slopes,
// linear_slopes_wgmma_bf16_<form>. Compiled for sm_90a alone.
#include "linear_slopes_wgmma.cuh"

using namespace rlk::cuda_kernels;
using namespace rlk::cuda;

// entropy, transform
#define RLK_LINEAR_SLOPES_KERNEL(T, form, ...)                                      \
  RLK_SIMT_KERNEL(kLinearThreads, 1)                                                \
  linear_slopes_wgmma_##T##_##form(RLK_SIMT_ARGUMENT(LinearSlopesWgmmaArgs) args) { \
    linear_slopes_wgmma<T, LinearForm<__VA_ARGS__>>(args);                          \
  }
// Beside a bias or a softcap the entropy costs little.
RLK_LINEAR_SLOPES_KERNEL(bf16, plain, false, false)
RLK_LINEAR_SLOPES_KERNEL(bf16, entropy, true, false)
RLK_LINEAR_SLOPES_KERNEL(bf16, transform, true, true)
RLK_SIMT_KERNEL(kLinearSlopeRowThreads, 1)
linear_slopes_wgmma_rows_bf16(RLK_SIMT_ARGUMENT(LinearSlopesWgmmaArgs) args) {
  linear_slopes_rows<bf16>(args);
}
