// One token per row from filtered, tempered scores. Where no row can draw, as its temperature is 0, a vendor
// needs nothing but fp32.
#include "../sampling.hpp"

namespace rlk::composed {

constexpr int64_t kMostRounds = 64;

// Its own numbers are fp32 in every case.
struct SampleTerms {
  static bool asks_f64() { return false; }
};

// Whether any row may: else all are greedy.
template <class Call>
bool can_draw(const Call& call) {
  return call.temperatures.is_present() || !(static_cast<float>(call.params.temperature) < 1e-5F);
}

template <class Call>
sdk::Refusal refuse_sample(const Call& call, const Abilities& can) {
  if (can_draw(call) && !can.has_integers)
    return sdk::Support::no(
        "DRAW",
        "draws are products of integers of 64 bits, of which no public text of the vendor's library speaks; "
        "a temperature of 0 for all rows draws nothing");
  if (call.V >= int64_t{1} << 23)
    return sdk::Support::no("SIZE", "a vocabulary of 2^23 entries is not composed: a sum of its weights is 2^63");
  if (call.uniform_samples.is_present() && call.K > kMostRounds)
    return sdk::Support::no("SIZE", "more than 64 rounds of uniform_samples: each is a pass of its own");
  return std::nullopt;
}

// Of a call the scores, each row's parameters and its answers. A parameter without a tensor is the same for all rows.
template <class D, class Call>
class SampledRows {
public:
  SampledRows(D d, const Call& call)
      : d_(d),
        call_(call),
        x_(scores()),
        largest_(row_largest(x_)),
        temperature_(row(call.temperatures, call.params.temperature)),
        broken_(Or(Or(IsNaN(largest_), Eq(largest_, Inf(d))), IsNaN(temperature_))),
        empty_(AndNot(broken_, Eq(largest_, Neg(Inf(d))))),
        usable_(Not(Or(broken_, empty_))),
        is_cold_(Lt(temperature_, number(d, 1e-5))),
        can_draw_(can_draw(call)),
        found_(usable_) {
    d.recorder->report(empty_.node);
    // The first of the largest, which is numbered from the end of the row.
    const Value rank = IfThenElseZero(Eq(x_, largest_), Sub(number(d, static_cast<double>(call.V)), places()));
    id_ = place_of_largest(rank);
    kept_ = And(Eq(rank, row_largest(rank)), usable_);
    if (can_draw_) draw();
  }

  Mask empty() const { return empty_; }
  Mask has_token() const { return found_; }
  Mask kept() const { return kept_; }
  // Of a row without a token the first place of all.
  Value place() const { return IfThenElse(found_, id_, status_number(0)); }
  Value id() const { return IfThenElse(found_, id_, status_number(-1)); }
  Value status() const {
    Value of_usable = IfThenElse(found_, status_number(0), status_number(4));
    of_usable = IfThenElse(is_cold_, status_number(1), of_usable);
    return IfThenElse(broken_, status_number(3), IfThenElse(empty_, status_number(2), of_usable));
  }

  // In the numbers of `wide`, in which the sum of weights is looked at by its words.
  template <class Wide>
  Value log_probability(Wide wide) const {
    if (!can_draw_) return IfThenElse(found_, Zero(wide), nan(wide));
    const auto cast = [&](Value x) { return Value{x.recorder, x.recorder->cast(x.node, Wide::kDtype)}; };
    const Value above = cast(at_column(x_, place())), scaled = Div(Sub(above, cast(largest_)), cast(temperature_));
    const Value sum = row_sum(IfThenElseZero(kept_, weights_));
    const Value low = word_at(sum, 0, Wide::kDtype), high = word_at(sum, 1, Wide::kDtype), unit = number(wide, 0x1p32);
    const Value whole = Add(Mul(high, unit), IfThenElse(Lt(low, Zero(wide)), Add(low, unit), low));
    const Value drawn = Sub(scaled, log(wide, Mul(whole, number(wide, 0x1p-40))));
    return IfThenElse(found_, IfThenZeroElse(is_cold_, drawn), nan(wide));
  }

private:
  template <class Wide>
  static Value nan(Wide wide) {
    return number(wide, std::numeric_limits<double>::quiet_NaN());
  }
  Value row(const View& view, double otherwise) const {
    return Reader<D>{*d_.recorder}(or_number(of_row(view), otherwise));
  }
  Value whole_row(const View& view, int64_t otherwise) const {
    if (!view.is_present()) return integer(*d_.recorder, otherwise);
    return {d_.recorder, d_.recorder->input(of_row(view))};
  }
  Value places() const { return positions_of(d_, {call_.V}); }
  Value status_number(int status) const { return {d_.recorder, d_.recorder->number(status, sdk::Dtype::i32)}; }

