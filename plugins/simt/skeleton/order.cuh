// Rows in order. A number is an integer of the same order, and behind it stands its place, so that no two are equal and
// the order is stable; a NaN is above all.
//
//   chunks   a block sorts a row that is no longer than a chunk; longer ones are sorted by their digits (radix.cuh)
//
// and where few of a long row are wanted (peaks.cuh):
//
//   peaks    the first order of every share of a row
//   first    a block collects at least the wanted places and sorts them; where they do not fit its list, it finds the
//            wanted ones by their digits
//
// Tensors: y, index (row, column), x.
#pragma once

#include "peaks.cuh"

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
  // Columns that are read at once.
  __device__ __forceinline__ int unit() const { return stride == 1 ? Pack<T>::kSize : 1; }
  // function(place) for the columns of [begin, end) that are this one's of `workers`, a pack at a time where they are
  // contiguous.
  template <int batch, class Function>
  __device__ __forceinline__ void each(int64_t begin, int64_t end, int worker, int workers,
                                       const Function& function) const {
    if (stride != 1) {
      for (int64_t c = begin + worker; c < end; c += workers) function((*this)[c]);
      return;
    }
    each_pack<batch>(from, columns, begin, end, worker, workers, [&](int64_t c, const auto& x, int count) {
#pragma unroll
      for (int e = 0; e < Pack<T>::kSize; ++e) {
        if (e < count) function(place_of(x[e], c + e));
      }
    });
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
// Sorts `count` of a block's, of which no two are equal; there is room for the next power of two. Of few, each thread
// counts those before its own.
template <class Place>
__device__ __forceinline__ void sort_list(Place* places, int count) {
  constexpr int kFew = 192;
  const int me = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  __syncthreads();
  if (count > kFew || count > threads) {
    const int padded = power_of_two(count);
    for (int i = count + me; i < padded; i += threads) places[i] = Place::last();
    return sort_places(places, padded);
  }
  const Place own = places[me < count ? me : 0];
  int before = 0;
  if (me < count) {
#pragma unroll 4
    for (int i = 0; i < count; ++i) before += places[i] < own ? 1 : 0;
  }
  __syncthreads();
  if (me < count) places[before] = own;
  __syncthreads();
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
    from.template each<1>(0, columns, me, threads, [&](const Place& place) { places[place.place()] = place; });
    sort_places(places, padded);
    for (int j = me; j < count; j += threads) put_in_order<T>(args, row, j, places[j].place());
    __syncthreads();
  }
}

template <class T>
__device__ __forceinline__ void order_peaks(const MoveArgs& args) {
  using Place = typename PlaceOf<T>::type;
  using Order = typename Place::Order;
  const MoveDivisor& stretches = args.divisor[kByOrderStretches];
  each_stretch(args, stretches, args.size[kOrderStretch], args.size[kOrderColumns],
               [&](int64_t row, int64_t stretch, int64_t begin, int64_t end, int lane) {
                 if (begin == end) return;
                 Order first = ~Order{0};
                 OrderedRow<T>(args, row).template each<4>(begin, end, lane, kPeakLanes, [&](const Place& place) {
                   const Order order = place.order();
                   first = order < first ? order : first;
                 });
                 static_cast<Order*>(args.work[0])[(row * stretches.size + stretch) * kPeakLanes + lane] = first;
               });
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
    row.template each<1>(0, row.columns, me, threads, [&](const Place& place) {
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
  row.template each<1>(0, row.columns, me, threads, [&](const Place& place) {
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
  using Order = typename Place::Order;
  Place* const places = shared_places<Place>();
  unsigned* const shares = shared_counts().histogram;
  const int me = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  const int64_t wanted = args.size[kOrderCount], length = args.size[kOrderStretch];
  const int64_t peaks = args.divisor[kByOrderStretches].size * kPeakLanes;
  for (int64_t row = blockIdx.x; row < args.units; row += gridDim.x) {
    const OrderedRow<T> from(args, row);
    PeakedRow<Order> peaked(static_cast<const Order*>(args.work[0]) + row * peaks, peaks, wanted, ~Order{0});
    const Order bound = peaked.bound();
    const int64_t listed = peaked.list_shares(bound, shares);
    unsigned& collected = peak_shared().places;
    const auto collect = [&](const Place& place) {
      const unsigned at = atomicAdd(&collected, 1u);
      if (at < static_cast<unsigned>(kOrderList)) places[at] = place;
    };
    if (listed <= kOrderList) {
      each_listed_pack(shares, listed, length, from.unit(), [&](int64_t column) {
        const int64_t end = column + from.unit();
        from.template each<1>(column, end < from.columns ? end : from.columns, 0, 1, [&](const Place& place) {
          if (place.order() <= bound) collect(place);
        });
      });
    }
    __syncthreads();
    if (listed > kOrderList || collected > static_cast<unsigned>(kOrderList)) {
      const Place last = place_number(from, wanted);
      if (me == 0) collected = 0;
      __syncthreads();
      from.template each<1>(0, from.columns, me, threads, [&](const Place& place) {
        if (!(last < place)) collect(place);
      });
      __syncthreads();
    }
    sort_list(places, static_cast<int>(collected));
    for (int j = me; j < wanted; j += threads) {
      const Order order = places[j].order();
      put_in_order<T>(args, row, j, places[j].place(), from.descending ? ~order : order);
    }
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
