// Attention in parts on tensor cores: which kernels do few and many rows take, and how are keys shared out?
#include <gtest/gtest.h>

#include "plugins/cuda/attention_fixed_mma.hpp"
#include "plugins/cuda/attention_mma.hpp"
#include "plugins/cuda/attention_parts_mma.hpp"
#include "plugins/simt/host/operators.hpp"
#include "tests/unit/simt_host/operator_calls.hpp"

namespace rlk::simt::host {
namespace {

using Names = std::vector<std::string>;
constexpr int64_t kHeads = 8, kKeyHeads = 2;  // a group of 4

Arranged<sdk::ops::Attention> attention(int64_t batch, int64_t queries, int64_t keys, int64_t head_size,
                                        double softcap = 0) {
  rlk_attention_params params = RLK_ATTENTION_PARAMS_INIT;
  params.softcap = softcap;
  Arranged<sdk::ops::Attention> call(params, {batch, queries, keys, -1, -1, kHeads, kKeyHeads, head_size});
  call.input(RLK_ATTENTION_IN_Q, kBf16, {batch, queries, kHeads, head_size});
  call.input(RLK_ATTENTION_IN_K, kBf16, {batch, keys, kKeyHeads, head_size});
  call.input(RLK_ATTENTION_IN_V, kBf16, {batch, keys, kKeyHeads, head_size});
  call.output(RLK_ATTENTION_OUT_OUT, kBf16, {batch, queries, kHeads, head_size});
  return call;
}

Arranged<sdk::ops::PrefixSharedAttention> prefix_shared(int64_t samples, int64_t queries, int64_t prefix, int64_t own) {
  constexpr int64_t kHead = 128;
  Arranged<sdk::ops::PrefixSharedAttention> call(RLK_PREFIX_SHARED_ATTENTION_PARAMS_INIT,
                                                 {1, samples, queries, prefix, own, kHeads, kKeyHeads, kHead});
  call.input(RLK_PREFIX_SHARED_ATTENTION_IN_Q, kF16, {1, samples, queries, kHeads, kHead});
  call.input(RLK_PREFIX_SHARED_ATTENTION_IN_PREFIX_K, kF16, {1, prefix, kKeyHeads, kHead});
  call.input(RLK_PREFIX_SHARED_ATTENTION_IN_PREFIX_V, kF16, {1, prefix, kKeyHeads, kHead});
  call.input(RLK_PREFIX_SHARED_ATTENTION_IN_K, kF16, {1, samples, own, kKeyHeads, kHead});
  call.input(RLK_PREFIX_SHARED_ATTENTION_IN_V, kF16, {1, samples, own, kKeyHeads, kHead});
  call.output(RLK_PREFIX_SHARED_ATTENTION_OUT_OUT, kF16, {1, samples, queries, kHeads, kHead});
  return call;
}

using AttentionPartsTest = OperatorTest;

TEST_F(AttentionPartsTest, AStepOfDecodingSharesItsKeysOutToTheWholeDevice) {
  Device device(0);
  Arranged<sdk::ops::Attention> call = attention(1, 1, 131072, 128);
  EXPECT_EQ(call.launch<cuda::AttentionSplit>(device),
            (Names{"attention_parts_mma_accurate_bf16_128_16", "attention_parts_mma_accurate_merge_bf16"}));
  // 132 multiprocessors hold 396 blocks, 198 of each key head, which 128 parts at the most have.
  constexpr uint64_t kParts = 128, kRows = 8;
  EXPECT_EQ(call.workspace_bytes, kParts * kRows * (128 + 2) * sizeof(float));
}

TEST_F(AttentionPartsTest, FewKeysAreNotShared) {
  Device device(0);
  Arranged<sdk::ops::Attention> call = attention(64, 1, 64, 64);
  EXPECT_EQ(call.launch<cuda::AttentionSplit>(device).front(), "attention_parts_mma_accurate_bf16_64_16");
  EXPECT_EQ(call.workspace_bytes, 64 * 8 * (64 + 2) * sizeof(float));
}

TEST_F(AttentionPartsTest, ManyRowsTakeTheBlocksOfManyRows) {
  Device device(0);
  const auto kernel = [&](int64_t queries, double softcap) {
    return attention(1, queries, 64, 128, softcap).launch<cuda::AttentionSplit>(device).front();
  };
  EXPECT_EQ(kernel(4, 0), "attention_parts_mma_accurate_bf16_128_16");
  EXPECT_EQ(kernel(5, 0), "attention_parts_mma_accurate_bf16_128_64_options");
  EXPECT_EQ(kernel(17, 0), "attention_parts_mma_accurate_bf16_128_64_options");
  EXPECT_EQ(kernel(17, 30), "attention_parts_mma_accurate_bf16_128_64_options");
}

TEST_F(AttentionPartsTest, FixedSharesAreThoseOfTheKeysAlone) {
  Device device(0);
  const std::string family = "attention_fixed_mma_";
  const Names few{family + "bf16_128_16", family + "merge_bf16"}, many{family + "bf16_128_64"};
  // 16 shares of 1024 keys, 8 of 2048.
  constexpr uint64_t kShares = 24, kRowBytes = kHeads * (128 + 2) * sizeof(float);
  for (const int64_t batch : {1, 64}) {
    Arranged<sdk::ops::Attention> call = attention(batch, 1, 32768, 128);
    EXPECT_EQ(call.launch<cuda::AttentionFixed>(device), few);
    EXPECT_EQ(call.workspace_bytes, kShares * kRowBytes * static_cast<uint64_t>(batch));
  }
  EXPECT_EQ(attention(1, 4, 64, 128).launch<cuda::AttentionFixed>(device), few);
  Arranged<sdk::ops::Attention> prefill = attention(1, 5, 64, 128);
  EXPECT_EQ(prefill.launch<cuda::AttentionFixed>(device), many);
  EXPECT_EQ(prefill.workspace_bytes, 0u);
  EXPECT_EQ(attention(1, 64, 32768, 128).launch<cuda::AttentionFixed>(device), few);
  EXPECT_EQ(attention(64, 64, 32768, 128).launch<cuda::AttentionFixed>(device), many);
}

TEST_F(AttentionPartsTest, FixedSharesAreBatchInvariantAndOthersAreNot) {
  Device device(0);
  const auto call = [] { return attention(8, 1, 32768, 128); };
  EXPECT_NE(call().query<cuda::AttentionFixed>(device).numerics & RLK_NUMERICS_BATCH_INVARIANT, 0u);
  EXPECT_EQ(call().query<cuda::AttentionSplit>(device).numerics & RLK_NUMERICS_BATCH_INVARIANT, 0u);
  // What a call takes that demands the class, and one that does not.
  const double fixed = call().query<cuda::AttentionFixed>(device).cost_us;
  EXPECT_LT(fixed, call().query<AttentionSimt>(device).cost_us);
  EXPECT_LT(fixed, call().query<cuda::AttentionMma>(device).cost_us);
  EXPECT_GT(fixed, call().query<cuda::AttentionSplit>(device).cost_us);
}

TEST_F(AttentionPartsTest, SamplesReadTheirPrefixTogetherAndTheirOwnKeysApart) {
  Device device(0);
  const std::string rounded = "attention_parts_mma_f16_128_", accurate = "attention_parts_mma_accurate_";
  EXPECT_EQ(prefix_shared(64, 1, 8192, 33).launch<cuda::PrefixSharedAttentionMma>(device),
            (Names{rounded + "64_options", accurate + "f16_128_16", accurate + "merge_f16"}));
  EXPECT_EQ(prefix_shared(64, 1, 0, 16).launch<cuda::PrefixSharedAttentionMma>(device),
            (Names{accurate + "f16_128_16", accurate + "merge_f16"}));
  EXPECT_EQ(prefix_shared(0, 1, 64, 16).launch<cuda::PrefixSharedAttentionMma>(device), Names{});
}

TEST_F(AttentionPartsTest, TheMergeTakesInFewOwnKeys) {
  Device device(0);
  auto call = prefix_shared(64, 1, 8192, 32);
  EXPECT_EQ(call.launch<cuda::PrefixSharedAttentionMma>(device),
            (Names{"attention_parts_mma_f16_128_64_options", "attention_parts_mma_accurate_merge_f16"}));
  const uint64_t of_part = 64 * kHeads * (128 + 2) * sizeof(float);
  EXPECT_EQ(call.workspace_bytes % of_part, 0u);
  auto more = prefix_shared(64, 1, 8192, 33);
  more.launch<cuda::PrefixSharedAttentionMma>(device);
  EXPECT_EQ(more.workspace_bytes, call.workspace_bytes + of_part) << "own keys have a part then";
}

}  // namespace
}  // namespace rlk::simt::host
