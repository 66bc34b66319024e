// Operators of rows that sum over rows too, as the gradients of a weight are:
//
//   RLK_SIMT_ROWS_SUMS(OP, (..., in(grad_y), in(x), kept(rstd), of_column(grad_weight)), (eps),
//                      (Mul(grad_y, Mul(x, number(d, rstd)))), { ... row.put(rstd, r); })
//
// A term for each of_column, in which an `in` is its element and a kept number, a double, that of its row. Terms of
// rows of 16 bits are fp32 where their numbers allow it, and so is the sum of a few of them; all else is fp64. Chunks
// of rows are summed in the order of their rows, then the chunks: how many there are depends on the matrix's shape
// alone. Where a call asks for a sum, the kernel reads each `in` once more, and 16 bytes of a chunk's column go through
// memory.
#pragma once

#include "rows.cuh"

#if defined(RLK_SIMT_ROWS_ON_DEVICE)

namespace rlk::simt {

// An argument of a term: a number that is kept is a double, as a row's own numbers are.
template <RowKind kind, class V>
__device__ __forceinline__ auto row_value(const V* of, const double* kept, int i) {
  if constexpr (kind == RowKind::kept) {
    return kept[i];
  } else {
    return of[i];
  }
}

template <bool kHalf>
struct RowTerm {
  using type = Lane<double>;
};
template <>
struct RowTerm<true> {
  using type = Lane<float>;
};

// Sums of terms over rows, of each of a pack of columns.
template <class Op, class Rows>
class RowColumnSums {
public:
  static constexpr int kSize = Rows::kSize, kSums = Op::kSums;

  // Of kRows rows from n on: all they read is under way before the first of them is computed with. Terms of fp32 are
  // summed in fp32, and where that is not enough for them nothing is added.
  template <int kRows, class D>
  __device__ __forceinline__ bool add(D d, Rows& row, int64_t n, int64_t pack) {
    using V = formula::TFromD<D>;
    V sum[kSums][kSize] = {};
    bool is_fit = true;
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      V x[Op::kTensors][kSize];
      double kept[Op::kTensors] = {};
      row.seek(n + r);
      row.read_all(pack, x, kept);
      if constexpr (sizeof(V) == 4) {
#pragma unroll
        for (int i = 0; i < Op::kTensors; ++i) is_fit = is_fit && (kept[i] == 0 || fits_terms(kept[i]));
      }
#pragma unroll
      for (int e = 0; e < kSize; ++e) {
        V of[Op::kTensors] = {}, term[kSums];
#pragma unroll
        for (int i = 0; i < Op::kTensors; ++i) {
          if (Op::kind(i) == RowKind::in) of[i] = x[i][e];
        }
        Op::terms(d, of, kept, term);
#pragma unroll
        for (int k = 0; k < kSums; ++k) {
          if constexpr (sizeof(V) == 4) {
            sum[k][e] = r == 0 ? term[k] : formula::Add(sum[k][e], term[k]);
          } else {
            total_[k][e].add(term[k]);
          }
        }
      }
    }
    if constexpr (sizeof(V) == 4) {
      V nothing = 0;  // unless a sum is not finite
#pragma unroll
      for (int k = 0; k < kSums; ++k) {
#pragma unroll
        for (int e = 0; e < kSize; ++e) nothing = formula::MulAdd(sum[k][e], V(0), nothing);
      }
      if (!is_fit || nothing != 0) return false;
#pragma unroll
      for (int k = 0; k < kSums; ++k) {
#pragma unroll
        for (int e = 0; e < kSize; ++e) total_[k][e].add(static_cast<double>(sum[k][e]));
      }
    }
    return true;
  }
  __device__ __forceinline__ double value(int k, int e) const {
    return total_[k][e].value();
  }

private:
  // Of a kept number that is not 0: a number of its row, times it or less it, loses nothing in fp32 that could be seen.
  static __device__ __forceinline__ bool fits_terms(double kept) {
    const double size = ::fabs(kept);
    return size > 0x1p-100 && size < 0x1p45;
  }

  RowSum<Rows::kLong> total_[kSums][kSize];
};

