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

#include "core/cpu/policy/clamp_gradient.hpp"
#include "core/cpu/simd/sequences.hpp"
#include "core/cpu/simd/skeleton-inl.hpp"

#ifndef RLK_CPU_VALUE_LOSS
#define RLK_CPU_VALUE_LOSS
namespace rlk::cpu {
using namespace sdk::ops::value_loss;  // NOLINT(google-build-using-namespace): its enumerations

using ValueForward = CallOf<sdk::ops::ValueLoss>;
using ValueBackward = CallOf<sdk::ops::ValueLossBackward>;

struct ValueSums {
  double loss, tokens, clipped;
};

// What a sequence's sum is divided by before the sequences are summed.
template <class Params>
double sequence_denominator(const Params& params, double tokens) {
  return params.aggregation == Aggregation::seq_mean_token_mean ? std::max(tokens, params.seq_denominator_floor) : 1.0;
}

template <class Params>
double denominator(const Params& params, int64_t sequences, double tokens, double nonempty) {
  if (params.denominator > 0) return params.denominator;
  if (params.aggregation == Aggregation::token_mean) return std::max(tokens, 1.0);
  if (params.aggregation == Aggregation::token_sum || params.aggregation == Aggregation::none) return 1;
  const bool exclude = params.exclude_empty_sequences == ExcludeEmptySequences::on;
  return std::max(exclude ? nonempty : static_cast<double>(sequences), 1.0);
}

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

}  // namespace rlk::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace rlk::cpu::HWY_NAMESPACE {

template <class V>
struct ValueClip {
  V error, clipped_error, plain, clip, low, high;
};

// What both directions take of a token.
template <class D, class V = hn::VFromD<D>>
HWY_INLINE ValueClip<V> clip_value(D d, V value, V target, V old_value, double clip_eps) {
  const V eps = hn::Set(d, clip_eps), low = hn::Sub(old_value, eps), high = hn::Add(old_value, eps);
  const auto inside = hn::And(hn::Ge(value, low), hn::Le(value, high));
  const V clipped = hn::IfThenElse(inside, value, hn::IfThenElse(hn::Lt(value, low), low, high));
  const V error = hn::Sub(value, target), clipped_error = hn::Sub(clipped, target);
  const V plain = hn::Mul(error, error), clip = hn::Mul(clipped_error, clipped_error);
  return {error, clipped_error, plain, clip, low, high};
}

// The larger of both errors; NaN where the plain one is.
template <class D, class V = hn::VFromD<D>>
HWY_INLINE V value_loss_of(D d, V value, V target, V old_value, double clip_eps) {
  const auto token = clip_value(d, value, target, old_value, clip_eps);
  const auto takes_plain = hn::Or(hn::IsNaN(token.plain), hn::Gt(token.plain, token.clip));
  return hn::Mul(hn::Set(d, 0.5), hn::IfThenElse(takes_plain, token.plain, token.clip));
}

// With what the clip passes of the gradient at its bounds.
template <class D, class V = hn::VFromD<D>>
HWY_INLINE V value_slope_of(D d, V value, V target, V old_value, double clip_eps, double gradient_at_bound) {
  const auto token = clip_value(d, value, target, old_value, clip_eps);
  const V one = hn::Set(d, 1.0), zero = hn::Zero(d), at_bound = hn::Set(d, gradient_at_bound);
  V passed = hn::Mul(hn::IfThenElse(hn::Eq(value, token.low), at_bound, one),
                     hn::IfThenElse(hn::Eq(value, token.high), at_bound, one));
  passed = hn::IfThenElse(hn::IsInf(value), one, passed);
  passed = hn::IfThenElse(hn::Or(hn::Lt(value, token.low), hn::Gt(value, token.high)), zero, passed);
  // The gradient of torch.max: all of it to the larger side, half to each at equality.
  const V share = hn::IfThenElse(hn::Gt(token.plain, token.clip), one,
                                 hn::IfThenElse(hn::Gt(token.clip, token.plain), zero, hn::Set(d, 0.5)));
  const V through_clip = hn::Mul(hn::Mul(passed, hn::Sub(one, share)), token.clipped_error);
  const V slope = hn::MulAdd(share, token.error, hn::IfThenElse(hn::Gt(passed, zero), through_clip, zero));
  // torch.max with a NaN gives its gradient to both sides
  return hn::IfThenElse(hn::IsNaN(token.clip), token.clip, slope);
}

void value_sequences(const ValueForward& call, const Sequences& sequences, const Context& context) {
  auto* sums = static_cast<ValueSums*>(context.workspace);
  const double clip = clip_of(call);
  const auto loss = [clip](auto d, auto value, auto target, auto old_value, auto mask) HWY_ATTR {
    return hn::IfThenElseZero(hn::Ne(mask, hn::Zero(d)), value_loss_of(d, value, target, old_value, clip));
  };
  const auto is_kept = [](auto d, auto, auto, auto, auto mask)
                           HWY_ATTR { return hn::IfThenElseZero(hn::Ne(mask, hn::Zero(d)), hn::Set(d, 1.0)); };
  const auto is_clipped = [clip](auto d, auto value, auto target, auto old_value, auto mask) HWY_ATTR {
    const auto token = clip_value(d, value, target, old_value, clip);
    return hn::IfThenElseZero(hn::And(hn::Gt(token.clip, token.plain), hn::Ne(mask, hn::Zero(d))), hn::Set(d, 1.0));
  };
  for_each_sequence(sequences, context.parallel, [&](int64_t b) HWY_ATTR {
    const std::array<Line, 4> tokens = tokens_of(call, sequences, b);
    const int64_t length = sequences.tokens(b);
    const auto of_sequence = sums_of_lines<double>(tokens, length, loss, is_kept, is_clipped);
    sums[b] = {of_sequence[0], of_sequence[1], of_sequence[2]};
    if (!call.token_loss.present()) return;
    map_lines<double>(to(line_of(sequences, call.token_loss, b)), tokens, length, loss);
  });
}

