// The host side of attention on warpgroup products: what it declines, and what it tells its kernels. The driver's
// tensor maps and the compiled kernels are this test's own.
#include "plugins/cuda/attention_wgmma.hpp"
#include "plugins/cuda/images.hpp"
#include "plugins/cuda/prefix_attention_wgmma.hpp"
#include "tests/unit/simt_host/attention_wgmma_calls.hpp"

namespace rlk::cuda {

const void* image_of(const char* name, int) {
  return has_image ? name : nullptr;
}
sdk::Refusal refuse_tensor_maps() {
  if (has_tensor_maps) return std::nullopt;
  return sdk::Support::no("TENSOR_MAPS", "this test's driver makes none");
}
TensorMap tensor_map(const simt::AttentionTensor& tensor, sdk::Dtype, int64_t columns, int64_t heads, int64_t tokens,
                     int64_t sequences, int rows) {
  mapped.push_back({columns, heads, tokens, sequences, tensor.token_stride, rows, tensor.batch_stride});
  return {};
}

}  // namespace rlk::cuda

namespace rlk::simt::host {
namespace {

using cuda::AttentionWgmma;

rlk_attention_params causal() {
  rlk_attention_params params = RLK_ATTENTION_PARAMS_INIT;
  params.causal = RLK_ATTENTION_CAUSAL_ON;
  return params;
}
Arranged<sdk::ops::Attention> attention(const Shape& s, const rlk_attention_params& params = causal()) {
  Arranged<sdk::ops::Attention> call(params, {s.batch, s.queries, s.keys, -1, -1, s.q_heads, s.kv_heads, s.head});
  call.input(RLK_ATTENTION_IN_Q, s.dtype, {s.batch, s.queries, s.q_heads, s.head});
  call.input(RLK_ATTENTION_IN_K, s.dtype, {s.batch, s.keys, s.kv_heads, s.head});
  call.input(RLK_ATTENTION_IN_V, s.dtype, {s.batch, s.keys, s.kv_heads, s.head});
  call.output(RLK_ATTENTION_OUT_OUT, s.dtype, {s.batch, s.queries, s.q_heads, s.head});
  return call;
}
std::string declined(Arranged<sdk::ops::Attention> call) {
  Device device(0);
  const sdk::Support support = call.query<AttentionWgmma>(device);
  return support.level == RLK_SUPPORT_NO ? support.reason_code : "";
}

TEST_F(AttentionWgmmaTest, ADeviceThatIsNotSm90IsDeclinedByName) {
  for (const char* arch : {"sm_80", "sm_100", "sm_120"}) {
    device_arch = arch;
    Device device(0);
    const sdk::Support support = attention({}).query<AttentionWgmma>(device);
    EXPECT_EQ(support.reason_code, "ARCH");
    EXPECT_NE(support.reason.find(arch), std::string::npos) << support.reason;
  }
}

TEST_F(AttentionWgmmaTest, AMissingImageOrDriverFunctionTurnsItOffByName) {
  EXPECT_EQ(declined(attention({})), "");
  cuda::has_tensor_maps = false;
  EXPECT_EQ(declined(attention({})), "TENSOR_MAPS");
  cuda::has_tensor_maps = true;
  cuda::has_image = false;
  EXPECT_EQ(declined(attention({})), "KERNELS_NOT_BUILT");
}

TEST_F(AttentionWgmmaTest, WhatItsKernelsLackIsDeclined) {
  Shape shape;
  shape.dtype = kF32;
  EXPECT_EQ(declined(attention(shape)), "DTYPE");
  for (const int64_t head : {33, 100, 264}) {
    shape = {};
    shape.head = head;
    EXPECT_EQ(declined(attention(shape)), "HEAD_SIZE") << head;
  }
  rlk_attention_params capped = causal();
  capped.softcap = 0x1p61;
  EXPECT_EQ(declined(attention({}, capped)), "SOFTCAP");
  auto odd = attention({});
  odd.input(RLK_ATTENTION_IN_K).tensor.alignment = 8;
  EXPECT_EQ(declined(std::move(odd)), "ALIGNMENT");
  auto backward = attention({});
  backward.input(RLK_ATTENTION_IN_K).strides[0] *= -1;
  EXPECT_EQ(declined(std::move(backward)), "STRIDES");
  auto repeated = attention({});
  repeated.input(RLK_ATTENTION_IN_K).strides[0] = 0;
  EXPECT_EQ(declined(std::move(repeated)), "");
}

TEST_F(AttentionWgmmaTest, EveryHeadSizeFitsInABlocksSharedMemory) {
  Device device(0);
  for (const rlk_dtype dtype : {kBf16, kF16}) {
    for (const int64_t head : {8, 64, 72, 96, 104, 128, 136, 192, 200, 256}) {
      Shape shape;
      shape.head = head;
      shape.dtype = dtype;
      const std::string padded = std::to_string(cuda::wgmma_padded(head));
      EXPECT_EQ(attention(shape).launch<AttentionWgmma>(device),
                std::vector<std::string>{std::string("attention_wgmma_") +
                                         (dtype.bits == 16 && dtype.code == kBf16.code ? "bf16_" : "f16_") + padded});
    }
  }
}

// What the kernel is told of one execution.
struct Told {
  unsigned blocks = 0;
  cuda::AttentionWgmmaArgs args{};
};
Told told(const Shape& shape, const rlk_attention_params& params) {
  Told seen;
  on_launch = [&seen](unsigned blocks, const void* arguments) {
    seen = {blocks, *static_cast<const cuda::AttentionWgmmaArgs*>(arguments)};
  };
  cuda::mapped.clear();
  Device device(0);
  attention(shape, params).launch<AttentionWgmma>(device);
  on_launch = nullptr;
  return seen;
}

TEST_F(AttentionWgmmaTest, BlocksStayOnTheDeviceUnlessTheTilesAreFewer) {
  EXPECT_EQ(told({2, 512, 512, 8, 2, 128}, causal()).blocks, 64u);
  EXPECT_EQ(told({2, 513, 512, 8, 2, 128}, causal()).blocks, 80u);
  EXPECT_EQ(told({1, 16384, 16384, 32, 8, 128}, causal()).blocks, 132u);
  EXPECT_EQ(told({2, 0, 512, 8, 2, 128}, causal()).blocks, 0u);
}

TEST_F(AttentionWgmmaTest, NarrowHeadsHaveTilesOfThreeWarpgroups) {
  EXPECT_EQ(told({2, 576, 512, 8, 2, 64}, causal()).blocks, 48u);
  EXPECT_EQ(told({2, 577, 512, 8, 2, 40}, causal()).blocks, 64u);
  const std::vector<cuda::Mapped> expected = {
      {40, 8, 577, 2, 320, 192}, {40, 2, 512, 2, 80, 128}, {40, 2, 512, 2, 80, 128}, {40, 8, 577, 2, 320, 64}};
  EXPECT_TRUE(cuda::mapped == expected);
}

TEST_F(AttentionWgmmaTest, TheDiagonalAndTheWindowsAreThoseOfTheCall) {
  rlk_attention_params params = causal();
  Told seen = told({1, 100, 300, 2, 2, 128}, params);
  EXPECT_EQ(seen.args.diagonal, 200);
  EXPECT_EQ(seen.args.window_left, cuda::kWgmmaMostTokens);
  EXPECT_EQ(seen.args.window_right, 0);
  params.causal_alignment = RLK_ATTENTION_CAUSAL_ALIGNMENT_TOP_LEFT;
  EXPECT_EQ(told({1, 100, 300, 2, 2, 128}, params).args.diagonal, 0);
  params = RLK_ATTENTION_PARAMS_INIT;
  params.window_left = 7;
  params.window_right = int64_t{1} << 62;
  seen = told({1, 300, 100, 2, 2, 128}, params);
  EXPECT_EQ(seen.args.diagonal, -200);
  EXPECT_EQ(seen.args.window_left, 7);
  EXPECT_EQ(seen.args.window_right, cuda::kWgmmaMostTokens);
}

TEST_F(AttentionWgmmaTest, TheMapsCarryTheTensorsSizesAndTheKernelsTiles) {
  told({3, 500, 700, 8, 2, 80}, causal());
  const std::vector<cuda::Mapped> expected = {
      {80, 8, 500, 3, 640, 128}, {80, 2, 700, 3, 160, 128}, {80, 2, 700, 3, 160, 128}, {80, 8, 500, 3, 640, 64}};
  EXPECT_TRUE(cuda::mapped == expected);
  told({3, 500, 0, 8, 2, 80}, causal());
  EXPECT_EQ(cuda::mapped.size(), 2u) << "no map can be made of no keys";
}

// --- The accurate kernels
// ---------------------------------------------------------------------------------------------

using cuda::AttentionWgmmaAccurate;

TEST_F(AttentionWgmmaTest, TheAccurateKernelsHaveTilesOfTheirOwnForEveryHeadUpTo128) {
  Device device(0);
  const auto kernel = [&](int64_t head) {
    Shape shape;
    shape.head = head;
    return attention(shape).launch<AttentionWgmmaAccurate>(device).front();
  };
  const std::string family = "attention_accurate_wgmma_bf16_";
  EXPECT_EQ(kernel(8), family + "64");
  EXPECT_EQ(kernel(72), family + "96");
  EXPECT_EQ(kernel(128), family + "128");
  const cuda::WgmmaTiles tiles = cuda::wgmma_accurate_tiles(128);
  cuda::mapped.clear();
  attention({2, 512, 512, 8, 2, 128}).launch<AttentionWgmmaAccurate>(device);
  EXPECT_EQ(cuda::mapped.front().rows, tiles.rows());
  EXPECT_EQ(cuda::mapped[1].rows, tiles.keys);
  EXPECT_LT(tiles.keys, cuda::wgmma_tiles(128).keys);
}

TEST_F(AttentionWgmmaTest, TheAccurateKernelsClaimTheClassAndDeclineWhatTheyLack) {
  Device device(0);
  const auto query = [&](Arranged<sdk::ops::Attention> call) { return call.query<AttentionWgmmaAccurate>(device); };
  EXPECT_NE(query(attention({})).numerics & RLK_NUMERICS_ACCURATE, 0u);
  EXPECT_EQ(attention({}).query<AttentionWgmma>(device).numerics & RLK_NUMERICS_ACCURATE, 0u);
  // Of a call that demands no class the rounded ones are taken.
  EXPECT_GT(query(attention({})).cost_us, attention({}).query<AttentionWgmma>(device).cost_us);
  Shape wide;
  wide.head = 136;
  EXPECT_EQ(query(attention(wide)).reason_code, "HEAD_SIZE");
  rlk_attention_params params = causal();
  params.softcap = 30;
  EXPECT_EQ(query(attention({}, params)).reason_code, "SOFTCAP");
  auto masked = attention({});
  masked.input(RLK_ATTENTION_IN_KEY_MASK, {RLK_DTYPE_UINT, 8, 1}, {2, 512});
  EXPECT_EQ(query(std::move(masked)).reason_code, "KEY_MASK");
}

// --- Packed sequences, softcaps and key masks ------------------------------------------------------------------------

Arranged<sdk::ops::Attention> packed(int64_t sequences, int64_t queries, int64_t keys,
                                     rlk_attention_params params = causal()) {
  params.layout = RLK_ATTENTION_LAYOUT_PACKED;
  Arranged<sdk::ops::Attention> call(params, {sequences, -1, -1, queries, keys, 8, 2, 128});
  call.input(RLK_ATTENTION_IN_Q, kBf16, {queries, 8, 128});
  call.input(RLK_ATTENTION_IN_K, kBf16, {keys, 2, 128});
  call.input(RLK_ATTENTION_IN_V, kBf16, {keys, 2, 128});
  call.input(RLK_ATTENTION_IN_CU_SEQLENS_Q, {RLK_DTYPE_INT, 32, 1}, {sequences + 1});
  call.input(RLK_ATTENTION_IN_CU_SEQLENS_K, {RLK_DTYPE_INT, 32, 1}, {sequences + 1});
  call.output(RLK_ATTENTION_OUT_OUT, kBf16, {queries, 8, 128});
  return call;
}
TEST_F(AttentionWgmmaTest, OptionsHaveKernelsOfTheirOwn) {
  Device device(0);
  using Names = std::vector<std::string>;
  const std::string options = "attention_options_wgmma_", mask = "attention_mask_wgmma_";
  EXPECT_EQ(packed(3, 900, 700).launch<AttentionWgmma>(device), (Names{options + "plan", options + "bf16_128"}));
  EXPECT_EQ(packed(3, 0, 700).launch<AttentionWgmma>(device), (Names{options + "plan"})) << "cu_seqlens are checked";
  rlk_attention_params capped = causal();
  capped.softcap = 30;
  EXPECT_EQ(packed(3, 900, 700, capped).launch<AttentionWgmma>(device),
            (Names{options + "plan", options + "bf16_128_cap"}));
  EXPECT_EQ(attention({}, capped).launch<AttentionWgmma>(device), (Names{options + "bf16_128_cap"}));
  for (const auto& params : {causal(), capped}) {
    auto masked = attention({}, params);
    masked.input(RLK_ATTENTION_IN_KEY_MASK, {RLK_DTYPE_UINT, 8, 1}, {2, 512});
    EXPECT_EQ(masked.launch<AttentionWgmma>(device), (Names{mask + "bf16_128" + (params.softcap > 0 ? "_cap" : "")}));
  }
}

TEST_F(AttentionWgmmaTest, PackedSequencesAreMappedAsOneAndTakeABlockForEachTileTheyMayHave) {
  using Args = cuda::AttentionOptionsWgmmaArgs;
  const auto [blocks, args] = told_last<Args, AttentionWgmma>(packed(3, 900, 700));
  EXPECT_EQ(blocks, (8u + 3u) * 8u);
  EXPECT_EQ((told_last<Args, AttentionWgmma>(packed(3, 90000, 700)).first), 132u);
  EXPECT_EQ(args.call.block_rows, cuda::kWgmmaRows);
  EXPECT_EQ(args.call.group, 1) << "tiles are of one head";
  ASSERT_NE(args.maps, nullptr);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(args.maps) % 128, reinterpret_cast<uintptr_t>(args.call.plan) % 128);
  told_last<Args, AttentionWgmma>(packed(3, 900, 700));
  const std::vector<cuda::Mapped> expected = {
      {128, 8, 900, 1, 1024, 128}, {128, 2, 700, 1, 256, 128}, {128, 2, 700, 1, 256, 128}, {128, 8, 900, 1, 1024, 64}};
  EXPECT_TRUE(cuda::mapped == expected);
}

TEST_F(AttentionWgmmaTest, ASoftcapIsASeriesOfTheProduct) {
  rlk_attention_params capped = causal();
  capped.softcap = 2;
  capped.scale = 0.25;
  const auto args = told_last<cuda::AttentionOptionsWgmmaArgs, AttentionWgmma>(attention({}, capped)).second;
  EXPECT_FLOAT_EQ(args.scale, 0.25f * 1.44269504f) << "as without one";
  EXPECT_EQ(args.maps, nullptr) << "dense";
  EXPECT_FLOAT_EQ(args.softcap.most, 4) << "where tanh is of 1/2";
  for (const double x : {0.1, 1.0, 2.5, 4.0}) {
    double sum = 1, power = 1;
    for (const float factor : args.softcap.factors) sum += factor * (power *= x * x);
    EXPECT_NEAR(x * sum * 0.25, 2 * std::tanh(x * 0.25 / 2), 1e-7 * x) << x;
  }
}

TEST_F(AttentionWgmmaTest, ASoftcapFarFromTheScoresHasNoSeries) {
  const auto softcap = [](double cap, double scale) {
    rlk_attention_params capped = causal();
    capped.softcap = cap;
    capped.scale = scale;
    return told_last<cuda::AttentionOptionsWgmmaArgs, AttentionWgmma>(attention({}, capped)).second.softcap;
  };
  EXPECT_LT(softcap(0x1p60, 0.1).most, 0);
  EXPECT_LT(softcap(0x1p-60, 0.1).most, 0);
  EXPECT_EQ(softcap(0x1p-60, 0x1p60).inner, 0x1p120f);
  EXPECT_GT(softcap(300, 0.0884).most, 0);
}

TEST_F(AttentionWgmmaTest, ManyShortPackedSequencesCostWhatTheirWholeTilesCost) {
  Device device(0);
  const auto cost = [&device](int64_t sequences) {
    return packed(sequences, 4096, 4096).query<AttentionWgmma>(device).cost_us;
  };
  EXPECT_GT(cost(4096) * 4096, cost(8) * 8) << "a sequence's share of the pairs is less, its tile is not";
}

// --- Samples that share a prefix -------------------------------------------------------------------------------------

using cuda::PrefixSharedAttentionWgmma;

Arranged<sdk::ops::PrefixSharedAttention> samples(int64_t queries, int64_t prefix, int64_t own, int64_t head = 128) {
  rlk_prefix_shared_attention_params params = RLK_PREFIX_SHARED_ATTENTION_PARAMS_INIT;
  params.causal = RLK_PREFIX_SHARED_ATTENTION_CAUSAL_ON;
  Arranged<sdk::ops::PrefixSharedAttention> call(params, {2, 3, queries, prefix, own, 8, 2, head});
  call.input(RLK_PREFIX_SHARED_ATTENTION_IN_Q, kBf16, {2, 3, queries, 8, head});
  call.input(RLK_PREFIX_SHARED_ATTENTION_IN_PREFIX_K, kBf16, {2, prefix, 2, head});
  call.input(RLK_PREFIX_SHARED_ATTENTION_IN_PREFIX_V, kBf16, {2, prefix, 2, head});
  call.input(RLK_PREFIX_SHARED_ATTENTION_IN_K, kBf16, {2, 3, own, 2, head});
  call.input(RLK_PREFIX_SHARED_ATTENTION_IN_V, kBf16, {2, 3, own, 2, head});
  call.output(RLK_PREFIX_SHARED_ATTENTION_OUT_OUT, kBf16, {2, 3, queries, 8, head});
  return call;
}

TEST_F(AttentionWgmmaTest, SamplesOfAllGroupsAreSequencesAndTheirPrefixesAreNot) {
  cuda::PrefixAttentionWgmmaArgs seen{};
  on_launch = [&seen](unsigned, const void* arguments) {
    seen = *static_cast<const cuda::PrefixAttentionWgmmaArgs*>(arguments);
  };
  cuda::mapped.clear();
  Device device(0);
  EXPECT_EQ(samples(500, 700, 600, 40).launch<PrefixSharedAttentionWgmma>(device),
            std::vector<std::string>{"prefix_attention_wgmma_bf16_64"});
  const std::vector<cuda::Mapped> expected = {{40, 8, 500, 6, 320, 128}, {40, 8, 500, 6, 320, 64},
                                              {40, 2, 600, 6, 80, 128},  {40, 2, 600, 6, 80, 128},
                                              {40, 2, 700, 2, 80, 128},  {40, 2, 700, 2, 80, 128}};
  EXPECT_TRUE(cuda::mapped == expected);
  EXPECT_EQ(seen.sequences, 6);
  EXPECT_EQ(seen.samples, 3);
  EXPECT_EQ(seen.diagonal, 800);
  EXPECT_EQ(seen.prefix_keys, 700);
  EXPECT_EQ(seen.keys, 600);
  cuda::mapped.clear();
  samples(500, 0, 0).launch<PrefixSharedAttentionWgmma>(device);
  EXPECT_EQ(cuda::mapped.size(), 2u) << "no map can be made of no keys";
}

// A contiguous tensor may say anything of the stride of a single one: torch keeps what a transposition left there.
TEST_F(AttentionWgmmaTest, TheStrideOfAnOnlySampleIsNotFollowed) {
  constexpr int64_t kTokens = 500, kHeads = 8, kHead = 128;
  Device device(0);
  Arranged<sdk::ops::PrefixSharedAttention> call(RLK_PREFIX_SHARED_ATTENTION_PARAMS_INIT,
                                                 {2, 1, kTokens, 64, kTokens, kHeads, kHeads, kHead});
  for (const uint32_t own :
       {RLK_PREFIX_SHARED_ATTENTION_IN_Q, RLK_PREFIX_SHARED_ATTENTION_IN_K, RLK_PREFIX_SHARED_ATTENTION_IN_V}) {
    call.input(own, kBf16, {2, 1, kTokens, kHeads, kHead});
    call.input(own).strides[1] = 2 * kTokens * kHeads * kHead;
  }
  call.input(RLK_PREFIX_SHARED_ATTENTION_IN_PREFIX_K, kBf16, {2, 64, kHeads, kHead});
  call.input(RLK_PREFIX_SHARED_ATTENTION_IN_PREFIX_V, kBf16, {2, 64, kHeads, kHead});
  call.output(RLK_PREFIX_SHARED_ATTENTION_OUT_OUT, kBf16, {2, 1, kTokens, kHeads, kHead});
  call.output(RLK_PREFIX_SHARED_ATTENTION_OUT_OUT).strides[1] = 7;
  cuda::mapped.clear();
  call.launch<PrefixSharedAttentionWgmma>(device);
  ASSERT_EQ(cuda::mapped.size(), 6u);
  for (const cuda::Mapped& map : cuda::mapped) {
    EXPECT_EQ(map.sequence_stride, map.tokens * kHeads * kHead) << map.tokens << " tokens";
  }
}

TEST_F(AttentionWgmmaTest, TheDriverGetsMultiplesOf16ForTheStridesOfSingleOnes) {
  using Strides = std::array<uint64_t, 3>;
  EXPECT_EQ(cuda::map_strides({nullptr, 4096, 512, 64}, 64, 8, 8, 2), (Strides{128, 1024, 8192}));
  EXPECT_EQ(cuda::map_strides({nullptr, 4099, 512, 64}, 64, 8, 8, 1), (Strides{128, 1024, 128}));
  EXPECT_EQ(cuda::map_strides({nullptr, 64, -3, 1}, 64, 1, 1, 2), (Strides{128, 128, 128}));
  EXPECT_EQ(cuda::map_strides({nullptr, 0, 512, 0}, 64, 8, 8, 2), (Strides{0, 1024, 0})) << "repeated ones stay so";
  auto single = attention({1});
  for (const uint32_t input : {RLK_ATTENTION_IN_Q, RLK_ATTENTION_IN_K, RLK_ATTENTION_IN_V}) {
    single.input(input).strides[0] = -7;
  }
  EXPECT_EQ(declined(std::move(single)), "");
}

TEST_F(AttentionWgmmaTest, SamplesDeclineWhatTheirKernelsLack) {
  const auto reason = [](Arranged<sdk::ops::PrefixSharedAttention> call) {
    Device device(0);
    return call.query<PrefixSharedAttentionWgmma>(device).reason_code;
  };
  EXPECT_EQ(reason(samples(500, 700, 600)), "");
  EXPECT_EQ(reason(samples(500, 700, 600, 136)), "HEAD_SIZE");
  auto masked = samples(500, 700, 600);
  masked.input(RLK_PREFIX_SHARED_ATTENTION_IN_PREFIX_MASK, {RLK_DTYPE_UINT, 8, 1}, {2, 700});
  EXPECT_EQ(reason(std::move(masked)), "KEY_MASK");
  auto apart = samples(500, 700, 600);
  apart.input(RLK_PREFIX_SHARED_ATTENTION_IN_K).strides[0] += 128;
  EXPECT_EQ(reason(std::move(apart)), "STRIDES");
  auto far = samples(500, 700, 600);
  far.input(RLK_PREFIX_SHARED_ATTENTION_IN_PREFIX_K).strides[0] += 128;
  EXPECT_EQ(reason(std::move(far)), "") << "prefixes of groups have a dimension of their own";
  auto stepped = samples(500, 700, 600);
  for (int64_t& stride : stepped.input(RLK_PREFIX_SHARED_ATTENTION_IN_PREFIX_K).strides) stride *= 2;
  EXPECT_EQ(reason(std::move(stepped)), "ALIGNMENT") << "columns that do not lie side by side";
  device_arch = "sm_80";
  EXPECT_EQ(reason(samples(500, 700, 600)), "ARCH");
}

}  // namespace
}  // namespace rlk::simt::host
