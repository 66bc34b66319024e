// What around the numbers of paged attention on Ascend depends on the tables' contents: lengths, blocks that are bad,
// behind a context or shared, and a plan whose table changes? Keys are zeros, so that lse is the logarithm of the
// number of keys, and values are 1, 2, 4, ... by their blocks.
#include <rlk/ops/paged_attention.h>

#include <cmath>

#include "fixture.hpp"

namespace {

using namespace ascend_plugin;

constexpr int64_t kHeadSize = 16, kBlockSize = 16;

class PagedAttentionTest : public Fixture {
protected:
  // `table` has as many entries for each length.
  std::unique_ptr<Call> call_of(int64_t blocks, std::vector<int32_t> lengths, std::vector<int32_t> table) {
    lengths_ = std::move(lengths);
    table_ = std::move(table);
    const auto batch = static_cast<int64_t>(lengths_.size()), most = static_cast<int64_t>(table_.size()) / batch;
    std::vector<uint16_t> values;
    for (int64_t i = 0; i < blocks * kBlockSize * kHeadSize; ++i)
      values.push_back(static_cast<uint16_t>(0x3f80 + (i / (kBlockSize * kHeadSize) << 7)));  // in bf16
    const auto cache = [&](const std::vector<uint16_t>& from) {
      return tensor(kBf16, {blocks, kBlockSize, 1, kHeadSize}, from);
    };
    const std::vector<uint16_t> queries(static_cast<size_t>(batch * kHeadSize), 0);
    const std::vector<uint16_t> keys(values.size(), 0);
    device_table_ = tensor(kI32, {batch, most}, table_);
    out_ = tensor(kBf16, {batch, 1, kHeadSize});
    lse_ = tensor(kF32, {batch, 1});
    auto call = std::make_unique<Call>(
        plugin, device, "paged_attention", &params_,
        std::vector<Tensor*>{tensor(kBf16, {batch, 1, kHeadSize}, queries), cache(keys), cache(values), device_table_,
                             tensor(kI32, {batch}, lengths_), nullptr},
        std::vector<Tensor*>{out_, lse_},
        std::vector<int64_t>{batch, batch, 1, 1, kHeadSize, blocks, most, kBlockSize, -1});
    call->host_input(RLK_PAGED_ATTENTION_IN_BLOCK_TABLE, table_.data());
    call->host_input(RLK_PAGED_ATTENTION_IN_CONTEXT_LENS, lengths_.data());
    return call;
  }
  void launch(Call& call, uint32_t tag = 1) {
    rlk_error error = no_error();
    uint64_t bytes = 0;
    ASSERT_EQ(call.prepare(&bytes, &error, tag), RLK_OK) << error.text;
    ASSERT_EQ(call.enqueue(stream, bytes > 0 ? allocate(bytes) : nullptr, bytes, &error), RLK_OK) << error.text;
  }
  std::vector<float> first_numbers() {
    std::vector<float> numbers;
    const auto bits = read<uint16_t>(out_);
    for (size_t i = 0; i < bits.size(); i += kHeadSize) {
      const uint32_t wide = static_cast<uint32_t>(bits[i]) << 16;
      float number;
      std::memcpy(&number, &wide, sizeof(number));
      numbers.push_back(number);
    }
    return numbers;
  }

