// Do logp and its backward hold where several rules meet: shards of -inf, rows out of order, ignored rows that name a
// row? Small calls with results known by hand.
#include <rlk/ops/logp.h>
#include <rlk/ops/logp_backward.h>

#include <cmath>
#include <limits>

#include "fixture.hpp"

namespace {

using namespace ascend_plugin;

constexpr float kInf = std::numeric_limits<float>::infinity();

class LogpEdgesTest : public Fixture {
protected:
  rlk_status launch(Call& call) {
    rlk_error error = no_error();
    uint64_t bytes = 0;
    EXPECT_EQ(call.plan(&error), RLK_OK) << error.text;
    EXPECT_EQ(call.prepare(&bytes, &error), RLK_OK) << error.text;
    EXPECT_EQ(call.enqueue(stream, allocate(bytes), bytes, &error), RLK_OK) << error.text;
    return synchronize(&told);
  }

  // The backward of [R, 2] logits of 0 with these rows and ids; grad_logp is 1, so that a row's gradient is (1/2,
  // -1/2).
  rlk_status backward(const std::vector<int64_t>& ids, const std::vector<int64_t>& row_indices, int64_t logits_rows) {
    const auto n = static_cast<int64_t>(ids.size());
    const std::vector<float> lse(ids.size(), std::log(2.0F));
    grad_logits = tensor(kF32, {logits_rows, 2});
    grad_bias = tensor(kF32, {2});
    Call call(plugin, device, "logp_backward", &backward_params_,
              {tensor(kF32, {logits_rows, 2}, std::vector<float>(static_cast<size_t>(logits_rows) * 2)),
               tensor(kI64, {n}, ids), tensor(kF32, {n}, lse), tensor(kF32, {n}, std::vector<float>(ids.size(), 1)),
               nullptr, nullptr, nullptr, nullptr, nullptr, tensor(kI64, {n}, row_indices)},
              {grad_logits, grad_bias}, {n, logits_rows, 2});
    return launch(call);
  }
  // Column 0 of each row's gradient.
  std::vector<float> first_column() {
    std::vector<float> column;
    const auto values = read<float>(grad_logits);
    for (size_t i = 0; i < values.size(); i += 2) column.push_back(values[i]);
    return column;
  }

  Tensor* grad_logits = nullptr;
  Tensor* grad_bias = nullptr;
  rlk_data_error told = [] {
    rlk_data_error empty{};
    empty.struct_size = sizeof(empty);
    return empty;
  }();

private:
  const rlk_logp_backward_params backward_params_ = RLK_LOGP_BACKWARD_PARAMS_INIT;
};

TEST_F(LogpEdgesTest, a_shard_of_minus_infinity_is_no_error) {
  rlk_logp_params params = RLK_LOGP_PARAMS_INIT;
  params.vocab_start = 2;
  params.global_vocab = 6;
  Tensor* logp = tensor(kF32, {3});
  Tensor* lse = tensor(kF32, {3});
  Tensor* entropy = tensor(kF32, {3});
  // Row 0 is all -inf and owns its id; row 1 does not own its id; row 2 is ordinary.
  Call call(plugin, device, "logp", &params,
            {tensor<float>(kF32, {3, 2}, {-kInf, -kInf, 0, 0, 0, 0}), tensor<int64_t>(kI64, {3}, {2, 5, 3}), nullptr,
             nullptr, nullptr},
            {logp, lse, entropy}, {3, 3, 2});
  ASSERT_EQ(launch(call), RLK_OK);
  const float two = std::log(2.0F);
  EXPECT_EQ(read<float>(logp), (std::vector<float>{-kInf, -kInf, -two}));
  EXPECT_EQ(read<float>(lse), (std::vector<float>{-kInf, two, two}));
  EXPECT_EQ(read<float>(entropy), (std::vector<float>{0, two, two}));
}

TEST_F(LogpEdgesTest, a_row_far_behind_its_maximum_is_out_of_order) {
  EXPECT_EQ(backward({0, 0, 0, 0, 0}, {0, 5, 1, 2, 3}, 6), RLK_DATA_ERROR);
  EXPECT_EQ(told.kind, RLK_DATA_ROW_OUT_OF_RANGE);
  EXPECT_EQ(told.row, 2);
  EXPECT_EQ(told.value, 1);
  const auto column = first_column();
  EXPECT_EQ(column[0], 0.5F);
  for (const size_t wrong : {1, 2, 3}) EXPECT_TRUE(std::isnan(column[wrong])) << wrong;
  EXPECT_EQ(column[4], 0.0F);
  EXPECT_EQ(column[5], 0.5F);
  EXPECT_TRUE(std::isnan(read<float>(grad_bias)[0]));
}

TEST_F(LogpEdgesTest, an_error_without_a_row_of_logits_still_spoils_grad_bias) {
  EXPECT_EQ(backward({0, 0}, {0, 7}, 2), RLK_DATA_ERROR);
  EXPECT_EQ(told.row, 1);
  EXPECT_EQ(told.value, 7);
  EXPECT_EQ(first_column(), (std::vector<float>{0.5F, 0}));
  EXPECT_TRUE(std::isnan(read<float>(grad_bias)[0]));
}

TEST_F(LogpEdgesTest, the_row_of_an_ignored_token_is_not_touched) {
  EXPECT_EQ(backward({0, -100, 0}, {0, 1, 2}, 3), RLK_OK);
  EXPECT_EQ(first_column(), (std::vector<float>{0.5F, 0, 0.5F}));
  EXPECT_EQ(read<float>(grad_bias), (std::vector<float>{1, -1}));
  // Nor does it count for the order.
  EXPECT_EQ(backward({-100, 0, 0}, {2, 0, 1}, 3), RLK_OK);
  EXPECT_EQ(first_column(), (std::vector<float>{0.5F, 0.5F, 0}));
}

TEST_F(LogpEdgesTest, no_rows_at_all) {
  EXPECT_EQ(backward({}, {}, 2), RLK_OK);
  EXPECT_EQ(first_column(), (std::vector<float>{0, 0}));
  EXPECT_EQ(read<float>(grad_bias), (std::vector<float>{0, 0}));
  EXPECT_EQ(backward({0}, {0}, 0), RLK_DATA_ERROR);
  EXPECT_EQ(told.value, 0);
  EXPECT_TRUE(std::isnan(read<float>(grad_bias)[0]));

  rlk_logp_params params = RLK_LOGP_PARAMS_INIT;
  Tensor* logp = tensor(kF32, {2});
  Call call(plugin, device, "logp", &params,
            {tensor(kF32, {0, 2}), tensor<int64_t>(kI64, {2}, {-100, 1}), nullptr, nullptr,
             tensor<int64_t>(kI64, {2}, {0, 4})},
            {logp, nullptr, nullptr}, {2, 0, 2});
  EXPECT_EQ(launch(call), RLK_DATA_ERROR);
  EXPECT_EQ(told.row, 1);
  EXPECT_EQ(told.value, 4);
  EXPECT_EQ(read<float>(logp)[0], 0.0F);
  EXPECT_TRUE(std::isnan(read<float>(logp)[1]));
}

}  // namespace
