// What maps do besides numbers of floating dtypes in, numbers out: bits of any width, casts between all dtypes,
// arguments that are absent, members of pairs. On fibers; the kernels are those of ../operators.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/unit/simt_host/map_tensor.hpp"

// After the words that it is written in.
#include <rlk/formula/ratio_kl.hpp>

extern "C" {
void move_map_Where_b1(rlk::simt::MapArgs);
void move_map_Where_b2(rlk::simt::MapArgs);
void move_map_Where_b4(rlk::simt::MapArgs);
void move_map_Where_b8(rlk::simt::MapArgs);
void cast_map_Cast_f32(rlk::simt::MapArgs);
void cast_map_Cast_f64(rlk::simt::MapArgs);
void cast_map_Cast_i64(rlk::simt::MapArgs);
void ratio_kl_map_RatioKl_f64(rlk::simt::MapArgs);
void ratio_kl_map_RatioKl_f64_line(rlk::simt::MapLineArgs);
void apply_rotary_pos_emb_map_TurnedQuery_f32(rlk::simt::MapArgs);
}

namespace rlk::simt::host {
namespace {

void run_one(void (*kernel)(MapArgs), const MapCall& call) {
  const MapArgs args = arguments_of_map(call);
  emulation::run_grid({2, 1, 1}, {kMapThreads, 1, 1}, 0, [=] { kernel(args); });
}

// --- bits ------------------------------------------------------------------------------------------------------------

void expect_chosen(Tensor& out, const Tensor& condition, const Tensor& a, const Tensor& b, int32_t form) {
  const MapCall call({&out.abi}, {&condition.abi, &a.abi, &b.abi}, {"out", "condition", "a", "b"}, {}, MapKind::bits);
  EXPECT_EQ(arguments_of_map(call).form, form);
  const std::string width = call.kernel();
  EXPECT_EQ(width, "b" + std::to_string(out.size));
  run_one(width == "b1"   ? &move_map_Where_b1
          : width == "b2" ? &move_map_Where_b2
          : width == "b4" ? &move_map_Where_b4
                          : &move_map_Where_b8,
          call);
  std::vector<char> expected = out.before;
  for_each_index(out.shape, [&](const Sizes& index) {
    const Tensor& from = *condition.at(index) != 0 ? a : b;
    std::memcpy(expected.data() + (out.at(index) - out.memory.data()), from.at(index), static_cast<size_t>(out.size));
  });
  EXPECT_TRUE(expected == out.memory);
}

TEST(MapKindsTest, BitsOfEveryWidthAreChosenByAMaskOfBytes) {
  for (const Dtype dtype : {Dtype::u8, Dtype::boolean, Dtype::i8, Dtype::bf16, Dtype::u16, Dtype::f32, Dtype::i32,
                            Dtype::f64, Dtype::u64}) {
    SCOPED_TRACE(sdk::name_of(dtype));
    const bool is_byte = sdk::bytes_of(dtype) == 1;
    for (const int64_t n : {21, 2057}) {
      Tensor out(dtype, {n}), condition(Dtype::u8, {n}), a(dtype, {n}), b(dtype, {n}), one(dtype, {});
      expect_chosen(out, condition, a, b, is_byte ? kMapOneDtype : kMapMixed);
      Tensor again(dtype, {n});
      expect_chosen(again, condition, one, b, is_byte ? kMapOneDtype : kMapMixed);
    }
    Tensor strided(dtype, {6, 16}, {40, 2}), rows(Dtype::boolean, {6, 1}), back(dtype, {6, 16}, {-16, -1}),
        row(dtype, {16});
    expect_chosen(strided, rows, back, row, kMapAny);
  }
}

TEST(MapKindsTest, ANanThatIsMovedKeepsItsPayload) {
  Tensor out(Dtype::f32, {32}), condition(Dtype::u8, {32}), a(Dtype::f32, {32}), b(Dtype::f32, {32});
  for (int64_t i = 0; i < 32; ++i) {
    const uint32_t nan = 0x7f800001u + static_cast<uint32_t>(i);  // signalling, too
    std::memcpy(a.at({i}), &nan, 4);
    std::memcpy(b.at({i}), &nan, 4);
  }
  expect_chosen(out, condition, a, b, kMapMixed);
}

// --- casts -----------------------------------------------------------------------------------------------------------

// Nine of one number, cast: all nine are the same, and the last is returned as To.
template <class To, class From>
To cast(Dtype to, Dtype from, From number) {
  const Tensor x(from, {9}), y(to, {9});
  for (int64_t i = 0; i < 9; ++i) std::memcpy(x.at({i}), &number, sizeof(number));
  const MapCall call({&y.abi}, {&x.abi}, {"y", "x"}, {}, MapKind::cast);
  const std::string computes = call.kernel();
  run_one(computes == "i64" ? &cast_map_Cast_i64 : computes == "f64" ? &cast_map_Cast_f64 : &cast_map_Cast_f32, call);
  for (int64_t i = 0; i < 8; ++i) EXPECT_EQ(std::memcmp(y.at({i}), y.at({8}), sizeof(To)), 0);
  To out;
  std::memcpy(&out, y.at({8}), sizeof(out));
  return out;
}

TEST(MapKindsTest, AWideIntegerIsRoundedOnce) {
  constexpr int64_t kAboveTheMiddle = (int64_t{1} << 62) + (int64_t{1} << 54) + 1;
  EXPECT_EQ(widen(cast<bf16>(Dtype::bf16, Dtype::i64, kAboveTheMiddle)), 0x1p62f + 0x1p55f);
  EXPECT_EQ(widen(cast<bf16>(Dtype::bf16, Dtype::i64, -kAboveTheMiddle)), -0x1p62f - 0x1p55f);
  EXPECT_EQ(widen(cast<bf16>(Dtype::bf16, Dtype::i64, kAboveTheMiddle - 1)), 0x1p62f);
  EXPECT_EQ(cast<double>(Dtype::f64, Dtype::u64, (uint64_t{1} << 53) + 1), 0x1p53);
  EXPECT_EQ(cast<double>(Dtype::f64, Dtype::u64, ~uint64_t{0}), 0x1p64);
  EXPECT_EQ(cast<float>(Dtype::f32, Dtype::u64, ~uint64_t{0}), 0x1p64f);
}

TEST(MapKindsTest, WhatIsOutOfAnIntegersRangeIsItsNearest) {
  const double nan = std::nan(""), infinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(cast<uint8_t>(Dtype::u8, Dtype::f64, -1.0), 0);
  EXPECT_EQ(cast<uint8_t>(Dtype::u8, Dtype::f64, 255.9), 255);
  EXPECT_EQ(cast<uint8_t>(Dtype::u8, Dtype::f64, 256.0), 255);
  EXPECT_EQ(cast<int8_t>(Dtype::i8, Dtype::f64, -128.5), -128);
  EXPECT_EQ(cast<int8_t>(Dtype::i8, Dtype::f64, -127.9), -127);
  EXPECT_EQ(cast<int64_t>(Dtype::i64, Dtype::f64, 1e30), std::numeric_limits<int64_t>::max());
  EXPECT_EQ(cast<int64_t>(Dtype::i64, Dtype::f64, -infinity), std::numeric_limits<int64_t>::min());
  EXPECT_EQ(cast<uint64_t>(Dtype::u64, Dtype::f64, 0x1.8p63), uint64_t{3} << 62);
  EXPECT_EQ(cast<uint64_t>(Dtype::u64, Dtype::f64, infinity), ~uint64_t{0});
  EXPECT_EQ(cast<int32_t>(Dtype::i32, Dtype::f64, nan), 0);
  EXPECT_EQ(cast<uint8_t>(Dtype::boolean, Dtype::f64, nan), 1);
  EXPECT_EQ(cast<uint8_t>(Dtype::boolean, Dtype::f64, 0.25), 1);
  EXPECT_EQ(cast<uint8_t>(Dtype::boolean, Dtype::f64, -0.0), 0);
}

TEST(MapKindsTest, IntegersBecomeOthersByTheirLowBits) {
  EXPECT_EQ(cast<uint8_t>(Dtype::u8, Dtype::i64, int64_t{-1}), 255);
  EXPECT_EQ(cast<int8_t>(Dtype::i8, Dtype::i32, int32_t{0x1ff}), -1);
  EXPECT_EQ(cast<int64_t>(Dtype::i64, Dtype::u64, ~uint64_t{0}), -1);
  EXPECT_EQ(cast<uint64_t>(Dtype::u64, Dtype::i8, int8_t{-2}), ~uint64_t{1});
  EXPECT_EQ(cast<uint8_t>(Dtype::boolean, Dtype::i64, int64_t{256}), 1);
}

TEST(MapKindsTest, ANumberThatStandsForATensorIsFp64) {
  const Tensor y(Dtype::bf16, {9});
  // Above the middle of two numbers of bf16 by less than fp32 holds.
  const MapCall call({&y.abi}, {number_everywhere(1 + 0x1p-8 + 0x1p-40)}, {"y", "value"}, {}, MapKind::cast);
  EXPECT_STREQ(call.kernel(), "f64");
  run_one(&cast_map_Cast_f64, call);
  for (int64_t i = 0; i < 9; ++i) EXPECT_EQ(element(y.at({i}), Dtype::bf16), 1 + 0x1p-7);
}

// --- absent arguments, pairs -----------------------------------------------------------------------------------------

TEST(MapKindsTest, AnAbsentInputIsANumberAndAnAbsentOutputIsNotWritten) {
  for (const int64_t n : {1, 2061}) {
    Tensor ratio(Dtype::f32, {n});
    const Tensor logp(Dtype::f32, {n}), mask(Dtype::u8, {n});
    formula::RatioKlTerms terms = {};
    terms.x_bound = terms.d_bound = terms.bound = HUGE_VAL;
    terms.masked_ratio = terms.short_masked_ratio = 0.25;
    terms.has_old = true;
    terms.has_kl = true;
    const MapCall call({&ratio.abi, or_none(nullptr)},
                       {&logp.abi, or_number(nullptr, 2), or_number(nullptr, 0), or_number(&mask.abi, 1)},
                       {"ratio", "kl", "logp", "old_logp", "ref_logp", "mask"}, terms, MapKind::f64);
    EXPECT_STREQ(call.kernel(), "f64");
    run_one(&ratio_kl_map_RatioKl_f64, call);
    std::vector<char> expected = ratio.before;
    for (int64_t i = 0; i < n; ++i) {
      const double due = *mask.at({i}) != 0 ? std::exp(element(logp.at({i}), Dtype::f32) - 2) : 0.25;
      put(expected.data() + (ratio.at({i}) - ratio.memory.data()), Dtype::f32, due);
    }
    EXPECT_TRUE(expected == ratio.memory);
  }
  EXPECT_FALSE(MapCall({or_none(nullptr)}, {}, {"key_out"}, {}).is_wanted());
}

// A formula of fp64 over fp32 computes the same, to the bit, whether four tokens are read at once or one.
TEST(MapKindsTest, FormulasOfFp64HaveTheSameBitsInLinesAndElsewhere) {
  constexpr int64_t kTokens = 2064;
  formula::RatioKlTerms terms = {};
  terms.x_bound = terms.d_bound = terms.bound = HUGE_VAL;
  terms.has_old = terms.has_kl = true;
  terms.kind = formula::RatioKlTerms::Kind::k3;
  Tensor logp(Dtype::f32, {kTokens}), old_logp(Dtype::f32, {kTokens}), mask(Dtype::boolean, {kTokens});
  Tensor far(Dtype::f32, {kTokens}, {}, 1);
  for (int64_t i = 0; i < kTokens; ++i) {
    const double x = i == 5   ? NAN
                     : i == 6 ? INFINITY
                     : i == 7 ? -INFINITY
                              : std::sin(1.7 * static_cast<double>(i)) * 80;
    put(logp.at({i}), Dtype::f32, x);
    put(far.at({i}), Dtype::f32, x);
    put(old_logp.at({i}), Dtype::f32, std::cos(0.3 * static_cast<double>(i)));
    *mask.at({i}) = static_cast<char>(i % 5 != 0);
  }
  std::vector<double> first;
  for (const Tensor* from : {&logp, &far}) {
    SCOPED_TRACE(from == &far);
    Tensor ratio(Dtype::f32, {kTokens}), kl(Dtype::f32, {kTokens});
    const MapCall call({&ratio.abi, &kl.abi},
                       {&from->abi, &old_logp.abi, or_number(nullptr, 1), or_number(&mask.abi, 1)},
                       {"ratio", "kl", "logp", "old_logp", "ref_logp", "mask"}, terms, MapKind::f64);
    EXPECT_EQ(arguments_of_map(call).line, from == &logp ? 1 : 0);
    if (from == &logp) {
      run_lines(&ratio_kl_map_RatioKl_f64_line, arguments_of_map(call), 2);
    } else {
      run_one(&ratio_kl_map_RatioKl_f64, call);
    }
    std::vector<double> seen;
    for (int64_t i = 0; i < kTokens; ++i) {
      seen.push_back(element(ratio.at({i}), Dtype::f32));
      seen.push_back(element(kl.at({i}), Dtype::f32));
      const double due =
          *mask.at({i}) != 0 ? std::exp(element(logp.at({i}), Dtype::f32) - element(old_logp.at({i}), Dtype::f32)) : 0;
      const double got = seen[seen.size() - 2];
      if (std::isfinite(due) && due != 0) {
        EXPECT_NEAR(got, due, 0.6 * 0x1p-23 * due) << i;
      } else {
        EXPECT_TRUE(got == due || (std::isnan(got) && std::isnan(due))) << i;
      }
    }
    if (first.empty()) first = seen;
    EXPECT_EQ(std::memcmp(seen.data(), first.data(), seen.size() * sizeof(double)), 0);
  }
}

// Its terms of the k3 estimate have more digits than fp32 asks for, near 0 too, where exp(x) - 1 - x cancels.
TEST(MapKindsTest, TheBriefTermsOfTheK3EstimateHaveTheirDigitsEverywhere) {
  const formula::BriefLongLane d;
  double worst = 0, worst_far = 0;
  const auto look_at = [&](double x) {
    const double power = formula::exp_minus_one(d, x), above = formula::above_tangent(d, x, power);
    const long double due = std::expm1(static_cast<long double>(x));
    long double rest = due - x;
    if (std::fabs(x) < 1e-2) {
      rest = 0;
      for (int n = 12; n > 1; --n) rest = rest * x / (n + 1) + 1;
      rest *= static_cast<long double>(x) * x / 2;
    }
    worst = std::fmax(worst, std::fabs(static_cast<double>(power / due - 1)));
    worst_far = std::fmax(worst_far, std::fabs(static_cast<double>(above / rest - 1)));
  };
  for (double size = 1e-30; size < 690; size *= 1.003) {
    look_at(size);
    look_at(-size);
  }
  EXPECT_LT(worst, 0x1p-30);
  EXPECT_LT(worst_far, 0x1p-29);
  EXPECT_EQ(formula::above_tangent(d, 0.0, formula::exp_minus_one(d, 0.0)), 0);
  EXPECT_EQ(formula::exp_minus_one(d, -800.0), -1);
  EXPECT_EQ(formula::above_tangent(d, -800.0, formula::exp_minus_one(d, -800.0)), 799);
  EXPECT_EQ(formula::above_tangent(d, 800.0, formula::exp_minus_one(d, 800.0)), HUGE_VAL);
  EXPECT_EQ(formula::above_tangent(d, HUGE_VAL, formula::exp_minus_one(d, HUGE_VAL)), HUGE_VAL);
  const double nan = std::nan("");
  EXPECT_TRUE(std::isnan(formula::above_tangent(d, nan, formula::exp_minus_one(d, nan))));
}

enum class Style { neox, interleaved };

// A quarter turn in place: (a, b) becomes (-b, a), in every head by the token's own cosines and sines.
TEST(MapKindsTest, MembersOfPairsAreHalvesOrNeighbours) {
  const Sizes shape = {3, 2, 16};
  for (const Style style : {Style::neox, Style::interleaved}) {
    Tensor x(Dtype::bf16, shape);
    const Tensor cos(Dtype::f32, {3, 16}), sin(Dtype::f32, {3, 16});
    for_each_index({3, 16}, [&](const Sizes& index) {
      put(cos.at(index), Dtype::f32, 0);
      put(sin.at(index), Dtype::f32, static_cast<double>(index[0] + 1));
    });
    const MapView first = first_of_pairs(&x.abi, style), second = second_of_pairs(&x.abi, style);
    const MapView cosine = every_head(first_of_pairs(&cos.abi, style)),
                  sine = every_head(second_of_pairs(&sin.abi, style));
    run_one(&apply_rotary_pos_emb_map_TurnedQuery_f32,
            MapCall({first, second}, {first, second, cosine, sine, cosine, sine},
                    {"first", "second", "a", "b", "cos_a", "sin_a", "cos_b", "sin_b"}, 1.0));
    const auto before = [&](const Sizes& index) {
      return element(x.before.data() + (x.at(index) - x.memory.data()), Dtype::bf16);
    };
    for_each_index({3, 2, 8}, [&](const Sizes& index) {
      Sizes a = index, b = index;
      a[2] = style == Style::neox ? index[2] : 2 * index[2];
      b[2] = style == Style::neox ? index[2] + 8 : 2 * index[2] + 1;
      const auto factor = static_cast<double>(index[0] + 1);
      EXPECT_EQ(element(x.at(a), Dtype::bf16), -factor * before(b));
      EXPECT_EQ(element(x.at(b), Dtype::bf16), factor * before(a));
    });
  }
}

}  // namespace
}  // namespace rlk::simt::host
