// attention: softcap, padding keys, the edges of windows and alignment, tails, offsets beyond 32 bits.
#include <rlk/sdk/ops/attention.hpp>

#include <sys/mman.h>

#include <cmath>

#include "unit/cpu/attention_case.hpp"

namespace rlk::test {
namespace {

// Padding at the end, in the middle, and of all keys of the second sequence.
Tensor key_mask(int64_t batch, int64_t keys, Strides strides = Strides::contiguous) {
  return Tensor(Dtype::u8, {batch, keys}, strides).fill([keys](int64_t flat) {
    const int64_t b = flat / keys, j = flat % keys;
    return b == 1 || j % 5 == 2 || (b == 0 && j >= keys - keys / 3) || j / 16 == 2 ? 0 : b + 1;
  });
}

// One head of size 1 whose keys are 0 and whose value is its position: out is the mean of the visible positions.
Attention mean_of_visible(int64_t queries, int64_t keys) {
  Attention c = dense_attention(Dtype::f32, 1, queries, keys, {1, 1, 1});
  c.k.fill([](int64_t) { return 0.0; });
  c.v.fill([](int64_t j) { return static_cast<double>(j); });
  return c;
}

TEST(CpuAttentionOptions, ExtremeSoftcapsAreRight) {
  for_each_attention_target([] {
    for (double softcap : {1e-300, 1e-30, 1e-5, 1e5, 1e30, 1e300}) {
      for (Dtype dtype : {Dtype::f32, Dtype::bf16, Dtype::f64}) {
        SCOPED_TRACE(name(dtype) + " " + std::to_string(std::log10(softcap)));
        Attention c = dense_attention(dtype, 1, 5, 40, {1, 1, 16});
        c.params.softcap = softcap;
        expect_golden(c);
      }
    }
  });
}

TEST(CpuAttentionOptions, SoftcapBoundsTheScores) {
  Attention c = dense_attention(Dtype::f64, 1, 1, 2, {1, 1, 1});
  c.q.set(0, 1.0);
  c.k.set(0, 3.0).set(1, -1.0);
  c.v.set(0, 1.0).set(1, 0.0);
  c.params.scale = 2.0, c.params.softcap = 4.0;
  const double s0 = 4 * std::tanh(6.0 / 4), s1 = 4 * std::tanh(-2.0 / 4);
  const auto got = run(c);
  EXPECT_NEAR(got.out.get(0), 1 / (1 + std::exp(s1 - s0)), 1e-14);
  EXPECT_NEAR(got.lse.get(0), std::log(std::exp(s0) + std::exp(s1)), 1e-14);
}

TEST(CpuAttentionOptions, NothingIsReadOfPaddingKeys) {
  for_each_attention_target([] {
    for (Dtype dtype : kFloatDtypes) {
      for (double softcap : {0.0, 1.5}) {
        for (double poison : {kNan, kInfinity, -kInfinity}) {
          Attention clean = dense_attention(dtype, 3, 9, 150, {2, 1, 20});
          clean.key_mask = key_mask(3, 150);
          clean.params.softcap = softcap;
          clean.params.causal = (softcap > 0) ? Causal::on : Causal::off;
          Attention poisoned = clean;
          for (int64_t i = 0; i < poisoned.k.size(); ++i) {
            if (poisoned.key_mask.get_int(i / 20) == 0) poisoned.k.set(i, poison), poisoned.v.set(i, poison);
          }
          const auto want = run(clean);
          const auto got = run(poisoned);
          EXPECT_EQ(got.out.bytes(), want.out.bytes()) << name(dtype);
          EXPECT_EQ(got.lse.bytes(), want.lse.bytes()) << name(dtype);
          expect_golden(poisoned);
        }
      }
    }
  });
}

TEST(CpuAttentionOptions, PaddingAtTheEndChangesNoBit) {
  for_each_attention_target([] {
    for (Dtype dtype : kFloatDtypes) {
      for (int64_t length : {1, 40, 64, 100}) {
        Attention padded = dense_attention(dtype, 1, 5, 200, {2, 2, 16});
        padded.key_mask = Tensor(Dtype::u8, {1, 200}).fill([length](int64_t j) { return j < length ? 1.0 : 0.0; });
        Attention exact = dense_attention(dtype, 1, 5, length, {2, 2, 16});
        exact.k.fill([&](int64_t i) { return padded.k.get(i); });
        exact.v.fill([&](int64_t i) { return padded.v.get(i); });
        const auto want = run(exact);
        const auto got = run(padded);
        EXPECT_EQ(got.out.bytes(), want.out.bytes()) << name(dtype) << length;
        EXPECT_EQ(got.lse.bytes(), want.lse.bytes()) << name(dtype) << length;
      }
    }
  });
}

TEST(CpuAttentionOptions, AQueryThatSeesOnlyPaddingGivesZeroAndMinusInfinity) {
  for_each_attention_target([] {
    Attention c = mean_of_visible(4, 4);
    c.params.window_left = 0, c.params.window_right = 0;  // each query sees its own key
    c.key_mask = Tensor(Dtype::u8, {1, 4}).fill([](int64_t j) { return j == 2 ? 0.0 : 1.0; });
    const auto got = run(c);
    EXPECT_EQ(got.out.get(1), 1.0);
    EXPECT_EQ(got.out.get(2), 0.0);
    EXPECT_EQ(got.lse.get(2), -kInfinity);
    EXPECT_EQ(got.out.get(3), 3.0);
    c.key_mask.fill([](int64_t) { return 0.0; });
    EXPECT_EQ(run(c).lse.get(0), -kInfinity);
  });
}

// A mask hides keys and does not move the diagonal.
TEST(CpuAttentionOptions, CausalCountsPaddingKeys) {
  Attention c = mean_of_visible(2, 4);
  c.params.causal = Causal::on;
  c.key_mask = Tensor(Dtype::u8, {1, 4}).fill([](int64_t j) { return j == 3 ? 0.0 : 1.0; });
  const auto got = run(c);
  EXPECT_FLOAT_EQ(static_cast<float>(got.out.get(0)), 1.0f);  // keys 0 1 2
  EXPECT_FLOAT_EQ(static_cast<float>(got.out.get(1)), 1.0f);  // key 3 is padding
}

// torch's scaled_dot_product_attention aligns is_causal at the top left: query 0 would see key 0 alone.
TEST(CpuAttentionOptions, CausalIsAlignedBottomRightWhereLengthsDiffer) {
  for_each_attention_target([] {
    Attention more_keys = mean_of_visible(2, 4);
    more_keys.params.causal = Causal::on;
    const auto a = run(more_keys);
    EXPECT_NEAR(a.out.get(0), 1.0, 1e-6);  // keys 0 1 2
    EXPECT_NEAR(a.out.get(1), 1.5, 1e-6);
    Attention more_queries = mean_of_visible(4, 2);
    more_queries.params.causal = Causal::on;
    const auto b = run(more_queries);
    EXPECT_EQ(b.lse.get(1), -kInfinity);
    EXPECT_EQ(b.out.get(1), 0.0);
    EXPECT_EQ(b.out.get(2), 0.0);  // key 0
    EXPECT_EQ(b.lse.get(2), 0.0);
    EXPECT_NEAR(b.out.get(3), 0.5, 1e-6);
  });
}

// The other side: torch's is_causal, in both directions, where one query meets a cache, and behind the last key.
TEST(CpuAttentionOptions, CausalIsAlignedTopLeftOnDemand) {
  for_each_attention_target([] {
    Attention more_keys = mean_of_visible(2, 4);
    more_keys.params.causal = Causal::on, more_keys.params.causal_alignment = CausalAlignment::top_left;
    const auto a = run(more_keys);
    EXPECT_EQ(a.out.get(0), 0.0);  // key 0
    EXPECT_EQ(a.lse.get(0), 0.0);
    EXPECT_NEAR(a.out.get(1), 0.5, 1e-6);
    Attention more_queries = mean_of_visible(4, 2);
    more_queries.params.causal = Causal::on, more_queries.params.causal_alignment = CausalAlignment::top_left;
    const auto b = run(more_queries);
    EXPECT_EQ(b.out.get(0), 0.0);
    EXPECT_EQ(b.lse.get(0), 0.0);
    for (int64_t i = 1; i < 4; ++i) EXPECT_NEAR(b.out.get(i), 0.5, 1e-6) << i;
    Attention decode = mean_of_visible(1, 100);
    decode.params.causal = Causal::on, decode.params.causal_alignment = CausalAlignment::top_left;
    EXPECT_EQ(run(decode).out.get(0), 0.0);
    decode.params.causal_alignment = CausalAlignment::bottom_right;
    EXPECT_NEAR(run(decode).out.get(0), 49.5, 1e-4);
  });
}

TEST(CpuAttentionOptions, WindowsAreMeasuredFromTheChosenDiagonal) {
  for_each_attention_target([] {
    Attention c = mean_of_visible(3, 9);
    c.params.window_left = 1, c.params.window_right = 2;
    const auto bottom_right = run(c);
    EXPECT_NEAR(bottom_right.out.get(0), 6.5, 1e-6);  // keys 5 6 7 8
    EXPECT_NEAR(bottom_right.out.get(2), 7.5, 1e-6);  // keys 7 8
    c.params.causal_alignment = CausalAlignment::top_left;
    const auto top_left = run(c);
    EXPECT_NEAR(top_left.out.get(0), 1.0, 1e-6);  // keys 0 1 2
    EXPECT_NEAR(top_left.out.get(2), 2.5, 1e-6);  // keys 1 2 3 4
    Attention beyond = mean_of_visible(200, 70);  // late queries stand behind the last key
    beyond.params.window_left = 10, beyond.params.causal_alignment = CausalAlignment::top_left;
    const auto got = run(beyond);
    EXPECT_NEAR(got.out.get(79), 69.0, 1e-4);  // key 69 alone
    EXPECT_EQ(got.out.get(80), 0.0);
    EXPECT_EQ(got.lse.get(80), -kInfinity);
    EXPECT_EQ(got.lse.get(199), -kInfinity);
    expect_golden(beyond);
  });
}

TEST(CpuAttentionOptions, AWindowThatHidesExactlyOneKeyHidesThatOne) {
  for_each_attention_target([] {
    for (int64_t length : {2, 33, 64, 65, 130}) {
      Attention left = mean_of_visible(1, length);
      left.params.window_left = length - 2;  // all but key 0
      EXPECT_NEAR(run(left).out.get(0), static_cast<double>(length) / 2, 1e-4);
      left.params.window_left = length - 1;
      EXPECT_NEAR(run(left).out.get(0), static_cast<double>(length - 1) / 2, 1e-4);
      Attention right = mean_of_visible(length, length);
      right.params.window_right = length - 2;  // from query 0 all but the last key
      const auto got = run(right);
      EXPECT_NEAR(got.out.get(0), static_cast<double>(length - 2) / 2, 1e-4);
      EXPECT_NEAR(got.out.get(1), static_cast<double>(length - 1) / 2, 1e-4);
    }
  });
}

TEST(CpuAttentionOptions, TailsOfEveryTileAreRight) {
  for_each_attention_target([] {
    for (const Dtype dtype : {Dtype::f32, Dtype::bf16}) {
      for (int64_t length : {1, 3, 15, 17, 31, 32, 33, 47, 49, 63, 64, 65, 95, 97, 127, 129}) {
        SCOPED_TRACE(std::to_string(length));
        Attention c = dense_attention(dtype, 1, length, length + length % 7, {1, 1, 17});
        c.params.causal = (length % 2 == 0) ? Causal::on : Causal::off;
        expect_golden(c);
      }
    }
  });
}

// Tiles of one task that begin at different keys of a block.
TEST(CpuAttentionOptions, MasksAndWindowsOfLongSequencesAreRight) {
  for_each_attention_target([] {
    for (const Dtype dtype : {Dtype::f32, Dtype::bf16}) {
      Attention c = dense_attention(dtype, 1, 600, 600, {2, 1, 8});
      c.params.window_left = 20, c.params.window_right = 3;
      c.key_mask = key_mask(1, 600);
      expect_golden(c);
    }
  });
}

// The largest score grows from each closed sum to the next.
TEST(CpuAttentionOptions, ScoresThatGrowAlongTheSequenceAreRight) {
  for_each_attention_target([] {
    for (const Dtype dtype : {Dtype::f32, Dtype::bf16}) {
      for (const int64_t queries : {3, 20}) {  // few rows go another way than many
        Attention c = dense_attention(dtype, 1, queries, 3300, {1, 1, 4});
        c.q.fill([](int64_t i) { return 1.0 + static_cast<double>(i % 12) / 16; });
        c.k.fill([](int64_t i) {
          const int64_t block = i / 4;
          return static_cast<double>(block) / 1000 + (i % 7 == 0 ? 0.1 : 0.0);
        });
        expect_golden(c);
      }
    }
  });
}

TEST(CpuAttentionOptions, ManyEqualKeysDoNotRoundOneWay) {
  for_each_attention_target([] {
    for (const Dtype dtype : {Dtype::f32, Dtype::bf16}) {
      for (const int64_t queries : {1, 12}) {
        Attention c = dense_attention(dtype, 1, queries, 40000, {1, 1, 3});
        c.k.fill([](int64_t i) { return i % 3 == 0 ? 0.3 : 0.7; });
        c.v.fill([](int64_t) { return 0.1; });
        expect_golden(c);
      }
    }
  });
}

// Tokens 2^31 elements apart, in memory that is mapped but hardly touched.
TEST(CpuAttentionOptions, OffsetsBeyond32BitsAreRight) {
  constexpr int64_t kStride = (int64_t{1} << 31) + 64, kTokens = 3, kSize = 16;
  constexpr size_t kBytes = sizeof(float) * static_cast<size_t>(kStride * kTokens);
  void* const memory =
      mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) GTEST_SKIP() << "the address space of this process is limited";
  Attention near = dense_attention(Dtype::f32, 1, kTokens, kTokens, {1, 1, kSize});
  near.params.causal = Causal::on;
  auto* const far = static_cast<float*>(memory);
  const Tensor* const from[3] = {&near.q, &near.k, &near.v};
  for (int64_t which = 0; which < 3; ++which) {
    for (int64_t i = 0; i < kTokens * kSize; ++i) {
      far[which * kSize + i / kSize * kStride + i % kSize] = static_cast<float>(from[which]->get(i));
    }
  }
  const auto at = [far](int64_t which) {
    return cpu::Array{far + which * kSize, Dtype::f32, 4, {1, kTokens, 1, kSize}, {0, kStride, kSize, 1}};
  };
  const auto want = run(near);
  cpu::CallOf<ops::Attention> call;
  call.q = at(0), call.k = at(1), call.v = at(2), call.out = at(3);
  call.B = call.Hq = call.Hkv = 1, call.Sq = call.Sk = kTokens, call.D = kSize;
  call.params = near.params;
  cpu::kernel<ops::Attention>().run(call, {cpu::serial_parallel()});
  for (int64_t i = 0; i < kTokens * kSize; ++i) {
    EXPECT_EQ(static_cast<double>(far[3 * kSize + i / kSize * kStride + i % kSize]), want.out.get(i)) << i;
  }
  munmap(memory, kBytes);
}

}  // namespace
}  // namespace rlk::test
