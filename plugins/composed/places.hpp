// places: what is taken by its place in a row or a table. An operator's file says what is recorded of a call:
//
//   RLK_COMPOSED_PLACES(Embedding, call.V, {
//     const Places rows(recorder, of_row(call.ids), call.V);
//     rows.report();
//     recorder.output(call.y, rows.known(rows_of(table, rows.index())));
//   })
//
// The operator's name, how many places there are, and statements. Bits are moved in the tensors' own dtype. No vendor
// looks for a place that does not exist: the program gives it the first instead and drops the answer.
#pragma once

#include "scores.hpp"

namespace rlk::composed {

class Places {
public:
  // places: of the same sizes as what is taken, or of fewer dimensions, as sizes broadcast.
  Places(Recorder& recorder, const View& places, int64_t count)
      : places_{&recorder, recorder.input(places)},
        known_(And(Ge(places_, detail::beside(places_, 0)), Lt(places_, detail::beside(places_, count_of(count))))),
        index_{&recorder, recorder.select(known_.node, index_of(places_).node, recorder.number(0, sdk::Dtype::i32))} {}

  Value index() const { return index_; }
  // What was taken, or what stands for a place that there is not: NaN, 0 of integers.
  int known(int taken) const {
    Recorder& recorder = *places_.recorder;
    const sdk::Dtype dtype = recorder.nodes()[static_cast<size_t>(taken)].dtype;
    const double missing = sdk::is_floating(dtype) ? std::numeric_limits<double>::quiet_NaN() : 0;
    return recorder.select(known_.node, taken, recorder.number(missing, dtype));
  }

  // Of places that are one for each row, or of none: the first outside.
  void report() const { report(Not(known_), places_); }
  // Of rows with several: the first row that has one outside, and its first.
  void report_rows() const { report(has_unknown(), at_column(places_, place_of_largest(rank()))); }
  // The same of rows that are kept, and of those among them that have none outside and are empty.
  void report_rows(Mask kept, Mask empty) const {
    const Mask unknown = has_unknown();
    places_.recorder->report(And(kept, AndNot(unknown, empty)).node, And(kept, unknown).node,
                             at_column(places_, place_of_largest(rank())).node);
  }
  // Which rows have one outside.
  Mask has_unknown() const {
    const Value largest = row_largest(rank());
    return Gt(largest, detail::beside(largest, 0));
  }

private:
  static double count_of(int64_t count) { return static_cast<double>(count); }
  // Of one outside how far it is from the end of its row, else 0: the first of a row has the largest.
  Value rank() const {
    Recorder& recorder = *places_.recorder;
    const int64_t columns = recorder.nodes()[static_cast<size_t>(places_.node)].dims.back();
    const Value place{&recorder, recorder.positions({columns}, sdk::Dtype::f32)};
    const Value from_end = Sub(detail::beside(place, static_cast<double>(columns)), place);
    return IfThenElse(known_, detail::beside(place, 0), from_end);
  }
  // A row's place alone puts it in error: the program reports no other.
  void report(Mask unknown, Value places) const { places_.recorder->report(unknown.node, unknown.node, places.node); }

  const Value places_;
  const Mask known_;
  const Value index_;
};

// What is added up by its place: each place adds its numbers one after the other. A vendor's own sum by places has no
// documented order, and its error grows with how often a place is there.
constexpr int64_t kMostPlaces = 64;

inline sdk::Refusal refuse_many(int64_t places, int64_t columns) {
  if (places > kMostPlaces)
    return sdk::Support::no("SIZE", sdk::format("more than %lld places of a row: each is a pass over the gradient",
                                                static_cast<long long>(kMostPlaces)));
  return refuse_ids(columns);
}

// What each place of rows of so many columns has been given so far, in twice the digits.
template <class D>
class PlaceSums {
public:
  PlaceSums(D d, int64_t columns)
      : d_(d), columns_(columns), here_(positions({columns})), sum_(Zero(d)), lost_(Zero(d)) {}

  // at: the place of each row, or one for all.
  void add(const View& at, Value grad) { add(Places(*d_.recorder, at, columns_).index(), grad); }
  void add(Value index, Value grad) {
    const Value x = IfThenElseZero(Eq(here_, rows_of(positions({columns_, 1}), index)), grad);
    if (is_first_) {
      is_first_ = false;
      sum_ = x;
      return;
    }
    const Value next = Add(sum_, x), part = Sub(next, sum_);
    lost_ = Add(lost_, Add(Sub(sum_, Sub(next, part)), Sub(x, part)));
    sum_ = next;
  }
  // What is infinite or NaN has lost nothing.
  Value total() const { return is_first_ ? sum_ : IfThenElse(IsFinite(lost_), Add(sum_, lost_), sum_); }

private:
  Value positions(const Dims& dims) const {
    const Value counted{d_.recorder, d_.recorder->positions(dims, sdk::Dtype::f32)};
    return {d_.recorder, d_.recorder->cast(counted.node, D::kDtype)};
  }

  const D d_;
  const int64_t columns_;
  const Value here_;
  Value sum_, lost_;
  bool is_first_ = true;
};

}  // namespace rlk::composed

#define RLK_COMPOSED_PLACES_DEFINE(OP, chunks, numerics, refusal, ...)                          \
  namespace rlk::composed {                                                                     \
  struct OP##Places {                                                                           \
    using Op = sdk::ops::OP;                                                                    \
    static constexpr uint32_t kNumerics = numerics;                                             \
    static constexpr bool kChunks = chunks;                                                     \
    static sdk::Refusal refuse(const Arguments<Op>& call, const Abilities&) { return refusal; } \
    static Factors factors_of(const Arguments<Op>&) { return {}; }                              \
    static void record_call(Recorder& recorder, const Arguments<Op>& call) { __VA_ARGS__ }      \
  };                                                                                            \
  }                                                                                             \
  RLK_COMPOSED_LISTED(OP##Places)

#define RLK_COMPOSED_PLACES_ROWS(OP, refusal, ...) \
  RLK_COMPOSED_PLACES_DEFINE(OP, true, RLK_NUMERICS_DETERMINISTIC | RLK_NUMERICS_BATCH_INVARIANT, refusal, __VA_ARGS__)
// Whose rows are written at places that all tokens choose: no chunk has them.
#define RLK_COMPOSED_PLACES_WHOLE(OP, numerics, refusal, ...) \
  RLK_COMPOSED_PLACES_DEFINE(OP, false, RLK_NUMERICS_DETERMINISTIC | numerics, refusal, __VA_ARGS__)

#define RLK_COMPOSED_PLACES(OP, places, ...) RLK_COMPOSED_PLACES_ROWS(OP, refuse_ids(places), __VA_ARGS__)
// Of what is added up as well, in fp64 where a tensor is, with d and out as in rows.hpp; what is declined is reported.
#define RLK_COMPOSED_PLACE_SUMS(OP, refusal, ...)          \
  RLK_COMPOSED_PLACES_ROWS(OP, refusal, {                  \
    record_rows(recorder, any_f64<Op>(call), [&](auto d) { \
      const Writer out{recorder};                          \
      __VA_ARGS__                                          \
    });                                                    \
  })
