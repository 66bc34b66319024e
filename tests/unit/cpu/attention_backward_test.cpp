// attention_backward: golden against finite differences, the kernel against golden, and its promises: exact zeros,
// nothing that leaks from pairs that do not see each other, bits that depend on the sequence alone.
#include <cmath>
#include <limits>

#include "core/cpu/tbb_parallel.hpp"
#include "unit/cpu/attention_case.hpp"

namespace rlk::test {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

Tensor some_masked(int64_t batch, int64_t keys, Strides strides = Strides::contiguous) {
  return Tensor(Dtype::u8, {batch, keys}, strides).fill([keys](int64_t flat) {
    const int64_t b = flat / keys, j = flat % keys;
    return b == 1 || j % 5 == 2 || j / 16 == 2 ? 0 : 255;
  });
}

// ---- golden -----------------------------------------------------------------------------------------------------

double objective(const AttentionCase& c) {
  const golden::AttentionResult forward = golden::attention(golden_call(c));
  double sum = 0;
  for (int64_t i = 0; i < c.grad_out.size(); ++i) sum += c.grad_out.get(i) * forward.out.value[static_cast<size_t>(i)];
  for (int64_t i = 0; i < c.grad_lse.size(); ++i) {
    const double lse = forward.lse.value[static_cast<size_t>(i)];
    if (std::isfinite(lse)) sum += c.grad_lse.get(i) * lse;  // else a query that sees no key
  }
  return sum;
}

void expect_differences(const char* what, AttentionCase& c, Tensor& input, const golden::Output& gradient) {
  constexpr double kStep = 1e-4;
  double largest = 0;
  for (int64_t i = 0; i < input.size(); ++i) {
    const double value = input.get(i);
    // Five points: the error is of the fourth order.
    double difference = 0;
    for (const auto& [steps, weight] : {std::pair{-2, 1.0}, {-1, -8.0}, {1, 8.0}, {2, -1.0}}) {
      input.set(i, value + steps * kStep);
      difference += weight * objective(c);
    }
    input.set(i, value);
    const double got = gradient.value[static_cast<size_t>(i)];
    EXPECT_NEAR(got, difference / (12 * kStep), 1e-9) << what << " " << i;
    largest = std::max(largest, std::fabs(got));
  }
  EXPECT_GT(largest, 0.01) << what << ": no gradient to speak of";
}

void expect_derivative(AttentionCase& c) {
  add_gradients(c, true, 9);
  const golden::AttentionBackwardResult result = golden::attention_backward(golden_backward_call(c));
  expect_differences("q", c, c.q, result.grad_q);
  expect_differences("k", c, c.k, result.grad_k);
  expect_differences("v", c, c.v, result.grad_v);
}

TEST(GoldenAttentionBackward, IsTheDerivativeOfForwardForEveryOption) {
  for (int option = 0; option < 12; ++option) {
    SCOPED_TRACE(option);
    AttentionCase c = option == 8 ? packed_attention(Dtype::f64, {2, 0, 3}, {3, 2, 2}, {4, 2, 3})
                                  : dense_attention(Dtype::f64, 2, 3, 5, {2, option == 1 ? 1 : 2, 4});
    if (option == 2 || option == 8) c.causal = true;
    if (option == 3) c.window_left = 1, c.window_right = 0;
    if (option == 4) c.scale = 0.8;
    if (option == 5) c.softcap = 0.9;
    if (option == 6) c.key_mask = some_masked(2, 5);
    if (option == 7) {
      c = dense_attention(Dtype::f64, 1, 5, 3, {2, 1, 4});  // queries that see nothing
      c.causal = true, c.softcap = 2.0, c.scale = 1.5;
    }
    if (option >= 9) {  // more keys, fewer keys, packed; the second leaves a query behind the last key
      c = option == 11 ? packed_attention(Dtype::f64, {3, 1, 2}, {2, 4, 0}, {2, 1, 3})
                       : dense_attention(Dtype::f64, 1, option == 9 ? 2 : 5, option == 9 ? 4 : 3, {2, 1, 4});
      c.top_left = true;
      c.causal = option != 10;
      if (option != 11) c.window_left = 1;
    }
    expect_derivative(c);
  }
}

TEST(GoldenAttentionBackward, OneQueryAndTwoKeysByHand) {
  AttentionCase c = dense_attention(Dtype::f64, 1, 1, 2, {1, 1, 1});
  c.q.set(0, 1.0);
  c.k.set(0, 0.0).set(1, 0.0);
  c.v.set(0, 3.0).set(1, 1.0);
  add_gradients(c, true, 1);
  c.grad_out.set(0, 1.0);
  c.grad_lse.set(0, 0.5);
  // p = 1/2 each, out = 2, ds = p (v - out + 1/2) = 3/4, -1/4.
  const golden::AttentionBackwardResult result = golden::attention_backward(golden_backward_call(c));
  EXPECT_EQ(result.grad_q.value, (std::vector<double>{0.0}));
  EXPECT_EQ(result.grad_k.value, (std::vector<double>{0.75, -0.25}));
  EXPECT_EQ(result.grad_v.value, (std::vector<double>{0.5, 0.5}));
}

// ---- the kernel -------------------------------------------------------------------------------------------------

TEST(CpuAttentionBackward, MatchesGoldenForEverySizeAndDtype) {
  for_each_target([] {
    bool causal = false;
    for (Dtype dtype : kFloatDtypes) {
      for (auto [queries, keys] :
           std::vector<std::pair<int64_t, int64_t>>{{7, 7}, {1, 13}, {65, 130}, {0, 5}, {5, 0}, {3, 1}, {49, 64}}) {
        for (Heads heads : {Heads{2, 2, 16}, Heads{4, 2, 40}, Heads{3, 1, 1}}) {
          causal = !causal;  // an odd number of cases for each dtype
          SCOPED_TRACE(name(dtype) + " " + std::to_string(queries) + "x" + std::to_string(keys) + " D" +
                       std::to_string(heads.size) + (causal ? " causal" : ""));
          AttentionCase c = dense_attention(dtype, 2, queries, keys, heads);
          c.causal = causal;
          add_gradients(c, causal, 5);
          expect_golden_gradients(c);
        }
      }
    }
  });
}

TEST(CpuAttentionBackward, MatchesGoldenForLargeHeads) {
  for_each_target([] {
    for (Dtype dtype : kFloatDtypes) {
      for (int64_t size : {64, 80, 128, 129, 256}) {
        SCOPED_TRACE(name(dtype) + " D" + std::to_string(size));
        AttentionCase c = dense_attention(dtype, 1, 9, 70, {2, 1, size});
        c.causal = true;
        add_gradients(c, true, 5);
        expect_golden_gradients(c);
      }
    }
  });
}

TEST(CpuAttentionBackward, MatchesGoldenForWindowsMasksCapsAndStrides) {
  for_each_target([] {
    for (int64_t left : {-1, 0, 3, 70}) {
      for (int64_t right : {-1, 2, 70}) {
        for (bool masked : {false, true}) {
          for (auto [queries, keys] : std::vector<std::pair<int64_t, int64_t>>{{50, 110}, {110, 50}, {4, 4}}) {
            SCOPED_TRACE(std::to_string(left) + "," + std::to_string(right) + (masked ? " masked " : " ") +
                         std::to_string(queries) + "x" + std::to_string(keys));
            const Strides strides = left == 3 ? Strides::gaps : left == 0 ? Strides::reversed : Strides::contiguous;
            const Dtype dtype = right == 2 ? Dtype::bf16 : Dtype::f32;
            AttentionCase c = dense_attention(dtype, 2, queries, keys, {2, 1, 8}, strides);
            if (masked) c.key_mask = some_masked(2, keys, strides);
            c.causal = right == 70;
            c.window_left = left;
            c.window_right = right;
            if (right == 2) c.scale = 0.3;
            if (left == 70 || right == 70) c.softcap = 1.5;
            add_gradients(c, !masked, 5);
            expect_golden_gradients(c);
          }
        }
      }
    }
  });
  AttentionCase c = dense_attention(Dtype::f32, 1, 5, 5, {1, 1, 8});
  c.window_left = c.window_right = std::numeric_limits<int64_t>::max();
  add_gradients(c, false, 5);
  expect_golden_gradients(c);
}

TEST(CpuAttentionBackward, TailsOfEveryTileAreRight) {
  for_each_target([] {
    for (int64_t length : {1, 3, 15, 17, 31, 32, 33, 47, 49, 63, 64, 65, 95, 97, 127, 129}) {
      SCOPED_TRACE(std::to_string(length));
      AttentionCase c = dense_attention(Dtype::f32, 1, length, length + length % 7, {1, 1, 17});
      c.causal = length % 2 == 0;
      add_gradients(c, true, 5);
      expect_golden_gradients(c);
    }
  });
}

TEST(CpuAttentionBackward, MatchesGoldenWhenAlignedTopLeft) {
  for_each_target([] {
    for (Dtype dtype : kFloatDtypes) {
      for (auto [queries, keys] :
           std::vector<std::pair<int64_t, int64_t>>{{7, 7}, {1, 130}, {65, 130}, {130, 65}, {300, 3}, {5, 0}, {0, 5}}) {
        for (int option = 0; option < 3; ++option) {
          SCOPED_TRACE(name(dtype) + " " + std::to_string(queries) + "x" + std::to_string(keys) + " option " +
                       std::to_string(option));
          AttentionCase c = dense_attention(dtype, 2, queries, keys, {4, 2, 12});
          c.top_left = true;
          c.causal = option != 1;
          if (option == 1) c.window_left = 20, c.window_right = 9;
          if (option == 2) c.window_left = 3, c.key_mask = some_masked(2, keys);
          add_gradients(c, option == 0, 5);
          expect_golden_gradients(c);
        }
      }
      AttentionCase packed = packed_attention(dtype, {5, 0, 60, 1, 3, 90}, {5, 4, 70, 100, 0, 33}, {4, 2, 40});
      packed.causal = packed.top_left = true;
      add_gradients(packed, true, 5);
      expect_golden_gradients(packed);
    }
  });
}

// Keys behind the last query's own are seen by nobody.
TEST(CpuAttentionBackward, TopLeftLeavesLateKeysWithoutGradients) {
  for_each_target([] {
    AttentionCase c = dense_attention(Dtype::f32, 1, 3, 100, {2, 2, 8});
    c.causal = c.top_left = true;
    add_gradients(c, true, 5);
    const AttentionGradients got = run_attention_backward(c, cpu::serial_parallel());
    const int64_t key = 16;  // numbers: 2 heads of 8
    for (int64_t i = 0; i < 3 * key; ++i) EXPECT_NE(got.v.get(i), 0.0) << i;
    for (int64_t i = 3 * key; i < 100 * key; ++i) {
      EXPECT_EQ(got.k.get(i), 0.0) << i;
      EXPECT_EQ(got.v.get(i), 0.0) << i;
    }
  });
}

TEST(CpuAttentionBackward, MatchesGoldenForPackedSequences) {
  for_each_target([] {
    for (Dtype dtype : kFloatDtypes) {
      for (Dtype index : {Dtype::i32, Dtype::i64}) {
        AttentionCase c = packed_attention(dtype, {5, 0, 60, 1, 3}, {5, 4, 70, 100, 0}, {4, 2, 40}, index);
        c.causal = true;
        add_gradients(c, true, 5);
        expect_golden_gradients(c);
        AttentionCase none = packed_attention(dtype, {}, {}, {2, 2, 8}, index);
        add_gradients(none, false, 5);
        expect_golden_gradients(none);
      }
    }
  });
}

TEST(CpuAttentionBackward, LargeScoresScalesAndCapsAreRight) {
  for_each_target([] {
    for (double softcap : {0.0, 1e-30, 3.0, 1e30}) {
      for (double scale : {1e-40, 5.0, 1e25}) {
        SCOPED_TRACE(std::to_string(std::log10(scale)) + " " + std::to_string(softcap));
        AttentionCase c = dense_attention(Dtype::f32, 1, 5, 90, {1, 1, 16});
        c.scale = scale, c.softcap = softcap;
        add_gradients(c, true, 5);
        expect_golden_gradients(c);
      }
    }
  });
}

TEST(CpuAttentionBackward, ManyEqualTermsDoNotRoundOneWay) {
  for_each_target([] {
    for (auto [queries, keys] : std::vector<std::pair<int64_t, int64_t>>{{40000, 1}, {1, 40000}}) {
      AttentionCase c = dense_attention(Dtype::f32, 1, queries, keys, {1, 1, 3});
      for (Tensor* tensor : {&c.q, &c.k}) tensor->fill([](int64_t i) { return i % 3 == 0 ? 0.3 : 0.7; });
      c.v.fill([](int64_t) { return 0.1; });
      add_gradients(c, true, 5);
      c.grad_out.fill([](int64_t) { return 0.1; });
      c.grad_lse.fill([](int64_t) { return 0.3; });
      expect_golden_gradients(c);
    }
  });
}

TEST(CpuAttentionBackward, WhatNobodySeesHasAGradientOfExactlyZero) {
  for_each_target([] {
    AttentionCase c = dense_attention(Dtype::f32, 2, 6, 4, {2, 2, 8});
    c.causal = true;  // queries 0 and 1 see no key
    c.key_mask = some_masked(2, 4);
    add_gradients(c, true, 5);
    expect_golden_gradients(c);
    const AttentionGradients got = run_attention_backward(c, cpu::serial_parallel());
    for (int64_t i = 0; i < 32; ++i) EXPECT_EQ(got.q.get(i), 0.0);
    for (int64_t i = 32; i < 48; ++i) EXPECT_EQ(got.k.get(i), 0.0) << "masked";
    for (int64_t i = 64; i < 128; ++i) EXPECT_EQ(got.v.get(i), 0.0) << "all masked";
    EXPECT_NE(got.k.get(0), 0.0);
  });
}

// Keys that a mask, causality or a window hides, and queries that do not see a key, may hold anything.
TEST(CpuAttentionBackward, NothingLeaksBetweenPairsThatDoNotSeeEachOther) {
  for_each_target([] {
    for (Dtype dtype : kFloatDtypes) {
      for (double poison : {kNan, kInfinity}) {
        constexpr int64_t kRow = 48, kLength = 70, kFirstBad = 40;
        AttentionCase clean = dense_attention(dtype, 1, kLength, kLength, {2, 2, 24});
        clean.causal = true;
        add_gradients(clean, true, 5);
        const AttentionGradients want = run_attention_backward(clean, cpu::serial_parallel());
        AttentionCase bad_keys = clean;
        for (int64_t i = kFirstBad * kRow; i < kLength * kRow; ++i)
          bad_keys.k.set(i, poison), bad_keys.v.set(i, poison);
        const AttentionGradients of_keys = run_attention_backward(bad_keys, cpu::serial_parallel());
        EXPECT_EQ(of_keys.q.bits(0, kFirstBad * kRow), want.q.bits(0, kFirstBad * kRow)) << name(dtype);
        EXPECT_TRUE(std::isnan(of_keys.q.get(kFirstBad * kRow)));
        AttentionCase bad_queries = clean;  // key j is seen by queries from j on
        for (int64_t i = 0; i < kFirstBad * kRow; ++i)
          bad_queries.q.set(i, poison), bad_queries.grad_out.set(i, poison);
        const AttentionGradients of_queries = run_attention_backward(bad_queries, cpu::serial_parallel());
        EXPECT_EQ(of_queries.k.bits(kFirstBad * kRow, kLength * kRow), want.k.bits(kFirstBad * kRow, kLength * kRow));
        EXPECT_EQ(of_queries.v.bits(kFirstBad * kRow, kLength * kRow), want.v.bits(kFirstBad * kRow, kLength * kRow));
        EXPECT_TRUE(std::isnan(of_queries.k.get(0)));

        AttentionCase masked = dense_attention(dtype, 2, 9, 100, {2, 1, 20});
        masked.key_mask = some_masked(2, 100);
        add_gradients(masked, true, 5);
        const AttentionGradients expected = run_attention_backward(masked, cpu::serial_parallel());
        for (int64_t i = 0; i < masked.k.size(); ++i) {
          if (masked.key_mask.get_int(i / 20) == 0) masked.k.set(i, poison), masked.v.set(i, poison);
        }
        const AttentionGradients got = run_attention_backward(masked, cpu::serial_parallel());
        EXPECT_EQ(got.q.bytes(), expected.q.bytes());
        EXPECT_EQ(got.k.bytes(), expected.k.bytes());
        EXPECT_EQ(got.v.bytes(), expected.v.bytes());
        expect_golden_gradients(masked);
      }
    }
  });
}

TEST(CpuAttentionBackward, BitsOfASequenceDoNotDependOnItsCompany) {
  for_each_target([] {
    for (Dtype dtype : kFloatDtypes) {
      const Heads heads{4, 2, 40};
      const int64_t row = heads.q * heads.size, kv_row = heads.kv * heads.size, length = 150;
      AttentionCase alone = dense_attention(dtype, 1, length, length, heads);
      alone.causal = true;
      alone.window_left = 90;
      add_gradients(alone, true, 5);
      const AttentionGradients want = run_attention_backward(alone, cpu::tbb_parallel());
      AttentionCase pack = packed_attention(dtype, {11, length, 5}, {30, length, 9}, heads);
      pack.causal = true;
      pack.window_left = 90;
      for (int64_t i = 0; i < length * row; ++i) pack.q.set(11 * row + i, alone.q.get(i));
      for (int64_t i = 0; i < length * kv_row; ++i) {
        pack.k.set(30 * kv_row + i, alone.k.get(i));
        pack.v.set(30 * kv_row + i, alone.v.get(i));
      }
      add_gradients(pack, true, 6);
      for (int64_t i = 0; i < length * row; ++i) pack.grad_out.set(11 * row + i, alone.grad_out.get(i));
      for (int64_t i = 0; i < length * heads.q; ++i) pack.grad_lse.set(11 * heads.q + i, alone.grad_lse.get(i));
      const AttentionGradients got = run_attention_backward(pack, cpu::tbb_parallel());
      EXPECT_EQ(got.q.bits(11 * row, (11 + length) * row), want.q.bits(0, length * row));
      EXPECT_EQ(got.k.bits(30 * kv_row, (30 + length) * kv_row), want.k.bits(0, length * kv_row));
      EXPECT_EQ(got.v.bits(30 * kv_row, (30 + length) * kv_row), want.v.bits(0, length * kv_row));
    }
  });
}

TEST(CpuAttentionBackward, BadCuSeqlensAreADataErrorAndAllGradientsAreNan) {
  AttentionCase c = packed_attention(Dtype::f32, {3, 4, 2}, {4, 4, 1}, {2, 2, 8});
  add_gradients(c, false, 5);
  c.cu_seqlens_k.set_int(1, 100);
  expect_golden_gradients(c);
  const AttentionGradients got = run_attention_backward(c, cpu::serial_parallel());
  EXPECT_EQ(got.error.kind, cpu::kBadSeqlens);
  EXPECT_EQ(got.error.row, 2);
  EXPECT_EQ(got.error.value, 8);
  EXPECT_TRUE(std::isnan(got.q.get(0)) && std::isnan(got.k.get(0)) && std::isnan(got.v.get(9 * 16 - 1)));
}

}  // namespace
}  // namespace rlk::test
