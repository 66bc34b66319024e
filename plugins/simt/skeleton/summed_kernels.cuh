// The kernels of summed_rows.cuh: a chunk of rows by a block's groups of threads, or by the whole block.
#pragma once

#include "summed_rows.cuh"

namespace rlk::simt {

// A block has a chunk of rows, which its groups of threads take in turn.
template <class Op, class T, bool kPacks, bool kVectors>
__device__ __forceinline__ void summed_rows_of(const RowArgs& args, SummedBlock<Op::kSums>& block) {
  SummedRow<Op, T, kPacks, kVectors, RowShape::whole> row(args);
  const int own = static_cast<int>(threadIdx.x) >> args.group_bits;
  const int groups = static_cast<int>(blockDim.x) >> args.group_bits;
#pragma unroll 1
  for (int64_t chunk = blockIdx.x; chunk < args.chunks; chunk += gridDim.x) {
    const ChunkRows rows(args, chunk);
    row.start(chunk, rows);
    int summed = 0;
#pragma unroll 1
    for (int64_t j = own; j - own < rows.count; j += groups) {
      row.begin(rows.at(j, args), rows.step * groups, j + groups < rows.count);
      Op::apply(row, args.number);
      if (++summed == kRowsInFloat) {
        row.add_to_chunk(block);
        summed = 0;
      }
    }
    if (summed > 0) row.add_to_chunk(block);
    row.finish(block, rows);
  }
}
template <class Op, class T>
__device__ __forceinline__ void summed_rows_of(const RowArgs& args, SummedBlock<Op::kSums>& block) {
  if (args.in_packs == 0) return summed_rows_of<Op, T, false, false>(args, block);
  if (args.vectors_in_packs == 0) return summed_rows_of<Op, T, true, false>(args, block);
  summed_rows_of<Op, T, true, true>(args, block);
}
template <class Op>
__device__ __forceinline__ void summed_rows(const RowArgs& args) {
  __shared__ SummedBlock<Op::kSums> block;
  if (args.dtype == kMapBf16) return summed_rows_of<Op, bf16>(args, block);
  if (args.dtype == kMapF16) return summed_rows_of<Op, f16>(args, block);
  summed_rows_of<Op, float>(args, block);
}
// Of most matrices: in packs, and as RowShape::block says, with a block for each chunk. A kernel of its own for each
// dtype, since all that one kernel has takes part in what the compiler makes of its registers.
template <class Op, class T>
__device__ __forceinline__ void summed_blocks(const RowArgs& args) {
  __shared__ BlockOfChunk block;
  SummedRow<Op, T, true, true, RowShape::block> row(args);
  const ChunkRows rows(args, blockIdx.x);
  row.start(blockIdx.x, rows);
  const bool has_block_sums = row.has_block_sums();
  const int most = has_block_sums ? kRowsInBlock : kRowsInFloat;
  int64_t n = rows.first;
  int summed = 0;
#pragma unroll 1
  for (int left = static_cast<int>(rows.count); left > 0; --left, n += rows.step) {
    row.begin(n, rows.step, left > 1);
    Op::apply(row, args.number);
    ++summed;
    if (summed == most || left == 1) {
      if (has_block_sums && summed > kRowsInRegisters) row.add_of_block();
      row.add_to_chunk(block);
      summed = 0;
    } else if (has_block_sums && summed % kRowsInRegisters == 0) {
      row.add_to_block(summed == kRowsInRegisters);
    }
  }
  row.finish(block, rows);
}

}  // namespace rlk::simt
