// Rows in order. A number is an integer of the same order, and behind it stands its place, so that no two are equal and
// the order is stable; a NaN is above all.
//
//   chunks   a block sorts a row that is no longer than a chunk; longer ones are sorted by their digits (radix.cuh)
//
// and where few of a long row are wanted:
//
//   peaks    the first place of every segment of a row
//   bound    a block sorts a row's peaks: no less places than wanted come before or at the peak of that number
//   gather   those places of a row, which are mostly not many more, are collected in any order
//   first    a block sorts them; where they did not fit their list, it finds the wanted ones by their digits
//
// A long row is read twice. Tensors: y, index (row, column), x.
#pragma once

#include "move.cuh"
#include "order.h"

#if defined(RLK_SIMT_MOVES_ON_DEVICE)

namespace rlk::simt {

// The order of fp32 numbers, -0 equal to 0, a NaN above all.
__device__ __forceinline__ uint32_t order_of(float x) {
  if (x != x) return ~uint32_t{0};
  x += 0.0f;
  uint32_t bits;
  __builtin_memcpy(&bits, &x, sizeof(bits));
  return (bits >> 31) != 0 ? ~bits : bits | 0x80000000u;
}
__device__ __forceinline__ uint64_t order_of(double x) {
  if (x != x) return ~uint64_t{0};
  x += 0.0;
  uint64_t bits;
  __builtin_memcpy(&bits, &x, sizeof(bits));
  return (bits >> 63) != 0 ? ~bits : bits | uint64_t{1} << 63;
}
// The number of an order that is neither a NaN's nor that of 0 and -0: those have several.
__device__ __forceinline__ float number_of(uint32_t order) {
  const uint32_t bits = (order >> 31) != 0 ? order & 0x7fffffffu : ~order;
  float x;
  __builtin_memcpy(&x, &bits, sizeof(x));
  return x;
}
__device__ __forceinline__ double number_of(uint64_t order) {
  const uint64_t bits = (order >> 63) != 0 ? order & ~(uint64_t{1} << 63) : ~order;
  double x;
  __builtin_memcpy(&x, &bits, sizeof(x));
  return x;
}

// An order and a place below 2^32, in one word or in two.
struct ShortPlace {
  static constexpr int kDigits = 6;
  using Order = uint32_t;
  uint64_t word;

  static __device__ __forceinline__ ShortPlace of(uint32_t order, int64_t place) {
    return {static_cast<uint64_t>(order) << 32 | static_cast<uint64_t>(place)};
  }
  static __device__ __forceinline__ ShortPlace last() { return {~uint64_t{0}}; }
  __device__ __forceinline__ int64_t place() const { return static_cast<int64_t>(word & 0xffffffffu); }
  __device__ __forceinline__ uint32_t order() const { return static_cast<uint32_t>(word >> 32); }
  __device__ __forceinline__ int byte(int bit) const { return static_cast<int>(order() >> bit & 0xff); }
  // Eleven bits each, the highest ones first.
  __device__ __forceinline__ int digit(int d) const {
    return static_cast<int>((d < 5 ? word >> (53 - 11 * d) : word << 2) & 0x7ff);
  }
  __device__ __forceinline__ ShortPlace of_lane(int lanes) const { return {wave_xor(word, lanes)}; }
  __device__ __forceinline__ bool operator<(const ShortPlace& other) const { return word < other.word; }
};
struct LongPlace {
  static constexpr int kDigits = 9;
  using Order = uint64_t;
  uint64_t high, low;

  static __device__ __forceinline__ LongPlace of(uint64_t order, int64_t place) {
    return {order, static_cast<uint64_t>(place)};
  }
  static __device__ __forceinline__ LongPlace last() { return {~uint64_t{0}, ~uint64_t{0}}; }
  __device__ __forceinline__ int64_t place() const { return static_cast<int64_t>(low); }
  __device__ __forceinline__ uint64_t order() const { return high; }
  __device__ __forceinline__ int byte(int bit) const { return static_cast<int>(high >> bit & 0xff); }
  __device__ __forceinline__ int digit(int d) const {
    const uint64_t bits = d < 5 ? high >> (53 - 11 * d) : d == 5 ? high << 2 : low >> (11 * (8 - d));
    return static_cast<int>(bits & 0x7ff);
  }
  __device__ __forceinline__ LongPlace of_lane(int lanes) const {
    return {wave_xor(high, lanes), wave_xor(low, lanes)};
  }
  __device__ __forceinline__ bool operator<(const LongPlace& other) const {
    return high != other.high ? high < other.high : low < other.low;
  }
};
template <class T>
struct PlaceOf {
  using type = ShortPlace;
};
template <>
struct PlaceOf<double> {
  using type = LongPlace;
};

// Where a row of the launch is in the tensors.
__device__ __forceinline__ int64_t row_of_call(const MoveArgs& args, int64_t row) {
  return args.size[kOrderFirst] + row;
}

// Of a row: what comes first is least.
template <class T>
struct OrderedRow {
  using Place = typename PlaceOf<T>::type;
  const T* from;
  int64_t stride, columns;
  bool descending;

