// Numbers taken by their places, the gradients, and rows one behind the other: the declarations' formulas.
#include <rlk/sdk/ops/cat.hpp>
#include <rlk/sdk/ops/gather.hpp>
#include <rlk/sdk/ops/gather_backward.hpp>
#include <rlk/sdk/ops/index_select.hpp>
#include <rlk/sdk/ops/index_select_backward.hpp>

#include "core/golden/moved.hpp"
#include "core/golden/operator.hpp"
#include "core/golden/tracked.hpp"

namespace rlk::golden {
namespace {

// Element [n, place] of x, or what stands for a place that there is not.
void take(Output& y, const View& x, int64_t n, int64_t place, int64_t columns) {
  if (place >= 0 && place < columns) return put_moved(y, x, n * x.strides[0] + place * x.strides[1]);
  if (!sdk::is_floating(x.dtype)) return put_integer(y, 0);
  y.value.push_back(kNan);
  y.cond.push_back(0.0);
}

// The gradient of one row: place(k) says where number k went.
template <class Place>
void put_gradient(Output& grad_x, const View& grad_y, int64_t n, int64_t columns, int64_t count, const Place& place,
                  bool good) {
  std::vector<TrackedSum> sums(static_cast<size_t>(columns));
  for (int64_t k = 0; k < count && good; ++k) sums[static_cast<size_t>(place(k))].add(grad_y.load(n, k));
  for (const TrackedSum& sum : sums) put(grad_x, good ? sum.total() : Tracked(kNan));
}

template <class Place>
DataError bad_place(int64_t count, int64_t columns, int64_t row, const Place& place) {
  for (int64_t k = 0; k < count; ++k) {
    if (place(k) < 0 || place(k) >= columns) return {kIdOutOfRange, row < 0 ? k : row, place(k)};
  }
  return {};
}

}  // namespace

DataError gather(CallOf<sdk::ops::Gather>& call) {
  DataError error;
  for (int64_t n = 0; n < call.N; ++n) {
    const auto place = [&](int64_t k) { return call.index.load_int(n, k); };
    if (error.kind == kNoDataError) error = bad_place(call.K, call.D, n, place);
    for (int64_t k = 0; k < call.K; ++k) take(call.y, call.x, n, place(k), call.D);
  }
  return error;
}

DataError gather_backward(CallOf<sdk::ops::GatherBackward>& call) {
  DataError error;
  for (int64_t n = 0; n < call.N; ++n) {
    const auto place = [&](int64_t k) { return call.index.load_int(n, k); };
    const DataError own = bad_place(call.K, call.D, n, place);
    if (error.kind == kNoDataError) error = own;
    put_gradient(call.grad_x, call.grad_y, n, call.D, call.K, place, own.kind == kNoDataError);
  }
  return error;
}

DataError index_select(CallOf<sdk::ops::IndexSelect>& call) {
  const auto place = [&](int64_t k) { return call.index.load_int(k); };
  for (int64_t n = 0; n < call.N; ++n) {
    for (int64_t k = 0; k < call.K; ++k) take(call.y, call.x, n, place(k), call.D);
  }
  return bad_place(call.K, call.D, -1, place);
}

DataError index_select_backward(CallOf<sdk::ops::IndexSelectBackward>& call) {
  const auto place = [&](int64_t k) { return call.index.load_int(k); };
  const DataError error = bad_place(call.K, call.D, -1, place);
  for (int64_t n = 0; n < call.N; ++n) {
    put_gradient(call.grad_x, call.grad_y, n, call.D, call.K, place, error.kind == kNoDataError);
  }
  return error;
}

DataError cat(CallOf<sdk::ops::Cat>& call) {
  for (int64_t n = 0; n < call.N; ++n) {
    for (int64_t d = 0; d < call.A; ++d) put_moved(call.y, call.a, n * call.a.strides[0] + d * call.a.strides[1]);
    for (int64_t d = 0; d < call.B; ++d) put_moved(call.y, call.b, n * call.b.strides[0] + d * call.b.strides[1]);
  }
  return {};
}

}  // namespace rlk::golden
