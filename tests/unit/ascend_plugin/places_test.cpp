// What is taken, put in order, added and written by places, when it needs several chunks of rows (the workspace is
// bounded to 1 MiB in logp_chunks_test.cpp): which row an error has, and which of equals comes first.
#include <rlk/ops/embedding.h>
#include <rlk/ops/embedding_backward.h>
#include <rlk/ops/gather.h>
#include <rlk/ops/index_select.h>
#include <rlk/ops/reshape_and_cache.h>
#include <rlk/ops/sort.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "fixture.hpp"

namespace {

using namespace ascend_plugin;

constexpr int64_t kRows = 500, kColumns = 1000;

class PlacesTest : public Fixture {
protected:
  // The status of the stream afterwards.
  rlk_status run(const char* op, const void* params, std::vector<Tensor*> inputs, std::vector<Tensor*> outputs,
                 std::vector<int64_t> symbols) {
    Call call(plugin, device, op, params, std::move(inputs), std::move(outputs), std::move(symbols));
    rlk_error error = no_error();
    uint64_t bytes = 0;
    EXPECT_EQ(call.plan(&error), RLK_OK) << error.text;
    EXPECT_EQ(call.prepare(&bytes, &error), RLK_OK) << error.text;
    EXPECT_EQ(call.enqueue(stream, allocate(bytes), bytes, &error), RLK_OK) << error.text;
    told.struct_size = sizeof(told);
    return synchronize(&told);
  }
  static std::vector<float> numbers(int64_t rows, int64_t columns) {
    std::vector<float> made;
    for (int64_t i = 0; i < rows * columns; ++i) made.push_back(static_cast<float>(i * 31 % 257) / 16 - 8);
    return made;
  }

