// Rows that a block holds, whose terms are summed over rows while they are there: each matrix is read once. A part of
// row_sums.cuh.
#pragma once

#include "row_chunks.cuh"

namespace rlk::simt {

constexpr int kRowsInFloat = 16;  // are summed in fp32: their error stays below that of six numbers rounded

// What the threads of a block share.
template <int sums>
struct SummedBlock {
  double sum[sums][kRowSumColumns][kWave];
  int is_unfit;
};

// A row whose terms are added to sums that its threads keep in fp32. After a few rows they are added in fp64 to what
// the chunk has in memory, so that their error does not grow with the rows, nor do they take more registers.
template <class Op, class T, bool kPacks, bool kVectors, RowShape kShape>
class SummedRow : public Row<Op, T, kPacks, kVectors, kShape> {
  using Base = Row<Op, T, kPacks, kVectors, kShape>;
  static constexpr bool kBlock = kShape == RowShape::block;
  using Base::args_, Base::place_, Base::left_, Base::held_;

public:
  using Base::kSize, Base::kHeld, Base::Base;
  static constexpr int kSums = Op::kSums, kTensors = Op::kTensors;

  // Before the first row of a chunk.
  __device__ __forceinline__ void start(int64_t chunk) {
    part_ = args_.part + chunk * kSums * args_.part_columns;
    is_fit_ = is_first_ = true;
    clear();
  }
  // A vector that is the same for all rows is loaded once. step: from the row to the next one of these threads.
  __device__ __forceinline__ void begin(int64_t n, int step, bool has_next) {
    this->seek(n);
    if constexpr (kPacks) {
#pragma unroll
      for (int i = 0; i < kTensors; ++i) {
        if (this->is_own(i)) this->load_first(i, held_[i]);
      }
#pragma unroll
      for (int i = 0; i < kTensors; ++i) {
        if (!kVectors || Op::kind(i) != RowKind::or_one) continue;
        const RowTensor& tensor = args_.tensor[i];
        if (!has_ones_ || tensor.row != 0 || tensor.outer != 0) this->load_first(i, held_[i]);
      }
      has_ones_ = !is_company();
      if (has_next) this->fetch_later(step);
    }
  }
  // And what the row adds to the sums, for which its kept numbers are put before.
  template <class D, int... out, int... in, class F>
  __device__ __forceinline__ void map(D d, RowNames<out...>, RowNames<in...>, const F& f) {
    static_assert(sizeof(formula::TFromD<D>) == 4, "as wide_unless() has it");
    // Unrolled where the sums are registers.
#pragma unroll
    for (int p = 0; p < kHeld; ++p) {
      if (p * args_.group >= left_) break;
      const int64_t pack = place_ + p * args_.group;
      const int count = this->count_of(pack);
      float x[kTensors][kSize], y[sizeof...(out)][kSize];
      (this->template read<float, in>(typename Base::template Is<kPacks>(), p, pack, x[in]), ...);
#pragma unroll
      for (int e = 0; e < kSize; ++e) {
        float results[sizeof...(out)];
        row_results<float>(f(d, x[in][e]...), results);
#pragma unroll
        for (int k = 0; k < static_cast<int>(sizeof...(out)); ++k) y[k][e] = results[k];
      }
      int k = 0;
      (this->store(out, pack, count, y[k++]), ...);
      add_pack(p, x);
    }
  }
  template <int i, class Number>
  __device__ __forceinline__ void put(RowName<i> name, Number value) {
    if constexpr (Op::kind(i) == RowKind::kept) {
      if (place_ == 0) static_cast<double*>(args_.tensor[i].data)[this->n_] = value;
      kept_[i] = value;
      is_fit_ = is_fit_ && (value == 0 || fits_terms(value) || is_company());
    } else {
      Base::put(name, value);
    }
  }
  // A row for which fp32 is too narrow is done anew with its chunk: a call here would cost all others registers.
  template <class V, class F>
  __device__ __forceinline__ V fit_or(bool is_fit, const V& value, const F&) {
    is_fit_ = is_fit_ && (is_fit || is_company());
    return value;
  }
  template <class F>
  __device__ __forceinline__ void wide_unless(bool, const F& f) {
    f(Lane<float>());
  }
  // By all threads of the block.
  __device__ __forceinline__ void add_to_chunk(SummedBlock<kSums>& block) {
    float nothing = 0;  // unless a sum is not finite
#pragma unroll
    for (int k = 0; k < kSums; ++k) {
#pragma unroll
      for (int p = 0; p < kHeld; ++p) {
#pragma unroll
        for (int e = 0; e < kSize; ++e) nothing = formula::MulAdd(sum_[k][p][e], 0.0f, nothing);
      }
    }
    is_fit_ = is_fit_ && nothing == 0;
    if (!kBlock && args_.group <= kWave) {
      add_groups(block);
    } else {
#pragma unroll
      for (int k = 0; k < kSums; ++k) {
#pragma unroll
        for (int p = 0; p < kHeld; ++p) {
          double* const part = part_of(k, p);
#pragma unroll
          for (int e = 0; e < kSize; ++e) add_part(part, e, static_cast<double>(sum_[k][p][e]));
        }
      }
    }
    is_first_ = false;
    clear();
  }
  // After the chunk's rows, which are those from begin to end.
  __device__ __forceinline__ void finish(SummedBlock<kSums>& block, int64_t begin, int64_t end) {
    __syncthreads();
    if (threadIdx.x == 0) block.is_unfit = 0;
    __syncthreads();
    if (!is_fit_) block.is_unfit = 1;
    __syncthreads();
    if (block.is_unfit != 0) do_again(args_, part_, begin, end);
  }

private:
  // Of a wave's other rows.
  __device__ __forceinline__ bool is_company() const {
    return !kBlock && this->n_ >= args_.rows;
  }
  __device__ __forceinline__ void add_pack(int p, const float (&x)[kTensors][kSize]) {
#pragma unroll
    for (int e = 0; e < kSize; ++e) {
      float of[kTensors] = {}, term[kSums];
#pragma unroll
      for (int i = 0; i < kTensors; ++i) {
        if (Op::kind(i) == RowKind::in) of[i] = x[i][e];
      }
      Op::terms(Lane<float>(), of, kept_, term);
#pragma unroll
      for (int k = 0; k < kSums; ++k) sum_[k][p][e] = formula::Add(sum_[k][p][e], term[k]);
    }
  }
  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int k = 0; k < kSums; ++k) {
#pragma unroll
      for (int p = 0; p < kHeld; ++p) {
#pragma unroll
        for (int e = 0; e < kSize; ++e) sum_[k][p][e] = 0;
      }
    }
  }
  __device__ __forceinline__ double* part_of(int k, int p) const {
    const int64_t own = (static_cast<int>(threadIdx.x) & (args_.group - 1)) + p * args_.group;
    return own < this->packs() ? part_ + k * args_.part_columns + row_part(own, kSize) : nullptr;
  }
  __device__ __forceinline__ void add_part(double* part, int e, double sum) const {
    if (part != nullptr) part[e * kRowPartPacks] = is_first_ ? sum : part[e * kRowPartPacks] + sum;
  }
  // The groups of threads that have rows of their own: those of a wave at once, then one wave after the other.
  __device__ __forceinline__ void add_groups(SummedBlock<kSums>& block) const {
    const int wave = static_cast<int>(threadIdx.x) / kWave, lane = static_cast<int>(threadIdx.x) % kWave;
    const int waves = static_cast<int>(blockDim.x) / kWave;
#pragma unroll 1
    for (int turn = 0; turn < waves; ++turn) {
      if (wave == turn) {
#pragma unroll
        for (int k = 0; k < kSums; ++k) {
#pragma unroll
          for (int p = 0; p < kHeld; ++p) {
#pragma unroll
            for (int e = 0; e < kSize; ++e) {
              double mine = static_cast<double>(sum_[k][p][e]);
#pragma unroll 1
              for (int lanes = args_.group; lanes < kWave; lanes *= 2) mine += wave_xor(mine, lanes);
              double& sum = block.sum[k][p * kSize + e][lane];
              if (turn > 0) mine += sum;
              sum = mine;
              if (turn == waves - 1 && lane < args_.group) add_part(part_of(k, p), e, mine);
            }
          }
        }
      }
      __syncthreads();
    }
  }
  static RLK_SIMT_APART void do_again(const RowArgs& args, double* part, int64_t begin, int64_t end) {
    using Rows = Row<Op, T, false>;
    Rows row(args);
    const int own = static_cast<int>(threadIdx.x) >> args.group_bits;
    const int groups = static_cast<int>(blockDim.x) >> args.group_bits;
#pragma unroll 1
    for (int64_t n = begin + own; n - own < end; n += groups) {
      row.begin(n < end ? n : args.rows);
      Op::apply(row, args.number);
    }
    __syncthreads();  // kept numbers are in memory
#pragma unroll 1
    for (int64_t pack = threadIdx.x; pack < row.packs(); pack += blockDim.x) {
      RowColumnSums<Op, Rows> sums;
#pragma unroll 1
      for (int64_t n = begin; n < end; ++n) sums.template add<1>(Lane<double>(), row, n, pack);
#pragma unroll
      for (int k = 0; k < kSums; ++k) {
#pragma unroll
        for (int e = 0; e < kSize; ++e) {
          part[k * args.part_columns + row_part(pack, kSize) + e * kRowPartPacks] = sums.value(k, e);
        }
      }
    }
    __syncthreads();
  }

  float sum_[kSums][kHeld][kSize];
  double kept_[kTensors] = {};
  double* part_ = nullptr;
  bool is_fit_ = true, is_first_ = true, has_ones_ = false;
};

