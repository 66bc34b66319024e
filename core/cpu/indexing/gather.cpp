// Numbers taken by their places, the gradients, and rows one behind the other.
#include <rlk/sdk/ops/cat.hpp>
#include <rlk/sdk/ops/gather.hpp>
#include <rlk/sdk/ops/gather_backward.hpp>
#include <rlk/sdk/ops/index_select.hpp>
#include <rlk/sdk/ops/index_select_backward.hpp>

#include <algorithm>
#include <limits>

#include "core/cpu/simd/bits.hpp"
#include "core/cpu/simd/long_sum.hpp"
#include "core/cpu/simd/registration.hpp"

namespace rlk::cpu {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

template <class Function>
void for_each_row(const Context& context, int64_t rows, int64_t columns, const Function& function) {
  const int64_t grain = std::max<int64_t>(1, kGrainElements / std::max<int64_t>(1, columns));
  parallel_for(context.parallel, rows, grain, [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) function(n);
  });
}

// The first place outside of the row, told as `row`, or as its own number.
template <class Place>
DataError bad_place(int64_t count, int64_t columns, int64_t row, const Place& place) {
  for (int64_t k = 0; k < count; ++k) {
    if (place(k) < 0 || place(k) >= columns) return {kIdOutOfRange, row < 0 ? k : row, place(k)};
  }
  return {};
}

// y[n, k] = x[n, place(n, k)] as bits; NaN, or 0 of an integer, for a place that there is not.
template <class Call, class Place>
void take(const Call& call, const Context& context, const Place& place) {
  uint64_t missing = 0;
  if (sdk::is_floating(call.y.dtype)) store_element(&missing, call.y.dtype, 0, kNan);
  for_each_row(context, call.N, call.K, [&](int64_t n) {
    with_bits(call.y.dtype, [&](auto bits) {
      using Bits = decltype(bits);
      auto* const y = call.y.template as<Bits>() + n * call.y.strides[0];
      const auto* const x = call.x.template as<const Bits>() + n * call.x.strides[0];
      for (int64_t k = 0; k < call.K; ++k) {
        int64_t at = place(n, k);
        asm("" : "+r"(at));  // read once, whatever another thread makes of it
        const bool exists = at >= 0 && at < call.D;
        y[k * call.y.strides[1]] = exists ? x[at * call.x.strides[1]] : static_cast<Bits>(missing);
      }
    });
  });
}

// Where number k of a row went: in the order of the places, so that those of one place follow each other.
struct Taken {
  int64_t place, k;
  bool operator<(const Taken& other) const { return place != other.place ? place < other.place : k < other.k; }
};
template <class Place>
void sort_taken(Taken* taken, int64_t count, const Place& place) {
  for (int64_t k = 0; k < count; ++k) taken[k] = {place(k), k};
  std::sort(taken, taken + count);
}

template <class Call>
void put_gradient(const Call& call, int64_t n, const Taken* taken, bool good) {
  for (int64_t d = 0; d < call.D; ++d) call.grad_x.put(n, d, good ? 0.0 : kNan);
  for (const Taken *first = taken, *const end = taken + call.K; good && first != end;) {
    LongSum sum;
    const int64_t place = first->place;
    for (; first != end && first->place == place; ++first) sum.add(call.grad_y.get(n, first->k));
    call.grad_x.put(n, place, sum.value());
  }
}

DataError gather(const CallOf<sdk::ops::Gather>& call, const Context& context) {
  take(call, context, [&](int64_t n, int64_t k) { return call.index.integer(n, k); });
  FirstBadRow bad;
  const auto error_of = [&](int64_t n) {
    return bad_place(call.K, call.D, n, [&](int64_t k) { return call.index.integer(n, k); });
  };
  for_each_row(context, call.N, call.K, [&](int64_t n) {
    if (error_of(n).kind != kNoDataError) bad.report(n);
  });
  return bad.any() ? error_of(bad.row()) : DataError{};
}

