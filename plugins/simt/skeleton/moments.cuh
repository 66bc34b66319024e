// Means and standard deviations of samples, in two passes and a fixed order: sums of differences to one of the samples,
// which are exactly 0 where all are equal, then of the squares of differences to the mean.
#pragma once

#include "../tokens.cuh"
#include "grid_tensor.cuh"
#include "groups.h"
#include "row_parts.cuh"
#include "seqlens.cuh"

namespace rlk::simt {

// Threads that work together: some neighbouring lanes of a wave, a wave, or the block.
class Team {
public:
  __device__ __forceinline__ explicit Team(int size) : size_(size) {}
  __device__ __forceinline__ int size() const { return size_; }
  __device__ __forceinline__ int lane() const { return static_cast<int>(threadIdx.x) % size_; }
  // All threads of a wave (of the block, where it is the team) come here.
  template <class State>
  __device__ __forceinline__ State reduce(State mine) const {
    const int lanes_of_wave = size_ < kWave ? size_ : kWave;
#pragma unroll 1
    for (int lanes = lanes_of_wave / 2; lanes > 0; lanes /= 2) mine.add(mine.of_lane(lanes));
    if (size_ <= kWave) return mine;
    __shared__ unsigned char part[kGroupThreads / kGroupFewestWave][sizeof(State)];
    __syncthreads();  // what the call before wrote has been read
    if (threadIdx.x % kWave == 0) __builtin_memcpy(part[threadIdx.x / kWave], &mine, sizeof(State));
    __syncthreads();
    __builtin_memcpy(&mine, part[0], sizeof(State));
#pragma unroll 1
    for (int w = 1; w < kGroupThreads / kWave; ++w) {
      State other = mine;
      __builtin_memcpy(&other, part[w], sizeof(State));
      mine.add(other);
    }
    return mine;
  }

private:
  const int size_;
};

// How many, the first of them, how many are not 0.
struct Counted {
  int64_t count = 0, nonzero = 0, first = INT64_MAX;

  __device__ __forceinline__ void add(const Counted& other) {
    count += other.count;
    nonzero += other.nonzero;
    first = other.first < first ? other.first : first;
  }
  __device__ __forceinline__ Counted of_lane(int lanes) const {
    Counted other;
    other.count = wave_xor(count, lanes);
    other.nonzero = wave_xor(nonzero, lanes);
    other.first = wave_xor(first, lanes);
    return other;
  }
};

struct Moments {
  int64_t count = 0, nonzero = 0;
  double pivot = 0, offset = 0, squares = 0;  // the mean is pivot + offset

