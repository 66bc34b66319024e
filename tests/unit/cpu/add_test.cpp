// add against the golden reference over broadcasts, strides, aliasing and special numbers.
#include <rlk/sdk/ops/add.hpp>

#include <cmath>

#include "unit/cpu/operator.hpp"

namespace rlk::test {
namespace {

using Add = CallOf<ops::Add>;

Add call_of(Tensor a, Tensor b, double alpha = 1.0) {
  Add c;
  c.a = std::move(a);
  c.b = std::move(b);
  c.params.alpha = alpha;
  return c;
}

void expect_golden(Add c, Strides output_strides = Strides::contiguous) {
  complete(c);
  c.out = Tensor(c.a.dtype(), c.out.shape(), output_strides);
  const Tensor out = run(c).out;
  EXPECT_TRUE(matches(out, golden_answer(c).out, c.a.dtype()));
  for (const cpu::ParallelFor& hook : {cpu::tbb_parallel(), backwards_parallel()}) {
    EXPECT_EQ(run(c, hook).out.bytes(), out.bytes());
  }
}

TEST(Golden, AddBroadcastsFromTheLastDimension) {
  Add c = call_of(Tensor(Dtype::f32, {2, 1}), Tensor(Dtype::f32, {3}), -2.0);
  c.a.set(0, 10).set(1, 20);
  c.b.set(0, 1).set(1, 2).set(2, 3);
  complete(c);
  EXPECT_EQ(c.out.shape(), (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(golden_answer(c).out.value, (std::vector<double>{8, 6, 4, 18, 16, 14}));
}

using Shape = std::vector<int64_t>;

TEST(CpuAdd, MatchesGoldenForEveryBroadcastAndStride) {
  const std::vector<std::pair<Shape, Shape>> shapes = {
      {{5}, {5}},       {{3, 5, 129}, {5, 1}}, {{1, 7}, {4, 1, 1}}, {{}, {3}},
      {{}, {}},         {{2, 0, 3}, {3}},      {{4, 33}, {33}},     {{2, 1, 2, 1, 2, 1, 2, 3}, {2, 3, 1, 5, 2, 1}},
      {{1000}, {1000}}, {{100000}, {1}},       {{70000}, {70000}}};
  for_each_target([&] {
    for (Dtype dtype : kFloatDtypes) {
      for (const auto& [a, b] : shapes) {
        for (Strides strides : {Strides::contiguous, Strides::gaps, Strides::reversed}) {
          for (double alpha : {1.0, -0.5, 0.0}) {
            SCOPED_TRACE(name(dtype) + " " + std::to_string(a.size()) + "d + " + std::to_string(b.size()) + "d");
            Add c = call_of(random_tensor(dtype, a, 2.0, 1, strides), random_tensor(dtype, b, 2.0, 2), alpha);
            if (c.a.size() > 2000 && (strides != Strides::contiguous || alpha != -0.5)) continue;
            expect_golden(c, strides);
            std::swap(c.a, c.b);
            expect_golden(c, strides);
          }
        }
      }
    }
  });
}

TEST(CpuAdd, ContiguousOperandsMeetAnOutputWithGaps) {
  for (Dtype dtype : kFloatDtypes) {
    for (Strides strides : {Strides::gaps, Strides::reversed}) {
      // Lines longer than the buffer, and dimensions that merge in the operands alone.
      expect_golden(call_of(random_tensor(dtype, {2, 1300}, 2.0, 1), random_tensor(dtype, {2, 1300}, 2.0, 2), 0.5),
                    strides);
    }
  }
}

TEST(CpuAdd, SixteenBitResultsAreRoundedOnce) {
  for_each_target([] {
    for (Dtype dtype : {Dtype::bf16, Dtype::f16}) {
      const Add c = call_of(random_tensor(dtype, {4096}, 2.0, 1), random_tensor(dtype, {4096}, 1e-3, 2));
      const auto right = golden_answer(c);
      const Tensor want =
          Tensor(dtype, {4096}).fill([&](int64_t i) { return right.out.value[static_cast<size_t>(i)]; });
      EXPECT_EQ(run(c).out.bytes(), want.bytes());  // with alpha 1 the sum in fp32 is exact or correctly rounded
    }
  });
}

TEST(CpuAdd, OutMayBeEitherOperand) {
  for (Dtype dtype : kFloatDtypes) {
    for (Strides strides : {Strides::contiguous, Strides::gaps}) {
      for (bool out_is_a : {true, false}) {
        const Add c = call_of(random_tensor(dtype, {3, 1001}, 2.0, 1, strides),
                              random_tensor(dtype, {3, 1001}, 2.0, 2, strides), 0.3);
        const auto right = golden_answer(c);
        const auto got = run(c, cpu::tbb_parallel(), &Add::out, out_is_a ? &Add::a : &Add::b);
        EXPECT_TRUE(matches(got.out, right.out, dtype));
      }
    }
  }
}

TEST(CpuAdd, InfinitiesAndNanFollowTheFormula) {
  for_each_target([] {
    for (Dtype dtype : kFloatDtypes) {
      Add c = call_of(random_tensor(dtype, {70}, 2.0, 1), random_tensor(dtype, {70}, 2.0, 2), 2.0);
      c.a.set(3, kNan).set(68, -kInfinity);
      c.b.set(5, kInfinity);
      expect_golden(c);
    }
  });
}

TEST(CpuAdd, AnAlphaBeyondFp32IsNotLost) {
  for (double alpha : {1e300, 1e-300, -1e40}) {
    expect_golden(call_of(random_tensor(Dtype::f32, {20}, 2.0, 1),
                          Tensor(Dtype::f32, {20}).fill([](int64_t i) { return i % 2 == 0 ? 0.0 : 1e-38; }), alpha));
  }
}

}  // namespace
}  // namespace rlk::test
