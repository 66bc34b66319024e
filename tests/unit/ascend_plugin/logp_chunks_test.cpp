// Are logp and its backward right when the rows need several chunks? The workspace is bounded to 1 MiB, so that 200
// tokens with 3000 logits each take three chunks of 64 and one of 8, and gradients of 205 rows six of 32 and one of 13.
#include <rlk/ops/logp.h>
#include <rlk/ops/logp_backward.h>

#include <cmath>
#include <cstdlib>

#include "fixture.hpp"

namespace {

using namespace ascend_plugin;

constexpr int64_t kRows = 200, kLogitsRows = 205, kVocab = 3000;

// The bound is read once, before any plan.
[[maybe_unused]] const bool bounded = [] { return setenv("RLK_ASCEND_WORKSPACE_MB", "1", 1) == 0; }();

class LogpChunksTest : public Fixture {
protected:
  void SetUp() override {
    Fixture::SetUp();
    uint32_t state = 1;
    for (float& x : logits) {
      state = state * 1664525u + 1013904223u;
      x = static_cast<float>(state >> 8) / 2097152.0F - 4.0F;  // in [-4, 4)
    }
    for (int64_t n = 0; n < kRows; ++n) {
      ids[static_cast<size_t>(n)] = n % 7 == 3 ? -100 : n * 29 % kVocab;
      row_indices[static_cast<size_t>(n)] = n + n / 40;
    }
  }

  rlk_status launch(Call& call) {
    rlk_error error = no_error();
    uint64_t bytes = 0;
    EXPECT_EQ(call.plan(&error), RLK_OK) << error.text;
    EXPECT_EQ(call.prepare(&bytes, &error), RLK_OK) << error.text;
    EXPECT_LT(bytes, 1u << 20 | 1u << 17);
    EXPECT_EQ(call.enqueue(stream, allocate(bytes), bytes, &error), RLK_OK) << error.text;
    told.struct_size = sizeof(told);
    return synchronize(&told);
  }

  bool is_ignored(int64_t n) const { return ids[static_cast<size_t>(n)] == -100; }
  const float* row(int64_t n) const { return logits.data() + row_indices[static_cast<size_t>(n)] * kVocab; }
  double lse_of(int64_t n) const {
    double sum = 0;
    for (int64_t v = 0; v < kVocab; ++v) sum += std::exp(static_cast<double>(row(n)[v]));
    return std::log(sum);
  }

