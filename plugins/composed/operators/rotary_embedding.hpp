// Pairs of every head are turned by the angles of the token's position.
#include "../places.hpp"

#include <rlk/formula/rotary.hpp>

RLK_COMPOSED_PLACE_SUMS(RotaryEmbedding, refuse_ids(call.P), {
  const Reader<decltype(d)> in{recorder};
  const bool is_neox = call.params.style == decltype(call.params.style)::neox;
  const double sign = call.params.inverse == decltype(call.params.inverse)::on ? -1 : 1;
  const int64_t offset = call.params.offset;
  const Places positions(recorder, of_row(of_row(call.positions)), call.P);
  positions.report();
  const int angles = recorder.take_rows(recorder.table(call.cos_sin_cache), positions.index().node);
  // NaN of a token whose position is outside.
  const auto angle = [&](int64_t from) {
    return Value{&recorder, recorder.cast(positions.known(recorder.for_heads(angles, from, call.F)), d.kDtype)};
  };
  const Value cosine = angle(0), sine = angle(call.F);
  const auto first = [&](const View& view) {
    return is_neox ? columns(view, offset, call.F) : even_elements(columns(view, offset, 2 * call.F));
  };
  const auto second = [&](const View& view) {
    return is_neox ? columns(view, offset + call.F, call.F) : odd_elements(columns(view, offset, 2 * call.F));
  };
  const auto turn = [&](const View& x, const View& to) {
    if (!to.is_present()) return;
    const auto pair = turned(d, in(first(x)), in(second(x)), cosine, sine, cosine, sine, sign);
    out(first(to), pair.first);
    out(second(to), pair.second);
    const auto keep = [&](int64_t from, int64_t count) {
      if (count > 0)
        recorder.output(columns(to, from, count), positions.known(recorder.input(columns(x, from, count))));
    };
    keep(0, offset);
    keep(offset + 2 * call.F, call.D - offset - 2 * call.F);
  };
  turn(call.query, call.query_out);
  turn(call.key, call.key_out);
})
