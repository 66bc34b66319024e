// attention against the golden reference over layouts, masks, heads and sizes, and its batch invariance bit by bit.
#include <cmath>
#include <limits>

#include "core/cpu/tbb_parallel.hpp"
#include "unit/cpu/attention_case.hpp"

namespace rlk::test {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

TEST(CpuAttention, MatchesGoldenForEverySizeAndDtype) {
  for_each_target([] {
    for (Dtype dtype : kFloatDtypes) {
      for (auto [queries, keys] :
           std::vector<std::pair<int64_t, int64_t>>{{7, 7}, {1, 13}, {65, 130}, {0, 5}, {5, 0}, {3, 1}, {49, 64}}) {
        for (Heads heads : {Heads{2, 2, 16}, Heads{4, 2, 40}, Heads{3, 1, 1}}) {
          for (bool causal : {false, true}) {
            SCOPED_TRACE(name(dtype) + " " + std::to_string(queries) + "x" + std::to_string(keys) + " D" +
                         std::to_string(heads.size) + (causal ? " causal" : ""));
            AttentionCase c = dense_attention(dtype, 2, queries, keys, heads);
            c.causal = causal;
            expect_golden(c);
          }
        }
      }
    }
  });
}

TEST(CpuAttention, MatchesGoldenForLargeHeads) {
  for_each_target([] {
    for (Dtype dtype : kFloatDtypes) {
      for (int64_t size : {64, 128, 129, 256}) {
        SCOPED_TRACE(name(dtype) + " D" + std::to_string(size));
        AttentionCase c = dense_attention(dtype, 1, 9, 70, {2, 1, size});
        c.causal = true;
        expect_golden(c);
      }
    }
  });
}

// One or two queries whose heads share keys: all tails of blocks, and rows that are read where they lie or are not.
TEST(CpuAttention, MatchesGoldenForFewRows) {
  for_each_target([] {
    for (Dtype dtype : kFloatDtypes) {
      for (Heads heads : {Heads{1, 1, 64}, Heads{2, 1, 96}, Heads{3, 1, 32}, Heads{8, 2, 128}, Heads{7, 1, 33}}) {
        for (int64_t keys : {15, 64, 129, 1100}) {
          if (keys == 1100 && heads.q != 2) continue;
          for (int option = 0; option < 5; ++option) {
            SCOPED_TRACE(name(dtype) + " keys " + std::to_string(keys) + " D" + std::to_string(heads.size) +
                         " option " + std::to_string(option));
            AttentionCase c = dense_attention(dtype, 1, option == 1 ? 2 : 1, keys, heads,
                                              option == 2   ? Strides::gaps
                                              : option == 3 ? Strides::reversed
                                                            : Strides::contiguous);
            c.causal = true;
            if (option == 3) c.softcap = 1.5;
            if (option == 4) c.window_left = 40, c.scale = 0.7;
            expect_golden(c);
          }
        }
      }
    }
  });
}

TEST(CpuAttention, MatchesGoldenForWindowsScalesAndStrides) {
  for_each_target([] {
    for (int64_t left : {-1, 0, 3, 70}) {
      for (int64_t right : {-1, 0, 2, 70}) {
        for (bool causal : {false, true}) {
          for (auto [queries, keys] : std::vector<std::pair<int64_t, int64_t>>{{90, 150}, {150, 90}, {4, 4}}) {
            SCOPED_TRACE(std::to_string(left) + "," + std::to_string(right) + (causal ? " causal " : " ") +
                         std::to_string(queries) + "x" + std::to_string(keys));
            AttentionCase c = dense_attention(Dtype::f32, 1, queries, keys, {2, 2, 8},
                                              left == 3   ? Strides::gaps
                                              : left == 0 ? Strides::reversed
                                                          : Strides::contiguous);
            c.causal = causal;
            c.window_left = left;
            c.window_right = right;
            if (right == 2) c.scale = 0.3;
            expect_golden(c);
          }
        }
      }
    }
  });
  AttentionCase c = dense_attention(Dtype::f32, 1, 5, 5, {1, 1, 8});
  c.window_left = c.window_right = std::numeric_limits<int64_t>::max();
  expect_golden(c);
}

TEST(CpuAttention, MatchesGoldenForPackedSequences) {
  for_each_target([] {
    for (Dtype dtype : kFloatDtypes) {
      for (Dtype index : {Dtype::i32, Dtype::i64}) {
        AttentionCase c = packed_attention(dtype, {5, 0, 60, 1, 3}, {5, 4, 70, 100, 0}, {4, 2, 40}, index);
        c.causal = true;
        expect_golden(c);
        AttentionCase none = packed_attention(dtype, {}, {}, {2, 2, 8}, index);
        expect_golden(none);
      }
    }
  });
}

TEST(CpuAttention, BadCuSeqlensAreADataErrorAndTheOutputIsNan) {
  const auto broken = [](int64_t position, int64_t content, bool of_keys) {
    AttentionCase c = packed_attention(Dtype::f32, {3, 4, 2}, {4, 4, 1}, {2, 2, 8});
    (of_keys ? c.cu_seqlens_k : c.cu_seqlens_q).set_int(position, content);
    expect_golden(c);
    const AttentionOutputs got = run_attention(c, cpu::serial_parallel());
    EXPECT_EQ(got.error.kind, cpu::kBadSeqlens);
    EXPECT_TRUE(std::isnan(got.out.get(0)) && std::isnan(got.lse.get(17)));
    return got.error;
  };
  EXPECT_EQ(broken(0, 1, false).row, 0);
  EXPECT_EQ(broken(1, -2, false).row, 1);
  EXPECT_EQ(broken(1, 100, false).row, 2);  // the next one decreases
  EXPECT_EQ(broken(3, 10, true).value, 10);
}

TEST(CpuAttention, HiddenKeysAreNotTouchedEvenWhenTheyAreNanOrInfinite) {
  for_each_target([] {
    for (Dtype dtype : kFloatDtypes) {
      for (double poison : {kNan, kInfinity}) {
        constexpr int64_t kRow = 48, kFirstBad = 40, kLength = 70;  // elements of a token, tokens
        AttentionCase clean = dense_attention(dtype, 1, kLength, kLength, {2, 2, 24});
        clean.causal = true;
        AttentionCase poisoned = clean;
        for (int64_t i = kFirstBad * kRow; i < kLength * kRow; ++i)
          poisoned.k.set(i, poison), poisoned.v.set(i, poison);
        const AttentionOutputs want = run_attention(clean, cpu::serial_parallel());
        const AttentionOutputs got = run_attention(poisoned, cpu::serial_parallel());
        EXPECT_EQ(got.out.bits(0, kFirstBad * kRow), want.out.bits(0, kFirstBad * kRow)) << name(dtype);
        EXPECT_EQ(got.lse.bits(0, 80), want.lse.bits(0, 80));
        EXPECT_TRUE(std::isnan(got.out.get((kLength - 1) * kRow)));
      }
    }
  });
}

// As above for so few queries that K and V stream past them.
TEST(CpuAttention, HiddenKeysAreNotTouchedByFewQueriesEither) {
  for_each_target([] {
    for (Dtype dtype : kFloatDtypes) {
      for (double poison : {kNan, kInfinity}) {
        for (int64_t size : {24, 32}) {
          constexpr int64_t kQueries = 3, kLength = 66;
          AttentionCase clean = dense_attention(dtype, 1, kQueries, kLength, {1, 1, size});
          clean.causal = true;
          AttentionCase poisoned = clean;  // the last key, which the last query alone sees
          for (int64_t i = (kLength - 1) * size; i < kLength * size; ++i)
            poisoned.k.set(i, poison), poisoned.v.set(i, poison);
          const AttentionOutputs want = run_attention(clean, cpu::serial_parallel());
          const AttentionOutputs got = run_attention(poisoned, cpu::serial_parallel());
          EXPECT_EQ(got.out.bits(0, 2 * size), want.out.bits(0, 2 * size)) << name(dtype) << size;
          EXPECT_EQ(got.lse.bits(0, 2), want.lse.bits(0, 2));
          EXPECT_TRUE(std::isnan(got.out.get(2 * size)));
        }
      }
    }
  });
}

// A query's bits are the same alone, in a batch, in a packed buffer at another place, and as the end of a longer chunk.
TEST(CpuAttention, BitsDoNotDependOnBatchPackingOrChunking) {
  for_each_target([] {
    for (Dtype dtype : kFloatDtypes) {
      for (auto [window, size] : std::vector<std::pair<int64_t, int64_t>>{{-1, 40}, {20, 40}, {-1, 64}, {20, 96}}) {
        const Heads heads{4, 2, size};
        const int64_t row = heads.q * heads.size, kv_row = heads.kv * heads.size, length = 150;
        AttentionCase whole = dense_attention(dtype, 1, length, length, heads);
        whole.causal = true;
        whole.window_left = window;
        const AttentionOutputs expected = run_attention(whole, cpu::tbb_parallel());
        for (int64_t chunk : {1, 3, 70}) {
          AttentionCase part = dense_attention(dtype, 1, chunk, length, heads);
          part.k = whole.k;
          part.v = whole.v;
          part.causal = true;
          part.window_left = window;
          const int64_t first = length - chunk;
          part.q.fill([&](int64_t i) { return whole.q.get(first * row + i); });
          const AttentionOutputs got = run_attention(part, cpu::tbb_parallel());
          EXPECT_EQ(got.out.bits(0, chunk * row), expected.out.bits(first * row, length * row));
          EXPECT_EQ(got.lse.bits(0, chunk * heads.q), expected.lse.bits(first * heads.q, length * heads.q));
        }
        AttentionCase pack = packed_attention(dtype, {11, length, 5}, {30, length, 9}, heads);
        pack.causal = true;
        pack.window_left = window;
        for (int64_t i = 0; i < length * row; ++i) pack.q.set(11 * row + i, whole.q.get(i));
        for (int64_t i = 0; i < length * kv_row; ++i) {
          pack.k.set(30 * kv_row + i, whole.k.get(i));
          pack.v.set(30 * kv_row + i, whole.v.get(i));
        }
        const AttentionOutputs got = run_attention(pack, cpu::tbb_parallel());
        EXPECT_EQ(got.out.bits(11 * row, (11 + length) * row), expected.out.bits(0, length * row));
      }
    }
  });
}

TEST(CpuAttention, LargeScoresAndScalesStayFinite) {
  for_each_target([] {
    for (double scale : {1e-40, 5.0, 1e25}) {
      AttentionCase c = dense_attention(Dtype::f32, 1, 5, 90, {1, 1, 16});
      c.scale = scale;
      expect_golden(c);
    }
  });
}

}  // namespace
}  // namespace rlk::test
