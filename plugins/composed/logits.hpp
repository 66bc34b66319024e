// logits: tokens whose scores are a row of logits each, their own or one that row_indices names, of a vocabulary or a
// shard of it. Errors are told behind the last chunk, in the order of tokens.
#pragma once

#include <algorithm>

#include "scores.hpp"

namespace rlk::composed {

template <class Call>
Entries entries_of(const Call& call) {
  return {call.V, call.params.vocab_start, call.params.global_vocab > 0 ? call.params.global_vocab : call.V};
}
template <class Call>
Targets targets_of(Recorder& recorder, const Call& call) {
  return Targets(recorder, call.ids, call.mask, call.params.ignore_index, entries_of(call));
}

// Of each row of logits.
inline Mask kept_columns(Recorder& recorder, const View& mask) {
  if (!mask.is_present()) return {&recorder, recorder.number(1, sdk::Dtype::boolean)};
  return {&recorder, recorder.cast(recorder.input(mask), sdk::Dtype::boolean)};
}

// Which row of logits each token has.
class LogitRows {
public:
  // indices: which of `count` rows each token names; absent where each has its own.
  LogitRows(Recorder& recorder, const View& indices, int64_t count)
      : recorder_(recorder), is_named_(indices.is_present()), count_(count), known_{&recorder, -1} {
    known_.node = recorder.number(1, sdk::Dtype::boolean);
    if (!is_named_) return;
    places_ = {&recorder, recorder.input(of_row(indices))};
    const Value rows = detail::beside(places_, static_cast<double>(count));
    known_ = And(Ge(places_, detail::beside(places_, 0)), Lt(places_, rows));
    index_ = {&recorder,
              recorder.ahead(recorder.select(known_.node, index_of(places_).node, recorder.number(0, sdk::Dtype::i32)),
                             true)};
  }

  bool is_named() const { return is_named_; }
  int64_t count() const { return count_; }
  // Whether the row is there, as i64 what was said of it, and as i32 its place, or the first.
  Mask known() const { return known_; }
  Value places() const { return places_; }
  Value index() const { return index_; }

  template <class D>
  Value numbers(D, const View& logits) const {
    return {&recorder_, recorder_.cast(taken(logits, D::kDtype), D::kDtype)};
  }
  // Of each token which columns a mask keeps: all without one.
  Mask kept(const View& mask) const {
    if (!mask.is_present()) return {&recorder_, recorder_.number(1, sdk::Dtype::boolean)};
    return {&recorder_, recorder_.cast(taken(mask, sdk::Dtype::boolean), sdk::Dtype::boolean)};
  }

private:
  int taken(const View& view, sdk::Dtype dtype) const {
    return is_named_ ? recorder_.take_rows(recorder_.table(view), index_.node) : recorder_.input(view, dtype);
  }

  Recorder& recorder_;
  const bool is_named_;
  const int64_t count_;
  Mask known_;
  Value places_{}, index_{};
};

// Of active tokens, behind the last chunk: those without an id, those that are misplaced (if they name rows), and those
// whose row is empty (unless there is no such error). What is told of one with several is the first of them.
inline void report_errors(const Targets& targets, const LogitRows& rows, Mask placed, const Mask* empty) {
  const Mask active = targets.active(), unknown = AndNot(targets.known(), active);
  Recorder::Errors errors{unknown.node, unknown.node, targets.ids().node, -1, -1};
  if (empty != nullptr) errors.empty = And(active, *empty).node;
  if (rows.is_named()) {
    errors.misplaced = AndNot(placed, active).node;
    errors.places = rows.places().node;
  }
  active.recorder->report(errors, true);
}

// What the gradients of a row of logits need of its token.
struct TokenGradients {
  Mask is_target;        // of [rows, columns]
  Value lse, of_target;  // of_target: of the score of the token's column
  Value of_all;          // of all scores, times their probabilities
  bool has_entropy = false;
  Value entropy{}, of_entropy{};
};

// The token of each row of logits: a token's own, or the one that names the row. Rows that tokens name must increase.
template <class D>
class TokenRows {
public:
  TokenRows(D d, int64_t tokens, const Targets& targets, const LogitRows& rows)
      : d_(d),
        targets_(targets),
        rows_(rows),
        tokens_(tokens),
        count_(rows.count()),
        valid_(targets.known()),
        placed_(rows.known()) {
    if (rows.is_named()) {
      placed_ = increasing(And(targets.active(), rows.known()));
      valid_ = And(placed_, targets.known());
    } else {
      valid_ = And(targets.active(), targets.known());
    }
    constexpr double kNoToken = -2;  // -1 is a column that is not here
    column_ = at_rows(targets.column_number(d), kNoToken);
    has_token_ = rows.is_named() ? Gt(column_, number(d, kNoToken)) : ahead_of_rows(valid_);
    const Mask is_wrong = AndNot(valid_, And(targets.active(), rows.known()));
    is_wrong_ =
        rows.is_named() ? Gt(ahead_of_rows(put(is_wrong, ones_of(d, is_wrong), 0)), Zero(d)) : ahead_of_rows(is_wrong);
  }

