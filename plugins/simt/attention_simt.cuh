// attention without matrix units: for fp32 and fp64, and for 16-bit tensors that the matrix kernels cannot address. How
// its rows take keys in: attention_rows.cuh.
#pragma once

#include "attention_rows.cuh"

namespace rlk::simt {

template <class T>
__device__ __forceinline__ void attention_simt(const AttentionArgs& args) {
  using A = Accumulator<T>;
  unsigned char* const shared = dynamic_shared();
  if (fill_nan_if_bad<T>(args)) return;
  const AttentionWork work = find_work(args, args.first_block + blockIdx.x);
  if (work.valid == 0) return;

  SimtRows<T> block(shared, args.head_size, args.key_columns);
  const int64_t rows = work.queries * args.group;
  const auto row_of = [&](const AttentionTensor& tensor, int at) -> T* {
    const int64_t row = work.first_row + at, query = row / args.group;
    if (row >= rows) return nullptr;
    return tensor_row<T>(tensor, work.batch, work.q_token + query,
                         work.kv_head * args.group + (row - query * args.group));
  };
  block.load_queries([&](int at) -> const T* { return row_of(args.q, at); });

  KeyRange range[kSimtRows];
#pragma unroll
  for (int r = 0; r < kSimtRows; ++r) {
    const int64_t row = work.first_row + block.wave * kSimtRows + r;
    range[r] = row < rows ? visible_keys(args, work, row / args.group) : KeyRange{0, -1};
  }
  const KeySpan<T> span{tensor_row<const T>(args.k, work.batch, work.k_token, work.kv_head),
                        tensor_row<const T>(args.v, work.batch, work.k_token, work.kv_head),
                        args.k.token_stride,
                        args.v.token_stride,
                        work.keys,
                        key_mask_of(args, work)};
  // The keys that any row of the block sees: bounds grow with the query.
  const int64_t last_row = work.first_row + kSimtBlockRows < rows ? work.first_row + kSimtBlockRows : rows;
  block.add_keys(args, span, visible_keys(args, work, work.first_row / args.group).first,
                 visible_keys(args, work, (last_row - 1) / args.group).last, range);

  block.store([&](int at) { return row_of(args.out, at); },
              [&](int at) -> A* {
                if (args.lse == nullptr) return nullptr;
                const int64_t row = work.first_row + at, query = row / args.group;
                return static_cast<A*>(args.lse) + (work.lse_token + query) * args.q_heads + work.kv_head * args.group +
                       (row - query * args.group);
              });
}

}  // namespace rlk::simt
