// Is a composed operator right when its intermediates need several chunks of rows? The workspace is bounded to 1 MiB
// (logp_chunks_test.cpp); what the plugin asks for stays near that.
#include <rlk/ops/cross_entropy.h>
#include <rlk/ops/cross_entropy_backward.h>
#include <rlk/ops/scaled_softmax.h>

#include <cmath>

#include "fixture.hpp"

namespace {

using namespace ascend_plugin;

class ComposedChunksTest : public Fixture {};

TEST_F(ComposedChunksTest, softmax_of_many_rows_keeps_the_bound_and_every_row_apart) {
  constexpr int64_t kRows = 500, kColumns = 1000;
  std::vector<float> scores(static_cast<size_t>(kRows * kColumns));
  for (size_t i = 0; i < scores.size(); ++i) scores[i] = static_cast<float>(i * 31 % 257) / 16 - 8;
  Tensor* y = tensor(kF32, {kRows, kColumns});
  // softmax itself is one call of aclnn's.
  const rlk_scaled_softmax_params params = RLK_SCALED_SOFTMAX_PARAMS_INIT;
  Call call(plugin, device, "scaled_softmax", &params, {tensor<float>(kF32, {kRows, kColumns}, scores)}, {y},
            {kRows, kColumns});
  rlk_error error = no_error();
  uint64_t bytes = 0;
  ASSERT_EQ(call.plan(&error), RLK_OK) << error.text;
  ASSERT_EQ(call.prepare(&bytes, &error), RLK_OK) << error.text;
  EXPECT_LT(bytes, 1u << 20 | 1u << 16);
  const uint64_t before = fakeAscendCallCount("phase2 aclnnExp");
  ASSERT_EQ(call.enqueue(stream, allocate(bytes), bytes, &error), RLK_OK) << error.text;
  ASSERT_EQ(synchronize(), RLK_OK);
  EXPECT_GE(fakeAscendCallCount("phase2 aclnnExp"), before + 2);
  const std::vector<float> seen = read<float>(y);
  for (int64_t n = 0; n < kRows; ++n) {
    double sum = 0;
    const float* row = &scores[static_cast<size_t>(n * kColumns)];
    for (int64_t i = 0; i < kColumns; ++i) sum += std::exp(static_cast<double>(row[i]));
    for (int64_t i = 0; i < kColumns; ++i) {
      const double expected = std::exp(static_cast<double>(row[i])) / sum;
      ASSERT_NEAR(seen[static_cast<size_t>(n * kColumns + i)], expected, 1e-6 * expected + 1e-12) << n << " " << i;
    }
  }
}

// Rows whose mean is taken over all chunks. Every seventh is ignored.
class CrossEntropyChunksTest : public Fixture {
protected:
  static constexpr int64_t kRows = 500, kColumns = 1000;
  static constexpr float kSmoothing = 0.1F;

  void SetUp() override {
    Fixture::SetUp();
    for (size_t i = 0; i < static_cast<size_t>(kRows * kColumns); ++i)
      logits.push_back(static_cast<float>(i * 31 % 257) / 16 - 8);
    for (int64_t n = 0; n < kRows; ++n) ids.push_back(n % 7 == 3 ? -100 : n * 37 % kColumns);
  }
  double lse_of(int64_t n) const {
    double sum = 0;
    for (int64_t v = 0; v < kColumns; ++v) sum += std::exp(logit(n, v));
    return std::log(sum);
  }
  double logit(int64_t n, int64_t v) const {
    return static_cast<double>(logits[static_cast<size_t>(n * kColumns + v)]);
  }
  bool counts(int64_t n) const { return ids[static_cast<size_t>(n)] >= 0; }
  double active() const {
    double rows = 0;
    for (int64_t n = 0; n < kRows; ++n) rows += counts(n) ? 1 : 0;
    return rows;
  }
  void run(Call& call) {
    rlk_error error = no_error();
    uint64_t bytes = 0;
    ASSERT_EQ(call.plan(&error), RLK_OK) << error.text;
    ASSERT_EQ(call.prepare(&bytes, &error), RLK_OK) << error.text;
    EXPECT_LT(bytes, 1u << 20 | 1u << 17);
    const uint64_t before = fakeAscendCallCount("phase2 aclnnGather");
    ASSERT_EQ(call.enqueue(stream, allocate(bytes), bytes, &error), RLK_OK) << error.text;
    EXPECT_GE(fakeAscendCallCount("phase2 aclnnGather"), before + 2);
  }

