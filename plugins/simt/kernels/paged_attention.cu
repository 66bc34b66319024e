// The kernels of paged attention. Names: paged_attention_packs_<dtype> where both caches are read 16 bytes at a time,
// paged_attention_any_<dtype>, and paged_attention_merge_<dtype>.
#include "../paged_attention.cuh"
#include "../paged_merge.cuh"

using namespace rlk::simt;

#define RLK_PAGED_ATTENTION(suffix, T, blocks)                                                                        \
  RLK_SIMT_KERNEL(kPagedThreads, blocks) paged_attention_packs_##suffix(RLK_SIMT_ARGUMENT(PagedAttentionArgs) args) { \
    paged_attention<T, true>(args);                                                                                   \
  }                                                                                                                   \
  RLK_SIMT_KERNEL(kPagedThreads, 2) paged_attention_any_##suffix(RLK_SIMT_ARGUMENT(PagedAttentionArgs) args) {        \
    paged_attention<T, false>(args);                                                                                  \
  }                                                                                                                   \
  RLK_SIMT_KERNEL(kPagedThreads) paged_attention_merge_##suffix(RLK_SIMT_ARGUMENT(PagedAttentionArgs) args) {         \
    paged_merge<T>(args);                                                                                             \
  }

RLK_PAGED_ATTENTION(f32, float, 3)
RLK_PAGED_ATTENTION(bf16, bf16, 3)
RLK_PAGED_ATTENTION(f16, f16, 3)
RLK_PAGED_ATTENTION(f64, double, 2)
