// What shards of the vocabulary answered, as one answer.
#include "../scores.hpp"

namespace rlk::composed {

struct MergeOptions {
  static constexpr bool asks_f64() { return false; }
};

// A shard's numbers, one for each row.
inline View of_shard(View view, int64_t shard) {
  if (!view.is_present()) return view;
  view.byte_offset += shard * view.strides[0] * sdk::bytes_of(view.dtype);
  view.dims = {view.dims[1], 1};
  view.strides = {view.strides[1], 1};
  return view;
}

}  // namespace rlk::composed

RLK_COMPOSED_SCORES(LogpMerge, MergeOptions(), std::nullopt, {
  const V zero = Zero(d), infinity = Inf(d), hidden = Neg(infinity);
  const auto no = [&] { return Mask{&recorder, recorder.number(0, sdk::Dtype::boolean)}; };
  Mask is_ignored = Not(no()), is_undefined = no(), is_owned = no();
  V largest = hidden, own = hidden, own_lse = zero;
  for (int64_t s = 0; s < call.S; ++s) {
    const V logp = in(of_shard(call.shard_logp, s)), lse = in(of_shard(call.shard_lse, s));
    const Mask owns = Ne(logp, hidden);
    is_ignored = And(is_ignored, Eq(logp, zero));
    is_undefined = Or(is_undefined, Or(Or(IsNaN(logp), IsNaN(lse)), Or(Eq(lse, infinity), And(is_owned, owns))));
    is_owned = Or(is_owned, owns);
    own = IfThenElse(owns, logp, own);
    own_lse = IfThenElse(owns, lse, own_lse);
    largest = IfThenElse(Gt(lse, largest), lse, largest);
  }
  if (call.S == 1) is_ignored = no();
  const Mask is_defined = Not(is_undefined), is_active = Not(is_ignored), is_empty = Eq(largest, hidden);
  recorder.report(And(And(is_active, is_defined), is_empty).node);
  const Mask valid = And(is_defined, Not(is_empty));

  V sum = zero;
  for (int64_t s = 0; s < call.S; ++s) sum = Add(sum, exp(d, Sub(in(of_shard(call.shard_lse, s)), largest)));
  const V log_sum = log(d, sum);
  out(of_row(call.lse), answer_of(d, is_active, valid, Add(largest, log_sum)));
  const V of_owner = Add(own, Sub(Sub(own_lse, largest), log_sum));
  out(of_row(call.logp), answer_of(d, is_active, valid, IfThenElse(is_owned, of_owner, hidden)));
  V entropy = zero;
  for (int64_t s = 0; s < call.S && call.shard_entropy.is_present(); ++s) {
    const V lse = in(of_shard(call.shard_lse, s)), below = Sub(lse, largest);
    const V term = Mul(Div(exp(d, below), sum), Sub(in(of_shard(call.shard_entropy, s)), Sub(below, log_sum)));
    entropy = Add(entropy, IfThenZeroElse(Eq(lse, hidden), term));
  }
  out(of_row(call.entropy), answer_of(d, is_active, valid, entropy));
})
