// Rows in order: the declarations' rules.
#include <rlk/sdk/ops/sort.hpp>
#include <rlk/sdk/ops/top_k.hpp>

#include <numeric>

#include "core/golden/moved.hpp"
#include "core/golden/operator.hpp"

namespace rlk::golden {
namespace {

// A NaN is above every number.
bool is_less(double a, double b) {
  return std::isnan(b) ? !std::isnan(a) : a < b;
}

// The first `count` places of row n in order.
void put_in_order(const View& x, int64_t n, int64_t columns, bool descending, int64_t count, Output& y, Output& index) {
  std::vector<int64_t> order(static_cast<size_t>(columns));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return descending ? is_less(x.load(n, b), x.load(n, a)) : is_less(x.load(n, a), x.load(n, b));
  });
  for (int64_t j = 0; j < count; ++j) {
    const int64_t place = order[static_cast<size_t>(j)];
    y.value.push_back(x.load(n, place));
    y.cond.push_back(0.0);
    put_integer(index, place);
  }
}

}  // namespace

DataError sort(CallOf<sdk::ops::Sort>& call) {
  const bool descending = call.params.descending == sdk::ops::sort::Descending::on;
  for (int64_t n = 0; n < call.N; ++n) put_in_order(call.x, n, call.D, descending, call.D, call.y, call.index);
  return {};
}

DataError top_k(CallOf<sdk::ops::TopK>& call) {
  const bool largest = call.params.largest == sdk::ops::top_k::Largest::on;
  for (int64_t n = 0; n < call.N; ++n) put_in_order(call.x, n, call.D, largest, call.params.k, call.y, call.index);
  return {};
}

}  // namespace rlk::golden
