// The host side of the gradients of attention on warpgroup products: what it declines, and what it tells its kernels.
#include "plugins/cuda/attention_gradients_wgmma.hpp"
#include "plugins/cuda/kernels/attention_gradients_wgmma.h"
#include "tests/unit/simt_host/attention_wgmma_calls.hpp"

namespace rlk::simt::host {
namespace {

using cuda::AttentionBackwardWgmma;

Arranged<sdk::ops::AttentionBackward> gradients(const Shape& s) {
  rlk_attention_backward_params params = RLK_ATTENTION_BACKWARD_PARAMS_INIT;
  params.causal = RLK_ATTENTION_BACKWARD_CAUSAL_ON;
  Arranged<sdk::ops::AttentionBackward> call(params,
                                             {s.batch, s.queries, s.keys, -1, -1, s.q_heads, s.kv_heads, s.head});
  const std::vector<int64_t> rows = {s.batch, s.queries, s.q_heads, s.head},
                             keys = {s.batch, s.keys, s.kv_heads, s.head};
  call.input(RLK_ATTENTION_BACKWARD_IN_Q, s.dtype, rows);
  call.input(RLK_ATTENTION_BACKWARD_IN_K, s.dtype, keys);
  call.input(RLK_ATTENTION_BACKWARD_IN_V, s.dtype, keys);
  call.input(RLK_ATTENTION_BACKWARD_IN_OUT, s.dtype, rows);
  call.input(RLK_ATTENTION_BACKWARD_IN_LSE, kF32, {s.batch, s.queries, s.q_heads});
  call.input(RLK_ATTENTION_BACKWARD_IN_GRAD_OUT, s.dtype, rows);
  call.output(RLK_ATTENTION_BACKWARD_OUT_GRAD_Q, s.dtype, rows);
  call.output(RLK_ATTENTION_BACKWARD_OUT_GRAD_K, s.dtype, keys);
  call.output(RLK_ATTENTION_BACKWARD_OUT_GRAD_V, s.dtype, keys);
  return call;
}

TEST_F(AttentionWgmmaTest, GradientsPromiseNoOrderOfSummation) {
  Device device(0);
  const sdk::Support support = gradients({}).query<AttentionBackwardWgmma>(device);
  ASSERT_NE(support.level, RLK_SUPPORT_NO) << support.reason;
  EXPECT_EQ(support.numerics & (RLK_NUMERICS_DETERMINISTIC | RLK_NUMERICS_BATCH_INVARIANT | RLK_NUMERICS_ACCURATE), 0u);
}

TEST_F(AttentionWgmmaTest, GradientsDeclineWhatTheirKernelsLack) {
  const auto reason = [](const Shape& shape) {
    Device device(0);
    return gradients(shape).query<AttentionBackwardWgmma>(device).reason_code;
  };
  Shape shape;
  shape.head = 132;
  EXPECT_EQ(reason(shape), "HEAD_SIZE");
  shape = {};
  shape.dtype = kF32;
  EXPECT_EQ(reason(shape), "DTYPE");
  EXPECT_EQ(reason({38090, 7, 7, 2, 2, 16}), "WORKSPACE");
  EXPECT_EQ(reason({1904, 7, 7, 2, 2, 16}), "");
  EXPECT_EQ(reason({64, 16384, 16384, 32, 8, 128}), "") << "large tensors, and no more than as large sums";
  cuda::has_tensor_maps = false;
  EXPECT_EQ(reason({}), "TENSOR_MAPS");
  device_arch = "sm_89";
  EXPECT_EQ(reason({}), "ARCH");
}

TEST_F(AttentionWgmmaTest, GradientsOfHeadsUpTo64HaveKernelsOfTheirOwn) {
  const auto blocks = [](int64_t head) {
    Device device(0);
    return gradients({2, 512, 512, 8, 2, head}).launch<AttentionBackwardWgmma>(device).at(1);
  };
  EXPECT_EQ(blocks(40), "attention_gradients_wgmma_bf16_64");
  EXPECT_EQ(blocks(64), "attention_gradients_wgmma_bf16_64");
  EXPECT_EQ(blocks(72), "attention_gradients_wgmma_bf16_128");
}

TEST_F(AttentionWgmmaTest, GradientsOfNoQueriesAndOfNoKeysLaunchWhatWritesZeros) {
  Device device(0);
  using Names = std::vector<std::string>;
  const std::string image = "attention_gradients_wgmma_";
  EXPECT_EQ(gradients({}).launch<AttentionBackwardWgmma>(device),
            (Names{image + "terms_bf16", image + "bf16_128", image + "rows_bf16_128"}));
  EXPECT_EQ(gradients({2, 0, 512, 8, 2, 128}).launch<AttentionBackwardWgmma>(device), (Names{image + "bf16_128"}));
  EXPECT_EQ(gradients({2, 512, 0, 8, 2, 128}).launch<AttentionBackwardWgmma>(device),
            (Names{image + "terms_bf16", image + "rows_bf16_128"}));
}

Arranged<sdk::ops::AttentionBackward> packed_gradients(int64_t sequences, int64_t queries, int64_t keys,
                                                       double softcap = 0) {
  rlk_attention_backward_params params = RLK_ATTENTION_BACKWARD_PARAMS_INIT;
  params.causal = RLK_ATTENTION_BACKWARD_CAUSAL_ON;
  params.layout = RLK_ATTENTION_BACKWARD_LAYOUT_PACKED;
  params.softcap = softcap;
  Arranged<sdk::ops::AttentionBackward> call(params, {sequences, -1, -1, queries, keys, 8, 2, 128});
  const std::vector<int64_t> rows = {queries, 8, 128}, of_keys = {keys, 2, 128};
  call.input(RLK_ATTENTION_BACKWARD_IN_Q, kBf16, rows);
  call.input(RLK_ATTENTION_BACKWARD_IN_K, kBf16, of_keys);
  call.input(RLK_ATTENTION_BACKWARD_IN_V, kBf16, of_keys);
  call.input(RLK_ATTENTION_BACKWARD_IN_OUT, kBf16, rows);
  call.input(RLK_ATTENTION_BACKWARD_IN_LSE, kF32, {queries, 8});
  call.input(RLK_ATTENTION_BACKWARD_IN_GRAD_OUT, kBf16, rows);
  call.input(RLK_ATTENTION_BACKWARD_IN_CU_SEQLENS_Q, {RLK_DTYPE_INT, 64, 1}, {sequences + 1});
  call.input(RLK_ATTENTION_BACKWARD_IN_CU_SEQLENS_K, {RLK_DTYPE_INT, 64, 1}, {sequences + 1});
  call.output(RLK_ATTENTION_BACKWARD_OUT_GRAD_Q, kBf16, rows);
  call.output(RLK_ATTENTION_BACKWARD_OUT_GRAD_K, kBf16, of_keys);
  call.output(RLK_ATTENTION_BACKWARD_OUT_GRAD_V, kBf16, of_keys);
  return call;
}

TEST_F(AttentionWgmmaTest, GradientsOfWideHeadsHaveBlocksOfFewerKeys) {
  Device device(0);
  using Names = std::vector<std::string>;
  const std::string image = "attention_gradients_wgmma_";
  for (const int64_t head : {136, 192, 256}) {
    const Shape shape{2, 500, 700, 8, 2, head};
    cuda::mapped.clear();
    auto call = gradients(shape);
    EXPECT_EQ(call.launch<AttentionBackwardWgmma>(device),
              (Names{image + "terms_bf16", image + "bf16_256", image + "rows_bf16_256"}));
    EXPECT_GT(call.workspace_bytes, uint64_t{2 * 8 * 8 * 64 * 256} * sizeof(float)) << "sums of whole tiles";
    ASSERT_EQ(cuda::mapped.size(), 6u);
    for (const cuda::Mapped& map : cuda::mapped) EXPECT_EQ(map.rows, 64) << map.tokens << " tokens";
  }
}

TEST_F(AttentionWgmmaTest, GradientsWithOptionsHaveKernelsOfTheirOwn) {
  Device device(0);
  using Names = std::vector<std::string>;
  const std::string image = "attention_gradients_options_wgmma_";
  EXPECT_EQ(packed_gradients(3, 900, 700).launch<AttentionBackwardWgmma>(device),
            (Names{image + "plan", image + "terms_bf16", image + "bf16_128", image + "rows_bf16_128"}));
  EXPECT_EQ(packed_gradients(3, 900, 700, 30).launch<AttentionBackwardWgmma>(device),
            (Names{image + "plan", image + "terms_bf16", image + "bf16_128_cap", image + "rows_bf16_128"}));
  EXPECT_EQ(packed_gradients(3, 0, 0).launch<AttentionBackwardWgmma>(device), (Names{image + "plan"}));
  auto masked = gradients({});
  masked.input(RLK_ATTENTION_BACKWARD_IN_KEY_MASK, {RLK_DTYPE_UINT, 8, 1}, {2, 512});
  EXPECT_EQ(masked.launch<AttentionBackwardWgmma>(device),
            (Names{image + "terms_bf16", image + "bf16_128", image + "rows_bf16_128"}));
}

TEST_F(AttentionWgmmaTest, PackedGradientsSumTilesOfAllSequencesBehindEachOther) {
  const auto [blocks, args] =
      told_last<cuda::AttentionGradientOptionsWgmmaArgs, AttentionBackwardWgmma>(packed_gradients(3, 900, 700));
  EXPECT_EQ(args.query_tiles, 15 + 3);
  EXPECT_EQ(blocks, (15u + 3u) * 8u) << "the rows of grad_q";
  EXPECT_EQ(args.call.cu_are_i64, 1);
  ASSERT_NE(args.maps, nullptr);
  EXPECT_EQ(args.call.row_plan, args.row_plan);
  EXPECT_EQ(args.call.key_plan, args.key_plan);
  ASSERT_EQ(cuda::mapped.size(), 6u);
  for (const cuda::Mapped& map : cuda::mapped) EXPECT_EQ(map.sequences, 1) << map.tokens << " tokens";
}

TEST_F(AttentionWgmmaTest, ManyShortPackedSequencesNeedNoTiledSumsFarLargerThanTheirTensors) {
  Device device(0);
  EXPECT_EQ(packed_gradients(64, 32768, 32768).query<AttentionBackwardWgmma>(device).reason_code, "");
  EXPECT_EQ(packed_gradients(32768, 32768, 32768).query<AttentionBackwardWgmma>(device).reason_code, "WORKSPACE");
}

}  // namespace
}  // namespace rlk::simt::host