// The number of tokens of every sequence.
void value_tokens(const ValueBackward& call, const Sequences& sequences, const Context& context) {
  auto* counts = static_cast<double*>(context.workspace);
  for_each_sequence(sequences, context.parallel, [&](int64_t b) HWY_ATTR {
    const Line mask = line_of(sequences, call.mask, b);
    const int64_t length = sequences.tokens(b);
    const auto is_kept = [](auto d, auto kept)
                             HWY_ATTR { return hn::IfThenElseZero(hn::Ne(kept, hn::Zero(d)), hn::Set(d, 1.0)); };
    counts[b] = mask.present() ? sum_of_lines<double>(from(mask), length, is_kept) : static_cast<double>(length);
  });
}

// of_sequence is the gradient that every token of a sequence has from the loss, before its own slope.
void value_gradients(const ValueBackward& call, const Sequences& sequences, const Context& context, double of_loss) {
  const auto* counts = static_cast<const double*>(context.workspace);
  const double clip = clip_of(call), at_bound = gradient_at_bound(call.params.clamp_gradient);
  for_each_sequence(sequences, context.parallel, [&](int64_t b) HWY_ATTR {
    const auto [value, target, old_value, mask] = tokens_of(call, sequences, b);
    const Line of_token = or_zero(line_of(sequences, call.grad_token_loss, b));
    const double of_sequence = of_loss / sequence_denominator(call.params, counts[b]);
    const auto gradient = [=](auto d, auto v, auto t, auto old, auto kept, auto own) HWY_ATTR {
      const auto slope = value_slope_of(d, v, t, old, clip, at_bound);
      const auto product = hn::Mul(hn::Add(hn::Set(d, of_sequence), own), slope);
      return hn::IfThenElseZero(hn::Ne(kept, hn::Zero(d)), product);
    };
    map_lines<double>(to(line_of(sequences, call.grad_values, b)), from(value, target, old_value, mask, of_token),
                      sequences.tokens(b), gradient);
  });
}

}  // namespace rlk::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rlk::cpu {

HWY_EXPORT(value_sequences);
HWY_EXPORT(value_tokens);
HWY_EXPORT(value_gradients);

namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

template <class Call>
int64_t workspace_bytes(const Call& call) {
  return call.B * static_cast<int64_t>(sizeof(ValueSums));
}

template <class Call>
double operations(const Call& call) {
  return static_cast<double>(call.params.layout == Layout::packed ? call.N : call.B * call.L) * 200;
}

DataError value_loss(const ValueForward& call, const Context& context) {
  const Sequences sequences = sequences_of(call.values, call.cu_seqlens);
  if (const DataError error = sequences.error(); error.kind != kNoDataError) {
    call.loss.put(0, kNan);
    if (call.clip_fraction.present()) call.clip_fraction.put(0, kNan);
    fill(sequences, call.token_loss, kNan);
    return error;
  }
  HWY_DYNAMIC_DISPATCH(value_sequences)(call, sequences, context);
  const auto* sums = static_cast<const ValueSums*>(context.workspace);
  LongSum loss;
  double tokens = 0, clipped = 0, nonempty = 0;
  for (int64_t b = 0; b < sequences.count; ++b) {
    loss.add(sums[b].loss / sequence_denominator(call.params, sums[b].tokens));
    tokens += sums[b].tokens;
    clipped += sums[b].clipped;
    nonempty += sums[b].tokens > 0 ? 1 : 0;
  }
  const bool reduced = call.params.aggregation != Aggregation::none;
  call.loss.put(0, reduced ? loss.value() / denominator(call.params, sequences.count, tokens, nonempty) : 0.0);
  if (call.clip_fraction.present()) call.clip_fraction.put(0, clipped / std::max(tokens, 1.0));
  return {};
}

DataError value_loss_backward(const ValueBackward& call, const Context& context) {
  const Sequences sequences = sequences_of(call.values, call.cu_seqlens);
  if (const DataError error = sequences.error(); error.kind != kNoDataError) {
    fill(sequences, call.grad_values, kNan);
    return error;
  }
  HWY_DYNAMIC_DISPATCH(value_tokens)(call, sequences, context);
  const auto* counts = static_cast<const double*>(context.workspace);
  double tokens = 0, nonempty = 0;
  for (int64_t b = 0; b < sequences.count; ++b) {
    tokens += counts[b];
    nonempty += counts[b] > 0 ? 1 : 0;
  }
  const bool reduced = call.params.aggregation != Aggregation::none;
  const double of_loss =
      reduced ? call.grad_loss.get(0) / denominator(call.params, sequences.count, tokens, nonempty) : 0.0;
  HWY_DYNAMIC_DISPATCH(value_gradients)(call, sequences, context, of_loss);
  return {};
}

}  // namespace

RLK_CPU_KERNEL(ValueLoss, .run = value_loss, .operations = operations<ValueForward>,
               .workspace_bytes = workspace_bytes<ValueForward>);
RLK_CPU_KERNEL(ValueLossBackward, .run = value_loss_backward, .operations = operations<ValueBackward>,
               .workspace_bytes = workspace_bytes<ValueBackward>);

}  // namespace rlk::cpu
#endif  // HWY_ONCE
