// Rows in order: numbers as integers of the same order, with their places, which make the order stable.
#include <rlk/sdk/ops/sort.hpp>
#include <rlk/sdk/ops/top_k.hpp>

#include <algorithm>
#include <bit>
#include <cmath>

#include "core/cpu/simd/registration.hpp"

namespace rlk::cpu {
namespace {

struct Placed {
  uint64_t order;
  int64_t place;
  bool operator<(const Placed& other) const { return order != other.order ? order < other.order : place < other.place; }
};

// 0 and -0 are one number, and NaN is above all.
uint64_t order_of(double value) {
  if (std::isnan(value)) return ~uint64_t{0};
  const auto bits = std::bit_cast<uint64_t>(value + 0.0);
  return bits >> 63 != 0 ? ~bits : bits | uint64_t{1} << 63;
}

int64_t parts_of(int64_t rows, int64_t threads) {
  return std::max<int64_t>(1, std::min(rows, threads));
}

template <class Call>
int64_t row_bytes(const Call& call, int64_t threads) {
  return parts_of(call.N, threads) * call.D * static_cast<int64_t>(sizeof(Placed));
}

constexpr int64_t kGroup = 64;

// Whether one of so many numbers may come before one that has the value of `last`; true also for some that do not.
// Loops that compilers make vectors of.
template <class T>
bool has_better(const T* x, T last, bool descending) {
  int hits = 0;
  if (descending) {
    for (int64_t i = 0; i < kGroup; ++i) hits |= x[i] <= last ? 0 : 1;  // NaN is above all
  } else {
    for (int64_t i = 0; i < kGroup; ++i) hits |= x[i] >= last ? 0 : 1;
  }
  return hits != 0;
}

// The same of the bits of numbers of 16 bits, whose infinity has these: integers of the same order, but for NaN.
template <int16_t kInfinity>
bool has_better_bits(const int16_t* x, int16_t last, bool descending) {
  const auto key = [](int16_t bits) { return static_cast<int16_t>(bits ^ (bits >> 15 & 0x7fff)); };
  const auto is_nan = [](int16_t bits) { return static_cast<int16_t>(bits & 0x7fff) > kInfinity; };
  const int16_t limit = key(last);
  int16_t hits = is_nan(last) ? 1 : 0;
  if (descending) {
    for (int64_t i = 0; i < kGroup; ++i) hits |= static_cast<int16_t>(key(x[i]) > limit || is_nan(x[i]) ? 1 : 0);
  } else {
    for (int64_t i = 0; i < kGroup; ++i) hits |= static_cast<int16_t>(key(x[i]) < limit ? 1 : 0);
  }
  return hits != 0;
}

// Of a group from element d of row n on, as to the number at `last`. Rows with gaps and integers: true.
bool may_be_better(const Array& x, int64_t n, int64_t d, int64_t last, bool descending) {
  if (x.strides[1] != 1) return true;
  const void* const group = element(x.data, n * x.strides[0] + d, x.dtype);
  const void* const one = element(x.data, n * x.strides[0] + last, x.dtype);
  const auto of = [&](auto* judge, auto type) {
    using T = decltype(type);
    return judge(static_cast<const T*>(group), *static_cast<const T*>(one), descending);
  };
  switch (x.dtype) {
    case Dtype::f32:
      return of(has_better<float>, float());
    case Dtype::f64:
      return of(has_better<double>, double());
    case Dtype::bf16:
      return of(has_better_bits<0x7f80>, int16_t());
    case Dtype::f16:
      return of(has_better_bits<0x7c00>, int16_t());
    default:
      return true;
  }
}

// At least the first `count` of a row, in any order; how many. Now and then all but the first `count` of those seen are
// forgotten, and whole groups that have none before the last of these are passed over.
int64_t candidates_of(const Array& x, int64_t n, int64_t columns, bool descending, int64_t count, Placed* numbers) {
  const bool forgets = count > 0 && count < columns / 8;
  const int64_t most = std::max(2 * count, kGroup);
  bool is_limited = false;
  Placed last{0, 0};
  int64_t size = 0;
  for (int64_t begin = 0; begin < columns; begin += kGroup) {
    const int64_t end = std::min(begin + kGroup, columns);
    if (is_limited && end - begin == kGroup && !may_be_better(x, n, begin, last.place, descending)) continue;
    for (int64_t d = begin; d < end; ++d) {
      const uint64_t rising = order_of(x.get(n, d));
      const Placed own{descending ? ~rising : rising, d};
      if (!is_limited || own < last) numbers[size++] = own;
    }
    if (!forgets || size <= most) continue;
    std::nth_element(numbers, numbers + count - 1, numbers + size);
    size = count;
    last = numbers[count - 1];
    is_limited = true;
  }
  return size;
}

// The first `count` of every row in order. Each part of the rows has memory for one row.
template <class Call>
void in_order(const Call& call, const Context& context, bool descending, int64_t count) {
  const int64_t parts = parts_of(call.N, context.parallel.threads);
  parallel_for(context.parallel, call.N > 0 ? parts : 0, 1, [&](int64_t first, int64_t last) {
    for (int64_t part = first; part < last; ++part) {
      auto* const numbers = static_cast<Placed*>(context.workspace) + part * call.D;
      for (int64_t n = part * call.N / parts; n < (part + 1) * call.N / parts; ++n) {
        const int64_t size = candidates_of(call.x, n, call.D, descending, count, numbers);
        if (count < size) std::nth_element(numbers, numbers + count, numbers + size);
        std::sort(numbers, numbers + count);
        for (int64_t j = 0; j < count; ++j) {
          call.y.put(n, j, call.x.get(n, numbers[j].place));
          call.index.put(n, j, static_cast<double>(numbers[j].place));
        }
      }
    }
  });
}

DataError sort(const CallOf<sdk::ops::Sort>& call, const Context& context) {
  in_order(call, context, call.params.descending == sdk::ops::sort::Descending::on, call.D);
  return {};
}

DataError top_k(const CallOf<sdk::ops::TopK>& call, const Context& context) {
  in_order(call, context, call.params.largest == sdk::ops::top_k::Largest::on, call.params.k);
  return {};
}

template <class Call>
double operations(const Call& call) {
  return static_cast<double>(call.N) * static_cast<double>(call.D) *
         (200 + 100 * std::log2(static_cast<double>(call.D)));
}

}  // namespace

RLK_CPU_KERNEL(Sort, .run = sort, .operations = operations, .workspace_of_threads = row_bytes);
RLK_CPU_KERNEL(TopK, .run = top_k, .operations = operations, .workspace_of_threads = row_bytes);

}  // namespace rlk::cpu
