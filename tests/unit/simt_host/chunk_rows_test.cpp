// How many rows do chunks of scores have, and their pieces?
#include <gtest/gtest.h>

#include <algorithm>

#include "plugins/products/chunks.hpp"

namespace rlk::products {
namespace {

constexpr uint64_t kOneGiB = uint64_t{1} << 30;

uint64_t bytes(int64_t rows, int64_t row_bytes) {
  return static_cast<uint64_t>(rows) * static_cast<uint64_t>(row_bytes);
}

TEST(ChunkRowsTest, PiecesFillChunksAndStayWithinTheirBytes) {
  for (const int64_t rows : {0, 1, 5, 37, 64, 100, 513, 1000, 2048, 4096, 5000, 8192, 100001}) {
    for (const int64_t columns : {1, 37, 257, 4096, 32000, 128256, 151937, 3000000}) {
      for (const uint64_t beside : {uint64_t{0}, uint64_t{700} << 20, 8 * kOneGiB}) {
        const ChunkRows of = chunk_rows_of(rows, 4 * columns, 2 * columns, beside);
        ASSERT_GE(of.piece, 1) << rows << " x " << columns;
        ASSERT_GE(of.rows, 1) << rows << " x " << columns;
        EXPECT_TRUE(of.rows % of.piece == 0 || of.rows >= rows) << rows << " x " << columns;
        EXPECT_LE(bytes(of.piece, 4 * columns), kScoreBytes) << rows << " x " << columns;
        EXPECT_LE(bytes(of.rows, 2 * columns), std::clamp(beside, kScoreBytes, kMostScoreBytes))
            << rows << " x " << columns;
        // What begins within a buffer begins on 16 bytes, whatever the columns.
        EXPECT_TRUE(of.piece % 16 == 0 || of.piece >= rows) << rows << " x " << columns;
      }
    }
  }
}

TEST(ChunkRowsTest, OneChunkHasAsManyPiecesAsGradWeightWouldBeReadAndWritten) {
  const ChunkRows of = chunk_rows_of(4096, 4 * 128256, 2 * 128256, 2 * kOneGiB);
  EXPECT_EQ(of.rows, 4096);
  EXPECT_EQ(of.piece, 1024);
  const ChunkRows half = chunk_rows_of(8192, 4 * 131072, 2 * 131072, 2 * kOneGiB);
  EXPECT_EQ(half.rows, 4096);
  EXPECT_EQ(half.piece, 1024);
}

TEST(ChunkRowsTest, FewRowsTakeTheWayOfMany) {
  const ChunkRows of = chunk_rows_of(100, 4 * 257, 2 * 257, 0);
  EXPECT_EQ(of.rows, 64) << "two chunks";
  EXPECT_EQ(of.piece, 32) << "of two pieces";
  const ChunkRows without = chunk_rows_of(100, 4 * 257, 0);
  EXPECT_EQ(without.rows, 64);
  EXPECT_EQ(without.piece, 64);
}

TEST(ChunkRowsTest, SlopesWithoutScoresInMemoryAreChunksOfWholeTiles) {
  for (const int64_t rows : {0, 1, 5, 100, 513, 2048, 5000, 8192, 100001}) {
    for (const int64_t columns : {1, 257, 4096, 128256, 151937, 3000000}) {
      for (const uint64_t beside : {uint64_t{0}, uint64_t{700} << 20, 8 * kOneGiB}) {
        const int64_t of = slope_rows_of(rows, 2 * columns, beside);
        ASSERT_GE(of, 1) << rows << " x " << columns;
        EXPECT_LE(bytes(of, 2 * columns), std::clamp(beside, kScoreBytes, kMostScoreBytes)) << rows << " x " << columns;
        EXPECT_TRUE(of % 16 == 0 || of >= rows) << rows << " x " << columns;
      }
    }
  }
  EXPECT_EQ(slope_rows_of(8192, 2 * 131072, 2 * kOneGiB), 4096);
  EXPECT_EQ(slope_rows_of(8192, 2 * 131080, 2 * kOneGiB), 2816) << "three chunks alike, not two and a small one";
  EXPECT_EQ(slope_rows_of(2048, 2 * 151936, 4 * 151936 * 1024), 2048) << "as large as grad_weight";
  EXPECT_EQ(slope_rows_of(100, 2 * 257, 0), 64) << "few rows take the way of many";
}

}  // namespace
}  // namespace rlk::products
