// scores: rows of scores of a vocabulary, of which an id names one. An operator's file says what is recorded of a call:
//
//   RLK_COMPOSED_SCORES(CrossEntropy, cross_entropy_terms(call.params, true), refuse_ids(classes), {
//     const Targets targets(recorder, call.ids, call.mask, call.params.ignore_index, call.V);
//     const V x = in(call.logits);
//     const Mask valid = targets.report(is_without_score(d, x));
//     ...
//   })
//
// The operator's name, what is made of its parameters (`terms`: fp64 is used where it asks for it), what it declines,
// and statements: d is the tag, V a value, in(view) a tensor's values, out(view, value) what becomes of them. What is
// one for each row is [rows, 1]. Rows come in chunks where memory asks for it, so that what is made of several goes
// through ahead() and collected() (vocabulary.hpp).
#pragma once

#include "rows.hpp"

namespace rlk::composed {

// Columns of ids are 32 bits.
inline sdk::Refusal refuse_ids(int64_t classes) {
  if (classes > std::numeric_limits<int32_t>::max())
    return sdk::Support::no("SIZE", "a vocabulary of more than 2^31 - 1 entries is not composed of primitives");
  return std::nullopt;
}

// Whether an id can be this number; and the number to compare it with.
inline bool can_be(Value ids, int64_t number) {
  const bool is_wide = ids.recorder->nodes()[static_cast<size_t>(ids.node)].dtype == sdk::Dtype::i64;
  return is_wide || static_cast<int32_t>(number) == number;
}
inline Value id_number(Value ids, int64_t number) {
  const bool is_wide = ids.recorder->nodes()[static_cast<size_t>(ids.node)].dtype == sdk::Dtype::i64;
  return is_wide ? Value{ids.recorder, ids.recorder->id_number(number)}
                 : detail::beside(ids, static_cast<double>(number));
}

// Rows that a mask keeps: all of them without one.
inline Mask kept_rows(Recorder& recorder, const View& mask) {
  if (!mask.is_present()) return {&recorder, recorder.number(1, sdk::Dtype::boolean)};
  return {&recorder, recorder.cast(recorder.input(of_row(mask)), sdk::Dtype::boolean)};
}

// 1 where a mask holds.
template <class D>
Value ones_of(D d, Mask mask) {
  return IfThenElse(mask, number(d, 1), Zero(d));
}

// 0, 1, ... in these sizes.
template <class D>
Value positions_of(D d, const Dims& dims) {
  return {d.recorder, d.recorder->cast(d.recorder->positions(dims, sdk::Dtype::f32), D::kDtype)};
}

// Which entries of a vocabulary are columns: all of them, or a shard from `first` on.
struct Entries {
  int64_t columns, first, all;

  Entries(int64_t count) : Entries(count, 0, count) {}
  Entries(int64_t count, int64_t from, int64_t total) : columns(count), first(from), all(total) {}
  bool is_shard() const { return columns != all; }
};

// The ids of rows: which rows count, which column each means, and what is wrong with them.
class Targets {
public:
  Targets(Recorder& recorder, const View& ids, const View& mask, int64_t ignore_index, const Entries& entries)
      : Targets({&recorder, recorder.input(of_row(ids))}, kept_rows(recorder, mask), ignore_index, entries) {}
  // Of rows that are known already; kept: those that a mask keeps.
  Targets(Value ids, Mask kept, int64_t ignore_index, const Entries& entries)
      : ids_(ids),
        active_(without(kept, ids, ignore_index)),
        known_(within(ids, 0, entries.all)),
        here_(entries.is_shard() ? within(ids, entries.first, entries.columns) : known_),
        column_(column_behind(entries.first)),
        entries_(entries) {}
  // Those of which the id is not the one that is ignored.
  static Mask without(Mask kept, Value ids, int64_t ignore_index) {
    return can_be(ids, ignore_index) ? And(kept, Ne(ids, id_number(ids, ignore_index))) : kept;
  }

  Mask active() const { return active_; }
  Mask known() const { return known_; }
  // Of a known id whose column is here.
  Mask here() const { return here_; }
  Value ids() const { return ids_; }
  // Of an id whose column is here, else 0.
  Value column() const { return column_; }
  // The column as a number, -1 of a known id whose column is not here.
  template <class D>
  Value column_number(D d) const {
    const Value column = rows_of(positions_of(d, {entries_.columns, 1}), column_);
    return entries_.is_shard() ? IfThenElse(here_, column, number(d, -1)) : column;
  }
  // Of [rows, columns]: where the id's is.
  template <class D>
  Mask hits(D d) const {
    return Eq(positions_of(d, {entries_.columns}), column_number(d));
  }
  // Reports the first row in error, of those that count; answers which rows are in none. is_empty: no score is above
  // -inf.
  Mask report(Mask is_empty) const {
    const Mask unknown = AndNot(known_, active_), empty = And(And(active_, known_), is_empty);
    ids_.recorder->report(empty.node, unknown.node, ids_.node);
    return AndNot(is_empty, known_);
  }

private:
  static Mask within(Value ids, int64_t first, int64_t count) {
    const auto beside = [&](int64_t id) { return detail::beside(ids, static_cast<double>(id)); };
    return And(Ge(ids, beside(first)), Lt(ids, beside(first + count)));
  }
  Value column_behind(int64_t first) const {
    Recorder& recorder = *ids_.recorder;
    int index = index_of(ids_).node;
    const auto minus_first = static_cast<double>(-first);
    if (first > 0) index = recorder.make(Word::add, index, recorder.number(minus_first, sdk::Dtype::i32));
    return {&recorder, recorder.select(here_.node, index, recorder.number(0, sdk::Dtype::i32))};
  }

  const Value ids_;
  const Mask active_;
  const Mask known_, here_;
  const Value column_;
  const Entries entries_;
};

// A row's scores less the largest, and what is to be taken from those for logarithms of probabilities.
template <class D>
struct DistributionOfRow {
  Value largest, below, log_sum;

  DistributionOfRow(D d, Value x, double temperature)
      : largest(row_largest(x)),
        below(Div(Sub(x, largest), number(d, temperature))),
        log_sum(log(d, row_sum(exp(d, below)))) {}
  // No probability is above 1, however the sum was rounded.
  Value log_probability(D d) const { return at_most(d, 0, Sub(below, log_sum)); }
  Value lse(D d, double temperature) const { return Add(Div(largest, number(d, temperature)), log_sum); }
};

template <class D>
Mask is_without_score(D d, Value x) {
  return Eq(row_largest(x), Neg(Inf(d)));
}
// 0 of a row that does not count, NaN of one in error.
template <class D>
Value answer_of(D d, Mask active, Mask valid, Value value) {
  const Value nan = number(d, std::numeric_limits<double>::quiet_NaN());
  return IfThenElseZero(active, IfThenElse(valid, value, nan));
}

// The logarithm of a probability by the row's log-sum-exp. Where that has no digits behind the point a probability may
// be anything: it stays finite.
template <class D>
Value finite_log_probability(D d, Value score, Value lse) {
  constexpr double kMost = 16.6, kLeast = -0.5 * static_cast<double>(std::numeric_limits<float>::max());
  return at_least(d, kLeast, at_most(d, kMost, Sub(score, lse)));
}

}  // namespace rlk::composed

#define RLK_COMPOSED_SCORES(OP, made, refusal, ...) \
  RLK_COMPOSED_ROWS_OF(OP, Scores, RLK_NUMERICS_DETERMINISTIC, 1, made, refusal, __VA_ARGS__)
