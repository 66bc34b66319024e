// attention_backward: a pair worked out by hand, tails, extremes, and its promises: exact zeros, nothing that leaks
// from pairs that do not see each other.
#include <cmath>

#include "unit/cpu/attention_case.hpp"

namespace rlk::test {
namespace {

Tensor some_masked(int64_t batch, int64_t keys, Strides strides = Strides::contiguous) {
  return Tensor(Dtype::u8, {batch, keys}, strides).fill([keys](int64_t flat) {
    const int64_t b = flat / keys, j = flat % keys;
    return b == 1 || j % 5 == 2 || j / 16 == 2 ? 0 : 255;
  });
}

TEST(GoldenAttentionBackward, OneQueryAndTwoKeysByHand) {
  Attention c = dense_attention(Dtype::f64, 1, 1, 2, {1, 1, 1});
  c.q.set(0, 1.0);
  c.k.set(0, 0.0).set(1, 0.0);
  c.v.set(0, 3.0).set(1, 1.0);
  AttentionBackward backward = with_gradients(c, true, 1);
  backward.grad_out.set(0, 1.0);
  backward.grad_lse.set(0, 0.5);
  // p = 1/2 each, out = 2, ds = p (v - out + 1/2) = 3/4, -1/4.
  const auto result = golden_answer(backward);
  EXPECT_EQ(result.grad_q.value, (std::vector<double>{0.0}));
  EXPECT_EQ(result.grad_k.value, (std::vector<double>{0.75, -0.25}));
  EXPECT_EQ(result.grad_v.value, (std::vector<double>{0.5, 0.5}));
}

TEST(CpuAttentionBackward, TailsOfEveryTileAreRight) {
  for_each_target([] {
    for (int64_t length : {1, 3, 15, 17, 31, 32, 33, 47, 49, 63, 64, 65, 95, 97, 127, 129}) {
      SCOPED_TRACE(std::to_string(length));
      Attention c = dense_attention(Dtype::f32, 1, length, length + length % 7, {1, 1, 17});
      c.params.causal = (length % 2 == 0) ? Causal::on : Causal::off;
      expect_golden(with_gradients(c, true, 5));
    }
  });
}

// No query sees keys behind the last query's own.
TEST(CpuAttentionBackward, TopLeftLeavesLateKeysWithoutGradients) {
  for_each_target([] {
    Attention c = dense_attention(Dtype::f32, 1, 3, 100, {2, 2, 8});
    c.params.causal = Causal::on, c.params.causal_alignment = CausalAlignment::top_left;
    const auto got = run(with_gradients(c, true, 5));
    const int64_t key = 16;  // numbers: 2 heads of 8
    for (int64_t i = 0; i < 3 * key; ++i) EXPECT_NE(got.grad_v.get(i), 0.0) << i;
    for (int64_t i = 3 * key; i < 100 * key; ++i) {
      EXPECT_EQ(got.grad_k.get(i), 0.0) << i;
      EXPECT_EQ(got.grad_v.get(i), 0.0) << i;
    }
  });
}

TEST(CpuAttentionBackward, LargeScoresScalesAndCapsAreRight) {
  for_each_target([] {
    for (double softcap : {0.0, 1e-30, 3.0, 1e30}) {
      for (double scale : {1e-40, 5.0, 1e25}) {
        SCOPED_TRACE(std::to_string(std::log10(scale)) + " " + std::to_string(softcap));
        Attention c = dense_attention(Dtype::f32, 1, 5, 90, {1, 1, 16});
        c.params.scale = scale, c.params.softcap = softcap;
        expect_golden(with_gradients(c, true, 5));
      }
    }
  });
}

TEST(CpuAttentionBackward, ManyEqualTermsDoNotRoundOneWay) {
  for_each_target([] {
    for (auto [queries, keys] : std::vector<std::pair<int64_t, int64_t>>{{40000, 1}, {1, 40000}}) {
      Attention c = dense_attention(Dtype::f32, 1, queries, keys, {1, 1, 3});
      for (Tensor* tensor : {&c.q, &c.k}) tensor->fill([](int64_t i) { return i % 3 == 0 ? 0.3 : 0.7; });
      c.v.fill([](int64_t) { return 0.1; });
      AttentionBackward backward = with_gradients(c, true, 5);
      backward.grad_out.fill([](int64_t) { return 0.1; });
      backward.grad_lse.fill([](int64_t) { return 0.3; });
      expect_golden(backward);
    }
  });
}

TEST(CpuAttentionBackward, WhatNobodySeesHasAGradientOfExactlyZero) {
  for_each_target([] {
    Attention c = dense_attention(Dtype::f32, 2, 6, 4, {2, 2, 8});
    c.params.causal = Causal::on;  // queries 0 and 1 see no key
    c.key_mask = some_masked(2, 4);
    const AttentionBackward backward = with_gradients(c, true, 5);
    expect_golden(backward);
    const auto got = run(backward);
    for (int64_t i = 0; i < 32; ++i) EXPECT_EQ(got.grad_q.get(i), 0.0);
    for (int64_t i = 32; i < 48; ++i) EXPECT_EQ(got.grad_k.get(i), 0.0) << "masked";
    for (int64_t i = 64; i < 128; ++i) EXPECT_EQ(got.grad_v.get(i), 0.0) << "all masked";
    EXPECT_NE(got.grad_k.get(0), 0.0);
  });
}

// Keys that a mask, causality or a window hides, and queries that do not see a key, may hold anything.
TEST(CpuAttentionBackward, NothingLeaksBetweenPairsThatDoNotSeeEachOther) {
  for_each_target([] {
    for (Dtype dtype : kFloatDtypes) {
      for (double poison : {kNan, kInfinity}) {
        constexpr int64_t kRow = 48, kLength = 70, kFirstBad = 40;
        Attention causal = dense_attention(dtype, 1, kLength, kLength, {2, 2, 24});
        causal.params.causal = Causal::on;
        const AttentionBackward clean = with_gradients(causal, true, 5);
        const auto want = run(clean);
        AttentionBackward bad_keys = clean;
        for (int64_t i = kFirstBad * kRow; i < kLength * kRow; ++i)
          bad_keys.k.set(i, poison), bad_keys.v.set(i, poison);
        const auto of_keys = run(bad_keys);
        EXPECT_EQ(of_keys.grad_q.bits(0, kFirstBad * kRow), want.grad_q.bits(0, kFirstBad * kRow)) << name(dtype);
        EXPECT_TRUE(std::isnan(of_keys.grad_q.get(kFirstBad * kRow)));
        AttentionBackward bad_queries = clean;  // key j is seen by queries from j on
        for (int64_t i = 0; i < kFirstBad * kRow; ++i)
          bad_queries.q.set(i, poison), bad_queries.grad_out.set(i, poison);
        const auto of_queries = run(bad_queries);
        EXPECT_EQ(of_queries.grad_k.bits(kFirstBad * kRow, kLength * kRow),
                  want.grad_k.bits(kFirstBad * kRow, kLength * kRow));
        EXPECT_EQ(of_queries.grad_v.bits(kFirstBad * kRow, kLength * kRow),
                  want.grad_v.bits(kFirstBad * kRow, kLength * kRow));
        EXPECT_TRUE(std::isnan(of_queries.grad_k.get(0)));

        Attention some = dense_attention(dtype, 2, 9, 100, {2, 1, 20});
        some.key_mask = some_masked(2, 100);
        AttentionBackward masked = with_gradients(some, true, 5);
        const auto expected = run(masked);
        for (int64_t i = 0; i < masked.k.size(); ++i) {
          if (masked.key_mask.get_int(i / 20) == 0) masked.k.set(i, poison), masked.v.set(i, poison);
        }
        const auto got = run(masked);
        EXPECT_EQ(got.grad_q.bytes(), expected.grad_q.bytes());
        EXPECT_EQ(got.grad_k.bytes(), expected.grad_k.bytes());
        EXPECT_EQ(got.grad_v.bytes(), expected.grad_v.bytes());
        expect_golden(masked);
      }
    }
  });
}

}  // namespace
}  // namespace rlk::test
