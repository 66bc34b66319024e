// scans: numbers along a row that each depend on the one before, by doubling: after k steps each has taken in 2^k
// neighbours, so that a row of n takes log2(n) of them.
#pragma once

#include "tokens.hpp"

namespace rlk::composed {

inline int64_t row_length(Value x) {
  return x.recorder->nodes()[static_cast<size_t>(x.node)].dims.back();
}

// Sums of the beginnings of rows (is_backward: of their ends), in twice the digits: with what each sum has lost.
template <class D>
Value sums_along(D d, Value x, bool is_backward) {
  if (row_length(x) < 2) return x;
  Value sum = x, lost = Zero(d);
  for (int64_t by = 1; by < row_length(x); by *= 2) {
    const int64_t from = is_backward ? by : -by;
    const Value other = shifted(sum, from), next = Add(sum, other), part = Sub(next, sum);
    const Value own = Add(Sub(sum, Sub(next, part)), Sub(other, part));
    lost = by == 1 ? own : Add(Add(lost, shifted(lost, from)), own);
    sum = next;
  }
  // What is infinite or NaN has lost nothing.
  return IfThenElse(IsFinite(lost), Add(sum, lost), sum);
}

// Outside the row is what does not matter.
inline Value along(Value x, int64_t by) {
  return x.recorder->nodes()[static_cast<size_t>(x.node)].word == Word::number ? x : shifted(x, by);
}

// y[t] = add[t] + factor[t] y[t + 1], 0 behind the row; the factor may be a number. Where cut is 1, y[t] is add[t],
// whatever follows; a number is no cut. Factors are at most 1, else their products overflow.
template <class D>
Value recursion(D d, Value add, Value factor, Value cut) {
  const bool has_cuts = cut.recorder->nodes()[static_cast<size_t>(cut.node)].word != Word::number;
  for (int64_t by = 1; by < row_length(add); by *= 2) {
    const Value next = Add(add, Mul(factor, shifted(add, by)));
    if (has_cuts) {
      const Mask is_cut = Eq(cut, number(d, 1));
      add = IfThenElse(is_cut, add, next);
      cut = IfThenElse(is_cut, cut, shifted(cut, by));
    } else {
      add = next;
    }
    factor = Mul(factor, along(factor, by));
  }
  return add;
}

// Tokens of sequences from the last one that counts to the first.
template <class D>
class Timeline {
public:
  Timeline(D d, const Tokens<D>& tokens, const View& mask, int64_t length)
      : d_(d),
        has_mask_(mask.is_present()),
        kept_(tokens.ones(tokens.mask())),
        place_(Add(tokens.positions(), number(d, 1))),
        last_(has_mask_ ? row_largest(Mul(kept_, place_)) : number(d, static_cast<double>(length))) {}

  Mask is_last() const { return Eq(place_, last_); }
  // Before the last one, or it.
  Mask is_inside() const { return Le(place_, last_); }
  // Of each token the number of the next one, and of the last one that counts `behind`.
  Value next(Value x, Value behind) const { return IfThenElse(is_last(), behind, shifted(x, 1)); }
  // Of the next one that counts.
  Value next_kept(Value x, Value behind) const {
    if (!has_mask_) return next(x, behind);
    Value found = shifted(kept_, 1), value = shifted(x, 1);
    const Value one = number(d_, 1);
    for (int64_t by = 1; by < row_length(x); by *= 2) {
      const Mask has = Eq(found, one);
      value = IfThenElse(has, value, shifted(value, by));
      found = IfThenElse(has, found, shifted(found, by));
    }
    return IfThenElse(Eq(found, one), value, behind);
  }

private:
  const D d_;
  const bool has_mask_;
  const Value kept_, place_, last_;
};

inline sdk::Refusal refuse_growth(const View& cu_seqlens, double factor, const char* reason) {
  if (auto no = refuse_packed(cu_seqlens)) return no;
  if (factor <= 1) return std::nullopt;
  return sdk::Support::no("PARAMETER", reason);
}

}  // namespace rlk::composed