  __device__ __forceinline__ double mean() const { return pivot + offset; }
  __device__ __forceinline__ double variance(int32_t std) const {
    const auto n = static_cast<double>(std == kStdUnbiased ? count - 1 : count);
    return squares / (n > 1 ? n : 1);
  }
};

__device__ __forceinline__ int64_t group_integer(const GridTensor& tensor, int64_t i) {
  return read_index(tensor.data, i * tensor.row, tensor.dtype == kMapI64);
}

template <bool kLong>
struct GroupNumber {
  using type = float;
};
template <>
struct GroupNumber<true> {
  using type = double;
};

// Plain samples begin, begin + step, ... before `last`.
template <class A, class Samples>
__device__ __forceinline__ void samples_at(const Samples& samples, int64_t begin, int64_t step, int64_t last,
                                           double (&x)[kGroupItems], uint8_t (&counts)[kGroupItems]) {
  const GroupArgs& args = samples.args;
  const int64_t count = (last - begin + step - 1) / step;
  typename GridBits<sizeof(A)>::type bits[kGroupItems];
  grid_bits(args.x, args.dtype, samples.place(args.x, begin), step * samples.stride(args.x), count, bits);
  if (args.mask.data != nullptr) {
    grid_bits(args.mask, 0, samples.place(args.mask, begin), step * samples.stride(args.mask), count, counts);
  }
#pragma unroll
  for (int i = 0; i < kGroupItems; ++i) {
    const bool masked = args.mask.data != nullptr && counts[i] == 0;
    counts[i] = i < count && !masked && samples.is_member(begin + i * step) ? 1 : 0;
    x[i] = grid_widen<A>(bits[i], args.dtype);
  }
}

// Calls visit(i, x) for the samples first .. last that count, each by one thread of the team, several of which are read
// at a time. Samples:
//   counts(i), read(i)       whether one does, and its number
//   is_plain()               the number of each is in args.x, by a fixed stride, and its mask in args.mask
//   place(tensor, i), stride(tensor), is_member(i)   then: where; and whether it counts besides the mask
// kLong: they are fp64.
template <bool kLong, class Samples, class Visit>
__device__ __forceinline__ void each_sample(const Team& team, const Samples& samples, int64_t first, int64_t last,
                                            const Visit& visit) {
  using A = typename GroupNumber<kLong>::type;
  const int64_t step = team.size();
  if (!samples.is_plain()) {
#pragma unroll 1
    for (int64_t i = first + team.lane(); i < last; i += step) {
      if (samples.counts(i)) visit(i, samples.read(i));
    }
    return;
  }
#pragma unroll 1
  for (int64_t begin = first + team.lane(); begin < last; begin += step * kGroupItems) {
    double x[kGroupItems];
    uint8_t counts[kGroupItems];
    samples_at<A>(samples, begin, step, last, x, counts);
#pragma unroll
    for (int i = 0; i < kGroupItems; ++i) {
      if (counts[i] != 0) visit(begin + i * step, x[i]);
    }
  }
}

// Every thread of the team takes part in all of it; one without samples has sums of none.
template <bool kLong, class Samples>
__device__ __forceinline__ Moments moments_of(const Team& team, const Samples& samples, int64_t first, int64_t last) {
  Moments moments;
  // First their number, then the sum of differences, then that of squares: one text, for the compiler's sake.
#pragma unroll 1
  for (int pass = 0; pass < 3; ++pass) {
    Counted counted;
    RowSum<kLong> sum;
    each_sample<kLong>(team, samples, first, last, [&](int64_t i, double x) {
      if (pass == 0) {
        ++counted.count;
        counted.nonzero += x != 0 ? 1 : 0;
        counted.first = i < counted.first ? i : counted.first;
      } else {
        const double rest = formula::Sub(formula::Sub(x, moments.pivot), moments.offset);
        sum.add(pass == 1 ? rest : formula::Mul(rest, rest));
      }
    });
    if (pass == 0) {
      counted = team.reduce(counted);
      moments.count = counted.count;
      moments.nonzero = counted.nonzero;
      moments.pivot = counted.count > 0 ? samples.read(counted.first) : 0;
      continue;
    }
    const double total = team.reduce(sum).value();
    if (pass == 1) moments.offset = total / static_cast<double>(moments.count > 1 ? moments.count : 1);
    if (pass == 2) moments.squares = total;
  }
  return moments;
}

// The same bits for the block, of plain samples of at most 32 bits: at most kGroupKept of a thread, which reads each
// once.
template <class Samples>
__device__ __forceinline__ Moments moments_of_kept(const Samples& samples, int64_t first, int64_t last) {
  constexpr int kReads = kGroupKept / kGroupItems;
  const Team team(kGroupThreads);
  const int64_t begin = first + static_cast<int>(threadIdx.x);
  float kept[kGroupKept];
  uint32_t counts_of = 0;
#pragma unroll
  for (int r = 0; r < kReads; ++r) {
    double x[kGroupItems];
    uint8_t counts[kGroupItems];
    samples_at<float>(samples, begin + r * kGroupItems * kGroupThreads, kGroupThreads, last, x, counts);
#pragma unroll
    for (int i = 0; i < kGroupItems; ++i) {
      kept[r * kGroupItems + i] = static_cast<float>(x[i]);
      counts_of |= static_cast<uint32_t>(counts[i]) << (r * kGroupItems + i);
    }
  }
  Counted counted;
#pragma unroll
  for (int i = 0; i < kGroupKept; ++i) {
    if ((counts_of >> i & 1) == 0) continue;
    ++counted.count;
    counted.nonzero += kept[i] != 0 ? 1 : 0;
    if (counted.count == 1) counted.first = begin + i * kGroupThreads;
  }
  counted = team.reduce(counted);
  Moments moments;
  moments.count = counted.count;
  moments.nonzero = counted.nonzero;
  moments.pivot = counted.count > 0 ? samples.read(counted.first) : 0;
#pragma unroll 1
  for (int pass = 1; pass < 3; ++pass) {
    RowSum<false> sum;
#pragma unroll
    for (int i = 0; i < kGroupKept; ++i) {
      if ((counts_of >> i & 1) == 0) continue;
      const double rest = formula::Sub(formula::Sub(static_cast<double>(kept[i]), moments.pivot), moments.offset);
      sum.add(pass == 1 ? rest : formula::Mul(rest, rest));
    }
    const double total = team.reduce(sum).value();
    if (pass == 1) moments.offset = total / static_cast<double>(moments.count > 1 ? moments.count : 1);
    if (pass == 2) moments.squares = total;
  }
  return moments;
}

// Numbers of a thread: kGroupItems neighbours, then those a block's packs further, of the samples from `first` on; from
// `last` on none counts. kF32: they are fp32, else 16 bits each.
template <bool kF32, int kReads>
struct GroupPacks {
  static constexpr int kWords = kF32 ? kGroupItems : kGroupItems / 2;
  static_assert(kGroupItems == sizeof(uint64_t), "a byte of a mask each");
  uint32_t words[kReads][kWords];
  uint64_t mask[kReads];

