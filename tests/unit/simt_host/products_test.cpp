// Which power of two scales numbers before they are rounded to f16, and what does that leave of them?
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "plugins/simt/products.h"
#include "tests/fakes/cuda/emulation.hpp"

// The kernels, compiled for fibers (tests/fakes/cuda).
extern "C" {
void products_largest(rlk::simt::ProductsScaleArgs);
void products_scale(rlk::simt::ProductsScaleArgs);
void products_map_f32_f16(rlk::simt::ProductsMapArgs);
}

namespace {

using namespace rlk::simt;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN(), kInfinity = std::numeric_limits<float>::infinity();

template <class Args>
void run(void (*kernel)(Args), unsigned blocks, unsigned threads, const Args& args) {
  rlk::emulation::run_grid({blocks, 1, 1}, {threads, 1, 1}, 0, [=] { kernel(args); });
}

ProductsScale scale_of(const std::vector<float>& x) {
  ProductsScale scale{};
  const ProductsScaleArgs args{x.data(), &scale, static_cast<int64_t>(x.size())};
  run(&products_largest, 2, kProductsThreads, args);
  run(&products_scale, 1, 1, args);
  return scale;
}

TEST(ProductsTest, TheLargestFiniteNumberComesNearF16sLargestWhereverItStands) {
  for (const float largest : {1.0f, 1.5f, -0x1.8p-27f, 0x1.fffffep-2f, -65504.0f, 0x1p-112f, 0x1.fffffep127f}) {
    for (const size_t at : {size_t{0}, size_t{5}, size_t{2100}, size_t{4999}, size_t{5000}}) {
      std::vector<float> x(5001, largest / 4);
      x[7] = kNan, x[8] = kInfinity, x[9] = -kInfinity;
      x[at] = largest;
      const ProductsScale scale = scale_of(x);
      EXPECT_GE(std::fabs(largest) * scale.scale, 0x1p14f) << largest << " at " << at;
      EXPECT_LT(std::fabs(largest) * scale.scale, 0x1p15f) << largest << " at " << at;
      EXPECT_EQ(scale.scale * scale.factors[0], 1) << largest;
      EXPECT_TRUE(std::isnormal(scale.scale) && std::isnormal(scale.factors[0])) << largest;
      EXPECT_EQ(scale.factors[1], 0);
      EXPECT_EQ(scale.factors[2], 1);
    }
  }
}

TEST(ProductsTest, WithoutAFiniteNumberButZeroNothingIsScaled) {
  for (const std::vector<float>& x : {std::vector<float>{0, -0.0f, 0}, {kNan, -kNan}, {kInfinity, -kInfinity, 0}}) {
    const ProductsScale scale = scale_of(x);
    EXPECT_EQ(scale.scale, 1);
    EXPECT_EQ(scale.factors[0], 1);
  }
}

TEST(ProductsTest, NumbersBelowFp32sNormalOnesAreScaledByWhatHasANormalInverse) {
  const ProductsScale scale = scale_of({0x1p-149f, 0x1p-140f});
  EXPECT_EQ(scale.scale, 0x1p126f);
  EXPECT_EQ(scale.factors[0], 0x1p-126f);
}

TEST(ProductsTest, ScaledNumbersKeepTheDigitsOfF16AndWhatIsNotFinite) {
  const float unit = 0x1p-30f;  // below f16's smallest number
  const std::vector<float> x = {unit,      1.25f * unit, -(1 + 0x1p-10f) * unit, 0x1p-13f * unit, 0, kNan,
                                kInfinity, -kInfinity};
  ProductsScale scale = scale_of(x);
  std::vector<_Float16> y(x.size());
  ProductsMapArgs args{};
  args.x = x.data();
  args.y = y.data();
  args.factor = 1;
  args.scale = &scale.scale;
  const auto count = static_cast<int64_t>(x.size());
  for (const int64_t dense : {count, int64_t{0}}) {
    args.dense = dense;
    for (int d = 0; d < 4; ++d) args.size[d] = d < 3 ? 1 : count, args.x_stride[d] = args.y_stride[d] = d < 3 ? 0 : 1;
    y.assign(x.size(), 99);
    run(&products_map_f32_f16, 1, kProductsThreads, args);
    for (size_t i = 0; i < x.size(); ++i) {
      const float back = static_cast<float>(y[i]) * scale.factors[0];
      EXPECT_TRUE(std::isnan(x[i]) ? std::isnan(back) : back == x[i]) << x[i] << " became " << back;
    }
  }
}

}  // namespace
