// Sums over rows of matrices that are read for them: of rows that no block can hold, of fp64, and where fp32 is too
// narrow for what is summed. A part of row_sums.cuh.
#pragma once

#include "row_terms.cuh"

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
        for (int i = 0; i < Op::kTensors; ++i) is_fit = is_fit && fits_terms(kept[i]);
      }
#pragma unroll
      for (int e = 0; e < kSize; ++e) {
        V of[Op::kTensors] = {};
#pragma unroll
        for (int i = 0; i < Op::kTensors; ++i) {
          if (Op::kind(i) == RowKind::in) of[i] = x[i][e];
        }
        Op::terms(d, of, kept, [&](int k, const auto& term) {
          if constexpr (sizeof(V) == 4) {
            sum[k][e] = r == 0 ? term_of(term) : add_term(sum[k][e], term);
          } else {
            total_[k][e].add(term_of(term));
          }
        });
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
      double* const part = args.part + (chunk * kSums + k) * args.part_columns + row_part(pack, kSize);
#pragma unroll
      for (int e = 0; e < kSize; ++e) part[e * kRowPartPacks] = sums.value(k, e);
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

}  // namespace rlk::simt