  __device__ __forceinline__ OrderedRow(const MoveArgs& args, int64_t row)
      : from(static_cast<const T*>(args.tensor[2].data) + row_of_call(args, row) * args.tensor[2].stride[0]),
        stride(args.tensor[2].stride[1]),
        columns(args.size[kOrderColumns]),
        descending(args.size[kOrderDescending] != 0) {}
  __device__ __forceinline__ Place place_of(Accumulator<T> x, int64_t column) const {
    const auto order = order_of(x);
    return Place::of(descending ? ~order : order, column);
  }
  __device__ __forceinline__ Place operator[](int64_t column) const {
    return place_of(widen(from[column * stride]), column);
  }
  // function(place) for the columns of [begin, end) that are this one's of `workers`, a pack at a time where they are
  // contiguous.
  template <class Function>
  __device__ __forceinline__ void each(int64_t begin, int64_t end, int worker, int workers,
                                       const Function& function) const {
    constexpr int kSize = Pack<T>::kSize;
    if (stride != 1) {
      for (int64_t c = begin + worker; c < end; c += workers) function((*this)[c]);
      return;
    }
#pragma unroll 2
    for (int64_t c = begin + worker * kSize; c < end; c += workers * kSize) {
      const Pack<T> pack = load_pack(from, c, columns, T{});
      Accumulator<T> x[kSize];
      pack.unpack(x);
#pragma unroll
      for (int e = 0; e < kSize; ++e) {
        if (c + e < end) function(place_of(x[e], c + e));
      }
    }
  }
};

// Sorts `padded` of a block's, a power of two.
template <class Place>
__device__ __forceinline__ void sort_places(Place* places, int padded) {
  const int me = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  for (int size = 2; size <= padded; size *= 2) {
    for (int stride = size / 2; stride > 0; stride /= 2) {
      __syncthreads();
      for (int i = me; i < padded / 2; i += threads) {
        const int low = 2 * i - (i & (stride - 1)), high = low + stride;
        const Place a = places[low], b = places[high];
        if ((b < a) == ((low & size) == 0)) {
          places[low] = b;
          places[high] = a;
        }
      }
    }
  }
  __syncthreads();
}
__device__ __forceinline__ int power_of_two(int64_t count) {
  int padded = 1;
  while (padded < count) padded *= 2;
  return padded;
}

// The answer number j of a row is the number at `place`.
template <class T>
__device__ __forceinline__ void put_number(const MoveArgs& args, int64_t row, int64_t j, int64_t place, T number) {
  const MoveTensor &y = args.tensor[0], &index = args.tensor[1];
  const int64_t n = row_of_call(args, row);
  static_cast<T*>(y.data)[n * y.stride[0] + j * y.stride[1]] = number;
  const int64_t at = n * index.stride[0] + j * index.stride[1];
  if (index.dtype == kMapI64) {
    static_cast<int64_t*>(index.data)[at] = place;
  } else {
    static_cast<int32_t*>(index.data)[at] = static_cast<int32_t>(place);
  }
}
template <class T>
__device__ __forceinline__ void put_in_order(const MoveArgs& args, int64_t row, int64_t j, int64_t place) {
  const MoveTensor& x = args.tensor[2];
  const int64_t at = row_of_call(args, row) * x.stride[0] + place * x.stride[1];
  put_number<T>(args, row, j, place, static_cast<const T*>(x.data)[at]);
}
// From its order, where that tells its bits: without a look at the row.
template <class T>
__device__ __forceinline__ void put_in_order(const MoveArgs& args, int64_t row, int64_t j, int64_t place,
                                             typename PlaceOf<T>::type::Order order) {
  if (order == ~decltype(order){0} || order == order_of(Accumulator<T>(0))) return put_in_order<T>(args, row, j, place);
  put_number<T>(args, row, j, place, Narrow<T>::of(number_of(order)));
}

// Places of a block in shared memory, kOrderChunk or kOrderList of them: the same bytes for every dtype of a kernel.
__device__ __forceinline__ unsigned char* shared_bytes() {
  __shared__ LongPlace memory[2048];
  return reinterpret_cast<unsigned char*>(memory);
}
template <class Place>
__device__ __forceinline__ Place* shared_places() {
  return reinterpret_cast<Place*>(shared_bytes());
}

template <class T>
__device__ __forceinline__ void order_chunks(const MoveArgs& args) {
  using Place = typename PlaceOf<T>::type;
  Place* const places = shared_places<Place>();
  const int me = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  const int64_t columns = args.size[kOrderColumns], count = args.size[kOrderCount];
  const int padded = power_of_two(columns);
  for (int64_t row = blockIdx.x; row < args.units; row += gridDim.x) {
    for (int i = static_cast<int>(columns) + me; i < padded; i += threads) places[i] = Place::last();
    const OrderedRow<T> from(args, row);
    from.each(0, columns, me, threads, [&](const Place& place) { places[place.place()] = place; });
    sort_places(places, padded);
    for (int j = me; j < count; j += threads) put_in_order<T>(args, row, j, places[j].place());
    __syncthreads();
  }
}

// What is known of a row whose first places are collected, before the list of them.
struct CollectedRow {
  unsigned long long count;
};
template <class Place>
struct Collected {
  Place bound;
  CollectedRow row;
  uint64_t reserved;
};
template <class Place>
__device__ __forceinline__ Collected<Place>& collected_of(const MoveArgs& args, int64_t row) {
  return static_cast<Collected<Place>*>(args.work[1])[row];
}
template <class Place>
__device__ __forceinline__ Place* list_of_row(const MoveArgs& args, int64_t row) {
  return static_cast<Place*>(args.work[2]) + row * kOrderList;
}

// A wave has a segment.
template <class T>
__device__ __forceinline__ void order_peaks(const MoveArgs& args) {
  using Place = typename PlaceOf<T>::type;
  const int64_t columns = args.size[kOrderColumns], segment = args.size[kOrderSegment];
  const int64_t segments = args.divisor[kByOrderSegments].size;
  const int lane = static_cast<int>(threadIdx.x) % kWave;
  constexpr int kWaves = kMoveThreads / kWave;
  for (int64_t at = static_cast<int64_t>(blockIdx.x) * kWaves + threadIdx.x / kWave; at < args.units;
       at += static_cast<int64_t>(gridDim.x) * kWaves) {
    const int64_t row = move_divide(args.divisor[kByOrderSegments], at), begin = (at - row * segments) * segment;
    const int64_t end = begin + segment < columns ? begin + segment : columns;
    Place first = Place::last();
    const OrderedRow<T> from(args, row);
    from.each(begin, end, lane, kWave, [&](const Place& place) {
      if (place < first) first = place;
    });
#pragma unroll
    for (int lanes = kWave / 2; lanes > 0; lanes /= 2) {
      const Place other = first.of_lane(lanes);
      if (other < first) first = other;
    }
    if (lane == 0) static_cast<Place*>(args.work[0])[at] = first;
  }
}

template <class T>
__device__ __forceinline__ void order_bound(const MoveArgs& args) {
  using Place = typename PlaceOf<T>::type;
  Place* const places = shared_places<Place>();
  const int me = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  const int64_t segments = args.divisor[kByOrderSegments].size, count = args.size[kOrderCount];
  const int padded = power_of_two(segments);
  for (int64_t row = blockIdx.x; row < args.units; row += gridDim.x) {
    const Place* const peaks = static_cast<const Place*>(args.work[0]) + row * segments;
    for (int i = me; i < padded; i += threads) places[i] = i < segments ? peaks[i] : Place::last();
    sort_places(places, padded);
    if (me == 0) collected_of<Place>(args, row) = {count <= segments ? places[count - 1] : Place::last(), {0}, 0};
    __syncthreads();
  }
}

template <class T>
__device__ __forceinline__ void order_gather(const MoveArgs& args) {
  using Place = typename PlaceOf<T>::type;
  const int64_t columns = args.size[kOrderColumns], chunks = args.divisor[kByOrderChunks].size;
  for (int64_t block = blockIdx.x; block < args.units; block += gridDim.x) {
    const int64_t row = move_divide(args.divisor[kByOrderChunks], block), begin = (block - row * chunks) * kOrderChunk;
    const int64_t end = begin + kOrderChunk < columns ? begin + kOrderChunk : columns;
    auto& collected = collected_of<Place>(args, row);
    const Place bound = collected.bound;
    Place* const list = list_of_row<Place>(args, row);
    const OrderedRow<T> from(args, row);
    from.each(begin, end, static_cast<int>(threadIdx.x), static_cast<int>(blockDim.x), [&](const Place& place) {
      if (bound < place) return;
      const auto at = atomicAdd(&collected.row.count, 1ull);
      if (at < static_cast<unsigned long long>(kOrderList)) list[at] = place;
    });
  }
}

struct DigitCounts {
  unsigned histogram[2048];
  int known[LongPlace::kDigits];
  long long before;
};
__device__ __forceinline__ DigitCounts& shared_counts() {
  __shared__ DigitCounts counts;
  return counts;
}

// The place before which there are `count` - 1 of the row, by a block: digit after digit, of those with the digits
// before it.
template <class T>
__device__ __forceinline__ typename PlaceOf<T>::type place_number(const OrderedRow<T>& row, int64_t count) {
  using Place = typename PlaceOf<T>::type;
  DigitCounts& counts = shared_counts();
  auto& histogram = counts.histogram;
  auto& known = counts.known;
  long long& before = counts.before;
  const int me = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  if (me == 0) before = 0;
  const auto compare = [&](const Place& place, int digits) {  // of its first digits with the known ones
    for (int d = 0; d < digits; ++d) {
      const int own = place.digit(d);
      if (own != known[d]) return own < known[d] ? -1 : 1;
    }
    return 0;
  };
  for (int d = 0; d < Place::kDigits; ++d) {
    for (int i = me; i < 2048; i += threads) histogram[i] = 0;
    __syncthreads();
    row.each(0, row.columns, me, threads, [&](const Place& place) {
      if (compare(place, d) == 0) atomicAdd(&histogram[place.digit(d)], 1u);
    });
    __syncthreads();
    if (me == 0) {
      int digit = 0;
      while (digit < 2047 && before + histogram[digit] < count) before += histogram[digit++];
      known[d] = digit;
    }
    __syncthreads();
  }
  Place& found = *shared_places<Place>();
  row.each(0, row.columns, me, threads, [&](const Place& place) {
    if (compare(place, Place::kDigits) == 0) found = place;
  });
  __syncthreads();
  const Place bound = found;
  __syncthreads();
  return bound;
}

template <class T>
__device__ __forceinline__ void order_first(const MoveArgs& args) {
  using Place = typename PlaceOf<T>::type;
  Place* const places = shared_places<Place>();
  __shared__ unsigned listed;
  const int me = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  const int64_t wanted = args.size[kOrderCount];
  for (int64_t row = blockIdx.x; row < args.units; row += gridDim.x) {
    int64_t count = static_cast<int64_t>(collected_of<Place>(args, row).row.count);
    if (count <= kOrderList) {
      const Place* const list = list_of_row<Place>(args, row);
      for (int i = me; i < count; i += threads) places[i] = list[i];
    } else {
      const OrderedRow<T> from(args, row);
      const Place bound = place_number(from, wanted);
      if (me == 0) listed = 0;
      __syncthreads();
      from.each(0, from.columns, me, threads, [&](const Place& place) {
        if (!(bound < place)) places[atomicAdd(&listed, 1u)] = place;
      });
      count = wanted;
    }
    const int padded = power_of_two(count);
    for (int i = static_cast<int>(count) + me; i < padded; i += threads) places[i] = Place::last();
    sort_places(places, padded);
    for (int j = me; j < wanted; j += threads) put_in_order<T>(args, row, j, places[j].place());
    __syncthreads();
  }
}

// Calls function(T{}) with the row's dtype.
template <class Function>
__device__ __forceinline__ void with_order_type(const MoveArgs& args, const Function& function) {
  with_move_type(args.tensor[2].dtype, function);
}

}  // namespace rlk::simt

#endif
