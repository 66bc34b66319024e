// The host side of linear_logp on warpgroup products: what it declines, and what it tells its kernels.
#include "plugins/cuda/linear_logp_wgmma.hpp"
#include "plugins/cuda/kernels/linear_logp_wgmma.h"
#include "tests/unit/simt_host/attention_wgmma_calls.hpp"

namespace rlk::simt::host {
namespace {

using cuda::LinearLogpWgmma;
using cuda::LinearLogpWgmmaArgs;
using Names = std::vector<std::string>;

class LinearLogpWgmmaTest : public AttentionWgmmaTest {};

struct Sizes {
  int64_t rows = 1000, vocab = 5000, inner = 512;
  rlk_dtype dtype = kBf16, logp = kF32;
};
Arranged<sdk::ops::LinearLogp> call_of(const Sizes& s,
                                       const rlk_linear_logp_params& params = RLK_LINEAR_LOGP_PARAMS_INIT) {
  Arranged<sdk::ops::LinearLogp> call(params, {s.rows, s.vocab, s.inner});
  call.input(RLK_LINEAR_LOGP_IN_HIDDEN, s.dtype, {s.rows, s.inner});
  call.input(RLK_LINEAR_LOGP_IN_WEIGHT, s.dtype, {s.vocab, s.inner});
  call.input(RLK_LINEAR_LOGP_IN_IDS, kI64, {s.rows});
  call.output(RLK_LINEAR_LOGP_OUT_LOGP, s.logp, {s.rows});
  return call;
}
std::string declined(Arranged<sdk::ops::LinearLogp> call) {
  Device device(0);
  const sdk::Support support = call.query<LinearLogpWgmma>(device);
  return support.level == RLK_SUPPORT_NO ? support.reason_code : "";
}

TEST_F(LinearLogpWgmmaTest, WhatItsKernelsLackIsDeclinedByName) {
  EXPECT_EQ(declined(call_of({})), "");
  EXPECT_EQ(declined(call_of({10, 10, 64, kF32})), "DTYPE");
  EXPECT_EQ(declined(call_of({10, 10, 60})), "SIZES") << "rows of 120 bytes";
  EXPECT_EQ(declined(call_of({10, 10, 64, kF16, kF32})), "PRECISION");
  EXPECT_EQ(declined(call_of({10, 10, 64, kF16, kF16})), "");
  auto kept = call_of({});
  kept.input(RLK_LINEAR_LOGP_IN_KEEP_MASK, {RLK_DTYPE_UINT, 8, 1}, {1000, 5000});
  EXPECT_EQ(declined(std::move(kept)), "INPUT");
  auto squares = call_of({});
  squares.output(RLK_LINEAR_LOGP_OUT_SUM_P2, kF32, {1000});
  EXPECT_EQ(declined(std::move(squares)), "OUTPUT");
  auto odd = call_of({});
  odd.input(RLK_LINEAR_LOGP_IN_WEIGHT).tensor.alignment = 8;
  EXPECT_EQ(declined(std::move(odd)), "ALIGNMENT");
  rlk_linear_logp_params params = RLK_LINEAR_LOGP_PARAMS_INIT;
  params.softcap = 0x1p61;
  EXPECT_EQ(declined(call_of({}, params)), "SOFTCAP");
  device_arch = "sm_100";
  EXPECT_EQ(declined(call_of({})), "ARCH");
}

TEST_F(LinearLogpWgmmaTest, EntropyAndWhatBendsScoresHaveKernelsOfTheirOwn) {
  Device device(0);
  const std::string name = "linear_logp_wgmma_bf16_", merge = "linear_logp_wgmma_merge_bf16";
  EXPECT_EQ(call_of({}).launch<LinearLogpWgmma>(device), (Names{name + "plain", merge}));
  auto entropy = call_of({});
  entropy.output(RLK_LINEAR_LOGP_OUT_ENTROPY, kF32, {1000});
  EXPECT_EQ(entropy.launch<LinearLogpWgmma>(device), (Names{name + "entropy", merge}));
  entropy.input(RLK_LINEAR_LOGP_IN_BIAS, kBf16, {5000});
  EXPECT_EQ(entropy.launch<LinearLogpWgmma>(device), (Names{name + "transform", merge}));
  EXPECT_EQ(call_of({0}).launch<LinearLogpWgmma>(device), Names{});
  EXPECT_EQ(call_of({1000, 0}).launch<LinearLogpWgmma>(device), Names{merge}) << "no map can be made of no entries";
}

TEST_F(LinearLogpWgmmaTest, BlocksStayOnTheDeviceUnlessTheTilesAreFewer) {
  const auto told = [](const Sizes& s) {
    std::pair<unsigned, LinearLogpWgmmaArgs> seen{};
    on_launch = [&seen](unsigned blocks, const void* arguments) {
      if (launched.size() == 1) seen = {blocks, *static_cast<const LinearLogpWgmmaArgs*>(arguments)};
    };
    cuda::mapped.clear();
    Device device(0);
    call_of(s).launch<LinearLogpWgmma>(device);
    on_launch = nullptr;
    return seen;
  };
  const auto [blocks, args] = told({1000, 5000, 520});
  EXPECT_EQ(blocks, 132u) << "of 8 x 27 tiles";
  EXPECT_EQ(args.row_tiles, 8);
  EXPECT_EQ(args.column_tiles, 27);
  EXPECT_EQ(args.slabs, 9);
  EXPECT_EQ(cuda::mapped, (std::vector<cuda::Mapped>{{520, 1, 1000, 1, 520, 128}, {520, 1, 5000, 1, 520, 192}}));
  EXPECT_EQ(told({1000, 257, 520}).first, 16u);
  EXPECT_EQ(told({100, 257, 520}).first, 2u);
}

TEST_F(LinearLogpWgmmaTest, RowsWhoseStatisticsHaveNoRoomAreAnotherLaunchs) {
  std::vector<LinearLogpWgmmaArgs> seen;
  on_launch = [&seen](unsigned, const void* arguments) {
    seen.push_back(*static_cast<const LinearLogpWgmmaArgs*>(arguments));
  };
  Device device(0);
  auto call = call_of({40000, 151936, 64});
  call.launch<LinearLogpWgmma>(device);
  on_launch = nullptr;
  EXPECT_LE(call.workspace_bytes, uint64_t{66} << 20);
  ASSERT_EQ(seen.size(), 8u);
  EXPECT_EQ(seen[0].tokens.rows, 10112) << "whole tiles of rows";
  EXPECT_EQ(seen[2].first_row, 10112);
  EXPECT_EQ(static_cast<const int64_t*>(seen[2].tokens.ids) - static_cast<const int64_t*>(seen[0].tokens.ids), 10112);
  EXPECT_EQ(static_cast<const float*>(seen[2].logp) - static_cast<const float*>(seen[0].logp), 10112);
  EXPECT_EQ(seen[6].tokens.rows, 40000 - 3 * 10112);
}

}  // namespace
}  // namespace rlk::simt::host
