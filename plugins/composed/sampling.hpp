// sampling: the integers of rlk/formula/sample.hpp over symbolic values, and what its filters keep. What every filter
// keeps is a beginning of a row in falling order, so that each is a count, and the last one's number and the places of
// its equals say which tokens are meant.
#pragma once

#include <rlk/formula/sample.hpp>

#include "integers.hpp"

namespace rlk::composed {

// formula::sample_weight, of rows of u in fp32.
template <class D>
Value sample_weight_of(D d, Value u) {
  Recorder& recorder = *d.recorder;
  const auto at = [&](int64_t x) { return integer(recorder, x); };
  constexpr int64_t kTop = int64_t{40} << 56;
  const Mask inside = Gt(u, number(d, -28));
  const Value q = as_integer(Floor(Mul(IfThenElseZero(inside, u), number(d, -67108864.0))));
  const Value left = Add(Mul(q, at(-1549082005)), at(kTop));
  const Mask some = Ge(left, at(0));
  const Value distance = IfThenElse(some, left, at(0));
  // Bits 24 to 55: three bytes of the upper word, and one below it.
  const Value g = Add(Mul(bit_and(high_word(distance), at(0xffffff)), at(256)), byte_at(distance, 3, sdk::Dtype::i64));
  Value h = at(44521);
  for (const int64_t c : {313739, 2875277, 20650546, 119194876, 515882451, 1488522236})
    h = Add(high_word(Mul(g, h)), at(c));
  h = Add(high_word(Mul(g, h)), at(int64_t{1} << 31));
  // h 2^(e - 31): a power of two is its exponent, in the bits of an fp32. Below 2^31 it is the upper word of h 2^(e +
  // 1).
  const auto whole = [&](double x) { return Value{&recorder, recorder.number(x, sdk::Dtype::i32)}; };
  const Value e = byte_at(distance, 7, sdk::Dtype::i32);
  const Mask is_below = Lt(e, whole(31));
  const Value exponent = Mul(Add(IfThenElse(is_below, e, Add(e, whole(-31))), whole(127)), whole(1 << 23));
  const Value power = as_integer({&recorder, recorder.bits(exponent.node, sdk::Dtype::f32, 0)});
  const Value scaled = Mul(h, power);
  return IfThenElseZero(And(inside, some), IfThenElse(is_below, high_word(Add(scaled, scaled)), scaled));
}

// formula::sample_random: 2^32 x's product with 2^32 - x is one below 2^62.
inline Words sample_random_of(Value seed, Value row_id, Value step) {
  Recorder& recorder = *row_id.recorder;
  const auto at = [&](int64_t x) { return integer(recorder, x); };
  constexpr int64_t kAll = int64_t{1} << 32;
  const Words row = words_of(row_id), position = words_of(step), key = words_of(seed);
  Value c0 = row.low, c1 = row.high, c2 = position.low, c3 = position.high, k0 = key.low, k1 = key.high;
  for (int round = 0; round < 10; ++round) {
    const Value a = Mul(c0, at(0xD2511F53 - kAll)), b = Mul(c2, at(0xCD9E8D57 - kAll));
    const Value next0 = bit_xor(bit_xor(Add(high_word(b), c2), c1), k0);
    c2 = bit_xor(bit_xor(Add(high_word(a), c0), c3), k1);
    c0 = next0;
    c1 = low_word(b);
    c3 = low_word(a);
    k0 = low_word(Add(k0, at(0x9E3779B9)));
    k1 = low_word(Add(k1, at(0xBB67AE85)));
  }
  return {c1, c0};
}

// Tokens of rows in falling order of their scores x, with weights w, of which filters keep a beginning.
template <class D>
class Filters {
public:
  template <class Call>
  Filters(D d, const Call& call, Value x, Value w) : d_(d), x_(x), w_(w), kept_(Gt(x, Neg(Inf(d)))) {
    const auto& params = call.params;
    const int64_t columns = row_length(x);
    const bool has_min_p = call.min_ps.is_present() || static_cast<float>(params.min_p) > 0;
    const bool has_top_k = call.top_ks.is_present() || (params.top_k > 0 && params.top_k < columns);
    const bool has_top_p = call.top_ps.is_present() || static_cast<float>(params.top_p) < 1;
    const bool is_last = params.min_p_order == decltype(params.min_p_order)::last;
    const Mask active = kept_;
    if (has_min_p) kept_ = And(active, Ge(w, least_weight(call)));
    if (!has_top_k && !has_top_p) return;

    put_in_order();
    const Value given = count_of(is_last ? active : kept_);
    Value by_k = given, count = given;
    if (has_top_k) {
      by_k = less_of(top_k(call, columns), given);
      keeps_ties_ = params.top_k_ties == decltype(params.top_k_ties)::keep;
      if (keeps_ties_) by_k = with_ties(by_k);
      count = by_k;
    }
    if (has_top_p) {
      const bool is_joint = params.filter_order == decltype(params.filter_order)::joint;
      const Value before = is_joint ? given : by_k;
      const bool with = params.top_p_ties == decltype(params.top_p_ties)::keep;
      Value by_p = top_p(call, before);
      if (with) by_p = less_of(with_ties(by_p), before);
      keeps_ties_ = keeps_ties_ && with;
      count = less_of(by_k, by_p);
    }
    if (is_last && has_min_p) count = less_of(count, count_of(kept_));
    keep_first(count);
  }

