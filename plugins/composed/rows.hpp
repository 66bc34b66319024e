// rows: a matrix whose rows are reduced and mapped. An operator's file says what is recorded of a call:
//
//   RLK_COMPOSED_ROWS(Softmax, {
//     const V x = in(call.x);
//     const auto p = powers_of_row(d, x);
//     out(call.y, softmax_of(d, x, p.largest, p.share(d)));
//   })
//
// The operator's name and statements (_WITH: parameters, as doubles): d is the tag, V a value, in(view) a tensor's
// values and out(view, value) what becomes of them. What is one for each row has a last dimension of size 1, like what
// row_sum and row_largest make; of_row(call.rstd) is such a view of a vector, of_columns(call.grad_weight) one row.
#pragma once

#include <cmath>

#include "map.hpp"

namespace rlk::composed {

// In fp64 where a tensor is, else in fp32.
template <class Record>
void record_rows(Recorder& recorder, bool is_f64, Record record) {
  if (is_f64)
    record(Recording<double>{&recorder});
  else
    record(Recording<float>{&recorder});
}

template <class D>
Value row_mean(D d, Value x) {
  const auto columns = static_cast<double>(x.recorder->nodes()[static_cast<size_t>(x.node)].dims.back());
  return Mul(row_sum(x), number(d, 1 / columns));
}

// --- softmax ---------------------------------------------------------------------------------------------------------
struct RowPowers {
  Value largest, sum;

  template <class D>
  Value share(D d) const {
    return Div(number(d, 1), sum);
  }
  template <class D>
  Value log_sum(D d) const {
    return log(d, sum);
  }
};
template <class D>
RowPowers powers_of_row(D d, Value x) {
  const Value largest = row_largest(x);
  return {largest, row_sum(exp(d, Sub(x, largest)))};
}

// --- norms -----------------------------------------------------------------------------------------------------------
// 1 / sqrt(mean of squares + eps) is of_scaled times scale. Squares of x scale are at most 1, so that they are within
// the range of fp32 whatever x is; where eps is the larger, x is scaled to it.
struct RowRoot {
  Value scale, of_scaled;

  Value root() const { return Mul(of_scaled, scale); }
};
template <class D>
RowRoot root_of_row(D d, Value x, double eps) {
  const double least = eps > 0x1p-200 ? std::sqrt(eps) : 0x1p-100;
  const Value one = number(d, 1), largest = row_largest(Abs(x));
  const Value size = IfThenElse(Lt(largest, number(d, least)), number(d, least), largest);
  const Value scale = IfThenElse(Lt(size, Inf(d)), Div(one, size), one);
  const Value scaled = Mul(x, scale);
  const Value eps_scaled = Mul(Mul(number(d, std::sqrt(eps)), scale), Mul(number(d, std::sqrt(eps)), scale));
  return {scale, Div(one, Sqrt(Add(row_mean(d, Mul(scaled, scaled)), eps_scaled)))};
}

// A mean in two parts, as differences to it need where x is far from 0.
struct RowMean {
  Value high, low;

  Value sum() const { return Add(high, low); }
};
template <class D>
RowMean mean_of_row(D d, Value x) {
  const Value high = row_mean(d, x);
  return {high, row_mean(d, Sub(x, high))};
}
template <class D>
Value less_mean(D, Value x, RowMean mean) {
  return Sub(Sub(x, mean.high), mean.low);
}

// `in` of an operator's statements: a tensor's values, in the type in which the formula counts.
template <class D>
struct Reader {
  Recorder& recorder;

  Value operator()(const View& view) const {
    return {&recorder, recorder.cast(recorder.input(view, D::kDtype), D::kDtype)};
  }
};
// `out`: what becomes of them.
struct Writer {
  Recorder& recorder;

  void operator()(const View& view, Value value) const { put(recorder, view, value); }
};

}  // namespace rlk::composed

