// What golden allows for intermediates that may be rounded, against numbers worked out by hand.
#include <gtest/gtest.h>
#include <rlk/ops/linear_logp_backward.h>
#include <rlk/sdk/ops/attention.hpp>
#include <rlk/sdk/ops/attention_backward.hpp>

#include <array>
#include <cmath>
#include <deque>

#include "core/golden/operator.hpp"

namespace rlk::golden {

DataError attention(CallOf<sdk::ops::Attention>& call);
DataError attention_backward(CallOf<sdk::ops::AttentionBackward>& call);

namespace {

constexpr Rounding kBf16 = {7, -126}, kF16 = {10, -14};
constexpr double kHalfUlpBf16 = 0x1p-8, kHalfUlpF16 = 0x1p-11;

// Keeps numbers and shapes alive for the views of one call.
class Tensors {
public:
  View operator()(std::vector<int64_t> shape, std::vector<double> values) {
    return view(shape, values_.emplace_back(std::move(values)).data(), Dtype::f64);
  }
  View ids(std::vector<int64_t> values) {
    const auto count = static_cast<int64_t>(values.size());
    return view({count}, ids_.emplace_back(std::move(values)).data(), Dtype::i64);
  }

private:
  View view(const std::vector<int64_t>& shape, const void* data, Dtype dtype) {
    std::vector<int64_t> strides(shape.size(), 1);
    for (size_t axis = shape.size(); axis-- > 1;) strides[axis - 1] = strides[axis] * shape[axis];
    View result;
    result.data = data;
    result.dtype = dtype;
    result.ndim = static_cast<int>(shape.size());
    result.shape = sizes_.emplace_back(shape).data();
    result.strides = sizes_.emplace_back(std::move(strides)).data();
    return result;
  }
  std::deque<std::vector<double>> values_;
  std::deque<std::vector<int64_t>> ids_, sizes_;
};

TEST(GoldenRounding, HalfAnUlpIsRelativeAndBelowTheSmallestNormalNumberAbsolute) {
  EXPECT_EQ(kBf16.of(1.0), 0x1p-8);
  EXPECT_EQ(kBf16.of(-3.0), 3 * 0x1p-8);
  EXPECT_EQ(kF16.of(0.75), 0.75 * 0x1p-11);
  EXPECT_EQ(kF16.of(0x1p-14), 0x1p-25);  // the smallest normal number
  EXPECT_EQ(kF16.of(0x1p-20), 0x1p-25);  // subnormal numbers are 2^-24 apart
  EXPECT_EQ(kF16.of(0x1p-30), 0x1p-30);  // rounded to 0: nothing more can be lost
  EXPECT_EQ(kF16.of(0.0), 0.0);
  EXPECT_EQ(Rounding().of(1.0), 0.0);
}

// One query and two keys; head size 1.
template <class Attention>
Attention two_keys(Tensors& tensors, double q, std::vector<double> k, std::vector<double> v) {
  Attention call;
  call.q = tensors({1, 1, 1, 1}, {q});
  call.k = tensors({1, 2, 1, 1}, std::move(k));
  call.v = tensors({1, 2, 1, 1}, std::move(v));
  call.B = call.Sq = call.Hq = call.Hkv = call.D = 1;
  call.Sk = 2;
  return call;
}
using Attention = CallOf<sdk::ops::Attention>;

TEST(GoldenRounding, AttentionAllowsHalfAnUlpOfEachWeightTimesItsValue) {
  Tensors tensors;
  auto exact = two_keys<Attention>(tensors, 0, {1, 2}, {3, -1});
  auto call = exact;
  attention(exact);
  EXPECT_TRUE(exact.out.rounded.empty());
  call.lse.wanted = true;
  call.rounding = kBf16;
  attention(call);
  EXPECT_DOUBLE_EQ(call.out.value[0], 1.0);
  EXPECT_DOUBLE_EQ(call.out.rounded[0], kHalfUlpBf16 * (0.5 * 3 + 0.5 * 1));
  EXPECT_TRUE(call.lse.rounded.empty());  // the sum of the weights is not one of rounded ones
}

TEST(GoldenRounding, AttentionAllowsAWeightThatIsSubnormalInF16HalfTheirDistance) {
  Tensors tensors;
  auto call = two_keys<Attention>(tensors, 1, {0, -15}, {1, 100});
  call.rounding = kF16;
  const double p = 1 / (1 + std::exp(-15.0));
  ASSERT_LT(1 - p, 0x1p-14);
  ASSERT_GT(1 - p, 0x1p-25);
  attention(call);
  EXPECT_DOUBLE_EQ(call.out.rounded[0], kHalfUlpF16 * p + 0x1p-25 * 100);
}

TEST(GoldenRounding, AQueryThatSeesNoKeyIsExactlyZero) {
  Tensors tensors;
  auto call = two_keys<Attention>(tensors, 1, {1, 1}, {1, 1});
  call.k.shape = call.v.shape = tensors({1, 0, 1, 1}, {}).shape;
  call.Sk = 0;
  call.rounding = kBf16;
  attention(call);
  EXPECT_EQ(call.out.rounded, std::vector<double>{0});
}

TEST(GoldenRounding, AttentionBackwardAllowsItForWeightsAndScoreGradients) {
  Tensors tensors;
  auto call = two_keys<CallOf<sdk::ops::AttentionBackward>>(tensors, 4, {5, 5}, {3, -1});
  call.params.scale = 0.5;
  call.rounding = kBf16;
  call.out = tensors({1, 1, 1, 1}, {1});
  call.lse = tensors({1, 1, 1}, {10 + std::log(2.0)});
  call.grad_out = tensors({1, 1, 1, 1}, {2});
  // p = 1/2 each; grad_out v = 6 and -2, grad_out out = 2: the score gradients are 2 and -2. Scores of one product are
  // not rounded; p may have been taken from rounded products with log2(e) all the same.
  const double lost = 0.5 * 0x1p-23 * (10 + 10 + std::log(2.0));
  attention_backward(call);
  EXPECT_NEAR(call.grad_q.value[0], 0, 1e-14);
  EXPECT_NEAR(call.grad_q.rounded[0], 0.5 * (kHalfUlpBf16 * 2 + lost * 4) * (5 + 5), 1e-14);
  EXPECT_NEAR(call.grad_k.value[1], 0.5 * -2 * 4, 1e-13);
  EXPECT_NEAR(call.grad_k.rounded[1], 0.5 * (kHalfUlpBf16 * 2 + lost * 4) * 4, 1e-14);
  EXPECT_NEAR(call.grad_v.value[0], 1, 1e-14);
  EXPECT_NEAR(call.grad_v.rounded[0], (kHalfUlpBf16 * 0.5 + lost) * 2, 1e-14);
}

TEST(GoldenRounding, AttentionBackwardAllowsItForTheGradientsOfHeadsThatShareAKey) {
  Tensors tensors;
  CallOf<sdk::ops::AttentionBackward> call;
  call.q = tensors({1, 1, 2, 1}, {4, 4});
  call.k = tensors({1, 1, 1, 1}, {5});
  call.v = tensors({1, 1, 1, 1}, {3});
  call.out = tensors({1, 1, 2, 1}, {1, 1});
  call.lse = tensors({1, 1, 2}, {10, 10});
  call.grad_out = tensors({1, 1, 2, 1}, {2, -2});
  call.B = call.Sq = call.Sk = call.Hkv = call.D = 1;
  call.Hq = 2;
  call.params.scale = 0.5;
  call.rounding = kBf16;
  call.grad_q.wanted = call.grad_k.wanted = call.grad_v.wanted = true;
  // p = 1, and the score gradients of the heads are 4 and -4: their gradients of k 8 and -8, of v 2 and -2.
  const double lost = 0x1p-23 * (10 + 10);
  attention_backward(call);
  EXPECT_NEAR(call.grad_k.value[0], 0, 1e-14);
  EXPECT_NEAR(call.grad_k.rounded[0], 2 * (0.5 * (kHalfUlpBf16 * 4 + lost * 4) * 4 + kHalfUlpBf16 * 8), 1e-14);
  EXPECT_NEAR(call.grad_v.value[0], 0, 1e-14);
  EXPECT_NEAR(call.grad_v.rounded[0], 2 * ((kHalfUlpBf16 + lost) * 2 + kHalfUlpBf16 * 2), 1e-14);
  // Queries have heads of their own.
  EXPECT_NEAR(call.grad_q.rounded[1], 0.5 * (kHalfUlpBf16 * 4 + lost * 4) * 5, 1e-14);
}

TEST(GoldenRounding, LinearLogpBackwardAllowsItInBothProductsAndNotInTheSumOfTheBias) {
  Tensors tensors;
  std::array<View, RLK_LINEAR_LOGP_BACKWARD_N_INPUTS> inputs;
  inputs[RLK_LINEAR_LOGP_BACKWARD_IN_HIDDEN] = tensors({1, 1}, {2});
  inputs[RLK_LINEAR_LOGP_BACKWARD_IN_WEIGHT] = tensors({2, 1}, {3, 3});
  inputs[RLK_LINEAR_LOGP_BACKWARD_IN_IDS] = tensors.ids({0});
  inputs[RLK_LINEAR_LOGP_BACKWARD_IN_LSE] = tensors({1}, {6 + std::log(2.0)});
  inputs[RLK_LINEAR_LOGP_BACKWARD_IN_GRAD_LOGP] = tensors({1}, {4});
  const rlk_linear_logp_backward_params params = RLK_LINEAR_LOGP_BACKWARD_PARAMS_INIT;
  const int64_t symbols[] = {1, 2, 1};  // N, V, D
  Request call{inputs, &params, 7, kF16, symbols};
  // dx = 4 (1 - 1/2) and -4/2.
  const Answer answer = find("linear_logp_backward")(call);
  const Output& grad_hidden = answer.outputs[RLK_LINEAR_LOGP_BACKWARD_OUT_GRAD_HIDDEN];
  const Output& grad_weight = answer.outputs[RLK_LINEAR_LOGP_BACKWARD_OUT_GRAD_WEIGHT];
  EXPECT_NEAR(grad_hidden.value[0], 0, 1e-14);
  EXPECT_NEAR(grad_hidden.rounded[0], kHalfUlpF16 * (2 * 3 + 2 * 3), 1e-14);
  EXPECT_NEAR(grad_weight.value[1], -4, 1e-14);
  EXPECT_NEAR(grad_weight.rounded[1], kHalfUlpF16 * 2 * 2, 1e-14);
  EXPECT_TRUE(answer.outputs[RLK_LINEAR_LOGP_BACKWARD_OUT_GRAD_BIAS].rounded.empty());
  call.rounding = {};
  EXPECT_TRUE(find("linear_logp_backward")(call).outputs[0].rounded.empty());
}

}  // namespace
}  // namespace rlk::golden
