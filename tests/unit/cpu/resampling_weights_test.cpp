// resampling_weights against verl's three methods, ties, and what a masked sample must not do.
#include <algorithm>
#include <cmath>
#include <limits>

#include "core/cpu/advantages/resampling_weights.hpp"
#include "unit/cpu/token_case.hpp"

namespace rlk::test {
namespace {

using Args = cpu::ResamplingWeightsArgs;
using Method = Args::Method;
using List = std::vector<double>;
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

Tensor run(Tensor scores, Args args, Tensor mask = {}, const cpu::ParallelFor& hook = cpu::serial_parallel()) {
  Tensor weights(accumulator(scores.dtype()), scores.shape());
  args.rows = scores.size();
  args.scores = array_of(scores);
  args.mask = mask_of(mask);
  args.weights = array_of(weights);
  cpu::resampling_weights(args, hook);
  return weights;
}
Args method(Method kind) {
  Args args;
  args.method = kind;
  return args;
}

List verl(const List& scores, Method kind, double power) {
  const double largest = *std::max_element(scores.begin(), scores.end());
  const double smallest = *std::min_element(scores.begin(), scores.end());
  List weights;
  for (const double score : scores) {
    double weight = 0;
    if (kind == Method::pow) weight = std::exp(power * std::log(std::fabs(score)));
    if (kind == Method::max_min) weight = score == largest || score == smallest ? 1.0 : 0.0;
    if (kind == Method::max_random) weight = score == largest ? 0.4 : 0.1;
    weights.push_back(std::max(weight + 1e-8, 1e-8));
  }
  return weights;
}

TEST(CpuResamplingWeights, MatchVerlsMethods) {
  const List scores = {1, -2, 0.5, 1, -2, 0.25, -0.75};
  for (const Method kind : {Method::pow, Method::max_min, Method::max_random}) {
    for (const double power : {2.0, 0.5, 3.0}) {
      Args args = method(kind);
      args.power = power;
      const Tensor weights = run(numbers(scores, {}, Dtype::f64, Strides::reversed), args);
      const List want = verl(scores, kind, power);
      for (size_t b = 0; b < want.size(); ++b) EXPECT_NEAR(weights.get(static_cast<int64_t>(b)), want[b], 1e-14);
    }
  }
}

TEST(CpuResamplingWeights, DefaultsAreVerls) {
  EXPECT_EQ(list_of(run(numbers({3, 0}), {})), (List{9 + 1e-8, 1e-8}));
}

TEST(CpuResamplingWeights, ABatchOfEqualScoresHasEqualWeights) {
  EXPECT_EQ(list_of(run(numbers({2, 2, 2}), method(Method::max_min))), List(3, 1 + 1e-8));
  EXPECT_EQ(list_of(run(numbers({2, 2, 2}), method(Method::max_random))), List(3, 0.4 + 1e-8));
}

TEST(CpuResamplingWeights, InfiniteScoresAndPowersOf0AreLegal) {
  Args args = method(Method::max_random);
  args.eps = 0;
  EXPECT_EQ(list_of(run(numbers({-kInfinity, -kInfinity}), args)), (List{0.4, 0.4}));
  EXPECT_EQ(list_of(run(numbers({kInfinity, 7, -kInfinity}), args)), (List{0.4, 0.1, 0.1}));
  args.method = Method::max_min;
  EXPECT_EQ(list_of(run(numbers({kInfinity, 7, -kInfinity}), args)), (List{1, 0, 1}));
  args.method = Method::pow;
  EXPECT_EQ(list_of(run(numbers({-kInfinity, 0}), args)), (List{kInfinity, 0}));
  args.power = 0;
  EXPECT_EQ(list_of(run(numbers({-kInfinity, 0, 3}), args)), (List{1, 1, 1}));
}

TEST(CpuResamplingWeights, MaskedSamplesAreNeverDrawnAndNoEndOfTheScores) {
  const Tensor scores = numbers({kNan, 2, 1000, 3, -1000, 2.5}), mask = flags({0, 255, 0, 1, 0, 1});
  Args args = method(Method::max_min);
  args.eps = 0.5;
  EXPECT_EQ(list_of(run(scores, args, mask)), (List{0, 1.5, 0, 1.5, 0, 0.5}));
  args.method = Method::max_random;
  args.best_weight = 4;
  args.other_weight = 2;
  EXPECT_EQ(list_of(run(scores, args, mask)), (List{0, 2.5, 0, 4.5, 0, 2.5}));
  args.method = Method::pow;
  EXPECT_EQ(list_of(run(scores, args, mask)), (List{0, 4.5, 0, 9.5, 0, 6.75}));
}

TEST(CpuResamplingWeights, ANanScoreLeavesNoEnds) {
  for (const List& scores : {List{1, kNan, 3}, List{kNan, 1, 3}}) {
    for (const Method kind : {Method::max_min, Method::max_random}) {
      for (const double weight : list_of(run(numbers(scores), method(kind)))) EXPECT_TRUE(std::isnan(weight));
    }
  }
  const Tensor weights = run(numbers({1, kNan, 3}), {});
  EXPECT_TRUE(std::isnan(weights.get(1)));
  EXPECT_EQ(weights.get(2), 9 + 1e-8);
}

TEST(CpuResamplingWeights, BitsDoNotDependOnThreadsAndNoSamplesAreNoWork) {
  const Tensor scores = random_tensor(Dtype::f16, {30000}, 1, 1);
  for (const Method kind : {Method::pow, Method::max_min, Method::max_random}) {
    const Tensor want = run(scores, method(kind));
    for (const cpu::ParallelFor& hook : other_hooks()) {
      EXPECT_EQ(run(scores, method(kind), {}, hook).bytes(), want.bytes());
    }
    EXPECT_EQ(run(Tensor(Dtype::f32, {0}), method(kind)).size(), 0);
  }
}

}  // namespace
}  // namespace rlk::test