  Mask kept() const { return kept_; }

private:
  Value whole(int64_t x) const { return integer(*d_.recorder, x); }
  Value row(const View& view) const { return Reader<D>{*d_.recorder}(of_row(view)); }
  Value count_of(Mask tokens) const { return row_sum(ones_of(d_, tokens)); }
  static Value less_of(Value a, Value b) { return IfThenElse(Lt(a, b), a, b); }

  // The vendor orders numbers that are none of NaN and -0; a row with a NaN has no token in any case.
  void put_in_order() {
    const Value opposite = IfThenElse(Or(IsNaN(x_), Eq(x_, Zero(d_))), Zero(d_), Neg(x_));
    order_ = first_in_order(opposite, row_length(x_));
    sorted_ = at_column(x_, order_);
  }
  // The last number of so many.
  Value last_of(Value count) const { return at_column(sorted_, as_place(at_least(d_, 0, Sub(count, number(d_, 1))))); }
  Value with_ties(Value count) const { return count_of(Ge(x_, last_of(count))); }

  // formula::least_weight.
  template <class Call>
  Value least_weight(const Call& call) const {
    if (!call.min_ps.is_present())
      return whole(static_cast<int64_t>(formula::least_weight(static_cast<float>(call.params.min_p))));
    const Value p = row(call.min_ps), one = number(d_, 1);
    const Digits digits(IfThenElseZero(And(Gt(p, Zero(d_)), Lt(p, one)), p), 2, 20);
    const Value down = digits.pair(0, 20);
    const Value least = IfThenElse(Gt(digits.rest, Zero(d_)), Add(down, whole(1)), down);
    return IfThenElse(Ge(p, one), whole(int64_t{1} << 40), least);
  }
  // Of each row how many, which may be all.
  template <class Call>
  Value top_k(const Call& call, int64_t columns) const {
    const Value all = number(d_, static_cast<double>(columns));
    if (!call.top_ks.is_present()) return number(d_, static_cast<double>(call.params.top_k));
    const Value k{d_.recorder, d_.recorder->input(of_row(call.top_ks))};
    const Mask is_on = And(Ge(k, whole(1)), Lt(k, whole(columns)));
    const Value place = index_of(IfThenElse(is_on, k, whole(1)));
    return IfThenElse(is_on, {d_.recorder, d_.recorder->cast(place.node, D::kDtype)}, all);
  }
  // How many of the first `given` have a sum of weights before them that is below a share of the sum of all those.
  template <class Call>
  Value top_p(const Call& call, Value given) const {
    const Value weights = IfThenElseZero(Lt(positions_of(d_, {row_length(x_)}), given), at_column(w_, order_));
    const bool has_rows = call.top_ps.is_present();
    const Value p = row(or_number(call.top_ps, 1)), one = number(d_, 1);
    const auto shares = [&] {
      if (has_rows) return fixed_point_of(IfThenElseZero(And(Gt(p, Zero(d_)), Lt(p, one)), p));
      const float share = static_cast<float>(call.params.top_p);
      return words_of(*d_.recorder, formula::fixed_point(share > 0 ? share : 0));
    };
    const Share share(shares(), row_sum(weights));
    const bool exceeds = call.params.top_p_boundary == decltype(call.params.top_p_boundary)::exceed;
    const Value above = Add(share.whole, whole(1));
    const Value limit = exceeds ? above : IfThenElse(share.has_rest, above, share.whole);
    const Value count = Add(place_of_sum(d_, weights, IfThenElse(Lt(limit, whole(1)), whole(1), limit)), one);
    return has_rows ? IfThenElse(Lt(p, one), count, given) : count;
  }

  // Of equals of the last number those of the lowest ids.
  void keep_first(Value count) {
    const Value last = last_of(count);
    if (keeps_ties_) {
      kept_ = Ge(x_, last);
      return;
    }
    const Mask above = Gt(x_, last), equal = Eq(x_, last);
    const Value end = place_of_sum(d_, ones_of(d_, equal), Sub(count, count_of(above)));
    kept_ = Or(above, And(equal, Le(positions_of(d_, {row_length(x_)}), end)));
  }

  const D d_;
  const Value x_, w_;
  Value order_{}, sorted_{};
  bool keeps_ties_ = true;  // equals are kept together
  Mask kept_;
};

}  // namespace rlk::composed
