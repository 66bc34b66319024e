// Operators of rows that sum over rows too, as the gradients of a weight are:
//
//   RLK_SIMT_ROWS_SUMS(OP, (..., in(grad_y), in(x), kept(rstd), of_column(grad_weight)), (eps),
//                      (Mul(Mul(grad_y, x), rstd)), { ... row.put(rstd, r); })
//
// A term for each of_column, in which an `in` is its element and a kept number that of its row, all in fp64. Chunks of
// rows are summed in the order of their rows, then the chunks: how many there are depends on the number of rows alone.
// Where a sum is asked for, each `in` is read once more and 16 bytes of a chunk's column go through memory.
#pragma once

#include "rows.cuh"

#if defined(RLK_SIMT_ROWS_ON_DEVICE)

namespace rlk::simt {

template <class Op, class T, bool kPacks>
__device__ __forceinline__ void row_chunks_of(const RowArgs& args) {
  using Rows = Row<Op, T, kPacks>;
  constexpr int kSize = Rows::kSize, kSums = Op::kSums;
  Rows row(args);
  const int64_t tiles = (row.packs() + kRowSumThreads - 1) / kRowSumThreads;
  for (int64_t item = blockIdx.x; item < tiles * args.chunks; item += gridDim.x) {
    const int64_t chunk = item / tiles, pack = (item - chunk * tiles) * kRowSumThreads + threadIdx.x;
    if (pack >= row.packs()) continue;
    const int64_t begin = chunk * args.chunk_rows, limit = begin + args.chunk_rows;
    const int64_t end = limit < args.rows ? limit : args.rows;
    RowSum<Rows::kLong> total[kSums][kSize];
#pragma unroll 2
    for (int64_t n = begin; n < end; ++n) {
      double x[Op::kTensors][kSize];
      row.seek(n);
      row.read_all(pack, x);
#pragma unroll
      for (int e = 0; e < kSize; ++e) {
        double of[Op::kTensors] = {}, term[kSums];
#pragma unroll
        for (int i = 0; i < Op::kTensors; ++i) {
          if (Op::kind(i) == RowKind::in || Op::kind(i) == RowKind::kept) of[i] = x[i][e];
        }
        Op::terms(of, term);
#pragma unroll
        for (int k = 0; k < kSums; ++k) total[k][e].add(term[k]);
      }
    }
#pragma unroll
    for (int k = 0; k < kSums; ++k) {
      double* const part = args.part + (chunk * kSums + k) * args.columns + pack * kSize;
#pragma unroll
      for (int e = 0; e < kSize; ++e) {
        if (pack * kSize + e < args.columns) part[e] = total[k][e].value();
      }
    }
  }
}
template <class Op, class T>
__device__ __forceinline__ void row_chunks_of(const RowArgs& args) {
  args.in_packs != 0 ? row_chunks_of<Op, T, true>(args) : row_chunks_of<Op, T, false>(args);
}
template <class Op, class A>
__device__ __forceinline__ void row_chunks(const RowArgs& args) {
  if constexpr (sizeof(A) == 8) {
    row_chunks_of<Op, double>(args);
  } else {
    if (args.dtype == kMapBf16) return row_chunks_of<Op, bf16>(args);
    if (args.dtype == kMapF16) return row_chunks_of<Op, f16>(args);
    row_chunks_of<Op, float>(args);
  }
}

// A block has a few columns of one sum: threads take every so many chunks, and the first adds what they have.
template <class Op>
__device__ __forceinline__ void row_totals(const RowArgs& args) {
  constexpr int kSlices = kRowThreads / kRowTotalColumns;
  __shared__ double sums[kSlices][kRowTotalColumns];
  const int slice = static_cast<int>(threadIdx.x) / kRowTotalColumns;
  const int own = static_cast<int>(threadIdx.x) % kRowTotalColumns;
  const int64_t tiles = (args.columns + kRowTotalColumns - 1) / kRowTotalColumns;
  for (int64_t item = blockIdx.x; item < tiles * Op::kSums; item += gridDim.x) {
    const int64_t k = item / tiles, column = (item - k * tiles) * kRowTotalColumns + own;
    int place = 0, seen = 0;
    for (int i = 0; i < Op::kTensors; ++i) {
      if (Op::kind(i) == RowKind::of_column && seen++ == k) place = i;
    }
    const RowTensor& tensor = args.tensor[place];
    if (tensor.data == nullptr) continue;
    RowSum<true> total;
    if (column < args.columns) {
#pragma unroll 4
      for (int64_t chunk = slice; chunk < args.chunks; chunk += kSlices) {
        total.add(args.part[(chunk * Op::kSums + k) * args.columns + column]);
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

#define RLK_SIMT_ROWS_VALUE(argument)                                         \
  [[maybe_unused]] const double RLK_SIMT_CAT(RLK_SIMT_ROWS_NAME_, argument) = \
      rlk_of[static_cast<int>(Place::RLK_SIMT_CAT(RLK_SIMT_ROWS_NAME_, argument))];
#define RLK_SIMT_ROWS_TERMS(arguments, sums)                                             \
  (static constexpr int kSums = RLK_SIMT_COUNT sums;                                     \
   static __device__ __forceinline__ void terms(const double* rlk_of, double* rlk_out) { \
     [[maybe_unused]] const Lane<double> d{};                                            \
     RLK_SIMT_EACH(RLK_SIMT_ROWS_VALUE, RLK_SIMT_ROWS_LIST arguments)                    \
     const double rlk_terms[] = {RLK_SIMT_ROWS_LIST sums};                               \
     for (int k = 0; k < kSums; ++k) rlk_out[k] = rlk_terms[k];                          \
   })
#define RLK_SIMT_ROWS_SUMS(OP, arguments, numbers, sums, ...)                                                   \
  RLK_SIMT_ROWS_DEFINE(OP, arguments, (RLK_SIMT_EACH(RLK_SIMT_ROWS_NUMBER, RLK_SIMT_ROWS_LIST numbers)), false, \
                       RLK_SIMT_ROWS_TERMS(arguments, sums), __VA_ARGS__)                                       \
  RLK_SIMT_ROWS_SUM_KERNEL(OP, chunks_f32, kRowSumThreads, row_chunks<rlk::formula::OP##Rows, float>)           \
  RLK_SIMT_ROWS_SUM_KERNEL(OP, chunks_f64, kRowSumThreads, row_chunks<rlk::formula::OP##Rows, double>)          \
  RLK_SIMT_ROWS_SUM_KERNEL(OP, totals, kRowThreads, row_totals<rlk::formula::OP##Rows>)
#define RLK_SIMT_ROWS_SUM_KERNEL(OP, suffix, threads, ...)                                          \
  RLK_SIMT_KERNEL(rlk::simt::threads)                                                               \
  RLK_SIMT_CAT(RLK_SIMT_IMAGE, _rows_##OP##_##suffix)(RLK_SIMT_ARGUMENT(rlk::simt::RowArgs) args) { \
    rlk::simt::__VA_ARGS__(args);                                                                   \
  }

#endif