template <class Op, class T, bool kPacks>
__device__ __forceinline__ void row_chunks_of(const RowArgs& args) {
  using Rows = Row<Op, T, kPacks>;
  using Terms = typename RowTerm<Rows::kHalf>::type;
  constexpr int kSize = Rows::kSize, kSums = Op::kSums, kRows = kSums == 1 ? 4 : 2;
  Rows row(args);
  const int threads = args.chunk_threads, at_once = kRowSumThreads / threads;
  const int its = static_cast<int>(threadIdx.x) / threads, own = static_cast<int>(threadIdx.x) % threads;
  const int64_t tiles = (row.packs() + threads - 1) / threads;
  const int64_t items = tiles * ((args.chunks + at_once - 1) / at_once);
  for (int64_t item = blockIdx.x; item < items; item += gridDim.x) {
    const int64_t turn = item / tiles, pack = (item - turn * tiles) * threads + own, chunk = turn * at_once + its;
    if (pack >= row.packs() || chunk >= args.chunks) continue;
    const int64_t begin = chunk * args.chunk_rows, limit = begin + args.chunk_rows;
    const int64_t end = limit < args.rows ? limit : args.rows;
    RowColumnSums<Op, Rows> sums;
#pragma unroll 1
    for (int64_t n = begin; n < end;) {
      if (n + kRows <= end && sums.template add<kRows>(Terms(), row, n, pack)) {
        n += kRows;
      } else {
        sums.template add<1>(Lane<double>(), row, n++, pack);
      }
    }
#pragma unroll
    for (int k = 0; k < kSums; ++k) {
      double* const part = args.part + (chunk * kSums + k) * args.columns + pack * kSize;
#pragma unroll
      for (int e = 0; e < kSize; ++e) {
        if (pack * kSize + e < args.columns) part[e] = sums.value(k, e);
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

#define RLK_SIMT_ROWS_VALUE(argument)                                                              \
  [[maybe_unused]] const auto RLK_SIMT_CAT(RLK_SIMT_ROWS_NAME_, argument) =                        \
      simt::row_value<kind(static_cast<int>(Place::RLK_SIMT_CAT(RLK_SIMT_ROWS_NAME_, argument)))>( \
          rlk_of, rlk_kept, static_cast<int>(Place::RLK_SIMT_CAT(RLK_SIMT_ROWS_NAME_, argument)));
#define RLK_SIMT_ROWS_TERMS(arguments, sums)                                                                       \
  (static constexpr int kSums = RLK_SIMT_COUNT sums;                                                               \
   template <class D, class V> static __device__ __forceinline__ void terms([[maybe_unused]] D d, const V* rlk_of, \
                                                                            const double* rlk_kept, V* rlk_out) {  \
     RLK_SIMT_EACH(RLK_SIMT_ROWS_VALUE, RLK_SIMT_ROWS_LIST arguments)                                              \
     const V rlk_terms[] = {RLK_SIMT_ROWS_LIST sums};                                                              \
     for (int k = 0; k < kSums; ++k) rlk_out[k] = rlk_terms[k];                                                    \
   })
#define RLK_SIMT_ROWS_SUMS(OP, arguments, numbers, sums, ...)                                                         \
  RLK_SIMT_ROWS_DEFINE(OP, arguments, (RLK_SIMT_EACH(RLK_SIMT_ROWS_NUMBER, RLK_SIMT_ROWS_LIST numbers)), false,       \
                       RLK_SIMT_ROWS_TERMS(arguments, sums), __VA_ARGS__)                                             \
  RLK_SIMT_ROWS_SUM_KERNEL(OP, chunks_f32, (rlk::simt::kRowSumThreads, 6), row_chunks<rlk::formula::OP##Rows, float>) \
  RLK_SIMT_ROWS_SUM_KERNEL(OP, chunks_f64, (rlk::simt::kRowSumThreads), row_chunks<rlk::formula::OP##Rows, double>)   \
  RLK_SIMT_ROWS_SUM_KERNEL(OP, totals, (rlk::simt::kRowThreads), row_totals<rlk::formula::OP##Rows>)
// threads: of a block, and perhaps how many blocks a multiprocessor should hold, in parentheses.
#define RLK_SIMT_ROWS_SUM_KERNEL(OP, suffix, threads, ...)                                                  \
  RLK_SIMT_KERNEL threads RLK_SIMT_CAT(RLK_SIMT_IMAGE,                                                      \
                                       _rows_##OP##_##suffix)(RLK_SIMT_ARGUMENT(rlk::simt::RowArgs) args) { \
    rlk::simt::__VA_ARGS__(args);                                                                           \
  }

#endif
