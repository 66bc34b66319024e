// Operators of rows that sum over rows too, as the gradients of a weight are:
//
//   RLK_SIMT_ROWS_SUMS(OP, (..., in(grad_y), in(x), kept(rstd), of_column(grad_weight)), (eps),
//                      (product(grad_y, Mul(x, number(d, rstd)))), { ... row.put(rstd, r); })
//
// A term for each of_column, a number or a product(), in which an `in` is its element and a kept number, a double, that
// of its row. Chunks of rows are summed, then the chunks in their order: which rows a chunk has depends on the matrix's
// shape alone. Rows that a block can hold are summed as they are done (summed_rows.cuh), others are read once more
// (row_chunks.cuh), and 16 bytes of a chunk's column go through memory.
#pragma once

#include "rows.cuh"

#if defined(RLK_SIMT_ROWS_ON_DEVICE)

#include "summed_kernels.cuh"

namespace rlk::simt {

// A block has a few columns of one sum: threads take every so many chunks, and the first adds what they have.
template <class Op>
__device__ __forceinline__ void row_totals(const RowArgs& args) {
  constexpr int kSlices = kRowThreads / kRowTotalColumns;
  __shared__ double sums[kSlices][kRowTotalColumns];
  const int slice = static_cast<int>(threadIdx.x) / kRowTotalColumns;
  const int own = static_cast<int>(threadIdx.x) % kRowTotalColumns;
  const int size = args.dtype == kMapF64 ? 2 : args.dtype == kMapF32 ? 4 : 8;
  const int64_t tiles = (args.part_columns + kRowTotalColumns - 1) / kRowTotalColumns;
  for (int64_t item = blockIdx.x; item < tiles * Op::kSums; item += gridDim.x) {
    const int64_t k = item / tiles, part = (item - k * tiles) * kRowTotalColumns + own;
    const int64_t line = part / kRowPartPacks, pack = line / size * kRowPartPacks + part % kRowPartPacks;
    const int64_t column = pack * size + line % size;
    int place = 0, seen = 0;
    for (int i = 0; i < Op::kTensors; ++i) {
      if (Op::kind(i) == RowKind::of_column && seen++ == k) place = i;
    }
    const RowTensor& tensor = args.tensor[place];
    if (tensor.data == nullptr) continue;
    RowSum<true> total;
    if (column < args.columns) {
#pragma unroll 8
      for (int64_t chunk = slice; chunk < args.chunks; chunk += kSlices) {
        total.add(args.part[(chunk * Op::kSums + k) * args.part_columns + part]);
      }
    }
    sums[slice][own] = total.value();
    __syncthreads();
    if (slice == 0 && column < args.columns) {
      for (int s = 1; s < kSlices; ++s) total.add(sums[s][own]);
      if (tensor.dtype == kMapF64) {
        static_cast<double*>(tensor.data)[column * tensor.column] = total.value();
      } else {
        static_cast<float*>(tensor.data)[column * tensor.column] = Narrow<float>::of(total.value());
      }
    }
    __syncthreads();
  }
}

}  // namespace rlk::simt

#define RLK_SIMT_ROWS_VALUE(argument)                                                              \
  [[maybe_unused]] const auto RLK_SIMT_CAT(RLK_SIMT_ROWS_NAME_, argument) =                        \
      simt::row_value<kind(static_cast<int>(Place::RLK_SIMT_CAT(RLK_SIMT_ROWS_NAME_, argument)))>( \
          rlk_of, rlk_kept, static_cast<int>(Place::RLK_SIMT_CAT(RLK_SIMT_ROWS_NAME_, argument)));
#define RLK_SIMT_ROWS_TERMS(arguments, sums)                                              \
  (static constexpr int kSums = RLK_SIMT_COUNT sums;                                      \
   template <class D, class V, class Take> static __device__ __forceinline__ void terms(  \
       [[maybe_unused]] D d, const V* rlk_of, const double* rlk_kept, const Take& take) { \
     RLK_SIMT_EACH(RLK_SIMT_ROWS_VALUE, RLK_SIMT_ROWS_LIST arguments)                     \
     simt::take_terms(take, RLK_SIMT_ROWS_LIST sums);                                     \
   })
#define RLK_SIMT_ROWS_SUMS(OP, arguments, numbers, sums, ...)                                                          \
  RLK_SIMT_ROWS_DEFINE(OP, arguments, (RLK_SIMT_EACH(RLK_SIMT_ROWS_NUMBER, RLK_SIMT_ROWS_LIST numbers)), false,        \
                       RLK_SIMT_ROWS_TERMS(arguments, sums), __VA_ARGS__)                                              \
  RLK_SIMT_ROWS_SUM_KERNEL(OP, chunks_f32, (rlk::simt::kRowSumThreads, 6), row_chunks<rlk::formula::OP##Rows, float>)  \
  RLK_SIMT_ROWS_SUM_KERNEL(OP, chunks_f64, (rlk::simt::kRowSumThreads), row_chunks<rlk::formula::OP##Rows, double>)    \
  RLK_SIMT_ROWS_SUM_KERNEL(OP, summed, (rlk::simt::kRowMostThreads), summed_rows<rlk::formula::OP##Rows>)              \
  RLK_SIMT_ROWS_SUM_KERNEL(OP, blocks_bf16, (rlk::simt::kRowMostThreads),                                              \
                           summed_blocks<rlk::formula::OP##Rows, rlk::simt::bf16>)                                     \
  RLK_SIMT_ROWS_SUM_KERNEL(OP, blocks_f16, (rlk::simt::kRowMostThreads),                                               \
                           summed_blocks<rlk::formula::OP##Rows, rlk::simt::f16>)                                      \
  RLK_SIMT_ROWS_SUM_KERNEL(OP, blocks_f32, (rlk::simt::kRowMostThreads), summed_blocks<rlk::formula::OP##Rows, float>) \
  RLK_SIMT_ROWS_SUM_KERNEL(OP, totals, (rlk::simt::kRowThreads), row_totals<rlk::formula::OP##Rows>)
// threads: of a block, and perhaps how many blocks a multiprocessor should hold, in parentheses.
#define RLK_SIMT_ROWS_SUM_KERNEL(OP, suffix, threads, ...)                                                  \
  RLK_SIMT_KERNEL threads RLK_SIMT_CAT(RLK_SIMT_IMAGE,                                                      \
                                       _rows_##OP##_##suffix)(RLK_SIMT_ARGUMENT(rlk::simt::RowArgs) args) { \
    rlk::simt::wait_for_earlier();                                                                          \
    rlk::simt::__VA_ARGS__(args);                                                                           \
  }

#endif
