// The kernels of linear_logp by wgmma, linear_logp_wgmma_<dtype>_<form>, and of their tiles' merge,
// linear_logp_wgmma_merge_<dtype>. Compiled for sm_90a alone.
#include "linear_logp_wgmma.cuh"

using namespace rlk::cuda_kernels;
using namespace rlk::cuda;

// blocks of a cluster, entropy, transform, slabs beside statistics
#define RLK_LINEAR_LOGP_KERNEL(T, form, blocks, ...)                           \
  RLK_CLUSTER_KERNEL(linear_logp_wgmma_##T##_##form, blocks, kLinearThreads)   \
  (RLK_SIMT_ARGUMENT(LinearLogpWgmmaArgs) args) {                              \
    linear_logp_wgmma<T, LinearForm<blocks, __VA_ARGS__>>(args);               \
  }
// any: short sums, and scores that a bias or a softcap bends, which takes longer than the products beside it would.
// alone: of a single tile's rows.
#define RLK_LINEAR_LOGP_KERNELS(T)                                               \
  RLK_LINEAR_LOGP_KERNEL(T, plain, kLinearCluster, false, false, kLinearHead, kLinearTail)  \
  RLK_LINEAR_LOGP_KERNEL(T, entropy, kLinearCluster, true, false, kLinearHead, kLinearTail) \
  RLK_LINEAR_LOGP_KERNEL(T, any, kLinearCluster, true, true)                  \
  RLK_LINEAR_LOGP_KERNEL(T, alone, 1, false, false, kLinearHead, kLinearTail)               \
  RLK_LINEAR_LOGP_KERNEL(T, alone_any, 1, true, true)                         \
  RLK_SIMT_KERNEL(kLinearMergeThreads, 1)                                        \
  linear_logp_wgmma_merge_##T(RLK_SIMT_ARGUMENT(LinearLogpWgmmaArgs) args) {     \
    linear_logp_merge<T>(args);                                                  \
  }
RLK_LINEAR_LOGP_KERNELS(bf16)
RLK_LINEAR_LOGP_KERNELS(f16)
