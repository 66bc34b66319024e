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

// The first `count` of every row in order. Each part of the rows has memory for one row.
template <class Call>
void in_order(const Call& call, const Context& context, bool descending, int64_t count) {
  const int64_t parts = parts_of(call.N, context.parallel.threads);
  parallel_for(context.parallel, call.N > 0 ? parts : 0, 1, [&](int64_t first, int64_t last) {
    for (int64_t part = first; part < last; ++part) {
      auto* const numbers = static_cast<Placed*>(context.workspace) + part * call.D;
      for (int64_t n = part * call.N / parts; n < (part + 1) * call.N / parts; ++n) {
        for (int64_t d = 0; d < call.D; ++d) {
          const uint64_t order = order_of(call.x.get(n, d));
          numbers[d] = {descending ? ~order : order, d};
        }
        if (count < call.D) std::nth_element(numbers, numbers + count, numbers + call.D);
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
