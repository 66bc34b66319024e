// Paged attention on tensor cores: which caches do the kernels take, which kernel do rows, and how are keys shared out?
#include <gtest/gtest.h>

#include "plugins/cuda/kernels/attention_parts.h"
#include "plugins/cuda/paged_attention_mma.hpp"
#include "tests/unit/simt_host/operator_calls.hpp"

namespace rlk::simt::host {
namespace {

using Names = std::vector<std::string>;
using cuda::PagedAttentionMmaFixed;
using cuda::PagedAttentionMmaSplit;

struct Shape {
  int64_t sequences = 1, queries = 1, table = 8192, block = 16, head = 128;
  int64_t group = 8;  // elements of a key that lie together, in head_major
  bool head_major = false;
  rlk_dtype dtype = kBf16;
};
constexpr int64_t kHeads = 8, kKeyHeads = 2, kBlocks = 64;  // a group of 4

// Without cu_seqlens_q where sequences have a query each.
Arranged<sdk::ops::PagedAttention> paged(const Shape& s) {
  rlk_paged_attention_params params = RLK_PAGED_ATTENTION_PARAMS_INIT;
  params.layout = s.head_major ? RLK_PAGED_ATTENTION_LAYOUT_HEAD_MAJOR : RLK_PAGED_ATTENTION_LAYOUT_TOKEN_MAJOR;
  Arranged<sdk::ops::PagedAttention> call(params, {s.sequences, s.queries, kHeads, kKeyHeads, s.head, kBlocks, s.table,
                                                   s.block, s.head_major ? s.group : -1});
  call.input(RLK_PAGED_ATTENTION_IN_Q, s.dtype, {s.queries, kHeads, s.head});
  if (s.head_major) {
    call.input(RLK_PAGED_ATTENTION_IN_KEY_CACHE, s.dtype, {kBlocks, kKeyHeads, s.head / s.group, s.block, s.group});
    call.input(RLK_PAGED_ATTENTION_IN_VALUE_CACHE, s.dtype, {kBlocks, kKeyHeads, s.head, s.block});
  } else {
    call.input(RLK_PAGED_ATTENTION_IN_KEY_CACHE, s.dtype, {kBlocks, s.block, kKeyHeads, s.head});
    call.input(RLK_PAGED_ATTENTION_IN_VALUE_CACHE, s.dtype, {kBlocks, s.block, kKeyHeads, s.head});
  }
  call.input(RLK_PAGED_ATTENTION_IN_BLOCK_TABLE, kI64, {s.sequences, s.table});
  call.input(RLK_PAGED_ATTENTION_IN_CONTEXT_LENS, kI64, {s.sequences});
  if (s.queries != s.sequences) call.input(RLK_PAGED_ATTENTION_IN_CU_SEQLENS_Q, kI64, {s.sequences + 1});
  call.output(RLK_PAGED_ATTENTION_OUT_OUT, s.dtype, {s.queries, kHeads, s.head});
  return call;
}

class PagedAttentionMmaTest : public OperatorTest {
protected:
  void TearDown() override { on_launch = nullptr; }
  std::string declined(Arranged<sdk::ops::PagedAttention> call) {
    Device device(0);
    const sdk::Support support = call.query<PagedAttentionMmaSplit>(device);
    return support.level == RLK_SUPPORT_NO ? support.reason_code : "";
  }
};

TEST_F(PagedAttentionMmaTest, AStepOfDecodingSharesItsKeysOutToTheWholeDevice) {
  Device device(0);
  unsigned blocks = 0;
  on_launch = [&](unsigned count, const void*) { blocks = std::max(blocks, count); };
  auto call = paged({});  // 131072 keys
  EXPECT_EQ(call.launch<PagedAttentionMmaSplit>(device),
            (Names{"paged_attention_mma_bf16_128_16", "paged_attention_merge_bf16"}));
  // 132 multiprocessors hold 264 blocks, 132 of each key head, which 128 parts at the most have.
  EXPECT_EQ(blocks, 128u * kKeyHeads);
  EXPECT_EQ(call.workspace_bytes, 128 * kHeads * (128 + 2) * sizeof(float));
}

TEST_F(PagedAttentionMmaTest, FixedSharesDependOnTheTableAlone) {
  Device device(0);
  unsigned blocks = 0;
  simt::PagedAttentionArgs seen{};
  on_launch = [&](unsigned count, const void* arguments) {
    blocks = std::max(blocks, count);
    seen = *static_cast<const simt::PagedAttentionArgs*>(arguments);
  };
  for (const int64_t sequences : {1, 3, 64}) {
    blocks = 0;
    paged({sequences, sequences, 1024}).launch<PagedAttentionMmaFixed>(device);  // 16384 keys
    EXPECT_EQ(blocks, 16u * kKeyHeads * sequences);
    EXPECT_EQ(seen.splits, 16);
    EXPECT_NE(seen.fixed_shares, 0);
  }
  EXPECT_EQ(paged({2, 900, 64}).launch<PagedAttentionMmaFixed>(device), Names{"paged_attention_mma_bf16_128_16"})
      << "one share, and rows of prefill in the kernel of decoding";
  EXPECT_EQ(paged({1, 1, 49152}).query<PagedAttentionMmaFixed>(device).level, RLK_SUPPORT_PREFERRED);
  EXPECT_EQ(paged({1, 1, 49153}).query<PagedAttentionMmaFixed>(device).reason_code, "SIZE");
}

TEST_F(PagedAttentionMmaTest, PrefillOverManySharesTakesItsRowsInParts) {
  Device device(0);
  std::vector<simt::PagedAttentionArgs> seen;
  on_launch = [&](unsigned, const void* arguments) {
    seen.push_back(*static_cast<const simt::PagedAttentionArgs*>(arguments));
  };
  auto call = paged({2, 8192, 8192});  // 131072 keys, 48 shares
  const Names names = call.launch<PagedAttentionMmaFixed>(device);
  ASSERT_GE(names.size(), 2u);
  EXPECT_EQ(names[0], "paged_attention_mma_bf16_128_16_dense");
  EXPECT_EQ(names[1], "paged_attention_mma_tile_merge_bf16");
  constexpr int64_t kTiles = 8192 * 4 / 16 + 2, kTileBytes = 48 * kKeyHeads * 16 * (128 + 2) * 4;
  constexpr int64_t kOfLaunch = (int64_t{256} << 20) / kTileBytes;
  EXPECT_EQ(call.workspace_bytes, kOfLaunch * kTileBytes);
  ASSERT_EQ(seen.size(), 2 * ((kTiles + kOfLaunch - 1) / kOfLaunch)) << "a kernel and a merge for each part";
  int64_t next = 0;
  for (size_t i = 0; i < seen.size(); i += 2) {
    EXPECT_EQ(seen[i].first_tile, next);
    EXPECT_EQ(seen[i + 1].first_tile, next);
    EXPECT_EQ(seen[i].tiles, kTiles);
    EXPECT_EQ(seen[i].tile_rows, 16);
    next += seen[i].part_tiles;
  }
  EXPECT_EQ(next, kTiles);
  // Small calls take the same way, and small heads; a step of decoding where its parts do not fit.
  Shape small{2, 2, 65};
  small.head = 40;
  EXPECT_EQ(paged(small).launch<PagedAttentionMmaFixed>(device).back(), "paged_attention_mma_tile_merge_bf16");
  EXPECT_EQ(paged({2, 3, 65}).launch<PagedAttentionMmaFixed>(device).back(), "paged_attention_mma_tile_merge_bf16");
  EXPECT_EQ(paged({64, 64, 8192}).launch<PagedAttentionMmaFixed>(device).back(), "paged_attention_merge_bf16");
  EXPECT_EQ(paged({8192, 8192, 8192}).launch<PagedAttentionMmaFixed>(device).back(),
            "paged_attention_mma_tile_merge_bf16");
}

TEST_F(PagedAttentionMmaTest, ManyTurnsTakeThreeBlocksOfAMultiprocessor) {
  Device device(0);
  const std::string few = "paged_attention_mma_bf16_128_16";
  // 264 blocks at once, 2 of each sequence.
  EXPECT_EQ(paged({396, 396, 64}).launch<PagedAttentionMmaSplit>(device).front(), few);
  EXPECT_EQ(paged({397, 397, 64}).launch<PagedAttentionMmaSplit>(device).front(), few + "_dense");
  Shape shape{397, 397, 64};
  shape.head_major = true;
  EXPECT_EQ(paged(shape).launch<PagedAttentionMmaSplit>(device).front(), few + "_groups");
}

TEST(PagedAttentionShares, FixedOnesGrowAndLeaveNoKeyOut) {
  EXPECT_EQ(cuda::fixed_share_begin(0), 0);
  int64_t keys = 1024;
  for (int64_t share = 0; share < simt::kPagedMaxSplits; ++share) {
    const int64_t begin = cuda::fixed_share_begin(share);
    if (begin == 16384) keys = 2048;
    if (begin == 32768) keys = 4096;
    if (begin == 131072) keys = 8192;
    EXPECT_EQ(cuda::fixed_share_begin(share + 1), begin + keys) << share;
  }
  EXPECT_EQ(keys, 8192);
}

TEST(PagedAttentionShares, LargeOnesBeginFirstAndEachBeginsOnce) {
  for (const int64_t shares : {1, 15, 16, 17, 48, 128}) {
    for (const int64_t tiles : {1, 2, 7}) {
      std::vector<int> seen(shares * tiles);
      int64_t keys_before = INT64_MAX;
      for (int64_t item = 0; item < shares * tiles; ++item) {
        const auto [share, tile] = cuda::fixed_share_at(item, shares, tiles);
        ASSERT_TRUE(share >= 0 && share < shares && tile >= 0 && tile < tiles) << item;
        ++seen[share * tiles + tile];
        const int64_t keys = cuda::fixed_share_begin(share + 1) - cuda::fixed_share_begin(share);
        EXPECT_LE(keys, keys_before) << item;
        keys_before = keys;
      }
      EXPECT_EQ(seen, std::vector<int>(shares * tiles, 1)) << shares << " shares of " << tiles;
    }
  }
}

TEST_F(PagedAttentionMmaTest, OnlyFixedSharesAreBatchInvariant) {
  Device device(0);
  EXPECT_EQ(paged({}).query<PagedAttentionMmaSplit>(device).numerics & RLK_NUMERICS_BATCH_INVARIANT, 0u);
  EXPECT_NE(paged({}).query<PagedAttentionMmaFixed>(device).numerics & RLK_NUMERICS_BATCH_INVARIANT, 0u);
}

// Dispatch takes the cheaper one where no class is demanded: a step of decoding is faster in equal shares.
TEST_F(PagedAttentionMmaTest, FixedSharesCostMoreThanEqualOnes) {
  Device device(0);
  for (const auto& [sequences, blocks] : {std::pair<int64_t, int64_t>{8, 2048}, {64, 256}, {1, 8192}, {64, 512}}) {
    const Shape shape{sequences, sequences, blocks};
    EXPECT_LT(paged(shape).query<PagedAttentionMmaSplit>(device).cost_us,
              paged(shape).query<PagedAttentionMmaFixed>(device).cost_us)
        << sequences << " sequences of " << blocks << " blocks";
  }
}

TEST_F(PagedAttentionMmaTest, ManyQueriesTakeLargeBlocksWithoutParts) {
  Device device(0);
  const std::string image = "paged_attention_mma_bf16_";
  EXPECT_EQ(paged({2, 8, 64}).launch<PagedAttentionMmaSplit>(device).front(), image + "128_16");
  EXPECT_EQ(paged({2, 9, 64}).launch<PagedAttentionMmaSplit>(device).front(), image + "128_64");
  EXPECT_EQ(paged({4, 16384, 64}).launch<PagedAttentionMmaSplit>(device), Names{image + "128_64"});
}

TEST_F(PagedAttentionMmaTest, LayoutsAndHeadSizesHaveKernels) {
  Device device(0);
  Shape shape;
  shape.head = 40;
  EXPECT_EQ(paged(shape).launch<PagedAttentionMmaSplit>(device).front(), "paged_attention_mma_bf16_64_16");
  shape.head_major = true;
  shape.dtype = kF16;
  EXPECT_EQ(paged(shape).launch<PagedAttentionMmaSplit>(device).front(), "paged_attention_mma_f16_64_16_groups");
}

TEST_F(PagedAttentionMmaTest, WhatItsKernelsLackIsDeclined) {
  EXPECT_EQ(declined(paged({})), "");
  Shape shape;
  shape.dtype = kF32;
  EXPECT_EQ(declined(paged(shape)), "DTYPE");
  for (const int64_t head : {33, 136}) {
    shape = {};
    shape.head = head;
    EXPECT_EQ(declined(paged(shape)), "HEAD_SIZE") << head;
  }
  for (const int64_t block : {1, 7, 24}) {
    shape = {};
    shape.block = block;
    EXPECT_EQ(declined(paged(shape)), "") << block;
    shape.head_major = true;
    EXPECT_EQ(declined(paged(shape)), block == 24 ? "" : "LAYOUT") << block;
  }
  for (const int64_t group : {4, 8, 16}) {
    shape = {};
    shape.head_major = true;
    shape.group = group;
    EXPECT_EQ(declined(paged(shape)), group == 4 ? "LAYOUT" : "") << group;
  }
  auto odd = paged({});
  odd.input(RLK_PAGED_ATTENTION_IN_KEY_CACHE).tensor.alignment = 8;
  EXPECT_EQ(declined(std::move(odd)), "ALIGNMENT");
  auto uneven = paged({});
  uneven.input(RLK_PAGED_ATTENTION_IN_VALUE_CACHE).strides[0] += 4;
  EXPECT_EQ(declined(std::move(uneven)), "ALIGNMENT");
  auto far = paged({});
  far.input(RLK_PAGED_ATTENTION_IN_VALUE_CACHE).strides[0] = int64_t{1} << 34;
  EXPECT_EQ(declined(std::move(far)), "SIZE");
  set_device(132, 49152);
  EXPECT_EQ(declined(paged({})), "SHARED_MEMORY");
}

}  // namespace
}  // namespace rlk::simt::host
