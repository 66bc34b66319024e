// The skeletons: every dtype, shape and stride that they are given is walked in one order, and rounded once.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "unit/cpu/skeleton_test.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "core/cpu/simd/skeleton-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace rlk::cpu::HWY_NAMESPACE {

void scale(const Context& context, const Array& out, const Array& x, const Array& factor) {
  map(context, to(out), from(x, factor), [](auto, auto v, auto f) HWY_ATTR { return hn::Mul(v, f); });
}
void sum_and_difference(const Context& context, const Array& sum, const Array& difference, const Array& a,
                        const Array& b) {
  map<double>(context, to(sum, difference), from(a, b), [](auto, auto x, auto y, auto& s, auto& t) HWY_ATTR {
    s = hn::Add(x, y);
    t = hn::Sub(x, y);
  });
}
double largest(const Array& x) {
  return static_cast<double>(
      largest_of_lines<float>(from(line_of(x)), x.shape[0], [](auto, auto v) HWY_ATTR { return v; }));
}
double shifted_sum(const Array& x) {
  return sum_of_lines<float>(from(line_of(x)), x.shape[0],
                             [](auto d, auto v) HWY_ATTR { return hn::Add(v, hn::Set(d, 1.0f)); });
}
double sum(const Array& x) {
  return sum_of_lines<double>(from(line_of(x)), x.shape[0], [](auto, auto v) HWY_ATTR { return v; });
}
double power(double x, bool minus_one) {
  const hn::ScalableTag<double> d;
  return hn::GetLane(minus_one ? exp_minus_one(d, hn::Set(d, x)) : exp(d, hn::Set(d, x)));
}
float power_f32(float x, bool minus_one) {
  const hn::ScalableTag<float> d;
  return hn::GetLane(minus_one ? exp_minus_one(d, hn::Set(d, x)) : exp(d, hn::Set(d, x)));
}

}  // namespace rlk::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <cmath>
#include <limits>
#include <numeric>

#include "unit/cpu/operator.hpp"
#include "unit/cpu/token_case.hpp"

