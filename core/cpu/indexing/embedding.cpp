// Rows of a table by their ids, and the gradient: tokens are put in order of their ids by counting, and every row of
// the table adds its own ones in their order.
#include <rlk/sdk/ops/embedding.hpp>
#include <rlk/sdk/ops/embedding_backward.hpp>

#include <algorithm>

#include "core/cpu/simd/bits.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/cpu/indexing/embedding.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "core/cpu/simd/row_sums-inl.hpp"
#include "core/cpu/simd/skeleton-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace rlk::cpu::HWY_NAMESPACE {

// Row v of the table has the tokens order[starts[v]] .. order[starts[v + 1]]. A task is a part of a row, so that
// several threads share the row of an id that is everywhere.
void add_tokens(const CallOf<sdk::ops::EmbeddingBackward>& call, const Context& context, const int64_t* starts,
                const int64_t* order) {
  const bool scales = call.params.scale_by_frequency == sdk::ops::embedding_backward::ScaleByFrequency::on;
  const int64_t parts = (call.D + kRowSumColumns - 1) / kRowSumColumns;
  for_each_row(context, call.V * parts, kRowSumColumns, [&](int64_t task) HWY_ATTR {
    const int64_t v = task / parts, begin = task % parts * kRowSumColumns;
    const int64_t* const tokens = order + starts[v];
    const int64_t count = v == call.params.padding_idx ? 0 : starts[v + 1] - starts[v];
    sum_of_rows(
        line_of(call.grad_weight, v).from(begin), std::min(kRowSumColumns, call.D - begin), count,
        [&](int64_t k) { return line_of(call.grad_y, tokens[k]).from(begin); },
        scales && count > 1 ? static_cast<double>(count) : 1.0);
  });
}

}  // namespace rlk::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rlk::cpu {
namespace {

using Forward = CallOf<sdk::ops::Embedding>;
using Backward = CallOf<sdk::ops::EmbeddingBackward>;

HWY_EXPORT(add_tokens);

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

template <class Function>
void each_row(const Context& context, int64_t rows, int64_t columns, const Function& function) {
  parallel_for(context.parallel, rows, std::max<int64_t>(1, kTaskElements / std::max<int64_t>(1, columns)),
               [&](int64_t begin, int64_t end) {
                 for (int64_t row = begin; row < end; ++row) function(row);
               });
}

bool exists(int64_t id, int64_t rows) {
  return id >= 0 && id < rows;
}
DataError bad_id(const Array& ids, int64_t count, int64_t rows) {
  for (int64_t n = 0; n < count; ++n) {
    if (!exists(ids.integer(n), rows)) return {kIdOutOfRange, n, ids.integer(n)};
  }
  return {};
}

DataError embedding(const Forward& call, const Context& context) {
  each_row(context, call.N, call.D, [&](int64_t n) {
    const int64_t id = call.ids.integer(n);
    if (!exists(id, call.V)) {
      for (int64_t d = 0; d < call.D; ++d) call.y.put(n, d, kNan);
      return;
    }
    with_bits(call.y.dtype, [&](auto bits) {
      using Bits = decltype(bits);
      auto* const y = call.y.as<Bits>() + n * call.y.strides[0];
      const auto* const row = call.weight.as<const Bits>() + id * call.weight.strides[0];
      if (call.y.strides[1] == 1 && call.weight.strides[1] == 1) {
        std::copy(row, row + call.D, y);
        return;
      }
      for (int64_t d = 0; d < call.D; ++d) y[d * call.y.strides[1]] = row[d * call.weight.strides[1]];
    });
  });
  return bad_id(call.ids, call.N, call.V);
}

DataError embedding_backward(const Backward& call, const Context& context) {
  const DataError error = bad_id(call.ids, call.N, call.V);
  if (error.kind != kNoDataError) {
    each_row(context, call.V, call.D, [&](int64_t v) {
      for (int64_t d = 0; d < call.D; ++d) call.grad_weight.put(v, d, kNan);
    });
    return error;
  }
  auto* const starts = static_cast<int64_t*>(context.workspace);
  auto* const order = starts + call.V + 2;
  std::fill(starts, order, 0);
  for (int64_t n = 0; n < call.N; ++n) ++starts[call.ids.integer(n) + 2];
  for (int64_t v = 1; v < call.V; ++v) starts[v + 1] += starts[v];
  for (int64_t n = 0; n < call.N; ++n) order[starts[call.ids.integer(n) + 1]++] = n;
  HWY_DYNAMIC_DISPATCH(add_tokens)(call, context, starts, order);
  return {};
}

int64_t backward_bytes(const Backward& call) {
  return (call.V + 2 + call.N) * static_cast<int64_t>(sizeof(int64_t));
}
double forward_operations(const Forward& call) {
  return static_cast<double>(call.N) * static_cast<double>(call.D) * 20;
}
double backward_operations(const Backward& call) {
  return static_cast<double>(call.N + call.V) * static_cast<double>(call.D) * 40;
}

}  // namespace

RLK_CPU_KERNEL(Embedding, .run = embedding, .operations = forward_operations);
RLK_CPU_KERNEL(EmbeddingBackward, .run = embedding_backward, .operations = backward_operations,
               .workspace_bytes = backward_bytes);

}  // namespace rlk::cpu
#endif  // HWY_ONCE
