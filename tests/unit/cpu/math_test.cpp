// How accurate are the kernels' exp2, exp and tanh, on every instruction set? These are the errors that math-inl.hpp
// and functions-inl.hpp state.
#include <cmath>
#include <limits>

#include "unit/cpu/support.hpp"
#include "unit/cpu/vector_functions.hpp"

namespace rlk::test {
namespace {

template <typename T>
std::vector<T> grid(T low, T high, int64_t count) {
  std::vector<T> points(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    points[static_cast<size_t>(i)] = low + (high - low) * static_cast<T>(i) / static_cast<T>(count - 1);
  }
  return points;
}

template <typename T, typename Apply, typename Exact>
double worst_relative_error(const std::vector<T>& points, Apply&& apply, Exact&& exact) {
  std::vector<T> results(points.size());
  apply(points.data(), results.data(), static_cast<int64_t>(points.size()));
  double worst = 0;
  for (size_t i = 0; i < points.size(); ++i) {
    const auto want = exact(static_cast<long double>(points[i]));
    if (want == 0) continue;
    worst = std::max(worst, static_cast<double>(std::fabs((static_cast<long double>(results[i]) - want) / want)));
  }
  return worst;
}

constexpr auto kExp2 = [](const auto* from, auto* to, int64_t n) { exp2_array(from, to, n); };
constexpr auto kExp = [](const auto* from, auto* to, int64_t n) { exp_array(from, to, n); };
constexpr auto kTanh = [](const auto* from, auto* to, int64_t n) { tanh_array(from, to, n); };
constexpr auto kExactExp2 = [](long double x) { return std::exp2(x); };
constexpr auto kExactExp = [](long double x) { return std::exp(x); };
constexpr auto kExactTanh = [](long double x) { return std::tanh(x); };

TEST(CpuMath, Exp2IsAccurateOverItsRange) {
  for_each_target([] {
    EXPECT_LT(worst_relative_error(grid<float>(-125.0f, 0.0f, 1 << 20), kExp2, kExactExp2), 1e-7);
    EXPECT_LT(worst_relative_error(grid<float>(-1.0f, 127.0f, 1 << 20), kExp2, kExactExp2), 1e-7);
    EXPECT_LT(worst_relative_error(grid<double>(-1021.0, 1023.0, 1 << 18), kExp2, kExactExp2), 2e-16);
    EXPECT_LT(worst_relative_error(grid<double>(-1.0, 1.0, 1 << 18), kExp2, kExactExp2), 2e-16);
  });
}

TEST(CpuMath, Exp2OfIntegersIsExact) {
  for_each_target([] {
    const std::vector<float> points = grid<float>(-125.0f, 2.0f, 128);
    std::vector<float> results(points.size());
    exp2_array(points.data(), results.data(), 128);
    for (size_t i = 0; i < points.size(); ++i) EXPECT_EQ(results[i], std::exp2(points[i])) << points[i];
  });
}

TEST(CpuMath, Exp2OfNanIsNanAndOfItsUpperEndInfinite) {
  for_each_target([] {
    std::vector<float> points(64, std::numeric_limits<float>::quiet_NaN());
    points[3] = 128.0f;
    std::vector<float> results(points.size());
    exp2_array(points.data(), results.data(), 64);
    EXPECT_TRUE(std::isnan(results[0]));
    EXPECT_TRUE(std::isinf(results[3]));
  });
}

TEST(CpuMath, ExpIsAccurateOverItsRange) {
  for_each_target([] {
    EXPECT_LT(worst_relative_error(grid<float>(-86.5f, 88.7f, 1 << 20), kExp, kExactExp), 1.5e-7);
    EXPECT_LT(worst_relative_error(grid<float>(-1.0f, 1.0f, 1 << 18), kExp, kExactExp), 1.5e-7);
    EXPECT_LT(worst_relative_error(grid<double>(-707.5, 709.7, 1 << 18), kExp, kExactExp), 3e-16);
    EXPECT_LT(worst_relative_error(grid<double>(-1.0, 1.0, 1 << 18), kExp, kExactExp), 3e-16);
  });
}

template <typename T>
void expect_ends_of_exp(T last_finite, T smallest_normal) {
  std::vector<T> points(64, 0);
  const T beyond = std::nextafter(last_finite, std::numeric_limits<T>::infinity());
  const T infinity = std::numeric_limits<T>::infinity(), nan = std::numeric_limits<T>::quiet_NaN();
  const std::vector<T> ends = {last_finite, beyond, last_finite + 10, infinity, -infinity, -last_finite * 2, nan};
  std::copy(ends.begin(), ends.end(), points.begin());
  for (size_t i = ends.size(); i < points.size(); ++i) points[i] = smallest_normal * (1 + static_cast<T>(i) / 200);
  std::vector<T> results(points.size());
  exp_array(points.data(), results.data(), 64);
  EXPECT_TRUE(std::isfinite(results[0])) << results[0];
  for (const size_t i : {1, 2, 3}) EXPECT_EQ(results[i], infinity) << points[i];
  for (const size_t i : {4, 5}) EXPECT_EQ(results[i], 0) << points[i];
  EXPECT_TRUE(std::isnan(results[6]));
  for (size_t i = ends.size(); i < points.size(); ++i) {
    if (results[i] == 0) continue;
    const auto right = static_cast<double>(std::exp(static_cast<long double>(points[i])));
    const auto step = static_cast<double>(std::numeric_limits<T>::denorm_min());
    EXPECT_NEAR(results[i], right, right * 1.5e-7 + step) << points[i];
  }
}

TEST(CpuMath, ExpBelowNormalNumbersIsRightOrZeroAndBeyondTheLargestInfinite) {
  for_each_target([] {
    expect_ends_of_exp<float>(0x1.62e42ep+6f, -87.33f);
    expect_ends_of_exp<double>(0x1.62e42fefa39efp+9, -708.3);
  });
}

TEST(CpuMath, TanhIsAccurateAlsoNearZero) {
  for_each_target([] {
    EXPECT_LT(worst_relative_error(grid<float>(-12.0f, 12.0f, 1 << 20), kTanh, kExactTanh), 2.5e-7);
    EXPECT_LT(worst_relative_error(grid<float>(-1e-3f, 1e-3f, 1 << 16), kTanh, kExactTanh), 2.5e-7);
    EXPECT_LT(worst_relative_error(grid<double>(-25.0, 25.0, 1 << 18), kTanh, kExactTanh), 5e-16);
    EXPECT_LT(worst_relative_error(grid<double>(-1e-8, 1e-8, 1 << 12), kTanh, kExactTanh), 5e-16);
  });
}

TEST(CpuMath, TanhOfInfinitiesIsOneAndOfNanIsNan) {
  for_each_target([] {
    std::vector<double> points(64, kInfinity);
    points[1] = -points[0];
    points[2] = kNan;
    std::vector<double> results(points.size());
    tanh_array(points.data(), results.data(), 64);
    EXPECT_EQ(results[0], 1.0);
    EXPECT_EQ(results[1], -1.0);
    EXPECT_TRUE(std::isnan(results[2]));
  });
}

}  // namespace
}  // namespace rlk::test
