// The clipped squared error of a value function, per token and reduced, and its gradient. In fp64, one pass over
// memory.
//
// Every sequence is summed in token order, and the sequences in their order, so that bits do not depend on threads.
#include <rlk/sdk/ops/value_loss.hpp>
#include <rlk/sdk/ops/value_loss_backward.hpp>

#include <algorithm>
#include <cmath>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/cpu/policy/value_loss.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "core/cpu/policy/estimates-inl.hpp"
#include "core/cpu/simd/data_error.hpp"
#include "core/cpu/simd/sequences.hpp"
#include "core/cpu/simd/skeleton-inl.hpp"

#include <rlk/formula/loss_weights.hpp>
#include <rlk/formula/value_loss.hpp>

HWY_BEFORE_NAMESPACE();
namespace rlk::cpu::HWY_NAMESPACE {
using formula::LossWeights;
using ValueForward = CallOf<sdk::ops::ValueLoss>;
using ValueBackward = CallOf<sdk::ops::ValueLossBackward>;

// Of a sequence's tokens.
struct ValueSums {
  double loss, active, clipped;
};

// The clip of a call: without old values its bounds are infinite.
template <class Call>
double clip_of(const Call& call) {
  return call.old_values.present() ? call.params.clip_eps : std::numeric_limits<double>::infinity();
}

// The tokens of a sequence as the formula takes them: value, target, old value, mask.
template <class Call>
std::array<Line, 4> tokens_of(const Call& call, const Sequences& sequences, int64_t b) {
  return from(line_of(sequences, call.values, b), line_of(sequences, call.returns, b),
              or_zero(line_of(sequences, call.old_values, b)), or_one(line_of(sequences, call.mask, b)));
}

DataError value_loss(const ValueForward& call, const Context& context) {
  const Sequences sequences = sequences_of(call.values, call.cu_seqlens);
  if (const DataError error = sequences.error(); error.kind != kNoDataError) return all_nan(call, error);
  auto* sums = static_cast<ValueSums*>(context.workspace);
  const double eps = clip_of(call);
  const auto loss_of = [eps](auto d, auto value, auto target, auto old_value, auto mask) HWY_ATTR {
    return if_kept(d, mask, value_loss_of(d, clip_value(d, value, target, old_value, eps)));
  };
  const auto is_active = [](auto d, auto, auto, auto, auto mask) HWY_ATTR { return if_kept(d, mask, hn::Set(d, 1.0)); };
  const auto is_clipped = [eps](auto d, auto value, auto target, auto old_value, auto mask) HWY_ATTR {
    const auto token = clip_value(d, value, target, old_value, eps);
    return if_kept(d, mask, hn::IfThenElseZero(hn::Gt(token.clip, token.plain), hn::Set(d, 1.0)));
  };
  for_each_sequence(sequences, context.parallel, [&](int64_t b) HWY_ATTR {
    const std::array<Line, 4> tokens = tokens_of(call, sequences, b);
    const int64_t length = sequences.tokens(b);
    const auto [loss, active, clipped] = sums_of_lines<double>(tokens, length, loss_of, is_active, is_clipped);
    sums[b] = {loss, active, clipped};
    if (!call.token_loss.present()) return;
    map_lines<double>(to(line_of(sequences, call.token_loss, b)), tokens, length, loss_of);
  });
  LossWeights weights = formula::loss_weights(call.params);
  LongSum loss;
  double clipped = 0;
  for (int64_t b = 0; b < sequences.count; ++b) weights.add_sequence(sums[b].active);
  for (int64_t b = 0; b < sequences.count; ++b) {
    loss.add(weights.weighted(sums[b].loss, sums[b].active));
    clipped += sums[b].clipped;
  }
  call.loss.put(0, loss.value());
  if (call.clip_fraction.present()) call.clip_fraction.put(0, clipped / std::max(weights.tokens, 1.0));
  return {};
}

DataError value_loss_backward(const ValueBackward& call, const Context& context) {
  const Sequences sequences = sequences_of(call.values, call.cu_seqlens);
  if (const DataError error = sequences.error(); error.kind != kNoDataError) return all_nan(call, error);
  auto* active = static_cast<double*>(context.workspace);  // tokens of each sequence
  for_each_sequence(sequences, context.parallel, [&](int64_t b) HWY_ATTR {
    const Line mask = line_of(sequences, call.mask, b);
    const int64_t length = sequences.tokens(b);
    const auto is_active = [](auto d, auto kept) HWY_ATTR { return if_kept(d, kept, hn::Set(d, 1.0)); };
    active[b] = mask.present() ? sum_of_lines<double>(from(mask), length, is_active) : static_cast<double>(length);
  });
  LossWeights weights = formula::loss_weights(call.params);
  for (int64_t b = 0; b < sequences.count; ++b) weights.add_sequence(active[b]);
  const double eps = clip_of(call), at_bound = gradient_at_bound(call.params.clamp_gradient);
  for_each_sequence(sequences, context.parallel, [&](int64_t b) HWY_ATTR {
    const auto [value, target, old_value, mask] = tokens_of(call, sequences, b);
    const Line of_token = or_zero(line_of(sequences, call.grad_token_loss, b));
    const double of_loss = weights.weighted(call.grad_loss.get(0), active[b]);
    const auto gradient = [=](auto d, auto v, auto t, auto old, auto kept, auto own) HWY_ATTR {
      const auto slope = value_slope_of(d, v, t, old, eps, at_bound);
      return if_kept(d, kept, hn::Mul(hn::Add(hn::Set(d, of_loss), own), slope));
    };
    map_lines<double>(to(line_of(sequences, call.grad_values, b)), from(value, target, old_value, mask, of_token),
                      sequences.tokens(b), gradient);
  });
  return {};
}

}  // namespace rlk::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

namespace rlk::cpu {

RLK_CPU_VECTOR_KERNEL(
    ValueLoss, value_loss, .operations = per_input_element<200>, .workspace_bytes = [](const auto& call) {
      return call.B * static_cast<int64_t>(sizeof(HWY_NAMESPACE::ValueSums));
    });
RLK_CPU_VECTOR_KERNEL(
    ValueLossBackward, value_loss_backward, .operations = per_input_element<200>,
    .workspace_bytes = [](const auto& call) { return call.B * static_cast<int64_t>(sizeof(double)); });

}  // namespace rlk::cpu