// Each part of the rows has memory for one row. Short rows are no more parts than tasks of theirs are worth.
int64_t parts_of(const CallOf<sdk::ops::GatherBackward>& call, int64_t threads) {
  const int64_t rows = std::max<int64_t>(1, kGrainElements / std::max<int64_t>(1, call.D + call.K));
  return std::max<int64_t>(1, std::min((call.N + rows - 1) / rows, threads));
}

DataError gather_backward(const CallOf<sdk::ops::GatherBackward>& call, const Context& context) {
  FirstBadRow bad;
  const auto error_of = [&](int64_t n) {
    return bad_place(call.K, call.D, n, [&](int64_t k) { return call.index.integer(n, k); });
  };
  const int64_t parts = parts_of(call, context.parallel.threads);
  parallel_for(context.parallel, call.N > 0 ? parts : 0, 1, [&](int64_t first, int64_t last) {
    for (int64_t part = first; part < last; ++part) {
      auto* const taken = static_cast<Taken*>(context.workspace) + part * call.K;
      for (int64_t n = part * call.N / parts; n < (part + 1) * call.N / parts; ++n) {
        const bool good = error_of(n).kind == kNoDataError;
        sort_taken(taken, call.K, [&](int64_t k) { return call.index.integer(n, k); });
        put_gradient(call, n, taken, good);
        if (!good) bad.report(n);
      }
    }
  });
  return bad.any() ? error_of(bad.row()) : DataError{};
}

DataError index_select(const CallOf<sdk::ops::IndexSelect>& call, const Context& context) {
  const auto place = [&](int64_t k) { return call.index.integer(k); };
  take(call, context, [&](int64_t, int64_t k) { return place(k); });
  return bad_place(call.K, call.D, -1, place);
}

DataError index_select_backward(const CallOf<sdk::ops::IndexSelectBackward>& call, const Context& context) {
  const auto place = [&](int64_t k) { return call.index.integer(k); };
  const DataError error = bad_place(call.K, call.D, -1, place);
  auto* const taken = static_cast<Taken*>(context.workspace);
  sort_taken(taken, call.K, place);
  for_each_row(context, call.N, call.D + call.K,
               [&](int64_t n) { put_gradient(call, n, taken, error.kind == kNoDataError); });
  return error;
}

DataError cat(const CallOf<sdk::ops::Cat>& call, const Context& context) {
  for_each_row(context, call.N, call.A + call.B, [&](int64_t n) {
    with_bits(call.y.dtype, [&](auto bits) {
      using Bits = decltype(bits);
      auto* const y = call.y.template as<Bits>() + n * call.y.strides[0];
      const auto copy = [&](const Array& from, int64_t begin, int64_t count) {
        const auto* const x = from.template as<const Bits>() + n * from.strides[0];
        for (int64_t d = 0; d < count; ++d) y[(begin + d) * call.y.strides[1]] = x[d * from.strides[1]];
      };
      copy(call.a, 0, call.A);
      copy(call.b, call.A, call.B);
    });
  });
  return {};
}

int64_t bytes_of_parts(const CallOf<sdk::ops::GatherBackward>& call, int64_t threads) {
  return parts_of(call, threads) * call.K * static_cast<int64_t>(sizeof(Taken));
}
int64_t bytes_of_one(const CallOf<sdk::ops::IndexSelectBackward>& call) {
  return call.K * static_cast<int64_t>(sizeof(Taken));
}
template <class Call>
double operations(const Call& call) {
  return static_cast<double>(call.N) * static_cast<double>(call.K) * 200;
}
double moves(const CallOf<sdk::ops::Cat>& call) {
  return static_cast<double>(call.N) * static_cast<double>(call.A + call.B) * 20;
}

}  // namespace

RLK_CPU_KERNEL(Gather, .run = gather, .operations = operations);
RLK_CPU_KERNEL(GatherBackward, .run = gather_backward, .operations = operations,
               .workspace_of_threads = bytes_of_parts);
RLK_CPU_KERNEL(IndexSelect, .run = index_select, .operations = operations);
RLK_CPU_KERNEL(IndexSelectBackward, .run = index_select_backward, .operations = operations,
               .workspace_bytes = bytes_of_one);
RLK_CPU_KERNEL(Cat, .run = cat, .operations = moves);

}  // namespace rlk::cpu
