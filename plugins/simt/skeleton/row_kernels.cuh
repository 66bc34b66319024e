// What the kernels of rows do with a matrix. A part of rows.cuh.
#pragma once

namespace rlk::simt {

// Of most matrices, as RowShape::block says: a block has one row.
template <class Op, class T>
__device__ __forceinline__ void row_of_block(const RowArgs& args) {
  Row<Op, T, true, true, RowShape::block> row(args);
  row.seek(blockIdx.x);
  wait_for_earlier();
  if constexpr (!Op::kHoldsItself) row.hold();
  Op::apply(row, args.number);
  row.redo();
}

template <class Op, class T, bool kPacks, bool kVectors>
__device__ __forceinline__ void rows_of(const RowArgs& args) {
  Row<Op, T, kPacks, kVectors> row(args);
  // The groups of a wave have rows as long as the first of them does.
  const int own = (static_cast<int>(threadIdx.x) & (kWave - 1)) >> args.group_bits;
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x >> args.group_bits;
  int64_t n = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) >> args.group_bits;
  for (; n - own < args.rows; n += step) {
    row.begin(n);
    Op::apply(row, args.number);
  }
}
template <class Op, class T>
__device__ __forceinline__ void rows(const RowArgs& args) {
  static_assert(Op::kTensors <= kRowTensors, "as many tensors as the arguments have room for");
  if (args.in_packs == 0) return rows_of<Op, T, false, false>(args);
  if constexpr (row_vectors<Op>() > 0 && !Op::kHoldsItself) {
    if (args.vectors_in_packs != 0) return rows_of<Op, T, true, true>(args);
  }
  rows_of<Op, T, true, false>(args);
}

}  // namespace rlk::simt