namespace rlk::cpu {

HWY_EXPORT(scale);
HWY_EXPORT(sum_and_difference);
HWY_EXPORT(largest);
HWY_EXPORT(shifted_sum);
HWY_EXPORT(sum);
HWY_EXPORT(power);
HWY_EXPORT(power_f32);

namespace {

using test::array_of, test::for_each_target, test::kFloatDtypes, test::name, test::numbers;
using test::Strides, test::Tensor;
using List = std::vector<double>;

const Context kSerial{serial_parallel()};

List counting(int64_t count) {
  List list;
  for (int64_t i = 0; i < count; ++i) list.push_back(static_cast<double>(i % 97 - 40));
  return list;
}

TEST(CpuSkeleton, MapBroadcastsAndWalksEveryDtypeAndStride) {
  for_each_target([] {
    for (const Dtype dtype : kFloatDtypes) {
      for (const Strides strides : {Strides::contiguous, Strides::gaps, Strides::reversed}) {
        const Tensor x = numbers(counting(3 * 5 * 70), {3, 5, 70}, dtype, strides);
        const Tensor factor = numbers({1, 2, 4, -1, 0.5}, {5, 1}, dtype);
        const Tensor out(dtype, {3, 5, 70}, strides);
        HWY_DYNAMIC_DISPATCH(scale)(kSerial, array_of(out), array_of(x), array_of(factor));
        for (int64_t i = 0; i < out.size(); ++i)
          ASSERT_EQ(out.get(i), x.get(i) * factor.get(i / 70 % 5)) << name(dtype);
      }
    }
  });
}

// As those are that no cache holds: of every length around a vector and a cache line, and wherever a line begins.
TEST(CpuSkeleton, OutputsWrittenPastTheCachesAreTheSame) {
  for_each_target([] {
    for (const Dtype dtype : kFloatDtypes) {
      for (const int64_t count : {1, 3, 16, 31, 64, 255, 256, 300, 1000}) {
        for (const int64_t first : {0, 1, 5}) {
          const Tensor x = numbers(counting(first + count + 2), {first + count + 2}, dtype),
                       two = numbers({2}, {1}, dtype);
          Tensor out(dtype, {first + count + 2});
          for (int64_t i = 0; i < out.size(); ++i) out.set(i, 77);
          const auto part = [&](const Tensor& tensor) {
            Array array = array_of(tensor);
            array.data = element(array.data, first, array.dtype);
            array.shape[0] = count;
            return array;
          };
          Array past_caches = part(out);
          past_caches.exceeds_caches = true;
          HWY_DYNAMIC_DISPATCH(scale)(kSerial, past_caches, part(x), array_of(two));
          for (int64_t i = 0; i < out.size(); ++i) {
            const bool is_written = i >= first && i < first + count;
            ASSERT_EQ(out.get(i), is_written ? 2 * x.get(i) : 77) << name(dtype) << " " << count << " " << i;
          }
        }
      }
    }
  });
}

TEST(CpuSkeleton, SeveralResultsAndASecondDtypeAreWrittenInOnePass) {
  for_each_target([] {
    const Tensor a = numbers(counting(300), {300}, Dtype::bf16), b = numbers(List(300, 3.0), {300}, Dtype::f32);
    const Tensor sum(Dtype::f32, {300}), difference(Dtype::f16, {300});
    HWY_DYNAMIC_DISPATCH(sum_and_difference)
    (kSerial, array_of(sum), array_of(difference), array_of(a), array_of(b));
    for (int64_t i = 0; i < 300; ++i) {
      ASSERT_EQ(sum.get(i), a.get(i) + 3);
      ASSERT_EQ(difference.get(i), a.get(i) - 3);
    }
  });
}

// Numbers whose fp32 neighbour is a midpoint of bf16 or fp16: two roundings would go the wrong way.
TEST(CpuSkeleton, DoubleIsRoundedOnceAndKeepsInfinitiesAndNan) {
  const double infinity = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  for_each_target([&] {
    for (const Dtype dtype : {Dtype::bf16, Dtype::f16, Dtype::f32}) {
      const double half = dtype == Dtype::bf16 ? 0x1p-8 : dtype == Dtype::f16 ? 0x1p-11 : 0x1p-24;
      const List list = {
          1 + half + 0x1p-40, -1 - half - 0x1p-40, 1 + half - 0x1p-40, infinity, -infinity, nan, 1e300, 3};
      List many;
      for (int k = 0; k < 5; ++k) many.insert(many.end(), list.begin(), list.end());
      const Tensor x = numbers(many, {40}, Dtype::f64), zero = numbers(List(40, 0.0), {40}, Dtype::f64);
      const Tensor sum(dtype, {40}), difference(dtype, {40});
      HWY_DYNAMIC_DISPATCH(sum_and_difference)
      (kSerial, array_of(sum), array_of(difference), array_of(x), array_of(zero));
      for (int64_t i = 0; i < 40; i += 8) {
        EXPECT_EQ(sum.get(i), 1 + 2 * half) << name(dtype);
        EXPECT_EQ(sum.get(i + 1), -1 - 2 * half) << name(dtype);
        EXPECT_EQ(sum.get(i + 2), 1) << name(dtype);
        EXPECT_EQ(sum.get(i + 3), infinity);
        EXPECT_EQ(sum.get(i + 4), -infinity);
        EXPECT_TRUE(std::isnan(sum.get(i + 5)));
        EXPECT_EQ(sum.get(i + 6), infinity);
        EXPECT_EQ(sum.get(i + 7), 3);
      }
    }
  });
}

TEST(CpuSkeleton, SumsAndMaximaTakeWhatIsThereAndNothingBehindIt) {
  for_each_target([] {
    for (const int64_t count : {1, 3, 16, 17, 255, 256, 257, 1000}) {
      const Tensor x = numbers(List(static_cast<size_t>(count), -2.0), {count}, Dtype::f32);
      EXPECT_EQ(HWY_DYNAMIC_DISPATCH(largest)(array_of(x)), -2) << count;
      EXPECT_EQ(HWY_DYNAMIC_DISPATCH(shifted_sum)(array_of(x)), static_cast<double>(-count)) << count;
    }
  });
}

// Numbers of two sizes, which a plain chain of additions rounds one way: by thousands of ulp.
TEST(CpuSkeleton, SumsOfManyNumbersLikeEachOtherKeepTheirDigits) {
  List list;
  for (int64_t i = 0; i < 32000; ++i) list.push_back(i % 2 == 0 ? 0.1 : 0.7 + 1e-3 * (i % 5 == 0));
  const auto exact = static_cast<double>(std::accumulate(list.begin(), list.end(), 0.0L));
  const Tensor x = numbers(list);
  for_each_target(
      [&] { EXPECT_NEAR(HWY_DYNAMIC_DISPATCH(sum)(array_of(x)), exact, 8 * test::ulp(Dtype::f64, exact)); });
}

TEST(CpuSkeleton, OfALineWithoutElementsNothingIsRead) {
  Array nowhere;  // a repeated number that is not there
  nowhere.data = reinterpret_cast<void*>(uintptr_t{64});
  nowhere.ndim = 1;
  for_each_target([&] { EXPECT_EQ(HWY_DYNAMIC_DISPATCH(shifted_sum)(nowhere), 0); });
}

// In ulp of the result, over the whole range; below the smallest normal number it may be 0.
TEST(CpuSkeleton, ExponentialsAreGoodToTwoUlpEverywhere) {
  for_each_target([] {
    for (const bool minus_one : {false, true}) {
      const auto right = [&](double x) { return minus_one ? std::expm1(x) : std::exp(x); };
      for (double x = -707; x < 709.7; x += 0.37109375) {
        const double got = HWY_DYNAMIC_DISPATCH(power)(x, minus_one);
        ASSERT_NEAR(got, right(x), 2 * test::ulp(Dtype::f64, right(x))) << x;
        ASSERT_NEAR(HWY_DYNAMIC_DISPATCH(power)(x / 4096, minus_one), right(x / 4096),
                    2 * test::ulp(Dtype::f64, right(x / 4096)))
            << x;
      }
      for (double x = -86; x < 88.7; x += 0.0478515625) {
        ASSERT_NEAR(HWY_DYNAMIC_DISPATCH(power_f32)(static_cast<float>(x), minus_one), right(x),
                    2 * test::ulp(Dtype::f32, right(x)))
            << x;
      }
      const double infinity = std::numeric_limits<double>::infinity();
      EXPECT_EQ(HWY_DYNAMIC_DISPATCH(power)(infinity, minus_one), infinity);
      EXPECT_EQ(HWY_DYNAMIC_DISPATCH(power)(-infinity, minus_one), minus_one ? -1 : 0);
      EXPECT_TRUE(std::isnan(HWY_DYNAMIC_DISPATCH(power)(std::nan(""), minus_one)));
      EXPECT_EQ(HWY_DYNAMIC_DISPATCH(power_f32)(89.0f, minus_one), std::numeric_limits<float>::infinity());
    }
  });
}

}  // namespace
}  // namespace rlk::cpu
#endif  // HWY_ONCE
