// resampling_weights against verl's three methods, ties, and what a masked sample must not do.
#include <rlk/sdk/ops/resampling_weights.hpp>

#include <algorithm>
#include <cmath>

#include "unit/cpu/token_case.hpp"

namespace rlk::test {
namespace {

using ops::resampling_weights::Method;
using Call = CallOf<ops::ResamplingWeights>;

Call call_of(Tensor scores, Method method = Method::pow, Tensor mask = {}) {
  Call call;
  call.scores = std::move(scores);
  call.mask = std::move(mask);
  call.params.method = method;
  return call;
}
List weights_of(const Call& call) {
  return list_of(run(call).weights);
}

List verl(const List& scores, Method method, double power) {
  const double largest = *std::max_element(scores.begin(), scores.end());
  const double smallest = *std::min_element(scores.begin(), scores.end());
  List weights;
  for (const double score : scores) {
    double weight = 0;
    if (method == Method::pow) weight = std::exp(power * std::log(std::fabs(score)));
    if (method == Method::max_min) weight = score == largest || score == smallest ? 1.0 : 0.0;
    if (method == Method::max_random) weight = score == largest ? 0.4 : 0.1;
    weights.push_back(std::max(weight + 1e-8, 1e-8));
  }
  return weights;
}

TEST(CpuResamplingWeights, MatchVerlsMethods) {
  const List scores = {1, -2, 0.5, 1, -2, 0.25, -0.75};
  for (const Method method : {Method::pow, Method::max_min, Method::max_random}) {
    for (const double power : {2.0, 0.5, 3.0}) {
      Call c = call_of(numbers(scores, {}, Dtype::f64, Strides::reversed), method);
      c.params.power = power;
      const List weights = weights_of(c), want = verl(scores, method, power);
      for (size_t b = 0; b < want.size(); ++b) EXPECT_NEAR(weights[b], want[b], 1e-14);
    }
  }
}

TEST(CpuResamplingWeights, DefaultsAreVerls) {
  EXPECT_EQ(weights_of(call_of(numbers({3, 0}))), (List{9 + 1e-8, 1e-8}));
}

TEST(CpuResamplingWeights, ABatchOfEqualScoresHasEqualWeights) {
  EXPECT_EQ(weights_of(call_of(numbers({2, 2, 2}), Method::max_min)), List(3, 1 + 1e-8));
  EXPECT_EQ(weights_of(call_of(numbers({2, 2, 2}), Method::max_random)), List(3, 0.4 + 1e-8));
}

TEST(CpuResamplingWeights, InfiniteScoresAndPowersOf0AreLegal) {
  Call c = call_of(numbers({-kInfinity, -kInfinity}), Method::max_random);
  c.params.eps = 0;
  EXPECT_EQ(weights_of(c), (List{0.4, 0.4}));
  c.scores = numbers({kInfinity, 7, -kInfinity});
  EXPECT_EQ(weights_of(c), (List{0.4, 0.1, 0.1}));
  c.params.method = Method::max_min;
  EXPECT_EQ(weights_of(c), (List{1, 0, 1}));
  c.params.method = Method::pow;
  c.scores = numbers({-kInfinity, 0});
  EXPECT_EQ(weights_of(c), (List{kInfinity, 0}));
  c.params.power = 0;
  c.scores = numbers({-kInfinity, 0, 3});
  EXPECT_EQ(weights_of(c), (List{1, 1, 1}));
}

TEST(CpuResamplingWeights, MaskedSamplesAreNeverDrawnAndNoEndOfTheScores) {
  Call c = call_of(numbers({kNan, 2, 1000, 3, -1000, 2.5}), Method::max_min, flags({0, 255, 0, 1, 0, 1}));
  c.params.eps = 0.5;
  EXPECT_EQ(weights_of(c), (List{0, 1.5, 0, 1.5, 0, 0.5}));
  c.params.method = Method::max_random;
  c.params.best_weight = 4;
  c.params.other_weight = 2;
  EXPECT_EQ(weights_of(c), (List{0, 2.5, 0, 4.5, 0, 2.5}));
  c.params.method = Method::pow;
  EXPECT_EQ(weights_of(c), (List{0, 4.5, 0, 9.5, 0, 6.75}));
}

TEST(CpuResamplingWeights, ANanScoreLeavesNoEnds) {
  for (const List& scores : {List{1, kNan, 3}, List{kNan, 1, 3}}) {
    for (const Method method : {Method::max_min, Method::max_random}) {
      for (const double weight : weights_of(call_of(numbers(scores), method))) EXPECT_TRUE(std::isnan(weight));
    }
  }
  const List weights = weights_of(call_of(numbers({1, kNan, 3})));
  EXPECT_TRUE(std::isnan(weights[1]));
  EXPECT_EQ(weights[2], 9 + 1e-8);
}

}  // namespace
}  // namespace rlk::test
