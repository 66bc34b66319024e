// The words of formulas (rlk/formula/vocabulary.hpp) over symbolic values: each leaves what it means in a recorder. To
// be included before any formula.
//
// There is no fused product and sum, and NaN rules do not depend on a vendor's minimum or maximum: at_least and at_most
// are selections, of which a NaN falls through.
#pragma once

#if defined(RLK_FORMULA_BEGIN)
#error "include plugins/composed/vocabulary.hpp before any formula"
#endif

#include <cmath>
#include <limits>
#include <type_traits>

#include "recorder.hpp"

#define RLK_FORMULA inline
#define RLK_FORMULA_BEGIN namespace rlk::composed {
#define RLK_FORMULA_END }

namespace rlk::composed {

// A value in a recorder. The two kinds are types of their own, as a vector and its mask are.
struct Value {
  Recorder* recorder;
  int node;
};
struct Mask {
  Recorder* recorder;
  int node;
};

// The tag: which recorder, and in which of float and double a formula computes.
template <class T>
struct Recording {
  using type = T;
  static constexpr sdk::Dtype kDtype = sizeof(T) == 4 ? sdk::Dtype::f32 : sdk::Dtype::f64;
  Recorder* recorder;
};
template <class D>
using TFromD = typename D::type;
template <class D>
using VFromD = Value;
template <class D>
constexpr bool kIsBrief = false;

template <class V>
struct Two {
  V first, second;
};
template <class V>
struct Three {
  V first, second, third;
};

template <class D>
Value number(D d, double x) {
  return {d.recorder, d.recorder->number(x, D::kDtype)};
}
template <class D>
Value Zero(D d) {
  return number(d, 0);
}
template <class D>
Value Inf(D d) {
  return number(d, std::numeric_limits<double>::infinity());
}
// What a row's numbers are where a formula takes them as numbers: values too.
template <class D>
Value number(D, Value x) {
  return x;
}

namespace detail {
inline Value made(Word word, Value a, Value b) {
  return {a.recorder, a.recorder->make(word, a.node, b.node)};
}
inline Value made(Word word, Value a) {
  return {a.recorder, a.recorder->make(word, a.node)};
}
inline Mask asked(Word word, Value a, Value b) {
  return {a.recorder, a.recorder->make(word, a.node, b.node)};
}
// A number of a value's dtype.
inline Value beside(Value a, double x) {
  return {a.recorder, a.recorder->number(x, a.recorder->nodes()[static_cast<size_t>(a.node)].dtype)};
}
}  // namespace detail

inline Value Add(Value a, Value b) {
  return detail::made(Word::add, a, b);
}
inline Value Sub(Value a, Value b) {
  return detail::made(Word::subtract, a, b);
}
inline Value Mul(Value a, Value b) {
  return detail::made(Word::multiply, a, b);
}
inline Value Div(Value a, Value b) {
  return detail::made(Word::divide, a, b);
}
// Of what a formula makes of its parameters alone.
inline double Abs(double x) {
  return std::fabs(x);
}
inline bool IsFinite(double x) {
  return std::isfinite(x);
}

template <class D>
Value quotient(D, Value a, Value b) {
  return Div(a, b);
}
inline Value Neg(Value a) {
  return Mul(a, detail::beside(a, -1));
}
inline Value Abs(Value a) {
  return detail::made(Word::absolute, a);
}
inline Value Sqrt(Value a) {
  return detail::made(Word::root, a);
}
inline Value Floor(Value a) {
  return detail::made(Word::floor, a);
}
inline Value MulAdd(Value a, Value b, Value c) {
  return Add(Mul(a, b), c);
}
inline Value NegMulAdd(Value a, Value b, Value c) {
  return Sub(c, Mul(a, b));
}

inline Mask Lt(Value a, Value b) {
  return detail::asked(Word::less, a, b);
}
inline Mask Le(Value a, Value b) {
  return detail::asked(Word::less_equal, a, b);
}
inline Mask Gt(Value a, Value b) {
  return detail::asked(Word::greater, a, b);
}
inline Mask Ge(Value a, Value b) {
  return detail::asked(Word::greater_equal, a, b);
}
inline Mask Eq(Value a, Value b) {
  return detail::asked(Word::equal, a, b);
}
inline Mask Ne(Value a, Value b) {
  return detail::asked(Word::not_equal, a, b);
}
inline Mask IsNaN(Value a) {
  return Ne(a, a);
}
inline Mask IsInf(Value a) {
  return Eq(Abs(a), detail::beside(a, std::numeric_limits<double>::infinity()));
}
inline Mask IsFinite(Value a) {
  return Lt(Abs(a), detail::beside(a, std::numeric_limits<double>::infinity()));
}
inline Mask And(Mask m, Mask n) {
  return {m.recorder, m.recorder->make(Word::both, m.node, n.node)};
}
inline Mask Or(Mask m, Mask n) {
  return {m.recorder, m.recorder->make(Word::either, m.node, n.node)};
}
inline Mask Not(Mask m) {
  return {m.recorder, m.recorder->inverse(m.node)};
}
inline Mask AndNot(Mask m, Mask n) {
  return And(Not(m), n);
}
// A program has no branches: what only some elements need is computed for all.
template <class D>
bool AllTrue(D, Mask) {
  return false;
}
inline Value IfThenElse(Mask m, Value a, Value b) {
  return {m.recorder, m.recorder->select(m.node, a.node, b.node)};
}
inline Value IfThenElseZero(Mask m, Value a) {
  return IfThenElse(m, a, detail::beside(a, 0));
}
inline Value IfThenZeroElse(Mask m, Value b) {
  return IfThenElse(m, detail::beside(b, 0), b);
}
template <class D>
Value at_least(D d, double low, Value x) {
  return IfThenElse(Lt(x, number(d, low)), number(d, low), x);
}
inline Value at_least(Value low, Value x) {
  return IfThenElse(Gt(low, x), low, x);
}
template <class D>
Value at_most(D d, double high, Value x) {
  return IfThenElse(Gt(x, number(d, high)), number(d, high), x);
}
// A zero has no sign here.
inline Value CopySign(Value a, Value b) {
  const Value size = Abs(a);
  return IfThenElse(Lt(b, detail::beside(b, 0)), Neg(size), size);
}

template <class D>
Value exp(D, Value x) {
  return detail::made(Word::exp, x);
}
template <class D>
Value exp2(D d, Value x) {
  return exp(d, Mul(x, number(d, 0.69314718055994531)));
}
template <class D>
Value log(D, Value x) {
  return detail::made(Word::log, x);
}
// Where the vendor has it.
inline Value tanh_of(Value x) {
  return detail::made(Word::tanh, x);
}
inline Value natural_log(Value x) {
  return detail::made(Word::log, x);
}
template <class D>
Value log_of(D d, Value x) {
  return log(d, x);
}
// log(u) x / (u - 1) with u = 1 + x, as below.
template <class D>
Value log_one_plus(D d, Value x) {
  const Value one = number(d, 1), u = Add(x, one), above = Sub(u, one);
  const Value scaled = Mul(log(d, u), Div(x, above));
  return IfThenElse(Eq(above, Zero(d)), x, IfThenElse(IsInf(u), u, scaled));
}
// (u - 1) x / log(u) with u = exp(x): what u has lost of x its logarithm has lost, too.
template <class D>
Value exp_minus_one(D d, Value x) {
  const Value one = number(d, 1), u = exp(d, x), above = Sub(u, one);
  const Value scaled = Mul(above, Div(x, log(d, u)));
  const Value apart = IfThenElse(Eq(u, one), x, scaled);
  return IfThenElse(Or(Eq(above, Neg(one)), IsInf(u)), above, apart);
}
template <class D>
Value sigmoid(D d, Value x) {
  const Value one = number(d, 1);
  return Div(one, Add(one, exp(d, Neg(x))));
}

template <class D, class... Coefficients>
Value horner(D d, Value x, double highest, Coefficients... rest) {
  Value sum = number(d, highest);
  ((sum = MulAdd(sum, x, number(d, rest))), ...);
  return sum;
}

// --- rows: values that are one for each row --------------------------------------------------------------------------
inline Value row_sum(Value x) {
  return detail::made(Word::sum, x);
}
inline Value sum_of_rows(Value x) {
  return detail::made(Word::sum_rows, x);
}
inline Value row_largest(Value x) {
  return detail::made(Word::largest, x);
}
inline Value place_of_largest(Value x) {
  return detail::made(Word::largest_at, x);
}
// Of each row the number that is `by` places behind, 0 outside.
inline Value shifted(Value x, int64_t by) {
  return {x.recorder, x.recorder->shift(x.node, by)};
}

// Of each row what is in front, and what behind.
inline Value joined(Value front, Value behind) {
  Recorder& recorder = *front.recorder;
  Dims dims = recorder.nodes()[static_cast<size_t>(front.node)].dims;
  const int64_t first = dims.back();
  dims.back() += recorder.nodes()[static_cast<size_t>(behind.node)].dims.back();
  return {&recorder, recorder.join(recorder.join(-1, front.node, 0, dims), behind.node, first, dims)};
}

// --- what is looked up: an index is i32, one for each row -----------------------------------------------------------
inline Value index_of(Value id) {
  return {id.recorder, id.recorder->index(id.node)};
}
inline Value at_column(Value rows, Value index) {
  return {rows.recorder, rows.recorder->gather(rows.node, index.node)};
}
inline Value rows_of(Value table, Value index) {
  return {table.recorder, table.recorder->take_rows(table.node, index.node)};
}
inline Value columns_of(Value rows, Value index) {
  return {rows.recorder, rows.recorder->take_columns(rows.node, index.node)};
}
// --- matrices, which are the last two dimensions ---------------------------------------------------------------------
inline Value product(Value a, Value b) {
  return {a.recorder, a.recorder->product(a.node, b.node)};
}
inline Value transposed(Value x) {
  return {x.recorder, x.recorder->transpose(x.node)};
}
inline Value some_columns(Value x, int64_t first, int64_t count) {
  return {x.recorder, x.recorder->columns(x.node, first, count)};
}
// Without gaps, which all that read it would copy out else.
inline Value copy_of(Value x) {
  return detail::made(Word::copy, x);
}
// Along one dimension, which stays with size 1.
inline Value sum_along(Value x, size_t axis) {
  return {x.recorder, x.recorder->sum_along(x.node, axis)};
}

// Of rows without a NaN.
inline Value first_in_order(Value rows, int64_t count) {
  return {rows.recorder, rows.recorder->order(rows.node, count)};
}

// A dimension and the next exchanged, and places of one.
inline Value exchanged(Value x, size_t axis) {
  return {x.recorder, x.recorder->exchange(x.node, axis)};
}
inline Value part_of(Value x, size_t axis, int64_t first, int64_t count) {
  return {x.recorder, x.recorder->part(x.node, axis, first, count)};
}
inline Value column_of(Value x, int64_t index) {
  return {x.recorder, x.recorder->columns(x.node, index, 1)};
}
// The same numbers in other sizes.
inline Value reshaped(Value x, const Dims& dims) {
  return {x.recorder, x.recorder->reshape(x.node, dims)};
}
inline Mask reshaped(Mask m, const Dims& dims) {
  return {m.recorder, m.recorder->reshape(m.node, dims)};
}
inline const Dims& dims_of(Value x) {
  return x.recorder->nodes()[static_cast<size_t>(x.node)].dims;
}

// Rows put in a table of so many that is `nothing` elsewhere.
inline Value placed(int64_t count, double nothing, Value index, Value rows) {
  Dims dims = rows.recorder->nodes()[static_cast<size_t>(rows.node)].dims;
  dims[0] = count;
  return {rows.recorder, rows.recorder->placed(dims, detail::beside(rows, nothing).node, index.node, rows.node)};
}

// --- programs in chunks of rows --------------------------------------------------------------------------------------
// What rows share, made of all of them before any is answered; and of each row, what is to be reduced over all.
inline Value ahead(Value value) {
  return {value.recorder, value.recorder->ahead(value.node)};
}
inline Value ahead_of_rows(Value of_rows) {
  return {of_rows.recorder, of_rows.recorder->ahead(of_rows.node, true)};
}
inline Mask ahead_of_rows(Mask of_rows) {
  return {of_rows.recorder, of_rows.recorder->ahead(of_rows.node, true)};
}
inline Value summed(Value of_chunk) {
  return {of_chunk.recorder, of_chunk.recorder->summed(of_chunk.node)};
}
inline Mask collected(Mask of_row) {
  return {of_row.recorder, of_row.recorder->collected(of_row.node)};
}
inline Value collected(Value of_row) {
  return {of_row.recorder, of_row.recorder->collected(of_row.node)};
}

}  // namespace rlk::composed
