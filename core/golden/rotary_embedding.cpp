// Pairs of numbers of each head turned by an angle: the declarations' formulas, fp64.
#include <rlk/sdk/ops/apply_rotary_pos_emb.hpp>
#include <rlk/sdk/ops/rotary_embedding.hpp>

#include "core/golden/operator.hpp"
#include "core/golden/tracked.hpp"

namespace rlk::golden {
namespace {

// Of token n: elements [offset, offset + turned) of every head. cos(i, which) and sin are those of one member of pair
// i.
template <class Params, class Cos, class Sin>
void turn(const View& in, Output& out, int64_t n, int64_t offset, int64_t turned, const Params& params, const Cos& cos,
          const Sin& sin) {
  using Style = decltype(params.style);
  using Inverse = decltype(params.inverse);
  for (int64_t h = 0; in.present() && h < in.shape[1]; ++h) {
    for (int64_t d = 0; d < in.shape[2]; ++d) {
      const int64_t at = d - offset;
      if (at < 0 || at >= turned) {
        put(out, Tracked(in.load(n, h, d)));
        continue;
      }
      const bool is_neox = params.style == Style::neox;
      const int64_t which = is_neox ? at / (turned / 2) : at % 2, pair = is_neox ? at % (turned / 2) : at / 2;
      const int64_t other = d + (which == 0 ? 1 : -1) * (is_neox ? turned / 2 : 1);
      const double sign = (which == 0) == (params.inverse == Inverse::off) ? -1 : 1;
      put(out, Tracked(in.load(n, h, d)) * Tracked(cos(pair, which)) +
                   Tracked(in.load(n, h, other)) * Tracked(sign * sin(pair, which)));
    }
  }
}

}  // namespace

DataError rotary_embedding(CallOf<sdk::ops::RotaryEmbedding>& call) {
  DataError first;
  for (int64_t n = 0; n < call.N; ++n) {
    const int64_t position = call.positions.load_int(n);
    const bool is_good = position >= 0 && position < call.P;
    if (!is_good && first.kind == kNoDataError) first = {kIdOutOfRange, n, position};
    const auto number = [&](int64_t i) {
      return is_good ? call.cos_sin_cache.load(position, i) : std::numeric_limits<double>::quiet_NaN();
    };
    const auto cos = [&](int64_t pair, int64_t) { return number(pair); };
    const auto sin = [&](int64_t pair, int64_t) { return number(call.F + pair); };
    turn(call.query, call.query_out, n, call.params.offset, 2 * call.F, call.params, cos, sin);
    turn(call.key, call.key_out, n, call.params.offset, 2 * call.F, call.params, cos, sin);
    for (Output* out : {&call.query_out, &call.key_out}) {
      const View& in = out == &call.query_out ? call.query : call.key;
      if (is_good || !in.present()) continue;
      const auto size = static_cast<std::ptrdiff_t>(in.shape[1] * in.shape[2]);  // also what is not turned
      std::fill(out->value.end() - size, out->value.end(), std::numeric_limits<double>::quiet_NaN());
    }
  }
  return first;
}

DataError apply_rotary_pos_emb(CallOf<sdk::ops::ApplyRotaryPosEmb>& call) {
  using Style = sdk::ops::apply_rotary_pos_emb::Style;
  for (int64_t n = 0; n < call.N; ++n) {
    const auto of = [&](const View& numbers) {
      return [&, n](int64_t pair, int64_t which) {
        const bool is_neox = call.params.style == Style::neox;
        return numbers.load(n, is_neox ? pair + which * call.F : 2 * pair + which);
      };
    };
    turn(call.query, call.query_out, n, 0, 2 * call.F, call.params, of(call.cos), of(call.sin));
    turn(call.key, call.key_out, n, 0, 2 * call.F, call.params, of(call.cos), of(call.sin));
  }
  return {};
}

}  // namespace rlk::golden