  // Of rows: whether a token without an error has it, and whether one in error has.
  Mask has_token() const { return has_token_; }
  Mask is_wrong() const { return is_wrong_; }
  Value column() const { return column_; }
  // A number of each row's token, or what stands for it.
  Value at_rows(Value of_token, double nothing) const {
    const bool is_input = d_.recorder->nodes()[static_cast<size_t>(of_token.node)].word == Word::input;
    if (!rows_.is_named()) return is_input ? of_token : ahead_of_rows(of_token);
    return ahead_of_rows(put(valid_, IfThenElse(valid_, of_token, number(d_, nothing)), nothing));
  }
  // empty: of rows which have a token and no score.
  void report(Mask empty) const {
    const Mask is_empty =
        rows_.is_named() ? Gt(rows_of(collected(ones_of(d_, empty)), rows_.index()), Zero(d_)) : collected(empty);
    report_errors(targets_, rows_, placed_, &is_empty);
  }
  void report() const { report_errors(targets_, rows_, placed_, nullptr); }
  // A sum over rows, which has no term for a token that names none.
  Value spoiled(Value sum) const {
    if (!rows_.is_named()) return sum;
    const Mask is_lost = AndNot(rows_.known(), targets_.active());
    const Value lost = ahead(row_largest(reshaped(ones_of(d_, is_lost), {1, tokens_})));
    return IfThenElse(Gt(lost, Zero(d_)), number(d_, std::numeric_limits<double>::quiet_NaN()), sum);
  }

private:
  // Which tokens, of those that count, name a row behind all rows that were named before. The highest of those is found
  // by doubling: after k steps each token has seen 2^k before it.
  Mask increasing(Mask counted) const {
    Recorder& recorder = *d_.recorder;
    const auto whole = [&](double x) { return Value{&recorder, recorder.number(x, sdk::Dtype::i32)}; };
    const Value named = reshaped(IfThenElse(counted, Add(rows_.index(), whole(1)), whole(0)), {1, tokens_});
    Value before = shifted(named, -1);
    for (int64_t by = 1; by < tokens_; by *= 2) {
      const Value other = shifted(before, -by);
      before = IfThenElse(Lt(before, other), other, before);
    }
    return reshaped(Lt(before, named), {tokens_, 1});
  }
  // The others put nothing to one row more.
  Value put(Mask tokens, Value numbers, double nothing) const {
    Recorder& recorder = *d_.recorder;
    const Value behind{&recorder, recorder.number(static_cast<double>(count_), sdk::Dtype::i32)};
    const Value table = placed(count_ + 1, nothing, IfThenElse(tokens, rows_.index(), behind), numbers);
    return reshaped(Value{&recorder, recorder.columns(reshaped(table, {1, count_ + 1}).node, 0, count_)}, {count_, 1});
  }

  const D d_;
  const Targets& targets_;
  const LogitRows& rows_;
  const int64_t tokens_, count_;
  Mask valid_, placed_;
  Value column_{};
  Mask has_token_{}, is_wrong_{};
};

}  // namespace rlk::composed