  rlk_data_error told{};
  std::vector<float> logits = std::vector<float>(kLogitsRows * kVocab);
  std::vector<int64_t> ids = std::vector<int64_t>(kRows);
  std::vector<int64_t> row_indices = std::vector<int64_t>(kRows);
};

TEST_F(LogpChunksTest, forward) {
  const rlk_logp_params params = RLK_LOGP_PARAMS_INIT;
  Tensor* logp = tensor(kF32, {kRows});
  Tensor* lse = tensor(kF32, {kRows});
  Call call(plugin, device, "logp", &params,
            {tensor(kF32, {kLogitsRows, kVocab}, logits), tensor(kI64, {kRows}, ids), nullptr, nullptr,
             tensor(kI64, {kRows}, row_indices)},
            {logp, lse, nullptr}, {kRows, kLogitsRows, kVocab});
  const uint64_t sums = fakeAscendCallCount("phase2 aclnnReduceSum");
  ASSERT_EQ(launch(call), RLK_OK);
  EXPECT_EQ(fakeAscendCallCount("phase2 aclnnReduceSum"), sums + 4);
  const auto logp_values = read<float>(logp);
  const auto lse_values = read<float>(lse);
  for (int64_t n = 0; n < kRows; ++n) {
    const auto at = static_cast<size_t>(n);
    const double expected_lse = is_ignored(n) ? 0 : lse_of(n);
    EXPECT_NEAR(lse_values[at], expected_lse, 2e-6) << n;
    EXPECT_NEAR(logp_values[at], is_ignored(n) ? 0 : static_cast<double>(row(n)[ids[at]]) - expected_lse, 4e-6) << n;
  }
}

TEST_F(LogpChunksTest, backward) {
  const rlk_logp_backward_params params = RLK_LOGP_BACKWARD_PARAMS_INIT;
  std::vector<float> lse(kRows), grad(kRows);
  for (int64_t n = 0; n < kRows; ++n) {
    lse[static_cast<size_t>(n)] = static_cast<float>(lse_of(n));
    grad[static_cast<size_t>(n)] = static_cast<float>(n % 5) - 1.5F;
  }
  Tensor* grad_logits = tensor(kF32, {kLogitsRows, kVocab});
  Tensor* grad_bias = tensor(kF32, {kVocab});
  Call call(
      plugin, device, "logp_backward", &params,
      {tensor(kF32, {kLogitsRows, kVocab}, logits), tensor(kI64, {kRows}, ids), tensor(kF32, {kRows}, lse),
       tensor(kF32, {kRows}, grad), nullptr, nullptr, nullptr, nullptr, nullptr, tensor(kI64, {kRows}, row_indices)},
      {grad_logits, grad_bias}, {kRows, kLogitsRows, kVocab});
  const uint64_t exps = fakeAscendCallCount("phase2 aclnnExp");
  ASSERT_EQ(launch(call), RLK_OK);
  EXPECT_EQ(fakeAscendCallCount("phase2 aclnnExp"), exps + 7);
  std::vector<double> expected(static_cast<size_t>(kLogitsRows * kVocab), 0.0), expected_bias(kVocab, 0.0);
  for (int64_t n = 0; n < kRows; ++n) {
    if (is_ignored(n)) continue;
    const auto at = static_cast<size_t>(n);
    for (int64_t v = 0; v < kVocab; ++v) {
      const double p = std::exp(static_cast<double>(row(n)[v]) - lse[at]);
      const double g = grad[at] * ((v == ids[at] ? 1.0 : 0.0) - p);
      expected[static_cast<size_t>(row_indices[at] * kVocab + v)] = g;
      expected_bias[static_cast<size_t>(v)] += g;
    }
  }
  const auto values = read<float>(grad_logits);
  double worst = 0;
  for (size_t i = 0; i < values.size(); ++i) worst = std::max(worst, std::fabs(values[i] - expected[i]));
  EXPECT_LT(worst, 5e-7);
  const auto bias_values = read<float>(grad_bias);
  for (size_t v = 0; v < bias_values.size(); ++v) EXPECT_NEAR(bias_values[v], expected_bias[v], 2e-6) << v;
}

// Tokens with a row each: of one without a score in the last chunk and an id outside the vocabulary behind it.
TEST_F(LogpChunksTest, the_first_error_of_all_chunks_is_told) {
  constexpr int64_t kEmpty = 195, kWrong = 197;
  ids.resize(kLogitsRows, 1);
  ids[kEmpty] = 0;
  ids[kWrong] = kVocab + 5;
  std::fill_n(logits.begin() + kEmpty * kVocab, kVocab, -std::numeric_limits<float>::infinity());
  const rlk_logp_params params = RLK_LOGP_PARAMS_INIT;
  Tensor* logp = tensor(kF32, {kLogitsRows});
  Call forward(
      plugin, device, "logp", &params,
      {tensor(kF32, {kLogitsRows, kVocab}, logits), tensor(kI64, {kLogitsRows}, ids), nullptr, nullptr, nullptr},
      {logp, nullptr, nullptr}, {kLogitsRows, kLogitsRows, kVocab});
  EXPECT_EQ(launch(forward), RLK_DATA_ERROR);
  EXPECT_EQ(told.kind, RLK_DATA_NO_FINITE_LOGIT);
  EXPECT_EQ(told.row, kEmpty);
  const auto values = read<float>(logp);
  for (int64_t n = 190; n < 200; ++n)
    EXPECT_EQ(std::isnan(values[static_cast<size_t>(n)]), n == kEmpty || n == kWrong) << n;

  const rlk_logp_backward_params backward_params = RLK_LOGP_BACKWARD_PARAMS_INIT;
  const std::vector<float> ones(kLogitsRows, 1.0F);
  Tensor *grad_logits = tensor(kF32, {kLogitsRows, kVocab}), *grad_bias = tensor(kF32, {kVocab});
  Call backward(
      plugin, device, "logp_backward", &backward_params,
      {tensor(kF32, {kLogitsRows, kVocab}, logits), tensor(kI64, {kLogitsRows}, ids), tensor(kF32, {kLogitsRows}, ones),
       tensor(kF32, {kLogitsRows}, ones), nullptr, nullptr, nullptr, nullptr, nullptr, nullptr},
      {grad_logits, grad_bias}, {kLogitsRows, kLogitsRows, kVocab});
  EXPECT_EQ(launch(backward), RLK_DATA_ERROR);
  EXPECT_EQ(told.kind, RLK_DATA_NO_FINITE_LOGIT);
  EXPECT_EQ(told.row, kEmpty);
  const auto gradients = read<float>(grad_logits);
  for (int64_t n = 190; n < 200; ++n)
    EXPECT_EQ(std::isnan(gradients[static_cast<size_t>(n * kVocab)]), n == kEmpty || n == kWrong) << n;
  EXPECT_TRUE(std::isnan(read<float>(grad_bias)[0]));
}

}  // namespace
