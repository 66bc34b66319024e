// Does the simulated fused attention follow its layouts, masks and log-sum-exp? Heads of 16 numbers whose first one
// carries the score, so that results can be computed by hand.
#include <cmath>
#include <limits>

#include "fixture.hpp"

namespace {

constexpr int64_t kHeadSize = 16;

uint16_t half_bits(float value) {
  return static_cast<uint16_t>(value == 0 ? 0 : value == 1 ? 0x3c00 : 0x4000);
}
float half_value(uint16_t bits) {
  return std::ldexp(static_cast<float>((bits & 0x3ff) | (bits >> 10 != 0 ? 0x400 : 0)), (bits >> 10) - 25);
}

// One row of 16 per entry: (entry, 0, 0, ...), entries 0, 1 or 2.
std::vector<uint16_t> rows(const std::vector<float>& entries) {
  std::vector<uint16_t> values;
  for (const float entry : entries) {
    values.push_back(half_bits(entry));
    values.resize(values.size() + kHeadSize - 1, 0);
  }
  return values;
}

class FusedAttention : public ascend_fake::Fixture {
protected:
  struct Options {
    std::vector<int64_t> q_ends = {}, k_ends = {};  // empty: BSND
    int64_t sparse_mode = 0, pre = 2147483647, next = 2147483647, inner_precise = 0;
    bool mask = false;
  };

  aclnnStatus attend(const std::vector<int64_t>& q_dims, const std::vector<float>& q,
                     const std::vector<int64_t>& k_dims, const std::vector<float>& k, const std::vector<float>& v,
                     const Options& options) {
    const auto half = [&](const std::vector<int64_t>& dims, const std::vector<float>& entries) {
      return tensor<uint16_t>(dims, rows(entries), nullptr, ACL_FLOAT16);
    };
    const aclTensor* key = half(k_dims, k);
    const aclTensor* value = half(k_dims, v);
    const bool tnd = !options.q_ends.empty();
    aclTensor* mask = nullptr;
    if (options.mask) {
      std::vector<uint8_t> upper(size_t{2048} * 2048, 0);
      for (size_t i = 0; i < 2048; ++i) {
        for (size_t j = i + 1; j < 2048; ++j) upper[i * 2048 + j] = 1;
      }
      mask = tensor<uint8_t>({2048, 2048}, upper, nullptr, ACL_BOOL);
    }
    const std::vector<int64_t> lse_dims =
        tnd ? std::vector<int64_t>{q_dims[0], q_dims[1], 1} : std::vector<int64_t>{q_dims[0], q_dims[2], q_dims[1], 1};
    char layout_tnd[] = "TND";
    char layout_bsnd[] = "BSND";
    const int64_t heads = tnd ? q_dims[1] : q_dims[2];
    const int64_t kv_heads = tnd ? k_dims[1] : k_dims[2];
    const aclTensor* attention_out = empty_like<uint16_t>(q_dims, &out, ACL_FLOAT16);
    const aclTensor* softmax_lse = empty_like<float>(lse_dims, &lse);
    return call(aclnnFusedInferAttentionScoreV3GetWorkspaceSize, aclnnFusedInferAttentionScoreV3, half(q_dims, q),
                list(key), list(value), nullptr, mask, tnd ? ints(options.q_ends) : nullptr,
                tnd ? ints(options.k_ends) : nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr,
                nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr,
                nullptr, nullptr, heads, 1.0, options.pre, options.next, tnd ? layout_tnd : layout_bsnd, kv_heads,
                options.sparse_mode, options.inner_precise, int64_t{0}, int64_t{0}, true, int64_t{0}, int64_t{0},
                attention_out, softmax_lse);
  }

  // The list and its member leave the fixture's care: destroying the list destroys both, so it is never destroyed here.
  aclTensorList* list(const aclTensor* member) { return aclCreateTensorList(&member, 1); }

  float out_at(size_t row) { return half_value(read<uint16_t>(out, (row + 1) * kHeadSize)[row * kHeadSize]); }
  float lse_at(size_t at) { return read<float>(lse, at + 1)[at]; }

