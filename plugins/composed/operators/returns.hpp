// What a token's rewards and those behind it amount to: generalised advantage estimation, and discounted returns.
#include "../scans.hpp"

RLK_COMPOSED_TOKENS(Gae,
                    refuse_growth(call.cu_seqlens, call.params.gamma* call.params.lam,
                                  "gamma times lam above 1 is not composed of primitives: its powers overflow"),
                    {
                      using Rule = decltype(call.params.mask_rule);
                      const Tokens<D> tokens(d, call.rewards, call.mask);
                      const Timeline<D> timeline(d, tokens, call.mask, call.rewards.dims[1]);
                      const bool carries = call.params.mask_rule == Rule::carry;
                      const double gamma = call.params.gamma, decay = gamma * call.params.lam;
                      const V reward = IfThenElseZero(tokens.mask(), in(call.rewards));
                      const V value = IfThenElseZero(tokens.mask(), in(call.values));
                      const V behind = in(or_number(of_row(call.bootstrap), 0));
                      const V next = carries ? timeline.next_kept(value, behind) : timeline.next(value, behind);
                      const V delta = Sub(MulAdd(number(d, gamma), next, reward), value);
                      const Mask goes_in = carries ? tokens.mask() : timeline.is_inside();
                      const V factor =
                          carries ? IfThenElse(tokens.mask(), number(d, decay), number(d, 1)) : number(d, decay);
                      const V advantage = recursion(d, IfThenElseZero(goes_in, delta), factor, Zero(d));
                      out(call.advantages, IfThenElseZero(tokens.mask(), advantage));
                      out(call.returns, IfThenElseZero(tokens.mask(), Add(advantage, value)));
                    })
RLK_COMPOSED_TOKENS(Returns,
                    refuse_growth(call.cu_seqlens, call.params.gamma,
                                  "gamma above 1 is not composed of primitives: its powers overflow"),
                    {
                      using Rule = decltype(call.params.mask_rule);
                      const Rule rule = call.params.mask_rule;
                      const Tokens<D> tokens(d, call.rewards, call.mask);
                      const Timeline<D> timeline(d, tokens, call.mask, call.rewards.dims[1]);
                      const V gamma = number(d, call.params.gamma), one = number(d, 1);
                      const V reward = IfThenElseZero(tokens.mask(), in(call.rewards));
                      const V behind = in(or_number(of_row(call.bootstrap), 0));
                      const V own = IfThenElse(timeline.is_last(), MulAdd(gamma, behind, reward), reward);
                      const V factor = rule == Rule::carry ? IfThenElse(tokens.mask(), gamma, one) : gamma;
                      const V cut = rule == Rule::reset ? IfThenElse(tokens.mask(), Zero(d), one) : Zero(d);
                      out(call.returns, IfThenElseZero(tokens.mask(), recursion(d, own, factor, cut)));
                    })
