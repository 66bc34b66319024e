// Is a composed operator right when its intermediates need several chunks of rows? The workspace is bounded to 1 MiB
// (logp_chunks_test.cpp); what the plugin asks for stays near that.
#include <rlk/ops/softmax.h>

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
  const rlk_softmax_params params = RLK_SOFTMAX_PARAMS_INIT;
  Call call(plugin, device, "softmax", &params, {tensor<float>(kF32, {kRows, kColumns}, scores)}, {y},
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

}  // namespace
