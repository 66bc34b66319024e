// What attention over samples that share a prefix, and the gradients of attention with and without one, have in common
// (../attention_samples.h): tensors as kernel arguments, parameters, reasons to decline.
#pragma once

#include <rlk/sdk/arguments.hpp>
#include <rlk/sdk/ops/attention_backward.hpp>
#include <rlk/sdk/ops/prefix_shared_attention.hpp>
#include <rlk/sdk/ops/prefix_shared_attention_backward.hpp>

#include "../attention_samples.h"
#include "attention.hpp"

namespace rlk::simt::host {

// The symbols that a plan leaves open: all but the heads, whose number and size choose kernels.
template <class Op>
uint64_t sample_symbols() {
  using Named = sdk::Arguments<Op>;
  return ((uint64_t{1} << Op::kSymbols) - 1) & ~sdk::bits_of(&Named::Hq, &Named::Hkv, &Named::D);
}

// Which dimension of a tensor is what: [batch, sample, token, head, ...], -1 where it has none.
struct SampleAxes {
  int32_t batch, sample, token;
};
constexpr SampleAxes kOfSample = {0, 1, 2}, kOfPrefix = {0, -1, 1}, kOfSequence = {0, -1, 1}, kOfPacked = {-1, -1, 0};

inline simt::SampleTensor samples_of(const rlk_tensor* tensor, const SampleAxes& axes) {
  if (tensor == nullptr) return {};
  const auto stride = [&](int32_t axis) { return axis < 0 ? 0 : tensor->strides[axis]; };
  return {sdk::data_of(tensor), stride(axes.batch), stride(axes.sample), stride(axes.token), stride(axes.token + 1)};
}
inline simt::SampleMask mask_of(const rlk_tensor* mask, const SampleAxes& axes) {
  if (mask == nullptr) return {};
  const auto stride = [&](int32_t axis) { return axis < 0 ? 0 : mask->strides[axis]; };
  return {sdk::data_of<const uint8_t>(mask), stride(axes.batch), stride(axes.sample), stride(axes.token)};
}

// What attention has with and without a prefix.
template <class Arguments>
void set_attention(simt::SampleAttentionArgs& args, const Arguments& call, const SampleAxes& axes) {
  args.q = samples_of(call.q, axes);
  args.out = samples_of(call.out, axes);
  args.lse = samples_of(call.lse, axes);
  args.k = samples_of(call.k, axes);
  args.v = samples_of(call.v, axes);
  args.key_mask = mask_of(call.key_mask, axes);
  args.batches = call.B;
  args.samples = 1;
  args.queries = call.Sq;
  args.keys = call.Sk;
  set_heads_and_scores(args, call);
  args.top_left = is_top_left(call) ? 1 : 0;
}

template <class Arguments>
void set_samples(simt::SampleAttentionArgs& args, const Arguments& call) {
  set_attention(args, call, kOfSample);
  args.prefix_k = samples_of(call.prefix_k, kOfPrefix);
  args.prefix_v = samples_of(call.prefix_v, kOfPrefix);
  args.prefix_mask = mask_of(call.prefix_mask, kOfPrefix);
  args.samples = call.G;
  args.prefix_keys = call.Sp;
}

// Every query with every key of its sample, once.
template <class Arguments>
double sample_pairs(const Arguments& call) {
  return static_cast<double>(call.B * call.G) * static_cast<double>(call.Sq * call.Hq) *
         static_cast<double>(call.Sp + call.Sk);
}

}  // namespace rlk::simt::host
