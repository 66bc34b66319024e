// Some elements of a tensor are copied in few stretches, whatever its strides are.
#include "core/dispatch/device/fetch.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <optional>
#include <vector>

namespace rlk::test {
namespace {

struct Matrix {
  std::vector<float> values;
  std::vector<int64_t> shape, strides;
  rlk_tensor tensor() {
    return {
        sizeof(rlk_tensor),      4, values.data(), 0, shape.data(), strides.data(), static_cast<int32_t>(shape.size()),
        {RLK_DTYPE_FLOAT, 32, 1}};
  }
};

using Indices = std::vector<int64_t>;

std::vector<float> fetched(Matrix& matrix, std::vector<std::optional<Indices>> wanted, int* copies) {
  const rlk_tensor tensor = matrix.tensor();
  const auto fetch = core::Fetch::make(tensor, std::move(wanted));
  *copies = -1;
  if (!fetch) return {};
  *copies = 0;
  std::vector<char> buffer(fetch->bytes());
  EXPECT_EQ(fetch->enqueue(tensor, buffer.data(),
                           [&](char* to, const char* from, uint64_t bytes) {
                             ++*copies;
                             std::memcpy(to, from, bytes);
                             return RLK_OK;
                           }),
            RLK_OK);
  const std::vector<std::byte> bytes = fetch->pick(buffer.data());
  std::vector<float> values(bytes.size() / 4);
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

Matrix counting(std::vector<int64_t> shape, std::vector<int64_t> strides, size_t elements) {
  Matrix matrix{{}, std::move(shape), std::move(strides)};
  for (size_t i = 0; i < elements; ++i) matrix.values.push_back(static_cast<float>(i));
  return matrix;
}

TEST(Fetch, RowsOfAMatrixAreOneCopyEach) {
  Matrix matrix = counting({4, 3}, {3, 1}, 12);
  int copies = 0;
  EXPECT_EQ(fetched(matrix, {Indices{0, 3}, Indices{0, 1, 2}}, &copies), (std::vector<float>{0, 1, 2, 9, 10, 11}));
  EXPECT_EQ(copies, 2);
}

TEST(Fetch, AWholeMatrixIsOneCopy) {
  Matrix matrix = counting({4, 3}, {3, 1}, 12);
  int copies = 0;
  EXPECT_EQ(fetched(matrix, {Indices{0, 1, 2, 3}, Indices{0, 1, 2}}, &copies), matrix.values);
  EXPECT_EQ(copies, 1);
  EXPECT_EQ(fetched(matrix, {std::nullopt, std::nullopt}, &copies), matrix.values);
  EXPECT_EQ(copies, 1);
  EXPECT_EQ(fetched(matrix, {Indices{1, 3}, std::nullopt}, &copies), (std::vector<float>{3, 4, 5, 9, 10, 11}));
}

TEST(Fetch, ManyPiecesAreCopiedWithWhatLiesBetweenAndPicked) {
  Matrix matrix = counting({100, 4, 2}, {8, 2, 1}, 800);
  Indices rows(100);
  std::iota(rows.begin(), rows.end(), int64_t{0});
  int copies = 0;
  const std::vector<float> values = fetched(matrix, {rows, Indices{2}, Indices{0, 1}}, &copies);
  EXPECT_LE(copies, 32) << "100 copies would be one per row";
  ASSERT_EQ(values.size(), 200u);
  EXPECT_EQ(values[0], 4);
  EXPECT_EQ(values[199], 99 * 8 + 5);
}

TEST(Fetch, ATransposedMatrixIsOneCopy) {
  Matrix matrix = counting({100, 200}, {1, 100}, 20000);
  int copies = 0;
  const std::vector<float> values = fetched(matrix, {std::nullopt, std::nullopt}, &copies);
  EXPECT_EQ(copies, 1);
  ASSERT_EQ(values.size(), 20000u);
  EXPECT_EQ(values[1], 100);
  EXPECT_EQ(values[200], 1);
}

TEST(Fetch, PiecesFarApartAreCopiedOneByOneAndTooManyOfThemNotAtAll) {
  // Of 2^32 elements without memory: the test only asks where they lie.
  const auto bytes_of = [](std::vector<int64_t> shape, std::vector<int64_t> strides) -> std::optional<uint64_t> {
    Matrix matrix = counting(std::move(shape), std::move(strides), 1);
    const auto fetch = core::Fetch::make(matrix.tensor(), std::vector<std::optional<Indices>>(matrix.shape.size()));
    return fetch ? std::optional(fetch->bytes()) : std::nullopt;
  };
  EXPECT_EQ(bytes_of({4096, 2}, {int64_t{1} << 20, 1}), 4096u * 2 * 4);
  EXPECT_EQ(bytes_of({2, 4096}, {1, -(int64_t{1} << 20)}), 4096u * 2 * 4);
  EXPECT_EQ(bytes_of({4097, 2}, {int64_t{1} << 26, 1}), std::nullopt);
}

TEST(Fetch, RunsOfManyIndicesAreCopiedAlone) {
  // Of 2^33 elements, runs of 3000 about some of them: in order, backwards, and of rows.
  Indices indices;
  for (int64_t run = 0; run < 70; ++run) {
    for (int64_t i = 0; i < 3000; ++i) indices.push_back(run * (int64_t{1} << 26) + i);
  }
  const auto bytes_of = [&](std::vector<int64_t> shape, std::vector<int64_t> strides) -> uint64_t {
    Matrix matrix = counting(std::move(shape), std::move(strides), 1);
    std::vector<std::optional<Indices>> wanted(matrix.shape.size());
    wanted[0] = indices;
    const auto fetch = core::Fetch::make(matrix.tensor(), std::move(wanted));
    return fetch ? fetch->bytes() : 0;
  };
  EXPECT_EQ(bytes_of({int64_t{1} << 33}, {1}), 70u * 3000 * 4);
  EXPECT_EQ(bytes_of({int64_t{1} << 33}, {-1}), 70u * 3000 * 4);
  EXPECT_EQ(bytes_of({int64_t{1} << 33, 5}, {5, 1}), 70u * 3000 * 5 * 4);
}

// Any shape, order, direction, gap and choice: what is picked is what the tensor holds there, and no byte outside it
// is read.
TEST(Fetch, PicksTheElementsOfAnyTensor) {
  uint64_t state = 7;
  const auto below = [&](uint64_t n) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return static_cast<int64_t>((state >> 33) % n);
  };
  for (int trial = 0; trial < 2000; ++trial) {
    const auto ndim = static_cast<size_t>(below(5));
    std::vector<size_t> order(ndim);
    std::iota(order.begin(), order.end(), size_t{0});
    for (size_t i = ndim; i > 1; --i) std::swap(order[i - 1], order[static_cast<size_t>(below(i))]);
    std::vector<int64_t> shape(ndim), strides(ndim);
    int64_t stride = 1 + (below(4) == 0 ? 1 : 0), first = 0, extent = 1;
    for (const size_t axis : order) {
      shape[axis] = 1 + below(below(8) == 0 ? 60 : 6);
      strides[axis] = below(10) == 0 ? 0 : stride;
      stride *= shape[axis] + below(3);
      if (below(3) == 0) strides[axis] = -strides[axis];
      extent += (shape[axis] - 1) * std::abs(strides[axis]);
      if (strides[axis] < 0) first -= (shape[axis] - 1) * strides[axis];
    }
    Matrix matrix = counting(shape, strides, static_cast<size_t>(extent));
    rlk_tensor tensor = matrix.tensor();
    tensor.byte_offset = static_cast<uint64_t>(first) * sizeof(float);
    std::vector<std::optional<Indices>> wanted(ndim);
    for (size_t axis = 0; axis < ndim; ++axis) {
      if (below(2) == 0) continue;
      wanted[axis].emplace();
      for (int64_t i = 0; i < shape[axis]; ++i) {
        if (below(3) != 0) wanted[axis]->push_back(i);
      }
      if (wanted[axis]->empty()) wanted[axis]->push_back(below(static_cast<uint64_t>(shape[axis])));
    }
    std::vector<int64_t> places = {first};
    for (size_t axis = 0; axis < ndim; ++axis) {
      std::vector<int64_t> next;
      for (const int64_t place : places) {
        for (int64_t i = 0; i < shape[axis]; ++i) {
          const bool taken =
              !wanted[axis] || std::find(wanted[axis]->begin(), wanted[axis]->end(), i) != wanted[axis]->end();
          if (taken) next.push_back(place + i * strides[axis]);
        }
      }
      places = std::move(next);
    }
    const auto fetch = core::Fetch::make(tensor, wanted);
    ASSERT_TRUE(fetch);
    std::vector<char> buffer(fetch->bytes());
    const auto* begin = reinterpret_cast<const char*>(matrix.values.data());
    size_t copies = 0;
    ASSERT_EQ(fetch->enqueue(tensor, buffer.data(),
                             [&](char* to, const char* from, uint64_t bytes) {
                               ++copies;
                               if (from < begin || from + bytes > begin + extent * 4) return RLK_INTERNAL;
                               std::memcpy(to, from, bytes);
                               return RLK_OK;
                             }),
              RLK_OK);
    EXPECT_LE(copies, core::Fetch::kFewCopies);
    const std::vector<std::byte> bytes = fetch->pick(buffer.data());
    std::vector<float> values(bytes.size() / 4);
    std::memcpy(values.data(), bytes.data(), bytes.size());
    ASSERT_EQ(values, std::vector<float>(places.begin(), places.end())) << "trial " << trial;
  }
}

TEST(Fetch, ElementsOfHalfAByteHaveOneEach) {
  const std::vector<uint8_t> packed = {0x21, 0x43, 0x65, 0x87, 0xa9, 0xcb};
  const int64_t shape[] = {3, 4}, strides[] = {4, 1};
  const rlk_tensor tensor = {sizeof(rlk_tensor),    1, const_cast<uint8_t*>(packed.data()), 0, shape, strides, 2,
                             {RLK_DTYPE_UINT, 4, 1}};
  const auto fetch = core::Fetch::make(tensor, {Indices{0, 2}, Indices{1, 2, 3}});
  ASSERT_TRUE(fetch);
  std::vector<char> buffer(fetch->bytes());
  ASSERT_EQ(fetch->enqueue(tensor, buffer.data(),
                           [&](char* to, const char* from, uint64_t bytes) {
                             std::memcpy(to, from, bytes);
                             return RLK_OK;
                           }),
            RLK_OK);
  std::vector<int> values;
  for (const std::byte byte : fetch->pick(buffer.data())) values.push_back(static_cast<int>(byte));
  EXPECT_EQ(values, (std::vector<int>{2, 3, 4, 10, 11, 12}));
}

}  // namespace
}  // namespace rlk::test
