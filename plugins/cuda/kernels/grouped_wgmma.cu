// The kernels of grouped products by wgmma. Names: grouped_wgmma_pairs_<form>_<dtype>, where tensor maps describe all
// operands, and grouped_wgmma_<form>_<dtype>.
#include "grouped_wgmma.cuh"

#include "grouped_pairs.cuh"

using namespace rlk::cuda_kernels;
using namespace rlk::cuda;

// sums, how operands lie (kInner of a and b)
#define RLK_GROUPED_PAIRS_KERNEL(form, suffix, T, ...)                                         \
  RLK_CLUSTER_KERNEL(grouped_wgmma_pairs_##form##_##suffix, kGroupedPair, kGroupedPairThreads) \
  (RLK_SIMT_ARGUMENT(GroupedPairArgs) args) {                                                  \
    grouped_pairs<T, GroupedPairForm<__VA_ARGS__>>(args);                                      \
  }
// blocks of a multiprocessor; sums, how operands lie, wide, columns, threads, stages
#define RLK_GROUPED_WGMMA_KERNEL(form, suffix, T, blocks, ...)              \
  RLK_SIMT_KERNEL((GroupedForm<__VA_ARGS__>::kThreads), blocks)             \
  grouped_wgmma_##form##_##suffix(RLK_SIMT_ARGUMENT(GroupedMmaArgs) args) { \
    grouped_wgmma<T, GroupedForm<__VA_ARGS__>>(args);                       \
  }
// Two small blocks at a time write sums of few rows: one multiplies while the other writes.
#define RLK_GROUPED_WGMMA_KERNELS(suffix, T)                                                                    \
  RLK_GROUPED_PAIRS_KERNEL(inner, suffix, T, false, true, true)                                                 \
  RLK_GROUPED_PAIRS_KERNEL(outer, suffix, T, false, true, false)                                                \
  RLK_GROUPED_PAIRS_KERNEL(sums, suffix, T, true, false, false)                                                 \
  RLK_GROUPED_WGMMA_KERNEL(rows_any, suffix, T, 1, false, true, true, false, kGroupedMmaColumns, 256,           \
                           kGroupedWgmmaStages)                                                                 \
  RLK_GROUPED_WGMMA_KERNEL(sums_outer_small, suffix, T, 2, true, false, false, true, kGroupedSmallColumns, 128, \
                           kGroupedSmallStages)                                                                 \
  RLK_GROUPED_WGMMA_KERNEL(sums_any, suffix, T, 1, true, true, true, false, kGroupedMmaColumns, 256,            \
                           kGroupedWgmmaStages)

RLK_GROUPED_WGMMA_KERNELS(bf16, bf16)
RLK_GROUPED_WGMMA_KERNELS(f16, f16)
