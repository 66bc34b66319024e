// The kernels of grouped products. Names: grouped_rows_<dtype> and grouped_sums_<dtype>.
#include "../grouped.cuh"

using namespace rlk::simt;

#define RLK_GROUPED_KERNELS(suffix, T)                                                          \
  RLK_SIMT_KERNEL(kGroupedThreads) grouped_rows_##suffix(RLK_SIMT_ARGUMENT(GroupedArgs) args) { \
    grouped_rows<T>(args);                                                                      \
  }                                                                                             \
  RLK_SIMT_KERNEL(kGroupedThreads) grouped_sums_##suffix(RLK_SIMT_ARGUMENT(GroupedArgs) args) { \
    grouped_sums<T>(args);                                                                      \
  }

RLK_GROUPED_KERNELS(f32, float)
RLK_GROUPED_KERNELS(bf16, bf16)
RLK_GROUPED_KERNELS(f16, f16)
RLK_GROUPED_KERNELS(f64, double)