// A block has a chunk of neighbouring rows, which its groups of threads take in turn.
template <class Op, class T, bool kPacks, bool kVectors, RowShape kShape>
__device__ __forceinline__ void summed_rows_of(const RowArgs& args, SummedBlock<Op::kSums>& block) {
  SummedRow<Op, T, kPacks, kVectors, kShape> row(args);
  const int own = kShape == RowShape::block ? 0 : static_cast<int>(threadIdx.x) >> args.group_bits;
  const int groups = kShape == RowShape::block ? 1 : static_cast<int>(blockDim.x) >> args.group_bits;
#pragma unroll 1
  for (int64_t chunk = blockIdx.x; chunk < args.chunks; chunk += gridDim.x) {
    const int64_t begin = chunk * args.rows / args.chunks, end = (chunk + 1) * args.rows / args.chunks;
    row.start(chunk);
    int rows = 0;
#pragma unroll 1
    for (int64_t n = begin + own; n - own < end; n += groups) {
      // beyond the chunk: company for a wave's other rows
      row.begin(n < end ? n : args.rows, groups, n + groups < end);
      Op::apply(row, args.number);
      if (++rows == kRowsInFloat) {
        row.add_to_chunk(block);
        rows = 0;
      }
    }
    if (rows > 0) row.add_to_chunk(block);
    row.finish(block, begin, end);
  }
}
template <class Op, class T>
__device__ __forceinline__ void summed_rows_of(const RowArgs& args, SummedBlock<Op::kSums>& block) {
  constexpr RowShape kWhole = RowShape::whole;
  if (args.in_packs == 0) return summed_rows_of<Op, T, false, false, kWhole>(args, block);
  if (args.vectors_in_packs == 0) return summed_rows_of<Op, T, true, false, kWhole>(args, block);
  summed_rows_of<Op, T, true, true, kWhole>(args, block);
}
template <class Op>
__device__ __forceinline__ void summed_rows(const RowArgs& args) {
  __shared__ SummedBlock<Op::kSums> block;
  if (args.dtype == kMapBf16) return summed_rows_of<Op, bf16>(args, block);
  if (args.dtype == kMapF16) return summed_rows_of<Op, f16>(args, block);
  summed_rows_of<Op, float>(args, block);
}
// Of most matrices: in packs, and as RowShape::block says. A kernel of its own for each dtype, since all that one
// kernel has takes part in what the compiler makes of its registers.
template <class Op, class T>
__device__ __forceinline__ void summed_blocks(const RowArgs& args) {
  __shared__ SummedBlock<Op::kSums> block;
  summed_rows_of<Op, T, true, true, RowShape::block>(args, block);
}

}  // namespace rlk::simt