  rlk_paged_attention_params params_ = RLK_PAGED_ATTENTION_PARAMS_INIT;
  std::vector<int32_t> lengths_, table_;
  Tensor *out_ = nullptr, *lse_ = nullptr, *device_table_ = nullptr;
};

TEST_F(PagedAttentionTest, entries_behind_a_context_may_be_anything) {
  const auto call = call_of(3, {16, 0, 17}, {2, -1, 77, -5, 0, 1});
  const rlk_support support = call->query();
  EXPECT_EQ(support.level, RLK_SUPPORT_PREFERRED) << support.reason;
  EXPECT_EQ(support.host_inputs, 0b11000u);
  ASSERT_EQ(call->plan(nullptr), RLK_OK);
  launch(*call);
  ASSERT_EQ(synchronize(), RLK_OK);
  const auto lse = read<float>(lse_), out = first_numbers();
  EXPECT_FLOAT_EQ(lse[0], std::log(16.0F));
  EXPECT_EQ(lse[1], -INFINITY);
  EXPECT_FLOAT_EQ(lse[2], std::log(17.0F));
  EXPECT_EQ(out[0], 4);
  EXPECT_EQ(out[1], 0);
  EXPECT_NEAR(out[2], 18.0F / 17, 0.01F);
}

TEST_F(PagedAttentionTest, a_table_that_changes_is_read_anew) {
  const auto call = call_of(3, {16}, {2});
  ASSERT_EQ(call->plan(nullptr), RLK_OK);
  launch(*call);
  ASSERT_EQ(synchronize(), RLK_OK);
  EXPECT_EQ(first_numbers()[0], 4);
  table_[0] = 1;
  ASSERT_EQ(aclrtMemcpy(device_table_->tensor.data, 4, table_.data(), 4, ACL_MEMCPY_HOST_TO_DEVICE), ACL_SUCCESS);
  launch(*call);
  ASSERT_EQ(synchronize(), RLK_OK);
  EXPECT_EQ(first_numbers()[0], 2);
}

TEST_F(PagedAttentionTest, sequences_may_share_blocks_of_which_there_are_fewer) {
  const auto call = call_of(2, {32, 32, 32}, {0, 1, 1, 0, 1, 1});
  ASSERT_EQ(call->plan(nullptr), RLK_OK);
  launch(*call);
  ASSERT_EQ(synchronize(), RLK_OK);
  for (const float lse : read<float>(lse_)) EXPECT_FLOAT_EQ(lse, std::log(32.0F));
  EXPECT_EQ(first_numbers(), (std::vector<float>{1.5F, 1.5F, 2}));
}

TEST_F(PagedAttentionTest, bad_lengths_and_blocks_are_data_errors_of_their_sequences_alone) {
  const auto call = call_of(3, {16, 17, 33}, {0, 9, 1, 3, 0, 0});
  ASSERT_EQ(call->plan(nullptr), RLK_OK);
  launch(*call, 7);
  rlk_data_error told{};
  told.struct_size = sizeof(told);
  EXPECT_EQ(synchronize(&told), RLK_DATA_ERROR);
  EXPECT_EQ(told.kind, RLK_DATA_ID_OUT_OF_RANGE);
  EXPECT_EQ(told.tag, 7u);
  EXPECT_EQ(told.row, 1);
  EXPECT_EQ(told.value, 3);
  const auto lse = read<float>(lse_), out = first_numbers();
  EXPECT_FLOAT_EQ(lse[0], std::log(16.0F));
  EXPECT_EQ(out[0], 1);
  for (const size_t bad : {1, 2}) {
    EXPECT_TRUE(std::isnan(lse[bad]));
    EXPECT_TRUE(std::isnan(out[bad]));
  }
}

TEST_F(PagedAttentionTest, what_the_vendor_cannot_do_is_declined_with_a_reason) {
  params_.window_left = 4;
  EXPECT_STREQ(call_of(1, {16}, {0})->query().reason_code, "WINDOW");
  params_.window_left = -1;
  params_.layout = RLK_PAGED_ATTENTION_LAYOUT_HEAD_MAJOR;
  EXPECT_STREQ(call_of(1, {16}, {0})->query().reason_code, "LAYOUT");
  params_.layout = RLK_PAGED_ATTENTION_LAYOUT_TOKEN_MAJOR;
  params_.softcap = 2;
  EXPECT_STREQ(call_of(1, {16}, {0})->query().reason_code, "SOFTCAP");
}

}  // namespace