#define RLK_COMPOSED_ROWS_DEFINE(OP, chunks, numbers, factors, ...)                                               \
  namespace rlk::composed {                                                                                       \
  struct OP##Rows {                                                                                               \
    using Op = sdk::ops::OP;                                                                                      \
    static constexpr uint32_t kNumerics = RLK_NUMERICS_DETERMINISTIC;                                             \
    static constexpr bool kChunks = chunks;                                                                       \
    static sdk::Refusal refuse(const Arguments<Op>&, const Abilities&) { return std::nullopt; }                   \
    static Factors factors_of([[maybe_unused]] const Arguments<Op>& call) { return {RLK_COMPOSED_LIST factors}; } \
    static void record_call(Recorder& recorder, const Arguments<Op>& call) {                                      \
      record_rows(recorder, any_f64<Op>(call), [&]([[maybe_unused]] auto d) {                                     \
        using V [[maybe_unused]] = Value;                                                                         \
        [[maybe_unused]] const Reader<decltype(d)> in{recorder};                                                  \
        [[maybe_unused]] const Writer out{recorder};                                                              \
        RLK_COMPOSED_LIST numbers __VA_ARGS__                                                                     \
      });                                                                                                         \
    }                                                                                                             \
  };                                                                                                              \
  }                                                                                                               \
  RLK_COMPOSED_LISTED(OP##Rows)

#define RLK_COMPOSED_ROWS(OP, ...) RLK_COMPOSED_ROWS_DEFINE(OP, true, (), (), __VA_ARGS__)
#define RLK_COMPOSED_ROWS_WITH(OP, numbers, ...) \
  RLK_COMPOSED_ROWS_DEFINE(OP, true, (RLK_COMPOSED_NUMBERS(numbers)), (RLK_COMPOSED_FACTORS(numbers)), __VA_ARGS__)
// With sums over all rows (sum_of_rows), which no chunk has; _WHOLE without parameters.
#define RLK_COMPOSED_ROWS_WHOLE(OP, ...) RLK_COMPOSED_ROWS_DEFINE(OP, false, (), (), __VA_ARGS__)
#define RLK_COMPOSED_ROWS_SUMS(OP, numbers, ...) \
  RLK_COMPOSED_ROWS_DEFINE(OP, false, (RLK_COMPOSED_NUMBERS(numbers)), (RLK_COMPOSED_FACTORS(numbers)), __VA_ARGS__)

// Of an operator that declines calls (kind: what its file calls it) what it promises (numerics), how many of the
// vendor's workspaces a chunk may take (0: there are no chunks), and `terms`, made of its parameters, which say whether
// the caller demands fp64. D is the tag's type.
#define RLK_COMPOSED_ROWS_OF(OP, kind, numerics, workspaces, made, refusal, ...)                                    \
  namespace rlk::composed {                                                                                         \
  struct OP##kind {                                                                                                 \
    using Op = sdk::ops::OP;                                                                                        \
    static constexpr uint32_t kNumerics = numerics;                                                                 \
    static constexpr uint64_t kChunks = workspaces;                                                                 \
    static sdk::Refusal refuse([[maybe_unused]] const Arguments<Op>& call, [[maybe_unused]] const Abilities& can) { \
      return refusal;                                                                                               \
    }                                                                                                               \
    static Factors factors_of(const Arguments<Op>&) { return {}; }                                                  \
    static void record_call(Recorder& recorder, const Arguments<Op>& call) {                                        \
      const auto terms = made;                                                                                      \
      record_rows(recorder, terms.asks_f64() || any_f64<Op>(call), [&]([[maybe_unused]] auto d) {                   \
        using D [[maybe_unused]] = decltype(d);                                                                     \
        using V [[maybe_unused]] = Value;                                                                           \
        [[maybe_unused]] const Reader<D> in{recorder};                                                              \
        [[maybe_unused]] const Writer out{recorder};                                                                \
        __VA_ARGS__                                                                                                 \
      });                                                                                                           \
    }                                                                                                               \
  };                                                                                                                \
  }                                                                                                                 \
  RLK_COMPOSED_LISTED(OP##kind)
