// Calls of attention and of its backward with random numbers, and the kernel against golden.
#pragma once

#include <rlk/sdk/ops/attention.hpp>
#include <rlk/sdk/ops/attention_backward.hpp>

#include "core/cpu/simd/amx.hpp"
#include "unit/cpu/operator.hpp"

namespace rlk::test {

using sdk::ops::attention::Causal;
using sdk::ops::attention::CausalAlignment;
using sdk::ops::attention::Layout;

using Attention = CallOf<ops::Attention>;
using AttentionBackward = CallOf<ops::AttentionBackward>;

struct Heads {
  int64_t q, kv, size;
};

// Every instruction set in turn, then the tile unit number by number where this machine has none.
template <typename Body>
void for_each_attention_target(const Body& body) {
  for_each_target(body);
  if (cpu::has_amx()) return;
  SCOPED_TRACE("emulated tiles");
  cpu::emulate_amx(true);
  body();
  cpu::emulate_amx(false);
}

// lse is asked for. Strides are those of inputs and outputs.
Attention dense_attention(Dtype dtype, int64_t batch, int64_t queries, int64_t keys, Heads heads,
                          Strides strides = Strides::contiguous);
Attention packed_attention(Dtype dtype, const std::vector<int64_t>& q_lengths, const std::vector<int64_t>& k_lengths,
                           Heads heads, Dtype index = Dtype::i32);

// The kernel against golden, and the same bits from every hook.
void expect_golden(const Attention& c);
void expect_golden(const AttentionBackward& c);

// With out and lse of golden's forward, rounded to their dtypes, and random gradients.
AttentionBackward with_gradients(const Attention& c, bool grad_lse, uint32_t seed);

}  // namespace rlk::test
