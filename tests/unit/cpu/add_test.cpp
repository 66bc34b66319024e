// add against the golden reference over broadcasts, strides, aliasing and special numbers.
#include <cmath>
#include <limits>

#include "core/cpu/elementwise/add.hpp"
#include "core/cpu/tbb_parallel.hpp"
#include "unit/cpu/support.hpp"

namespace rlk::test {
namespace {

struct AddCase {
  Tensor a, b;
  double alpha = 1.0;
  Strides output_strides = Strides::contiguous;
};

// Strides of an operand in the broadcast's dimensions.
void broadcast(const Tensor& operand, size_t ndim, int64_t* strides) {
  const size_t missing = ndim - operand.shape().size();
  for (size_t axis = 0; axis < ndim; ++axis) {
    const bool repeated = axis < missing || operand.shape()[axis - missing] == 1;
    strides[axis] = repeated ? 0 : operand.stride(static_cast<int>(axis - missing));
  }
}

golden::AddResult run_golden(const AddCase& c) {
  return golden::add({c.a.view(), c.b.view(), c.alpha});
}

// Writes to `out`, which may be one of the operands.
void run_into(AddCase& c, Tensor& out, const cpu::ParallelFor& hook) {
  cpu::AddArgs args;
  args.dtype = c.a.dtype();
  args.ndim = static_cast<int>(out.shape().size());
  for (size_t axis = 0; axis < out.shape().size(); ++axis) {
    args.shape[axis] = out.shape()[axis];
    args.out_strides[axis] = out.stride(static_cast<int>(axis));
  }
  broadcast(c.a, out.shape().size(), args.a_strides);
  broadcast(c.b, out.shape().size(), args.b_strides);
  args.a = c.a.data();
  args.b = c.b.data();
  args.out = out.data();
  args.alpha = c.alpha;
  cpu::add(args, hook);
}

void expect_golden(AddCase& c) {
  const golden::AddResult expected = run_golden(c);
  Tensor out(c.a.dtype(), expected.shape, c.output_strides);
  run_into(c, out, cpu::serial_parallel());
  EXPECT_TRUE(matches(out, expected.out, c.a.dtype()));
  for (const cpu::ParallelFor& hook : {cpu::tbb_parallel(), backwards_parallel()}) {
    Tensor again(c.a.dtype(), expected.shape, c.output_strides);
    run_into(c, again, hook);
    EXPECT_EQ(again.bytes(), out.bytes());
  }
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
            AddCase c{random_tensor(dtype, a, 2.0, 1, strides), random_tensor(dtype, b, 2.0, 2), alpha, strides};
            if (c.a.size() > 2000 && (strides != Strides::contiguous || alpha != -0.5)) continue;
            expect_golden(c);
            std::swap(c.a, c.b);
            expect_golden(c);
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
      AddCase c{random_tensor(dtype, {2, 1300}, 2.0, 1), random_tensor(dtype, {2, 1300}, 2.0, 2), 0.5, strides};
      expect_golden(c);
    }
  }
}

TEST(CpuAdd, SixteenBitResultsAreRoundedOnce) {
  for_each_target([] {
    for (Dtype dtype : {Dtype::bf16, Dtype::f16}) {
      AddCase c{random_tensor(dtype, {4096}, 2.0, 1), random_tensor(dtype, {4096}, 1e-3, 2)};
      const golden::AddResult expected = run_golden(c);
      Tensor out(dtype, {4096}), want(dtype, {4096});
      run_into(c, out, cpu::serial_parallel());
      want.fill([&](int64_t i) { return expected.out.value[static_cast<size_t>(i)]; });
      EXPECT_EQ(out.bytes(), want.bytes());  // with alpha 1 the sum in fp32 is exact or correctly rounded
    }
  });
}

TEST(CpuAdd, OutMayBeEitherOperand) {
  for (Dtype dtype : kFloatDtypes) {
    for (Strides strides : {Strides::contiguous, Strides::gaps}) {
      for (bool out_is_a : {true, false}) {
        AddCase c{random_tensor(dtype, {3, 1001}, 2.0, 1, strides), random_tensor(dtype, {3, 1001}, 2.0, 2, strides),
                  0.3};
        const golden::AddResult expected = run_golden(c);
        run_into(c, out_is_a ? c.a : c.b, cpu::tbb_parallel());
        EXPECT_TRUE(matches(out_is_a ? c.a : c.b, expected.out, dtype));
      }
    }
  }
}

TEST(CpuAdd, InfinitiesAndNanFollowTheFormula) {
  for_each_target([] {
    for (Dtype dtype : kFloatDtypes) {
      AddCase c{random_tensor(dtype, {70}, 2.0, 1), random_tensor(dtype, {70}, 2.0, 2), 2.0};
      c.a.set(3, std::numeric_limits<double>::quiet_NaN()).set(68, -std::numeric_limits<double>::infinity());
      c.b.set(5, std::numeric_limits<double>::infinity());
      expect_golden(c);
    }
  });
}

TEST(CpuAdd, AnAlphaBeyondFp32IsNotLost) {
  for (double alpha : {1e300, 1e-300, -1e40}) {
    AddCase c{random_tensor(Dtype::f32, {20}, 2.0, 1),
              Tensor(Dtype::f32, {20}).fill([](int64_t i) { return i % 2 == 0 ? 0.0 : 1e-38; }), alpha};
    expect_golden(c);
  }
}

}  // namespace
}  // namespace rlk::test