  void* out = nullptr;
  void* lse = nullptr;
};

TEST_F(FusedAttention, dense_mean_of_values_with_equal_scores) {
  ASSERT_EQ(attend({1, 1, 1, 16}, {1}, {1, 2, 1, 16}, {1, 1}, {2, 0}, {}), ACL_SUCCESS);
  EXPECT_EQ(out_at(0), 1.0F);
  EXPECT_FLOAT_EQ(lse_at(0), 1 + std::log(2.0F));
}

TEST_F(FusedAttention, dense_lse_is_batch_head_sequence) {
  // 1 batch, 2 queries, 2 heads on 1 key head, 1 key with score q: lse of head h, query i is q[i][h].
  ASSERT_EQ(attend({1, 2, 2, 16}, {0, 1, 2, 1}, {1, 1, 1, 16}, {1}, {1}, {}), ACL_SUCCESS);
  EXPECT_EQ(read<float>(lse, 4), (std::vector<float>{0, 2, 1, 1}));
}

TEST_F(FusedAttention, packed_sequences_do_not_see_each_other) {
  ASSERT_EQ(attend({3, 1, 16}, {1, 1, 1}, {3, 1, 16}, {1, 1, 1}, {2, 0, 1}, {.q_ends = {2, 3}, .k_ends = {1, 3}}),
            ACL_SUCCESS);
  EXPECT_EQ(out_at(0), 2.0F);
  EXPECT_EQ(out_at(1), 2.0F);
  EXPECT_EQ(out_at(2), 0.5F);
  EXPECT_EQ(read<float>(lse, 3)[2], 1 + std::log(2.0F));
}

TEST_F(FusedAttention, packed_lengths_are_cumulative) {
  EXPECT_EQ(attend({3, 1, 16}, {1, 1, 1}, {3, 1, 16}, {1, 1, 1}, {2, 0, 1}, {.q_ends = {2, 1}, .k_ends = {1, 2}}),
            ACLNN_ERR_PARAM_INVALID);
  EXPECT_EQ(attend({3, 1, 16}, {1, 1, 1}, {3, 1, 16}, {1, 1, 1}, {2, 0, 1}, {.q_ends = {0, 2, 3}, .k_ends = {1, 3}}),
            ACLNN_ERR_PARAM_INVALID);
}

TEST_F(FusedAttention, lower_right_causal) {
  // 2 queries, 3 keys: query 0 sees keys 0 and 1, query 1 all.
  ASSERT_EQ(attend({1, 2, 1, 16}, {0, 0}, {1, 3, 1, 16}, {1, 1, 1}, {2, 0, 1}, {.sparse_mode = 3, .mask = true}),
            ACL_SUCCESS);
  EXPECT_EQ(out_at(0), 1.0F);
  EXPECT_EQ(out_at(1), 1.0F);
  EXPECT_FLOAT_EQ(lse_at(0), std::log(2.0F));
  EXPECT_FLOAT_EQ(lse_at(1), std::log(3.0F));
}

TEST_F(FusedAttention, band_around_the_lower_right_diagonal) {
  // One key back, none ahead: query 1 sees keys 1 and 2 only.
  ASSERT_EQ(attend({1, 2, 1, 16}, {0, 0}, {1, 3, 1, 16}, {1, 1, 1}, {2, 0, 1},
                   {.sparse_mode = 4, .pre = 1, .next = 0, .mask = true}),
            ACL_SUCCESS);
  EXPECT_EQ(out_at(0), 1.0F);
  EXPECT_EQ(out_at(1), 0.5F);
}

TEST_F(FusedAttention, query_without_keys) {
  // 2 queries, 1 key, causal: query 0 sees nothing.
  Options options{.sparse_mode = 3, .inner_precise = 2, .mask = true};
  ASSERT_EQ(attend({1, 2, 1, 16}, {0, 0}, {1, 1, 1, 16}, {1}, {2}, options), ACL_SUCCESS);
  EXPECT_EQ(out_at(0), 0.0F);
  EXPECT_EQ(lse_at(0), std::numeric_limits<float>::infinity());
  options.inner_precise = 0;
  ASSERT_EQ(attend({1, 2, 1, 16}, {0, 0}, {1, 1, 1, 16}, {1}, {2}, options), ACL_SUCCESS);
  EXPECT_EQ(out_at(0), 2.0F);
}

TEST_F(FusedAttention, what_it_cannot_do_is_a_status) {
  EXPECT_EQ(attend({1, 1, 1, 16}, {1}, {1, 2, 1, 16}, {1, 1}, {2, 0}, {.sparse_mode = 3}), ACLNN_ERR_PARAM_INVALID);
  setenv("RLK_FAKE_ASCEND_SOC", "Ascend310P3", 1);
  EXPECT_EQ(attend({1, 1, 1, 16}, {1}, {1, 2, 1, 16}, {1, 1}, {2, 0}, {}), ACLNN_ERR_INNER_FIND_KERNEL_ERROR);
  unsetenv("RLK_FAKE_ASCEND_SOC");
}

TEST_F(FusedAttention, single_precision_is_a_violation) {
  EXPECT_DEATH(
      {
        uint64_t bytes = 0;
        aclOpExecutor* executor = nullptr;
        const aclTensor* q = tensor<float>({1, 1, 16}, std::vector<float>(16));
        char layout[] = "TND";
        aclnnFusedInferAttentionScoreV3GetWorkspaceSize(
            q, list(q), list(q), nullptr, nullptr, ints({1}), ints({1}), nullptr, nullptr, nullptr, nullptr, nullptr,
            nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr,
            nullptr, nullptr, nullptr, 1, 1.0, 0, 0, layout, 1, 0, 0, 0, 0, false, 0, 0, q, nullptr, &bytes, &executor);
      },
      "UNSUPPORTED_DTYPE");
}

}  // namespace
