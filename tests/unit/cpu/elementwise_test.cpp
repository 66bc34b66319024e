// Elementwise operators where a generated case does not look: at the ends of integer dtypes, and beyond fp64's digits.
#include <rlk/sdk/ops/cast.hpp>
#include <rlk/sdk/ops/copy.hpp>
#include <rlk/sdk/ops/div_backward.hpp>
#include <rlk/sdk/ops/fill.hpp>
#include <rlk/sdk/ops/sub.hpp>

#include <cmath>
#include <limits>

#include "unit/cpu/token_case.hpp"

namespace rlk::test {
namespace {

using Integers = std::vector<int64_t>;

Tensor cast_to(Dtype dtype, const Tensor& x) {
  CallOf<ops::Cast> call;
  call.x = x;
  call.y = Tensor(dtype, x.shape());
  return run(call).y;
}
Integers integers_of(const Tensor& tensor) {
  Integers list;
  for (int64_t i = 0; i < tensor.size(); ++i) list.push_back(tensor.view().load_int(i));
  return list;
}

TEST(CpuElementwise, NumbersOutOfAnIntegersRangeBecomeTheNearest) {
  const Tensor x = numbers({-kInfinity, -1e30, -2.75, -0.5, 2.75, 300, 1e30, kInfinity, std::nan("")});
  const auto low = [](int bits) { return -(int64_t{1} << (bits - 1)); };
  const auto high = [](int bits) { return (int64_t{1} << (bits - 1)) - 1; };
  for (const auto& [dtype, bits] : {std::pair{Dtype::i16, 16}, {Dtype::i32, 32}}) {
    EXPECT_EQ(integers_of(cast_to(dtype, x)),
              (Integers{low(bits), low(bits), -2, 0, 2, 300, high(bits), high(bits), 0}));
  }
  constexpr int64_t kMin = std::numeric_limits<int64_t>::min(), kMax = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(integers_of(cast_to(Dtype::i64, x)), (Integers{kMin, kMin, -2, 0, 2, 300, kMax, kMax, 0}));
  EXPECT_EQ(integers_of(cast_to(Dtype::i8, x)), (Integers{-128, -128, -2, 0, 2, 127, 127, 127, 0}));
  EXPECT_EQ(integers_of(cast_to(Dtype::u8, x)), (Integers{0, 0, 0, 0, 2, 255, 255, 255, 0}));
  EXPECT_EQ(integers_of(cast_to(Dtype::u64, x)), (Integers{0, 0, 0, 0, 2, 300, -1, -1, 0}));
  EXPECT_EQ(integers_of(cast_to(Dtype::boolean, x)), (Integers{1, 1, 1, 1, 1, 1, 1, 1, 1}));
}

// 2^n itself, the first number that is too large, is a number of fp64.
TEST(CpuElementwise, TheFirstNumberBeyondAnIntegersRangeBecomesTheLargest) {
  struct End {
    Dtype dtype;
    double first;
    int64_t largest;
  };
  for (const End& end : {End{Dtype::i8, 0x1p7, 127},
                         {Dtype::u8, 0x1p8, 255},
                         {Dtype::i16, 0x1p15, 0x7fff},
                         {Dtype::u16, 0x1p16, 0xffff},
                         {Dtype::i32, 0x1p31, 0x7fffffff},
                         {Dtype::u32, 0x1p32, 0xffffffff},
                         {Dtype::i64, 0x1p63, std::numeric_limits<int64_t>::max()},
                         {Dtype::u64, 0x1p64, -1}}) {
    SCOPED_TRACE(name(end.dtype));
    for (const Dtype from : {Dtype::f32, Dtype::f64})
      EXPECT_EQ(integers_of(cast_to(end.dtype, numbers({end.first}, {}, from))), (Integers{end.largest}));
  }
}

// What says that a number is beyond the middle of two is in a digit that fp64 has no room for.
TEST(CpuElementwise, IntegersBeyondFp64AreRoundedOnce) {
  constexpr int64_t kHalfway = (int64_t{1} << 62) + (int64_t{1} << 38);  // between two numbers of fp32
  const Tensor x = integers({kHalfway, kHalfway + 1, -kHalfway - 1});
  EXPECT_EQ(list_of(cast_to(Dtype::f32, x)), (List{0x1p62, 0x1p62 + 0x1p39, -0x1p62 - 0x1p39}));
  constexpr int64_t kBetween = (int64_t{1} << 62) + (int64_t{1} << 54);  // of bf16
  EXPECT_EQ(list_of(cast_to(Dtype::bf16, integers({kBetween, kBetween + 1}))), (List{0x1p62, 0x1p62 + 0x1p55}));
  EXPECT_EQ(list_of(cast_to(Dtype::f64, integers({-1}, Dtype::i32))), (List{-1}));
  // The first numbers that fp64 has not all of: the middle is in the digit that it lacks, or in one that it still has.
  constexpr int64_t kDigits = int64_t{1} << 53, kMiddle = kDigits + (int64_t{1} << 29);
  EXPECT_EQ(list_of(cast_to(Dtype::f32, integers({kMiddle, kMiddle + 1}))), (List{0x1p53, 0x1p53 + 0x1p30}));
  EXPECT_EQ(list_of(cast_to(Dtype::f64, integers({kDigits + 1, kDigits + 2, kDigits + 3}))),
            (List{0x1p53, 0x1p53 + 2, 0x1p53 + 4}));
}

// EXPECT_EQ takes -0 for 0, whose reciprocals are not the same.
TEST(CpuElementwise, TheIntegerZeroHasNoSign) {
  for (const Dtype from : {Dtype::i64, Dtype::u64, Dtype::i32, Dtype::u8}) {
    for (const Dtype to : kFloatDtypes) {
      const double zero = cast_to(to, cast_to(from, integers({0}))).get(0);
      EXPECT_EQ(zero, 0);
      EXPECT_FALSE(std::signbit(zero)) << name(from) << " to " << name(to);
    }
  }
}

// Just below and above the middle of two subnormal numbers of bf16: fp32, which has fewer digits there, must not see
// the middle itself. Lines long enough for whole vectors.
TEST(CpuElementwise, NumbersBelowFp32sNormalOnesAreRoundedOnce) {
  List in, out;
  for (const double sign : {1.0, -1.0}) {
    for (int i = 0; i < 40; ++i) {
      const double middle = (i + 0.5) * 0x1p-133;
      in.insert(in.end(), {sign * (middle - 0x1p-170), sign * middle, sign * (middle + 0x1p-170)});
      out.insert(out.end(), {sign * i * 0x1p-133, sign * (i + i % 2) * 0x1p-133, sign * (i + 1) * 0x1p-133});
    }
  }
  EXPECT_EQ(list_of(cast_to(Dtype::bf16, numbers(in))), out);
}

TEST(CpuElementwise, IntegersKeepTheirLowBits) {
  const Tensor x = integers({-1, 256, (int64_t{1} << 40) + 5});
  EXPECT_EQ(integers_of(cast_to(Dtype::u8, x)), (Integers{255, 0, 5}));
  EXPECT_EQ(integers_of(cast_to(Dtype::i32, x)), (Integers{-1, 256, 5}));
  EXPECT_EQ(integers_of(cast_to(Dtype::boolean, x)), (Integers{1, 1, 1}));
  EXPECT_EQ(integers_of(cast_to(Dtype::i64, integers({-3, 7}, Dtype::i8))), (Integers{-3, 7}));
  CallOf<ops::Copy> copy;
  copy.x = integers({(int64_t{1} << 62) + 1, -1});
  EXPECT_EQ(integers_of(run(copy).y), (Integers{(int64_t{1} << 62) + 1, -1}));
}

TEST(CpuElementwise, AValueIsFilledAsItIsCast) {
  CallOf<ops::Fill> fill;
  fill.x = integers({1, 2}, Dtype::u8);
  fill.params.value = 1000;
  EXPECT_EQ(integers_of(run(fill).y), (Integers{255, 255}));
  fill.x = integers({1, 2, 3});
  fill.params.value = -0x1p40;
  EXPECT_EQ(integers_of(run(fill).y), Integers(3, -(int64_t{1} << 40)));
  fill.x = numbers({1, 2}, {}, Dtype::bf16);
  fill.params.value = kInfinity;
  EXPECT_EQ(list_of(run(fill).y), (List{kInfinity, kInfinity}));
}

TEST(CpuElementwise, AnAlphaThatFp32HasNotIsNotRounded) {
  CallOf<ops::Sub> sub;
  sub.a = numbers({1}, {}, Dtype::f32);
  sub.b = numbers({0x1p-100}, {}, Dtype::f32);
  sub.params.alpha = 0x1p200;
  EXPECT_EQ(run(sub).out.get(0), 1 - 0x1p100);
}

TEST(CpuElementwise, TheGradientOfASmallDivisorSquaresNothing) {
  CallOf<ops::DivBackward> call;
  call.grad_out = numbers({0x1p-80}, {}, Dtype::f32);
  call.a = call.b = call.grad_out;
  EXPECT_EQ(run(call).grad_b.get(0), -0x1p0);
}

}  // namespace
}  // namespace rlk::test