  std::vector<float> logits;
  std::vector<int64_t> ids;
};

TEST_F(CrossEntropyChunksTest, mean_and_rows_are_those_of_all_chunks) {
  rlk_cross_entropy_params params = RLK_CROSS_ENTROPY_PARAMS_INIT;
  params.label_smoothing = kSmoothing;
  Tensor *loss = tensor(kF32, {1}), *of_token = tensor(kF32, {kRows});
  Call call(plugin, device, "cross_entropy", &params,
            {tensor<float>(kF32, {kRows, kColumns}, logits), tensor<int64_t>(kI64, {kRows}, ids), nullptr, nullptr},
            {loss, of_token, nullptr, nullptr}, {kRows, kColumns});
  run(call);
  ASSERT_EQ(synchronize(), RLK_OK);
  const std::vector<float> seen = read<float>(of_token);
  double sum = 0;
  for (int64_t n = 0; n < kRows; ++n) {
    double expected = 0;
    if (counts(n)) {
      const double lse = lse_of(n);
      double spread = 0;
      for (int64_t v = 0; v < kColumns; ++v) spread += lse - logit(n, v);
      const auto smoothing = static_cast<double>(kSmoothing);
      expected = (1 - smoothing) * (lse - logit(n, ids[static_cast<size_t>(n)])) + smoothing / kColumns * spread;
    }
    ASSERT_NEAR(static_cast<double>(seen[static_cast<size_t>(n)]), expected, 1e-5) << n;
    sum += expected;
  }
  EXPECT_NEAR(static_cast<double>(read<float>(loss)[0]), sum / active(), 1e-5);
}

TEST_F(CrossEntropyChunksTest, an_error_in_the_last_chunk_has_the_row_of_the_call_and_the_first_of_two_is_told) {
  ids[471] = kColumns + 5;
  ids[473] = -7;
  const rlk_cross_entropy_params params = RLK_CROSS_ENTROPY_PARAMS_INIT;
  Tensor *loss = tensor(kF32, {1}), *of_token = tensor(kF32, {kRows});
  Call call(plugin, device, "cross_entropy", &params,
            {tensor<float>(kF32, {kRows, kColumns}, logits), tensor<int64_t>(kI64, {kRows}, ids), nullptr, nullptr},
            {loss, of_token, nullptr, nullptr}, {kRows, kColumns});
  run(call);
  rlk_data_error told{};
  told.struct_size = sizeof(told);
  EXPECT_EQ(synchronize(&told), RLK_DATA_ERROR);
  EXPECT_EQ(told.kind, RLK_DATA_ID_OUT_OF_RANGE);
  EXPECT_EQ(told.row, 471u);
  EXPECT_EQ(told.value, kColumns + 5);
  EXPECT_TRUE(std::isnan(read<float>(loss)[0]));
  const std::vector<float> seen = read<float>(of_token);
  EXPECT_TRUE(std::isnan(seen[471]));
  EXPECT_TRUE(std::isfinite(seen[470]) && std::isfinite(seen[472]));
}

TEST_F(CrossEntropyChunksTest, every_chunk_of_gradients_is_divided_by_the_rows_of_all) {
  const rlk_cross_entropy_backward_params params = RLK_CROSS_ENTROPY_BACKWARD_PARAMS_INIT;
  std::vector<float> lse;
  for (int64_t n = 0; n < kRows; ++n) lse.push_back(static_cast<float>(lse_of(n)));
  Tensor* grad = tensor(kF32, {kRows, kColumns});
  Call call(plugin, device, "cross_entropy_backward", &params,
            {tensor<float>(kF32, {kRows, kColumns}, logits), tensor<int64_t>(kI64, {kRows}, ids),
             tensor<float>(kF32, {kRows}, lse), tensor<float>(kF32, {1}, {3.0F}), nullptr, nullptr, nullptr},
            {grad}, {kRows, kColumns});
  run(call);
  ASSERT_EQ(synchronize(), RLK_OK);
  const std::vector<float> seen = read<float>(grad);
  for (int64_t n = 0; n < kRows; ++n) {
    for (int64_t v = 0; v < kColumns; ++v) {
      const double hit = ids[static_cast<size_t>(n)] == v ? 1 : 0;
      const double expected =
          counts(n) ? 3 / active() * (std::exp(logit(n, v) - static_cast<double>(lse[static_cast<size_t>(n)])) - hit)
                    : 0;
      ASSERT_NEAR(static_cast<double>(seen[static_cast<size_t>(n * kColumns + v)]), expected, 1e-8) << n << " " << v;
    }
  }
}

}  // namespace
