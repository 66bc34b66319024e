// Rotary embedding by cosines and sines of each token.
#include <rlk/sdk/ops/apply_rotary_pos_emb.hpp>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/cpu/position/apply_rotary_pos_emb.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "core/cpu/position/rotary-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace rlk::cpu::HWY_NAMESPACE {

void apply_rotary_pos_emb(const CallOf<sdk::ops::ApplyRotaryPosEmb>& call, const Context& context) {
  using namespace sdk::ops::apply_rotary_pos_emb;  // NOLINT(google-build-using-namespace): its enumerations
  const bool are_halves = call.params.style == Style::neox;
  const auto members = [&](const Array& array, int64_t n, int64_t which) {
    Line line = line_of(array, n).from(which * (are_halves ? call.F : 1));
    if (!are_halves) line.stride *= 2;
    return line;
  };
  with_compute_type(from(call.query), [&](auto tc) HWY_ATTR {
    for_each_row(context, call.N, call.Hq * 2 * call.F, [&](int64_t n) HWY_ATTR {
      const Turn turn = {0,
                         call.F,
                         are_halves,
                         call.params.inverse == Inverse::on,
                         members(call.cos, n, 0),
                         members(call.sin, n, 0),
                         members(call.cos, n, 1),
                         members(call.sin, n, 1)};
      turn_heads<decltype(tc)>(call.query, call.query_out, n, turn);
      if (call.key.present()) turn_heads<decltype(tc)>(call.key, call.key_out, n, turn);
    });
  });
}

}  // namespace rlk::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

namespace rlk::cpu {

RLK_CPU_VECTOR_KERNEL(ApplyRotaryPosEmb, apply_rotary_pos_emb, .operations = per_element<10>);

}  // namespace rlk::cpu
