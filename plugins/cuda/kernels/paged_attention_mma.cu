// Paged attention on tensor cores, in the accuracy that keeps the weights in fp32. Names:
// paged_attention_mma_<dtype>_<padded head size>_<rows of a block>, and _groups for caches in the layout head_major;
// paged_attention_mma_tile_merge_<dtype>.
#include "paged_attention_mma.cuh"

using namespace rlk::cuda_kernels;

template <int kHead, bool kGroups>
using PagedShape = MmaShape<kHead, 4, 1, kGroups ? MmaLayout::panels : MmaLayout::swizzled>;

#define RLK_PAGED_KERNEL(name, T, head, blocks, few, groups)                                        \
  RLK_SIMT_KERNEL(128, blocks) name(RLK_SIMT_ARGUMENT(PagedAttentionArgs) args) {                   \
    attention_parts_mma<T, PagedShape<head, groups>, true, true, few, PagedParts<T, groups>>(args); \
  }
// _dense: three blocks of a multiprocessor, with the same bits.
#define RLK_PAGED_KERNELS(T, head)                                                       \
  RLK_PAGED_KERNEL(paged_attention_mma_##T##_##head##_16, T, head, 2, true, false)       \
  RLK_PAGED_KERNEL(paged_attention_mma_##T##_##head##_16_dense, T, head, 3, true, false) \
  RLK_PAGED_KERNEL(paged_attention_mma_##T##_##head##_16_groups, T, head, 2, true, true) \
  RLK_PAGED_KERNEL(paged_attention_mma_##T##_##head##_64, T, head, 2, false, false)      \
  RLK_PAGED_KERNEL(paged_attention_mma_##T##_##head##_64_groups, T, head, 2, false, true)

RLK_PAGED_KERNELS(bf16, 64)
RLK_PAGED_KERNELS(bf16, 128)
RLK_PAGED_KERNELS(f16, 64)
RLK_PAGED_KERNELS(f16, 128)

#define RLK_PAGED_MERGE(T)                                                                                        \
  RLK_SIMT_KERNEL(kPagedThreads) paged_attention_mma_tile_merge_##T(RLK_SIMT_ARGUMENT(PagedAttentionArgs) args) { \
    paged_tile_merge<T>(args);                                                                                    \
  }
RLK_PAGED_MERGE(bf16)
RLK_PAGED_MERGE(f16)
