// Attention in parts on tensor cores: which kernels do few and many rows take, and how are keys shared out?
#include <gtest/gtest.h>

#include "plugins/cuda/attention_parts_mma.hpp"
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