  rlk_data_error told{};
};

TEST_F(PlacesTest, embedding_says_the_first_bad_id_of_all_chunks) {
  const std::vector<float> table = numbers(7, kColumns);
  std::vector<int64_t> ids;
  for (int64_t n = 0; n < kRows; ++n) ids.push_back(n % 7);
  ids[471] = (int64_t{1} << 40) + 3;  // 3 in 32 bits
  ids[473] = -1;
  const rlk_embedding_params params = RLK_EMBEDDING_PARAMS_INIT;
  Tensor* y = tensor(kF32, {kRows, kColumns});
  EXPECT_EQ(run("embedding", &params, {tensor<int64_t>(kI64, {kRows}, ids), tensor<float>(kF32, {7, kColumns}, table)},
                {y}, {kRows, 7, kColumns}),
            RLK_DATA_ERROR);
  EXPECT_EQ(told.row, 471u);
  EXPECT_EQ(told.value, (int64_t{1} << 40) + 3);
  const std::vector<float> seen = read<float>(y);
  for (int64_t n = 0; n < kRows; ++n) {
    for (int64_t i = 0; i < kColumns; ++i) {
      const float x = seen[static_cast<size_t>(n * kColumns + i)];
      if (n == 471 || n == 473)
        ASSERT_TRUE(std::isnan(x)) << n;
      else
        ASSERT_EQ(x, table[static_cast<size_t>(n % 7 * kColumns + i)]) << n << " " << i;
    }
  }
}

TEST_F(PlacesTest, gather_says_the_row_and_its_first_bad_place) {
  std::vector<int32_t> index;
  for (int64_t n = 0; n < kRows; ++n) {
    for (const int64_t k : {n % 13, kColumns - 1, int64_t{0}}) index.push_back(static_cast<int32_t>(k));
  }
  index[3 * 480 + 1] = 1000;
  index[3 * 480 + 2] = -5;
  const rlk_gather_params params = RLK_GATHER_PARAMS_INIT;
  const std::vector<float> x = numbers(kRows, kColumns);
  Tensor* y = tensor(kF32, {kRows, 3});
  EXPECT_EQ(
      run("gather", &params, {tensor<float>(kF32, {kRows, kColumns}, x), tensor<int32_t>(kI32, {kRows, 3}, index)}, {y},
          {kRows, kColumns, 3}),
      RLK_DATA_ERROR);
  EXPECT_EQ(told.row, 480u);
  EXPECT_EQ(told.value, 1000);
  const std::vector<float> seen = read<float>(y);
  EXPECT_EQ(seen[3 * 480], x[static_cast<size_t>(480 * kColumns + 480 % 13)]);
  EXPECT_TRUE(std::isnan(seen[3 * 480 + 1]) && std::isnan(seen[3 * 480 + 2]));
  EXPECT_EQ(seen[3 * 499 + 1], x.back());
}

TEST_F(PlacesTest, index_select_says_the_place_whatever_the_chunk) {
  std::vector<int64_t> index(static_cast<size_t>(kColumns), 3);
  index[700] = kColumns;
  const rlk_index_select_params params = RLK_INDEX_SELECT_PARAMS_INIT;
  const std::vector<float> x = numbers(kRows, 5);
  Tensor* y = tensor(kF32, {kRows, kColumns});
  EXPECT_EQ(run("index_select", &params, {tensor<float>(kF32, {kRows, 5}, x), tensor<int64_t>(kI64, {kColumns}, index)},
                {y}, {kRows, 5, kColumns}),
            RLK_DATA_ERROR);
  EXPECT_EQ(told.row, 700u);
  EXPECT_EQ(told.value, kColumns);
  const std::vector<float> seen = read<float>(y);
  for (int64_t n = 0; n < kRows; ++n) {
    EXPECT_EQ(seen[static_cast<size_t>(n * kColumns)], x[static_cast<size_t>(5 * n + 3)]);
    EXPECT_TRUE(std::isnan(seen[static_cast<size_t>(n * kColumns + 700)]));
  }
}

TEST_F(PlacesTest, sort_is_stable_with_zeros_of_both_signs_infinite_numbers_and_nan) {
  std::vector<float> x = numbers(kRows, kColumns);
  constexpr float kInf = std::numeric_limits<float>::infinity(), kNan = std::numeric_limits<float>::quiet_NaN();
  for (int64_t n = 0; n < kRows; ++n) {
    int64_t at = n;
    for (const float special : {kNan, 0.0F, -0.0F, kInf, -kInf, kNan, kInf, 0.0F})
      x[static_cast<size_t>(n * kColumns + at++ % kColumns)] = special;
  }
  for (const bool descending : {false, true}) {
    rlk_sort_params params = RLK_SORT_PARAMS_INIT;
    params.descending = descending ? 1 : 0;
    Tensor *y = tensor(kF32, {kRows, kColumns}), *index = tensor(kI64, {kRows, kColumns});
    ASSERT_EQ(run("sort", &params, {tensor<float>(kF32, {kRows, kColumns}, x)}, {y, index}, {kRows, kColumns}), RLK_OK);
    const std::vector<int64_t> places = read<int64_t>(index);
    const auto is_less = [](float a, float b) { return std::isnan(b) ? !std::isnan(a) : a < b; };
    for (int64_t n = 0; n < kRows; ++n) {
      const float* row = &x[static_cast<size_t>(n * kColumns)];
      std::vector<int64_t> expected(static_cast<size_t>(kColumns));
      std::iota(expected.begin(), expected.end(), 0);
      std::stable_sort(expected.begin(), expected.end(), [&](int64_t a, int64_t b) {
        return descending ? is_less(row[b], row[a]) : is_less(row[a], row[b]);
      });
      ASSERT_TRUE(std::equal(expected.begin(), expected.end(), &places[static_cast<size_t>(n * kColumns)])) << n;
    }
  }
}

// 2^24 and many times 1: one after the other each 1 would be lost.
TEST_F(PlacesTest, embedding_backward_loses_nothing_of_long_sums) {
  std::vector<int64_t> ids(static_cast<size_t>(kRows), 2);
  ids[17] = 0;
  std::vector<float> grad(static_cast<size_t>(kRows * kColumns), 1.0F);
  std::fill_n(grad.begin(), kColumns, 0x1p24F);
  const rlk_embedding_backward_params params = RLK_EMBEDDING_BACKWARD_PARAMS_INIT;
  Tensor* out = tensor(kF32, {4, kColumns});
  ASSERT_EQ(run("embedding_backward", &params,
                {tensor<float>(kF32, {kRows, kColumns}, grad), tensor<int64_t>(kI64, {kRows}, ids),
                 tensor(kF32, {4, kColumns})},
                {out}, {kRows, 4, kColumns}),
            RLK_OK);
  const std::vector<float> seen = read<float>(out);
  for (int64_t i = 0; i < kColumns; ++i) {
    ASSERT_EQ(seen[static_cast<size_t>(i)], 1.0F);
    ASSERT_EQ(seen[static_cast<size_t>(kColumns + i)], 0.0F);
    ASSERT_EQ(seen[static_cast<size_t>(2 * kColumns + i)], 0x1p24F + 498);
  }
}

TEST_F(PlacesTest, of_two_tokens_with_one_slot_the_later_one_stays) {
  constexpr int64_t kTokens = 600, kElements = 512;
  std::vector<int64_t> slots;
  for (int64_t n = 0; n < kTokens; ++n) slots.push_back(n % 3 == 0 ? -1 : n % 5);
  const rlk_reshape_and_cache_params params = RLK_RESHAPE_AND_CACHE_PARAMS_INIT;
  std::vector<float> key;
  for (int64_t n = 0; n < kTokens; ++n) key.insert(key.end(), static_cast<size_t>(kElements), static_cast<float>(n));
  for (const bool names_none : {false, true}) {
    if (names_none) std::fill(slots.begin(), slots.end(), -1);
    Tensor* cache = tensor<float>(kF32, {4, 2, 2, kElements / 2}, numbers(8, kElements));
    Tensor* values = tensor<float>(kF32, {4, 2, 2, kElements / 2}, numbers(8, kElements));
    Tensor* from = tensor<float>(kF32, {kTokens, 2, kElements / 2}, key);
    ASSERT_EQ(run("reshape_and_cache", &params, {from, from, cache, values, tensor<int64_t>(kI64, {kTokens}, slots)},
                  {cache, values}, {kTokens, kTokens, 2, kElements / 2, 4, 2, -1}),
              RLK_OK);
    for (const std::vector<float>& seen : {read<float>(cache), read<float>(values)}) {
      for (int64_t slot = 0; slot < 8; ++slot) {
        float expected = numbers(8, kElements)[static_cast<size_t>(slot * kElements)];
        for (int64_t n = 0; n < kTokens; ++n) {
          if (slots[static_cast<size_t>(n)] == slot) expected = static_cast<float>(n);
        }
        ASSERT_EQ(seen[static_cast<size_t>(slot * kElements)], expected) << slot;
      }
    }
  }
}

}  // namespace
