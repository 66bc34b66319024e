// Means and standard deviations of samples, in two passes and a fixed order: sums of differences to one of the samples,
// which are exactly 0 where all are equal, then of the squares of differences to the mean.
#pragma once

#include "../tokens.cuh"
#include "grid_tensor.cuh"
#include "groups.h"
#include "lane_bits.cuh"
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

// A thread's kGroupItems neighbours of a step of a block, which begins at `first`; from `last` on none counts. kF32:
// they are fp32, else 16 bits each.
template <bool kF32>
struct GroupPacks {
  static constexpr int kWords = kF32 ? kGroupItems : kGroupItems / 2;
  static_assert(kGroupItems == sizeof(uint64_t), "a byte of a mask each");
  uint32_t words[kWords];
  uint64_t mask;

  __device__ __forceinline__ GroupPacks(const GroupArgs& args, int64_t first, int64_t last) {
    const int64_t at = place(first);
    mask = at < last ? ~uint64_t{0} : 0;
    if (at >= last) return;
    uint4 pack[kWords / 4];
    const auto* const from = static_cast<const unsigned char*>(args.x.data) + at * (kF32 ? 4 : 2);
#pragma unroll
    for (int p = 0; p < kWords / 4; ++p) pack[p] = reinterpret_cast<const uint4*>(from)[p];
    if (args.mask.data != nullptr) mask = static_cast<const uint64_t*>(args.mask.data)[at / kGroupItems];
    __builtin_memcpy(words, pack, sizeof(pack));
  }
  static __device__ __forceinline__ int64_t place(int64_t first) {
    return first + static_cast<int>(threadIdx.x) * kGroupItems;
  }
  // Of which counts, a bit each.
  __device__ __forceinline__ uint32_t which() const {
    uint32_t bits = 0;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const auto word = static_cast<uint32_t>(mask >> (32 * half));
      const uint32_t set = ((((word & 0x7f7f7f7fu) + 0x7f7f7f7fu) | word) >> 7) & 0x01010101u;
      bits |= ((set * 0x01020408u) >> 24) << (4 * half);
    }
    return bits;
  }
  __device__ __forceinline__ float narrow_number(const GroupArgs& args, int i) const {
    if constexpr (kF32) return __int_as_float(static_cast<int>(words[i]));
    return grid_widen<float>(words[i / 2] >> (i % 2 * 16) & 0xffffu, args.dtype);
  }
  __device__ __forceinline__ double number(const GroupArgs& args, int i) const {
    return static_cast<double>(narrow_number(args, i));
  }
};

// Of a chunk in packs, in one pass: with d the distance to one of the samples, the squares' sum is that of d^2 less
// the sum of d times its mean. As d of that sample is 0, the second is at most the number of samples times as large as
// the result: of fp64's digits more are left than numbers of 32 bits have. Each wave takes the first sample that it
// meets, so that none waits for another's, and one adds the waves' sums. The first thread has the result.
struct WaveMoments {
  double count, pivot, sum, squares;

  __device__ __forceinline__ void add_of_lane(int lanes) {
    count = formula::Add(count, wave_xor(count, lanes));
    sum = formula::Add(sum, wave_xor(sum, lanes));
    squares = formula::Add(squares, wave_xor(squares, lanes));
  }
};
template <bool kF32>
__device__ __forceinline__ Moments moments_of_packs(const GroupArgs& args, int64_t first, int64_t last) {
  constexpr int kWaves = kGroupThreads / kWave;
  using Pack = GroupPacks<kF32>;
  constexpr int64_t kStep = kGroupItems * kGroupThreads;
  // Two packs are on their way while one is summed.
  Pack pack(args, first, last), next(args, first + kStep, last);
  const int lane = static_cast<int>(threadIdx.x) % kWave;
  WaveMoments own = {};
  int count = 0;
  bool has_pivot = false;
  float pivot = 0;
#pragma unroll 1
  for (int64_t at = first; at < last; at += kStep) {
    const Pack after(args, at + 2 * kStep, last);
    const uint32_t which = pack.which();
    count += count_lanes(which);
    if (!has_pivot) {
      const LaneBits lanes = lanes_where(which != 0);
      float mine = 0;
#pragma unroll
      for (int i = kGroupItems - 1; i >= 0; --i) mine = (which >> i & 1) != 0 ? pack.narrow_number(args, i) : mine;
      has_pivot = lanes != 0;
      if (has_pivot) pivot = wave_read(mine, lowest_of(lanes));
      own.pivot = static_cast<double>(pivot);
    }
#pragma unroll
    for (int i = 0; i < kGroupItems; ++i) {
      const float x = (which >> i & 1) != 0 ? pack.narrow_number(args, i) : pivot;
      const double rest = formula::Sub(static_cast<double>(x), own.pivot);
      own.sum = formula::Add(own.sum, rest);
      own.squares = formula::MulAdd(rest, rest, own.squares);
    }
    pack = next;
    next = after;
  }
  own.count = count;
#pragma unroll
  for (int lanes = kWave / 2; lanes > 0; lanes /= 2) own.add_of_lane(lanes);
  __shared__ WaveMoments waves[kWaves];
  __syncthreads();  // what the call before wrote has been read
  if (lane == 0) waves[threadIdx.x / kWave] = own;
  __syncthreads();
  Moments moments;
  if (threadIdx.x >= kWave) return moments;
  own = lane < kWaves ? waves[lane] : WaveMoments{};
  const LaneBits with = lanes_where(own.count > 0);
  moments.pivot = with == 0 ? 0 : wave_read(own.pivot, lowest_of(with));
  const double distance = own.count > 0 ? formula::Sub(own.pivot, moments.pivot) : 0;
  const double of_distance = formula::Mul(own.count, distance);
  own.squares = formula::MulAdd(distance, formula::Add(formula::Mul(2, own.sum), of_distance), own.squares);
  own.sum = formula::Add(own.sum, of_distance);
#pragma unroll
  for (int lanes = kWaves / 2; lanes > 0; lanes /= 2) own.add_of_lane(lanes);
  moments.count = static_cast<int64_t>(own.count);
  moments.offset = own.sum / (own.count > 1 ? own.count : 1);
  moments.squares = formula::NegMulAdd(own.sum, moments.offset, own.squares);
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
  MomentsPart ahead = {};  // the thread's first one is on its way before anything asks for another
  if (static_cast<int>(threadIdx.x) < chunks) ahead = part[threadIdx.x];
  int64_t with = 0;  // the first chunk that has any
  while (with < chunks && part[with].count == 0) ++with;
  Moments moments;
  const double pivot = moments.pivot = with < chunks ? part[with].pivot : 0;
  const auto distance = [&](const MomentsPart& own) {
    return own.count == 0 ? 0 : formula::Add(formula::Sub(own.pivot, pivot), own.offset);
  };
  RowSumList<kLong, 3> sums;
  for (int64_t c = threadIdx.x; c < chunks; c += kGroupThreads) {
    const MomentsPart own = c < kGroupThreads ? ahead : part[c];
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
    const MomentsPart own = c < kGroupThreads ? ahead : part[c];
    const double rest = formula::Sub(distance(own), offset);
    squares.add(own.squares);
    squares.add(formula::Mul(own.count, formula::Mul(rest, rest)));
  }
  moments.squares = team.reduce(squares).value();
  return moments;
}

}  // namespace rlk::simt
