// Rows that a block holds, whose terms are summed over rows while they are there: each matrix is read once. A part of
// row_sums.cuh.
#pragma once

#include "row_chunks.cuh"
#include "summed_rows.h"

namespace rlk::simt {

constexpr int kRowsInFloat = 16;  // are summed in fp32: their error stays below that of six numbers rounded

// The rows of a chunk: neighbours where a wave has several of them, else every so many as there are chunks, so
// that all blocks read and write near each other.
struct ChunkRows {
  int64_t first, step, count;

  __device__ __forceinline__ ChunkRows(const RowArgs& args, int64_t chunk) {
    const int64_t begin = chunk * args.rows / args.chunks;
    const bool are_apart = args.group > kWave;
    first = are_apart ? chunk : begin;
    step = are_apart ? args.chunks : 1;
    count = are_apart ? (args.rows - 1 - chunk) / args.chunks + 1 : (chunk + 1) * args.rows / args.chunks - begin;
  }
  // Beyond the chunk: company for a wave's other rows.
  __device__ __forceinline__ int64_t at(int64_t j, const RowArgs& args) const {
    return j < count ? first + j * step : args.rows;
  }
};
// What the threads of a block share.
template <int sums>
struct SummedBlock {
  double sum[sums][kRowSumColumns][kWave];
  int is_unfit;
};
// And one that has a chunk of rows. Where they have room, it keeps sums of more of its rows in shared memory, in fp32,
// too: else all chunks write to memory and read it time and again. Eight sums of eight rows are as near as one of 16.
struct BlockOfChunk {
  int is_unfit;
};
constexpr int kRowsInRegisters = 8, kRowsInBlock = 64;

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
  __device__ __forceinline__ void start(int64_t chunk, const ChunkRows& rows) {
    part_ = args_.part + chunk * kSums * args_.part_columns;
    is_fit_ = is_first_ = true;
    clear();
    if constexpr (kBlock) {
      this->seek(rows.first);
      this->hold_all();
#pragma unroll
      for (int i = 0; i < kTensors; ++i) {
        if (!this->is_own(i)) continue;
        from_[i] = static_cast<const T*>(args_.tensor[i].data) + this->at(i) + place_ * kSize;
#pragma unroll
        for (int p = 0; p < kNext; ++p) next_[i][p] = held_[i][p];
      }
    }
  }
  // A vector that is the same for all rows is loaded once. step: from the row to the next one of these threads, if
  // there is one. Of a block's rows the next one is under way while one is worked on.
  __device__ __forceinline__ void begin(int64_t n, int64_t step, bool has_next) {
    this->seek(n);
    if constexpr (kBlock) {
      has_next_ = has_next;
#pragma unroll
      for (int i = 0; i < kTensors; ++i) {
        if (!this->is_own(i)) continue;
        from_[i] += args_.tensor[i].row * step;
#pragma unroll
        for (int p = 0; p < kNext; ++p) {
          held_[i][p] = next_[i][p];
          if (has_next) load_next(i, p, next_[i][p]);
        }
      }
    } else if constexpr (kPacks) {
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
  // make(the sums). Threads sum their columns in fp32, and with it their neighbours' until each has one of the sums.
  template <class D, class Names, class Make, class... F>
  __device__ __forceinline__ auto made_of_block(D d, Names names, const Make& make, const F&... f) {
    constexpr int kCount = sizeof...(F), kOf = kCount <= 2 ? 2 : 4, kLanes = kWave / kOf;
    constexpr int kWaves = kRowMostThreads / kRowSmallestWave;
    static_assert(kCount <= kOf);
    __shared__ double shared[2][kWaves][kOf];  // in turns: what one row wrote is read until the next but one writes
    double(&part)[kWaves][kOf] = shared[made_++ & 1];
    const int lane = place_ % kWave, wave = place_ / kWave, waves = args_.group / kWave;
    float own[kOf] = {};
    sum_own(own, d, names, f...);
#pragma unroll
    for (int width = kOf / 2, lanes = kWave / 2; width > 0; width /= 2, lanes /= 2) {
      const bool is_upper = (lane & lanes) != 0;
#pragma unroll
      for (int k = 0; k < width; ++k) {
        const float its = is_upper ? own[k] : own[k + width];
        own[k] = formula::Add(is_upper ? own[k + width] : own[k], wave_xor(its, lanes));
      }
    }
    const double of_wave = sum_of_lanes<kLanes>(static_cast<double>(own[0]));
    if (lane % kLanes == 0) part[wave][lane / kLanes] = of_wave;
    __syncthreads();
    double sum = 0;
#pragma unroll
    for (int w = lane % kLanes, i = 0; i < kWaves; w += kLanes, i += kLanes) {
      if (w < waves) sum = formula::Add(sum, part[w][lane / kLanes]);
    }
    sum = sum_of_lanes<kLanes>(sum);
    RowSumList<false, kCount> all;
#pragma unroll
    for (int k = 0; k < kCount; ++k) all.of[k].sum = wave_read(sum, k * kLanes);
    return make(all);
  }
  // And what the row adds to the sums, for which its kept numbers are put before.
  template <class D, int... out, int... in, class F>
  __device__ __forceinline__ void map(D d, RowNames<out...>, RowNames<in...>, const F& f) {
    static_assert(sizeof(formula::TFromD<D>) == 4, "as wide_unless() has it");
    // Unrolled where the sums are registers.
#pragma unroll
    for (int p = 0; p < kHeld; ++p) {
      if (p * args_.group >= left_) break;
      const int64_t pack = this->pack_of(p);
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
      if constexpr (kBlock && kNext == 0) {
        if (!has_next_) continue;
#pragma unroll
        for (int i = 0; i < kTensors; ++i) load_next(i, p, held_[i][p]);  // no pass reads it any more
      }
    }
  }
  template <int i, class Number>
  __device__ __forceinline__ void put(RowName<i> name, Number value) {
    if constexpr (Op::kind(i) == RowKind::kept) {
      kept_[i] = value;  // not in memory, where only rows that are done again have theirs
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
  // Of a block's rows: what its threads have, to what the block has, and what the block has to them.
  __device__ __forceinline__ bool has_block_sums() const {
    return kSums * kBlockSumBytes * args_.group <= kBlockMostBytes;
  }
  __device__ __forceinline__ void add_to_block(bool is_first) {
    if (!is_first) add_of_block();
    each_block_sum([](uint4& all, float* own) { __builtin_memcpy(&all, own, sizeof(all)); });
    clear();
  }
  __device__ __forceinline__ void add_of_block() {
    each_block_sum([](const uint4& all, float* own) {
      float before[4];
      __builtin_memcpy(before, &all, sizeof(before));
#pragma unroll
      for (int e = 0; e < 4; ++e) own[e] = formula::Add(before[e], own[e]);
    });
  }
  // By all threads of the block.
  template <class Block>
  __device__ __forceinline__ void add_to_chunk(Block& block) {
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
    bool are_groups = false;
    if constexpr (!kBlock) {
      are_groups = args_.group <= kWave;
      if (are_groups) add_groups(block);
    }
    if (!are_groups) {
#pragma unroll
      for (int k = 0; k < kSums; ++k) {
#pragma unroll
        for (int p = 0; p < kHeld; p += kAtOnce) add_packs(k, p);
      }
    }
    is_first_ = false;
    clear();
  }
  // After the chunk's rows.
  template <class Block>
  __device__ __forceinline__ void finish(Block& block, const ChunkRows& rows) {
    __syncthreads();
    if (threadIdx.x == 0) block.is_unfit = 0;
    __syncthreads();
    if (!is_fit_) block.is_unfit = 1;
    __syncthreads();
    if (block.is_unfit != 0) do_again(args_, part_, rows);
  }

private:
  template <class Use>
  __device__ __forceinline__ void each_block_sum(const Use& use) {
    uint4* const sums = reinterpret_cast<uint4*>(dynamic_shared()) + place_;
#pragma unroll
    for (int k = 0; k < kSums; ++k) {
#pragma unroll
      for (int p = 0; p < kHeld; ++p) {
#pragma unroll
        for (int e = 0; e < kSize; e += 4) use(sums[((k * kHeld + p) * kSize + e) / 4 * args_.group], sum_[k][p] + e);
      }
    }
  }
  template <int lanes>
  static __device__ __forceinline__ double sum_of_lanes(double sum) {
#pragma unroll
    for (int its = lanes / 2; its > 0; its /= 2) sum = formula::Add(sum, wave_xor(sum, its));
    return sum;
  }
  // Several sums of each: one would wait for each of its additions.
  template <class D, int... in, class... F>
  __device__ __forceinline__ void sum_own(float* all, D d, RowNames<in...>, const F&... f) {
    constexpr int kCount = sizeof...(F), kWays = 4;
    float sum[kCount][kWays] = {};
#pragma unroll
    for (int p = 0; p < kHeld; ++p) {
      if (p * args_.group >= left_) break;
      float x[kTensors][kSize];
      (this->template read<float, in>(typename Base::template Is<kPacks>(), p, this->pack_of(p), x[in]), ...);
#pragma unroll
      for (int e = 0; e < kSize; ++e) {
        int k = 0;
        const auto add = [&](const auto& own) {
          float& total = sum[k++][e % kWays];
          const auto term = own(d, x[in][e]...);
          total = p == 0 && e < kWays ? term_of(term) : add_term(total, term);
        };
        (add(f), ...);
      }
    }
#pragma unroll
    for (int k = 0; k < kCount; ++k) {
      all[k] = formula::Add(formula::Add(sum[k][0], sum[k][1]), formula::Add(sum[k][2], sum[k][3]));
    }
  }
  // Of a wave's other rows.
  __device__ __forceinline__ bool is_company() const {
    return !kBlock && this->n_ >= args_.rows;
  }
  // A pack of the next row.
  __device__ __forceinline__ void load_next(int i, int p, Pack<T>& to) const {
    if (!this->is_own(i) || (Op::kind(i) != RowKind::in && args_.tensor[i].data == nullptr)) return;
    if (p * args_.group < left_) {
      to.bits = reinterpret_cast<const uint4*>(from_[i])[p * static_cast<uint32_t>(args_.group)];
    }
  }
  __device__ __forceinline__ void add_pack(int p, const float (&x)[kTensors][kSize]) {
#pragma unroll
    for (int e = 0; e < kSize; ++e) {
      float of[kTensors] = {};
#pragma unroll
      for (int i = 0; i < kTensors; ++i) {
        if (Op::kind(i) == RowKind::in) of[i] = x[i][e];
      }
      Op::terms(Lane<float>(), of, kept_,
                [&](int k, const auto& term) { sum_[k][p][e] = add_term(sum_[k][p][e], term); });
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
  // What is there of several packs is under way before the first is waited for.
  static constexpr int kAtOnce = kHeld >= 2 && kSize <= 4 ? 2 : 1;
  __device__ __forceinline__ void add_packs(int k, int first) const {
    double before[kAtOnce][kSize] = {};
    if (!is_first_) {
#pragma unroll
      for (int p = 0; p < kAtOnce; ++p) {
        const double* const part = part_of(k, first + p);
#pragma unroll
        for (int e = 0; e < kSize; ++e) before[p][e] = part == nullptr ? 0 : part[e * kRowPartPacks];
      }
    }
#pragma unroll
    for (int p = 0; p < kAtOnce; ++p) {
      double* const part = part_of(k, first + p);
      if (part == nullptr) continue;
#pragma unroll
      for (int e = 0; e < kSize; ++e) {
        part[e * kRowPartPacks] = before[p][e] + static_cast<double>(sum_[k][first + p][e]);
      }
    }
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
  static RLK_SIMT_APART void do_again(const RowArgs& args, double* part, ChunkRows rows) {
    using Rows = Row<Op, T, false>;
    Rows row(args);
    const int own = static_cast<int>(threadIdx.x) >> args.group_bits;
    const int groups = static_cast<int>(blockDim.x) >> args.group_bits;
#pragma unroll 1
    for (int64_t j = own; j - own < rows.count; j += groups) {
      row.begin(rows.at(j, args));
      Op::apply(row, args.number);
    }
    __syncthreads();  // kept numbers are in memory
#pragma unroll 1
    for (int64_t pack = threadIdx.x; pack < row.packs(); pack += blockDim.x) {
      RowColumnSums<Op, Rows> sums;
#pragma unroll 1
      for (int64_t j = 0; j < rows.count; ++j) sums.template add<1>(Lane<double>(), row, rows.at(j, args), pack);
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
  int made_ = 0;  // rows of a block so far
  bool is_fit_ = true, is_first_ = true, has_ones_ = false, has_next_ = false;
  // Of a block: this thread's part of the next row, and what is under way of it. More packs would take more registers
  // than there are: those are loaded where the row's own are done with.
  static constexpr int kNext = kBlock && Base::kHeld <= 2 ? Base::kHeld : 0;
  const T* from_[kTensors] = {};
  Pack<T> next_[kTensors][kNext > 0 ? kNext : 1];
};

template <class Op, class T, bool kPacks, bool kVectors, class D, class Names, class Make, class... F>
__device__ __forceinline__ auto made_of_sums(SummedRow<Op, T, kPacks, kVectors, RowShape::block>& row, D d, Names names,
                                             const Make& make, const F&... f) {
  return row.made_of_block(d, names, make, f...);
}

}  // namespace rlk::simt
