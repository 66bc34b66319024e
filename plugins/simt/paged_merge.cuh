// paged_attention's shares of keys, which blocks of their own have computed, put together by a second kernel.
#pragma once

#include "paged_attention.cuh"

namespace rlk::simt {

// The shares of each row as one, in their order. A share that sees no key may have written its sums alone.
template <class T>
__device__ __forceinline__ void paged_merge(const PagedAttentionArgs& args) {
  using A = Accumulator<T>;
  constexpr int kAtOnce = 16;  // parts under way
  static_assert(kPagedThreads % kAtOnce == 0 && kPagedMaxSplits <= kPagedThreads);
  __shared__ A share_top[kPagedThreads], share_sum[kPagedThreads], factor[kPagedThreads];
  const int64_t rows = args.queries * args.q_heads;
  const int me = static_cast<int>(threadIdx.x), splits = args.splits;
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const int64_t token = row / args.q_heads, head = row - token * args.q_heads;
    share_top[me] = -A(INFINITY);
    if (me < splits) {
      const A* const from = static_cast<const A*>(args.part_sums) + (me * rows + row) * 2;
      share_top[me] = from[0];
      share_sum[me] = from[1];
    }
    __syncthreads();
    A top = -A(INFINITY);
    for (int s = 0; s < splits; ++s) top = fmax(top, share_top[s]);
    factor[me] = exp2_fast(A(share_top[me] - (top == -A(INFINITY) ? A(0) : top)));
    __syncthreads();
    A sum = A(0);
    for (int s = 0; s < splits; ++s) sum = fma(share_sum[s], factor[s], sum);
    const A inverse = sum == A(0) ? A(0) : A(1) / sum;
    for (int d = me; d < args.head_size; d += kPagedThreads) {
      const A* const parts = static_cast<const A*>(args.parts) + row * args.head_size + d;
      A value = A(0);
      for (int first = 0; first < splits; first += kAtOnce) {
        A part[kAtOnce];
#pragma unroll
        for (int s = 0; s < kAtOnce; ++s) {
          const bool has_keys = share_top[first + s] != -A(INFINITY);
          part[s] = has_keys ? parts[(first + s) * rows * args.head_size] : A(0);
        }
#pragma unroll
        for (int s = 0; s < kAtOnce; ++s) value = fma(part[s], factor[first + s], value);
      }
      static_cast<T*>(args.out)[token * args.out_stride[0] + head * args.out_stride[1] + d] =
          Narrow<T>::of(A(value * inverse));
    }
    if (me == 0) paged_put_lse<A>(args, token, head, top, sum);
    __syncthreads();
  }
}

}  // namespace rlk::simt