  Value scores() const {
    Recorder& recorder = *d_.recorder;
    const Value a = Reader<D>{recorder}(call_.logits), zero = Zero(d_);
    Value x = a, counts = zero;
    if (call_.output_counts.is_present()) {
      counts = Reader<D>{recorder}(call_.output_counts);
      counts = IfThenElseZero(Gt(counts, zero), counts);
    }
    const Mask generated = Gt(counts, zero);
    Mask seen = generated;
    if (call_.prompt_mask.is_present()) seen = Or(seen, kept_columns_of(call_.prompt_mask));
    const Value repetition = row(call_.repetition_penalties, call_.params.repetition_penalty);
    x = IfThenElse(seen, IfThenElse(Gt(a, zero), Div(a, repetition), Mul(a, repetition)), a);
    const Value frequency = row(call_.frequency_penalties, call_.params.frequency_penalty);
    const Value presence = row(call_.presence_penalties, call_.params.presence_penalty);
    x = IfThenElse(generated, Sub(Sub(x, Mul(frequency, counts)), presence), x);
    if (call_.allowed.is_present()) x = IfThenElse(kept_columns_of(call_.allowed), x, Neg(Inf(d_)));
    return x;
  }
  Mask kept_columns_of(const View& mask) const {
    return {d_.recorder, d_.recorder->cast(d_.recorder->input(mask), sdk::Dtype::boolean)};
  }

  void draw() {
    const Value divisor = IfThenElse(is_cold_, number(d_, 1), temperature_);
    weights_ = sample_weight_of(d_, Div(Sub(x_, largest_), divisor));
    const Mask kept = Filters<D>(d_, call_, x_, weights_).kept();
    const Mask is_cold = And(is_cold_, usable_), is_drawn = AndNot(is_cold_, usable_);
    Mask found = is_drawn;
    const Value id = call_.uniform_samples.is_present() ? drawn_in_rounds(kept, &found) : drawn_from(kept);
    id_ = IfThenElse(is_cold_, id_, as_place(id));
    found_ = Or(is_cold, And(is_drawn, found));
    kept_ = Or(And(kept_, is_cold), And(kept, is_drawn));
  }
  Value drawn_from(Mask kept) const {
    const Value weights = IfThenElseZero(kept, weights_);
    const Words number = sample_random_of(whole_row(call_.seeds, call_.params.seed), whole_row(call_.row_ids, 0),
                                          whole_row(call_.steps, call_.params.step));
    const Value target = Share(number, row_sum(weights)).whole;
    return place_of_sum(d_, weights, Add(target, integer(*d_.recorder, 1)));
  }
  // The first of the rounds whose token is kept, which are asked from the last on.
  Value drawn_in_rounds(Mask kept, Mask* found) const {
    Recorder& recorder = *d_.recorder;
    *found = {&recorder, recorder.number(0, sdk::Dtype::boolean)};
    Value id = Zero(d_);
    if (call_.K == 0) return id;
    const Value shares = Reader<D>{recorder}(permuted(call_.uniform_samples, {1, 0})), one = number(d_, 1);
    const Mask are_shares = And(Ge(shares, Zero(d_)), Lt(shares, one));
    const Words numbers = fixed_point_of(IfThenElseZero(are_shares, shares));
    const Value targets = Share(numbers, row_sum(weights_)).whole;
    const Value is_kept = ones_of(d_, kept), is_share = ones_of(d_, are_shares);
    for (int64_t k = call_.K; k-- > 0;) {
      const Value token = place_of_sum(d_, weights_, Add(column_of(targets, k), integer(recorder, 1)));
      const Mask taken = Gt(Mul(at_column(is_kept, as_place(token)), column_of(is_share, k)), Zero(d_));
      id = IfThenElse(taken, token, id);
      *found = Or(taken, *found);
    }
    return id;
  }

  const D d_;
  const Call& call_;
  const Value x_, largest_, temperature_;
  const Mask broken_, empty_, usable_, is_cold_;  // broken: status 3
  const bool can_draw_;
  Mask found_, kept_{};
  Value id_{}, weights_{};
};

// A mask as bytes of 1 and 0, which is what it is.
inline void put_mask(Recorder& recorder, View view, Mask mask) {
  if (view.is_present()) view.dtype = sdk::Dtype::boolean;
  recorder.output(view, mask.node);
}

}  // namespace rlk::composed

RLK_COMPOSED_SCORES(Sample, SampleTerms(), refuse_sample(call, can), {
  const SampledRows rows(Recording<float>{&recorder}, call);
  recorder.output(of_row(call.ids), rows.id().node);
  recorder.output(of_row(call.status), rows.status().node);
  put_mask(recorder, of_row(call.success), rows.has_token());
  put_mask(recorder, call.keep_mask, rows.kept());
  if (call.processed_logp.is_present()) out(of_row(call.processed_logp), rows.log_probability(d));
  if (!call.logp.is_present()) return;
  const V z = in(call.logits);
  const RowPowers powers = powers_of_row(d, z);
  const V logp = Sub(Sub(at_column(z, rows.place()), powers.largest), powers.log_sum(d));
  out(of_row(call.logp), IfThenElse(rows.has_token(), logp, number(d, std::numeric_limits<double>::quiet_NaN())));
})
