// prefix_shared_attention is attention over the prefix and each sample's own keys in one piece, bit for bit, whatever
// the lengths are: RL-Kernel's kernel is right for multiples of 64 alone.
#include <rlk/sdk/ops/prefix_shared_attention.hpp>

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
  for_each_target([] {
    const Heads heads = {4, 2, 33};
    for (const Lengths lengths : {Lengths{2, 5, 1, 130, 3}, Lengths{1, 3, 40, 63, 67}, Lengths{2, 2, 3, 64, 0},
                                  Lengths{1, 4, 2, 0, 70}, Lengths{1, 15, 1, 1100, 70}, Lengths{1, 2, 3, 1, 1}}) {
      for (const Dtype dtype : {Dtype::f32, Dtype::bf16}) {
        Shared c = random_call(dtype, lengths, heads);
        expect_bits_of_attention(c, lengths, heads);
        c.params.causal = ops::prefix_shared_attention::Causal::on;
        expect_bits_of_attention(c, lengths, heads);
        c.params.window_left = 65;
        c.params.softcap = 2.0;
        expect_bits_of_attention(c, lengths, heads);
      }
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

}  // namespace
}  // namespace rlk::test