  __device__ __forceinline__ GroupPacks(const GroupArgs& args, int64_t first, int64_t last) {
    const bool is_masked = args.mask.data != nullptr;
#pragma unroll
    for (int r = 0; r < kReads; ++r) {
      const int64_t at = place(first, r);
      mask[r] = at < last ? ~uint64_t{0} : 0;
      if (at >= last) continue;
      uint4 pack[kWords / 4];
      const auto* const from = static_cast<const unsigned char*>(args.x.data) + at * (kF32 ? 4 : 2);
#pragma unroll
      for (int p = 0; p < kWords / 4; ++p) pack[p] = reinterpret_cast<const uint4*>(from)[p];
      if (is_masked) mask[r] = static_cast<const uint64_t*>(args.mask.data)[at / kGroupItems];
      __builtin_memcpy(words[r], pack, sizeof(pack));
    }
  }
  static __device__ __forceinline__ int64_t place(int64_t first, int r) {
    return first + (r * kGroupThreads + static_cast<int>(threadIdx.x)) * kGroupItems;
  }
  __device__ __forceinline__ bool counts(int r, int i) const {
    return (static_cast<uint32_t>(mask[r] >> (i / 4 * 32)) >> (i % 4 * 8) & 0xffu) != 0;
  }
  __device__ __forceinline__ double number(const GroupArgs& args, int r, int i) const {
    if constexpr (kF32) return static_cast<double>(__int_as_float(static_cast<int>(words[r][i])));
    return static_cast<double>(grid_widen<float>(words[r][i / 2] >> (i % 2 * 16) & 0xffffu, args.dtype));
  }
};

// Of a chunk in packs, in one pass: with d the distance to one of the samples, the squares' sum is that of d^2 less
// the sum of d times its mean. As d of that sample is 0, the second is at most the number of samples times as large as
// the result: of fp64's digits more are left than numbers of 32 bits have.
template <bool kF32>
__device__ __forceinline__ Moments moments_of_packs(const GroupArgs& args, int64_t first, int64_t last) {
  constexpr int kReads = kGroupKept / kGroupItems;
  const Team team(kGroupThreads);
  const GroupPacks<kF32, kReads> packs(args, first, last);
  Counted counted;
  int count = 0, own = 0;
#pragma unroll
  for (int r = 0; r < kReads; ++r) {
#pragma unroll
    for (int i = 0; i < kGroupItems; ++i) {
      if (!packs.counts(r, i)) continue;
      if (count == 0) own = r * kGroupItems * kGroupThreads + i;
      ++count;
    }
  }
  counted.count = count;
  if (count > 0) counted.first = packs.place(first, 0) + own;
  counted = team.reduce(counted);
  Moments moments;
  moments.count = counted.count;
  moments.pivot = counted.count > 0 ? grid_read(args.x, counted.first) : 0;
  RowSumList<false, 2> sums;
#pragma unroll
  for (int r = 0; r < kReads; ++r) {
#pragma unroll
    for (int i = 0; i < kGroupItems; ++i) {
      const double rest = packs.counts(r, i) ? formula::Sub(packs.number(args, r, i), moments.pivot) : 0;
      sums.of[0].add(rest);
      sums.of[1].sum = formula::MulAdd(rest, rest, sums.of[1].sum);
    }
  }
  sums = team.reduce(sums);
  moments.offset = sums.of[0].sum / static_cast<double>(counted.count > 1 ? counted.count : 1);
  moments.squares = formula::NegMulAdd(sums.of[0].sum, moments.offset, sums.of[1].sum);
  return moments;
}

// A block has a chunk of the samples.
template <bool kLong, class Samples>
__device__ __forceinline__ void write_part(const GroupArgs& args, const Samples& samples, int64_t chunk,
                                           MomentsPart& part) {
  const int64_t first = chunk * args.chunk, limit = first + args.chunk;
  const int64_t last = limit < args.samples ? limit : args.samples;
  Moments moments;
  if constexpr (kLong) {
    moments = moments_of<true>(Team(kGroupThreads), samples, first, last);
  } else if (samples.is_plain() && last - first <= kGroupKept * kGroupThreads) {
    moments = moments_of_kept(samples, first, last);
  } else {
    moments = moments_of<false>(Team(kGroupThreads), samples, first, last);
  }
  if (threadIdx.x != 0) return;
  part = {static_cast<double>(moments.count), moments.pivot, moments.offset, moments.squares,
          static_cast<double>(moments.nonzero)};
}

// Of all chunks, by every block in the same order. kLong: the samples are fp64.
template <bool kLong>
__device__ __forceinline__ Moments moments_of_parts(const MomentsPart* part, int64_t chunks) {
  const Team team(kGroupThreads);
  int64_t with = 0;  // the first chunk that has any
  while (with < chunks && part[with].count == 0) ++with;
  Moments moments;
  const double pivot = moments.pivot = with < chunks ? part[with].pivot : 0;
  const auto distance = [&](const MomentsPart& own) {
    return own.count == 0 ? 0 : formula::Add(formula::Sub(own.pivot, pivot), own.offset);
  };
  RowSumList<kLong, 3> sums;
  for (int64_t c = threadIdx.x; c < chunks; c += kGroupThreads) {
    const MomentsPart own = part[c];
    sums.of[0].add(own.count);
    sums.of[1].add(own.nonzero);
    sums.of[2].add(formula::Mul(own.count, distance(own)));
  }
  sums = team.reduce(sums);
  const double count = sums.of[0].value();
  moments.count = static_cast<int64_t>(count);
  moments.nonzero = static_cast<int64_t>(sums.of[1].value());
  const double offset = moments.offset = sums.of[2].value() / (count > 1 ? count : 1);
  RowSum<kLong> squares;
  for (int64_t c = threadIdx.x; c < chunks; c += kGroupThreads) {
    const MomentsPart own = part[c];
    const double rest = formula::Sub(distance(own), offset);
    squares.add(own.squares);
    squares.add(formula::Mul(own.count, formula::Mul(rest, rest)));
  }
  moments.squares = team.reduce(squares).value();
  return moments;
}

}  // namespace rlk::simt
