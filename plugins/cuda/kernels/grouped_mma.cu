// The kernels of grouped products by mma.sync. Names: grouped_mma_<form>_<dtype>.
#include "grouped_mma.cuh"

using namespace rlk::cuda_kernels;
using namespace rlk::cuda;

// sums, how operands lie (kInner of a and b), wide
#define RLK_GROUPED_MMA_KERNEL(form, suffix, T, ...)                                              \
  RLK_SIMT_KERNEL(256, 1) grouped_mma_##form##_##suffix(RLK_SIMT_ARGUMENT(GroupedMmaArgs) args) { \
    grouped_mma<T, GroupedForm<__VA_ARGS__, kGroupedMmaColumns, 256, kGroupedMmaStages>>(args);   \
  }
#define RLK_GROUPED_MMA_KERNELS(suffix, T)                                \
  RLK_GROUPED_MMA_KERNEL(rows_inner, suffix, T, false, true, true, true)  \
  RLK_GROUPED_MMA_KERNEL(rows_outer, suffix, T, false, true, false, true) \
  RLK_GROUPED_MMA_KERNEL(rows_any, suffix, T, false, true, true, false)   \
  RLK_GROUPED_MMA_KERNEL(sums_outer, suffix, T, true, false, false, true) \
  RLK_GROUPED_MMA_KERNEL(sums_any, suffix, T, true, true, true, false)

RLK_GROUPED_MMA_KERNELS(bf16, bf16)
RLK_GROUPED_MMA_KERNELS(f16, f16)
