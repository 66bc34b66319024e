// attention: few rows, data errors, hidden keys, chunks and packing bit by bit, large scores, no memory.
#include <rlk/sdk/ops/attention.hpp>

#include <sys/resource.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include <rlk/sdk/error.hpp>

#include "unit/cpu/attention_case.hpp"
#include "unit/cpu/token_case.hpp"

namespace rlk::test {
namespace {

// One or two queries whose heads share keys: all tails of blocks, and rows that are read where they lie or are not.
TEST(CpuAttention, MatchesGoldenForFewRows) {
  for_each_attention_target([] {
    for (Dtype dtype : kFloatDtypes) {
      for (Heads heads : {Heads{1, 1, 64}, Heads{2, 1, 96}, Heads{3, 1, 32}, Heads{8, 2, 128}, Heads{7, 1, 33}}) {
        for (int64_t keys : {15, 64, 129, 1100}) {
          if (keys == 1100 && heads.q != 2) continue;
          for (int option = 0; option < 5; ++option) {
            SCOPED_TRACE(name(dtype) + " keys " + std::to_string(keys) + " D" + std::to_string(heads.size) +
                         " option " + std::to_string(option));
            Attention c = dense_attention(dtype, 1, option == 1 ? 2 : 1, keys, heads,
                                          option == 2   ? Strides::gaps
                                          : option == 3 ? Strides::reversed
                                                        : Strides::contiguous);
            c.params.causal = Causal::on;
            if (option == 3) c.params.softcap = 1.5;
            if (option == 4) c.params.window_left = 40, c.params.scale = 0.7;
            expect_golden(c);
          }
        }
      }
    }
  });
}

TEST(CpuAttention, HiddenKeysAreNotTouchedEvenWhenTheyAreNanOrInfinite) {
  for_each_attention_target([] {
    for (Dtype dtype : kFloatDtypes) {
      for (double poison : {kNan, kInfinity}) {
        constexpr int64_t kRow = 48, kFirstBad = 40, kLength = 70;  // elements of a token, tokens
        Attention clean = dense_attention(dtype, 1, kLength, kLength, {2, 2, 24});
        clean.params.causal = Causal::on;
        Attention poisoned = clean;
        for (int64_t i = kFirstBad * kRow; i < kLength * kRow; ++i)
          poisoned.k.set(i, poison), poisoned.v.set(i, poison);
        const auto want = run(clean);
        const auto got = run(poisoned);
        EXPECT_EQ(got.out.bits(0, kFirstBad * kRow), want.out.bits(0, kFirstBad * kRow)) << name(dtype);
        EXPECT_EQ(got.lse.bits(0, 80), want.lse.bits(0, 80));
        EXPECT_TRUE(std::isnan(got.out.get((kLength - 1) * kRow)));
      }
    }
  });
}

// As above for so few queries that K and V stream past them.
TEST(CpuAttention, HiddenKeysAreNotTouchedByFewQueriesEither) {
  for_each_attention_target([] {
    for (Dtype dtype : kFloatDtypes) {
      for (double poison : {kNan, kInfinity}) {
        for (int64_t size : {24, 32}) {
          constexpr int64_t kQueries = 3, kLength = 66;
          Attention clean = dense_attention(dtype, 1, kQueries, kLength, {1, 1, size});
          clean.params.causal = Causal::on;
          Attention poisoned = clean;  // the last key, which the last query alone sees
          for (int64_t i = (kLength - 1) * size; i < kLength * size; ++i)
            poisoned.k.set(i, poison), poisoned.v.set(i, poison);
          const auto want = run(clean);
          const auto got = run(poisoned);
          EXPECT_EQ(got.out.bits(0, 2 * size), want.out.bits(0, 2 * size)) << name(dtype) << size;
          EXPECT_EQ(got.lse.bits(0, 2), want.lse.bits(0, 2));
          EXPECT_TRUE(std::isnan(got.out.get(2 * size)));
        }
      }
    }
  });
}

// Whichever number of V it is: all of them are looked at, and the row's earlier keys are scaled as without it.
TEST(CpuAttention, ASpecialValueOfAHiddenKeyIsNotMetWhereverItStands) {
  constexpr int64_t kLength = 70, kSize = 24;  // tokens, of which six are in a second block
  for_each_attention_target([&] {
    for (const auto& [dtype, queries] : {std::pair(Dtype::f32, kLength), {Dtype::f32, 3}, {Dtype::bf16, kLength}}) {
      Attention clean = dense_attention(dtype, 1, queries, kLength, {1, 1, kSize});
      clean.params.causal = Causal::on;
      for (int64_t i = 64 * kSize; i < kLength * kSize; ++i) clean.k.set(i, 8 * clean.k.get(i));
      const auto want = run(clean);
      for (const int64_t bad : {int64_t{1}, int64_t{63}, int64_t{65}, kLength - 1}) {
        const int64_t blind = bad - (kLength - queries);  // so many queries do not see it
        if (blind <= 0) continue;
        for (int64_t i = 0; i < kSize; ++i) {
          for (const double special : {kNan, -kInfinity}) {
            Attention poisoned = clean;
            poisoned.v.set(bad * kSize + i, special);
            const auto got = run(poisoned);
            SCOPED_TRACE(std::to_string(queries) + " queries, key " + std::to_string(bad) + " number " +
                         std::to_string(i));
            ASSERT_EQ(got.out.bits(0, blind * kSize), want.out.bits(0, blind * kSize)) << special;
            ASSERT_FALSE(std::isfinite(got.out.get((queries - 1) * kSize + i))) << special;  // the last sees it
          }
        }
      }
    }
  });
}

// The weights of the first two keys are 1, and their values cancel the first sixteen bits of the third's.
TEST(CpuAttention, WeightsAreMultipliedWithAllTheirBits) {
  for_each_attention_target([] {
    const double score = -1.0859375, weight = std::exp(score);
    const auto first_bits = [](double x) { return std::floor(x * 0x1p9) * 0x1p-9; };  // 8 of a number below 1/2
    const double high = first_bits(weight), middle = first_bits((weight - high) * 0x1p8) * 0x1p-8;
    Attention c;
    c.q = numbers({1}, {1, 1, 1, 1}, Dtype::bf16);
    c.k = numbers({0, 0, score}, {1, 3, 1, 1}, Dtype::bf16);
    c.v = numbers({-high, -middle, 1}, {1, 3, 1, 1}, Dtype::bf16);
    c.params.scale = 1;
    const double rest = weight - high - middle;
    EXPECT_NEAR(run(c).out.get(0), rest / (2 + weight), 0x1p-20);
  });
}

// A query's bits are the same alone, in a batch, in a packed buffer at another place, and as the end of a longer chunk.
TEST(CpuAttention, BitsDoNotDependOnBatchPackingOrChunking) {
  for_each_attention_target([] {
    for (Dtype dtype : kFloatDtypes) {
      for (auto [window, size] : std::vector<std::pair<int64_t, int64_t>>{{-1, 40}, {20, 40}, {-1, 64}, {20, 96}}) {
        const Heads heads{4, 2, size};
        const int64_t row = heads.q * heads.size, kv_row = heads.kv * heads.size, length = 150;
        Attention whole = dense_attention(dtype, 1, length, length, heads);
        whole.params.causal = Causal::on;
        whole.params.window_left = window;
        const auto expected = run(whole, cpu::tbb_parallel());
        for (int64_t chunk : {1, 3, 70}) {
          Attention part = dense_attention(dtype, 1, chunk, length, heads);
          part.k = whole.k;
          part.v = whole.v;
          part.params.causal = Causal::on;
          part.params.window_left = window;
          const int64_t first = length - chunk;
          part.q.fill([&](int64_t i) { return whole.q.get(first * row + i); });
          const auto got = run(part, cpu::tbb_parallel());
          EXPECT_EQ(got.out.bits(0, chunk * row), expected.out.bits(first * row, length * row));
          EXPECT_EQ(got.lse.bits(0, chunk * heads.q), expected.lse.bits(first * heads.q, length * heads.q));
        }
        Attention pack = packed_attention(dtype, {11, length, 5}, {30, length, 9}, heads);
        pack.params.causal = Causal::on;
        pack.params.window_left = window;
        for (int64_t i = 0; i < length * row; ++i) pack.q.set(11 * row + i, whole.q.get(i));
        for (int64_t i = 0; i < length * kv_row; ++i) {
          pack.k.set(30 * kv_row + i, whole.k.get(i));
          pack.v.set(30 * kv_row + i, whole.v.get(i));
        }
        const auto got = run(pack, cpu::tbb_parallel());
        EXPECT_EQ(got.out.bits(11 * row, (11 + length) * row), expected.out.bits(0, length * row));
      }
    }
  });
}

// Values, and their products with weights, around fp32's smallest normal number, which the tile unit takes for 0.
TEST(CpuAttention, ALoneQueryHasTheSameBitsAlsoWhereValuesAreTiny) {
  for_each_attention_target([] {
    Attention whole = dense_attention(Dtype::bf16, 1, 70, 70, {1, 1, 40});
    whole.v.fill(
        [](int64_t i) { return std::sin(static_cast<double>(i)) * std::exp2(-120 - static_cast<double>(i % 13)); });
    whole.params.causal = Causal::on;
    Attention last = whole;
    last.q = Tensor(Dtype::bf16, {1, 1, 1, 40}).fill([&](int64_t i) { return whole.q.get(69 * 40 + i); });
    last.out = Tensor(Dtype::bf16, last.q.shape());
    last.lse = Tensor(Dtype::f32, {1, 1, 1});
    EXPECT_EQ(run(last).out.bits(0, 40), run(whole).out.bits(69 * 40, 70 * 40));
  });
}

TEST(CpuAttention, LargeScoresAndScalesStayFinite) {
  for_each_attention_target([] {
    for (double scale : {1e-40, 5.0, 1e25}) {
      Attention c = dense_attention(Dtype::f32, 1, 5, 90, {1, 1, 16});
      c.params.scale = scale;
      expect_golden(c);
    }
  });
}

#ifndef RLK_SANITIZED
// In a child process that has no memory left, on a thread that has no scratch yet.
[[noreturn]] void attend_without_memory() {
  constexpr int64_t kSize = 256;
  std::vector<float> numbers(kSize, 1.0f);
  std::thread([&numbers] {
    const cpu::Array row = {numbers.data(), Dtype::f32, 4, {1, 1, 1, kSize}, {kSize, kSize, kSize, 1}};
    cpu::CallOf<ops::Attention> call;
    call.q = call.k = call.v = call.out = row;
    call.B = call.Sq = call.Sk = call.Hq = call.Hkv = 1, call.D = kSize;
    const rlimit none = {0, 0};
    setrlimit(RLIMIT_AS, &none);
    void *last = nullptr, *block = nullptr;
    while ((block = std::malloc(1 << 14)) != nullptr) last = block;
    std::free(last);  // for the text
    try {
      cpu::kernel<ops::Attention>().run(call, {cpu::serial_parallel()});
    } catch (const sdk::Error& error) {
      std::fputs(error.what(), stderr);
      _exit(error.status() == RLK_OUT_OF_MEMORY ? 0 : 1);
    }
    _exit(2);
  }).join();
  _exit(3);
}

TEST(CpuAttention, WithoutMemoryForScratchACallFailsAndSaysWhatToDo) {
  for_each_attention_target(
      [] { EXPECT_EXIT(attend_without_memory(), ::testing::ExitedWithCode(0), "free some memory"); });
}
#endif

}  // namespace
}  // namespace rlk::test
