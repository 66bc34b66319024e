// prefix_shared_attention is attention over the prefix and each sample's own keys in one piece, bit for bit, whatever
// the lengths are: RL-Kernel's kernel is right for multiples of 64 alone.
#include <rlk/sdk/forward.hpp>
#include <rlk/sdk/ops/prefix_shared_attention.hpp>
#include <rlk/sdk/ops/prefix_shared_attention_backward.hpp>

#include "unit/cpu/attention_case.hpp"
#include "unit/cpu/token_case.hpp"

namespace rlk::test {
namespace {

using Shared = CallOf<ops::PrefixSharedAttention>;

struct Lengths {
  int64_t groups, samples, queries, prefix, own;
};

Shared random_call(Dtype dtype, Lengths lengths, Heads heads) {
  const auto [b, g, sq, sp, sk] = lengths;
  Shared c;
  c.q = random_tensor(dtype, {b, g, sq, heads.q, heads.size}, 1.0, 1);
  c.prefix_k = random_tensor(dtype, {b, sp, heads.kv, heads.size}, 1.0, 2);
  c.prefix_v = random_tensor(dtype, {b, sp, heads.kv, heads.size}, 1.0, 3);
  c.k = random_tensor(dtype, {b, g, sk, heads.kv, heads.size}, 1.0, 4);
  c.v = random_tensor(dtype, {b, g, sk, heads.kv, heads.size}, 1.0, 5);
  c.lse = wanted();
  return c;
}

// Every sample as a sequence of its own, its prefix before its keys.
Attention in_one_piece(const Shared& c, Lengths lengths, Heads heads) {
  const auto [b, g, sq, sp, sk] = lengths;
  const int64_t keys = sp + sk, row = heads.kv * heads.size;
  const auto joined = [&, n = b * g, prefix = sp, own = sk, samples = g](const Tensor& first, const Tensor& rest,
                                                                         int64_t size) {
    std::vector<int64_t> shape = {n, keys};
    if (size > 1) shape.insert(shape.end(), {heads.kv, heads.size});
    return Tensor(first.dtype(), shape).fill([&](int64_t i) {
      const int64_t sample = i / size / keys, j = i / size % keys;
      return j < prefix ? first.get((sample / samples * prefix + j) * size + i % size)
                        : rest.get((sample * own + j - prefix) * size + i % size);
    });
  };
  Attention a;
  a.params.causal = static_cast<Causal>(c.params.causal);
  a.params.window_left = c.params.window_left;
  a.params.softcap = c.params.softcap;
  a.params.causal_alignment = static_cast<CausalAlignment>(c.params.causal_alignment);
  a.q = Tensor(c.q.dtype(), {b * g, sq, heads.q, heads.size}).fill([&](int64_t i) { return c.q.get(i); });
  a.k = joined(c.prefix_k, c.k, row);
  a.v = joined(c.prefix_v, c.v, row);
  if (c.prefix_mask.present()) a.key_mask = joined(c.prefix_mask, c.key_mask, 1);
  a.lse = wanted();
  return a;
}

void expect_bits_of_attention(const Shared& c, Lengths lengths, Heads heads) {
  const auto right = run(in_one_piece(c, lengths, heads));
  for (const cpu::ParallelFor& hook : {cpu::serial_parallel(), threads_parallel(8), backwards_parallel()}) {
    const auto got = run(c, hook);
    EXPECT_EQ(got.out.bytes(), right.out.bytes()) << "prefix " << lengths.prefix << ", own " << lengths.own;
    EXPECT_EQ(got.lse.bytes(), right.lse.bytes()) << "prefix " << lengths.prefix << ", own " << lengths.own;
  }
}

TEST(CpuPrefixSharedAttention, HasTheBitsOfAttentionOverPrefixAndOwnKeysInOnePiece) {
  for_each_attention_target([] {
    const Heads heads = {4, 2, 33};
    for (const Lengths lengths : {Lengths{2, 5, 1, 130, 3}, Lengths{1, 3, 40, 63, 67}, Lengths{2, 2, 3, 64, 0},
                                  Lengths{1, 4, 2, 0, 70}, Lengths{1, 15, 1, 1100, 70}, Lengths{1, 2, 3, 1, 1}}) {
      const Dtype dtype = lengths.samples % 2 == 0 ? Dtype::bf16 : Dtype::f32;
      Shared c = random_call(dtype, lengths, heads);
      expect_bits_of_attention(c, lengths, heads);
      c.params.causal = ops::prefix_shared_attention::Causal::on;
      c.params.window_left = 65;
      c.params.softcap = 2.0;
      expect_bits_of_attention(c, lengths, heads);
    }
  });
}

TEST(CpuPrefixSharedAttention, MasksOfPrefixAndOwnKeysHideThem) {
  const Lengths lengths = {2, 3, 2, 70, 5};
  const Heads heads = {2, 1, 16};
  Shared c = random_call(Dtype::f32, lengths, heads);
  c.prefix_mask = Tensor(Dtype::u8, {2, 70}).fill([](int64_t i) { return i % 70 < 40 * (i / 70) ? 0.0 : 1.0; });
  c.key_mask = Tensor(Dtype::u8, {2, 3, 5}).fill([](int64_t i) { return i % 5 < 2 + i / 5 % 3 ? 1.0 : 0.0; });
  expect_bits_of_attention(c, lengths, heads);
}

TEST(CpuPrefixSharedAttention, GradientsAreThoseOfAttentionInOnePieceAndThePrefixHasTheSumOfAllSamples) {
  const Heads heads = {4, 2, 16};
  for (const Lengths lengths : {Lengths{2, 3, 5, 70, 5}, Lengths{1, 4, 20, 9, 67}, Lengths{1, 2, 3, 130, 0}}) {
    Shared c = random_call(Dtype::f32, lengths, heads);
    c.params.causal = ops::prefix_shared_attention::Causal::on;
    const auto forward = run(c);
    auto backward = sdk::backward_of<CallOf<ops::PrefixSharedAttentionBackward>>(static_cast<const Shared&>(c));
    backward.out = forward.out;
    backward.lse = forward.lse;
    backward.grad_out = random_tensor(Dtype::f32, c.q.shape(), 1.0, 6);
    backward.grad_lse = random_tensor(Dtype::f32, forward.lse.shape(), 1.0, 7);

    const Attention piece = in_one_piece(c, lengths, heads);
    const auto whole_forward = run(piece);
    auto whole = sdk::backward_of<AttentionBackward>(piece);
    const auto reshaped = [](const Tensor& numbers, const Tensor& like) {
      return Tensor(like.dtype(), like.shape()).fill([&](int64_t i) { return numbers.get(i); });
    };
    whole.out = whole_forward.out;
    whole.lse = whole_forward.lse;
    whole.grad_out = reshaped(backward.grad_out, whole.out);
    whole.grad_lse = reshaped(backward.grad_lse, whole.lse);
    const auto right = run(whole);
    for (const cpu::ParallelFor& hook : {cpu::serial_parallel(), threads_parallel(8), backwards_parallel()}) {
      const auto got = run(backward, hook);
      EXPECT_EQ(got.grad_q.bytes(), right.grad_q.bytes());
      const int64_t row = heads.kv * heads.size, keys = lengths.prefix + lengths.own;
      const auto expect_keys = [&](const Tensor& all, const Tensor& own, const Tensor& prefix) {
        for (int64_t i = 0; i < own.size(); ++i) {
          const int64_t sample = i / row / lengths.own, j = i / row % lengths.own;
          EXPECT_EQ(own.get(i), all.get((sample * keys + lengths.prefix + j) * row + i % row)) << i;
        }
        for (int64_t i = 0; i < prefix.size(); ++i) {
          const int64_t group = i / row / lengths.prefix, j = i / row % lengths.prefix;
          double sum = 0;
          for (int64_t m = 0; m < lengths.samples; ++m) {
            sum += all.get(((group * lengths.samples + m) * keys + j) * row + i % row);
          }
          EXPECT_NEAR(prefix.get(i), sum, 2e-5) << i;
        }
      };
      expect_keys(right.grad_k, got.grad_k, got.grad_prefix_k);
      expect_keys(right.grad_v, got.grad_v, got.grad_prefix_v);
    }
  }
}

}  // namespace
}  // namespace rlk::test
