// Advantages of tokens over a baseline of their own position, of the sequences of a group.
#include "../scans.hpp"

namespace rlk::composed {

template <class Call>
sdk::Refusal refuse_baseline(const Call& call) {
  const char* reason = nullptr;
  if (call.group_ids.is_present()) reason = "groups by ids are not composed of primitives; runs of samples are";
  if (call.params.position == decltype(call.params.position)::active && call.mask.is_present())
    reason = "position active under a mask is not composed of primitives";
  if (reason != nullptr) return sdk::Support::no("PARAMETER", reason);
  return refuse_packed(call.cu_seqlens);
}

}  // namespace rlk::composed

RLK_COMPOSED_TOKENS(OptimalTokenBaseline, refuse_baseline(call), {
  const int64_t samples = call.params.samples_per_prompt > 0 ? call.params.samples_per_prompt : call.B;
  const Tokens<D> tokens(d, call.rewards, call.mask);
  const auto kept = [&](V x) { return IfThenElseZero(tokens.mask(), x); };
  const V weight = in(or_number(call.weight, 1)), one = number(d, 1);
  const V share = Add(NegMulAdd(number(d, 2), exp(d, in(call.logp)), one), in(call.sum_p2));
  const V to_go = kept(sums_along(d, kept(in(call.rewards)), true));
  const V variance = kept(sums_along(d, kept(Mul(share, Mul(weight, weight))), false));
  if (samples > 1) {
    const Dims dims = {call.B / samples, samples, tokens.length()};
    const V sum = sum_along(reshaped(Mul(to_go, variance), dims), 1);
    const V divisor = Add(sum_along(reshaped(variance, dims), 1), number(d, call.params.eps));
    V of_group = Div(sum, divisor);
    // Without a mask no sequence is longer than another.
    if (call.params.zero_tail == decltype(call.params.zero_tail)::on && call.mask.is_present()) {
      // What only the one longest sequence of a group reaches, by numbers of active tokens.
      const V length = reshaped(tokens.counts(tokens.mask()), {dims[0], samples});
      const V longest = row_largest(length);
      const Mask is_longest = Eq(length, longest);
      const V others = row_largest(IfThenElse(is_longest, number(d, -1), length));
      const V many = row_sum(IfThenElse(is_longest, one, Zero(d)));
      const V second = IfThenElse(Gt(many, one), longest, others);
      const Mask is_alone = And(reshaped(Gt(length, second), {dims[0], samples, 1}),
                                Ge(tokens.positions(), reshaped(second, {dims[0], 1, 1})));
      of_group = IfThenZeroElse(is_alone, of_group);
    }
    const V each = Sub(reshaped(to_go, dims), of_group);
    out(call.advantages, kept(reshaped(each, {call.B, tokens.length()})));
  } else {
    out(call.advantages, to_go);
  }
  out(call.returns, to_go);
})
