// Pairs of every head are turned by the cosines and sines of the token.
#include "../rows.hpp"

#include <rlk/formula/rotary.hpp>

RLK_COMPOSED_ROWS(ApplyRotaryPosEmb, {
  const bool is_neox = call.params.style == decltype(call.params.style)::neox;
  const double sign = call.params.inverse == decltype(call.params.inverse)::on ? -1 : 1;
  const auto first = [&](const View& view) { return is_neox ? first_half(view) : even_elements(view); };
  const auto second = [&](const View& view) { return is_neox ? second_half(view) : odd_elements(view); };
  const View cosine = every_head(call.cos);
  const View sine = every_head(call.sin);
  const auto turn = [&](const View& x, const View& to) {
    if (!to.is_present()) return;
    const Two<V> pair = turned(d, in(first(x)), in(second(x)), in(first(cosine)), in(first(sine)), in(second(cosine)),
                               in(second(sine)), sign);
    out(first(to), pair.first);
    out(second(to), pair.second);
  };
  turn(call.query, call.query_out);
  turn(call.key, call.key_out);
})
