// The host side of grouped products by pairs of blocks: what it declines, and what it tells the kernels of their
// operands.
#include "plugins/cuda/kernels/grouped_pairs.h"
#include "plugins/cuda/grouped_mma.hpp"
#include "tests/unit/simt_host/attention_wgmma_calls.hpp"

namespace rlk::simt::host {
namespace {

using cuda::GroupedGemmBackwardWgmma;
using cuda::GroupedGemmMma;
using cuda::GroupedGemmWgmma;
using cuda::GroupedPairArgs;
using cuda::Mapped;
using Names = std::vector<std::string>;
using Forward = sdk::ops::GroupedGemm;
using Backward = sdk::ops::GroupedGemmBackward;

class GroupedPairsTest : public AttentionWgmmaTest {};

struct Sizes {
  int64_t groups = 4, rows = 1000, inner = 512, columns = 768;  // E, R, K, M
  rlk_dtype dtype = kBf16;
};
Arranged<Forward> forward_of(const Sizes& s) {
  Arranged<Forward> call(RLK_GROUPED_GEMM_PARAMS_INIT, {s.groups, s.rows, s.inner, s.columns});
  call.input(RLK_GROUPED_GEMM_IN_X, s.dtype, {s.rows, s.inner});
  call.input(RLK_GROUPED_GEMM_IN_WEIGHT, s.dtype, {s.groups, s.columns, s.inner});
  call.input(RLK_GROUPED_GEMM_IN_CU_SEQLENS, kI64, {s.groups + 1});
  call.output(RLK_GROUPED_GEMM_OUT_Y, s.dtype, {s.rows, s.columns});
  return call;
}
// The same with a weight whose lines are of y.
Arranged<Forward> turned_of(const Sizes& s) {
  auto call = forward_of(s);
  auto& weight = call.input(RLK_GROUPED_GEMM_IN_WEIGHT);
  weight.strides[1] = 1;
  weight.strides[2] = s.columns;
  return call;
}
Arranged<Backward> backward_of(const Sizes& s, bool sums) {
  Arranged<Backward> call(RLK_GROUPED_GEMM_BACKWARD_PARAMS_INIT, {s.groups, s.rows, s.inner, s.columns});
  call.input(RLK_GROUPED_GEMM_BACKWARD_IN_GRAD_Y, s.dtype, {s.rows, s.columns});
  call.input(RLK_GROUPED_GEMM_BACKWARD_IN_X, s.dtype, {s.rows, s.inner});
  call.input(RLK_GROUPED_GEMM_BACKWARD_IN_WEIGHT, s.dtype, {s.groups, s.columns, s.inner});
  call.input(RLK_GROUPED_GEMM_BACKWARD_IN_CU_SEQLENS, kI64, {s.groups + 1});
  call.output(RLK_GROUPED_GEMM_BACKWARD_OUT_GRAD_X, s.dtype, {s.rows, s.inner});
  if (sums) {
    call.output(RLK_GROUPED_GEMM_BACKWARD_OUT_GRAD_WEIGHT, kF32, {s.groups, s.columns, s.inner});
  }
  return call;
}
std::string declined(Arranged<Forward> call) {
  Device device(0);
  const sdk::Support support = call.query<GroupedGemmWgmma>(device);
  return support.level == RLK_SUPPORT_NO ? support.reason_code : "";
}

TEST_F(GroupedPairsTest, WhatMapsCannotDescribeIsDeclinedByName) {
  EXPECT_EQ(declined(forward_of({})), "");
  EXPECT_EQ(declined(turned_of({})), "");
  EXPECT_EQ(declined(forward_of({4, 1000, 512, 768, kF32})), "DTYPE");
  auto backwards = forward_of({});
  backwards.input(RLK_GROUPED_GEMM_IN_X).strides[0] = -512;
  EXPECT_EQ(declined(std::move(backwards)), "STRIDES");
  auto far = turned_of({});
  far.input(RLK_GROUPED_GEMM_IN_WEIGHT).strides[2] = int64_t{1} << 40;
  EXPECT_EQ(declined(std::move(far)), "STRIDES") << "the dimension of lines is the last one here";
  EXPECT_EQ(declined(forward_of({4, (int64_t{1} << 30) + 8, 512, 768})), "SIZES");
  device_has[kShared] = 163840;
  EXPECT_EQ(declined(forward_of({})), "SHARED_MEMORY");
  device_has[kShared] = 232448;
  device_arch = "sm_100";
  EXPECT_EQ(declined(forward_of({})), "ARCH");
}

TEST_F(GroupedPairsTest, ADriverWithoutMapsServesWhatNeedsNone) {
  cuda::has_tensor_maps = false;
  EXPECT_EQ(declined(forward_of({})), "TENSOR_MAPS");
  EXPECT_EQ(declined(forward_of({4, 1000, 510, 770})), "") << "elements are fetched one by one";
  Device device(0);
  EXPECT_NE(forward_of({}).query<GroupedGemmMma>(device).level, RLK_SUPPORT_NO);
  EXPECT_EQ(backward_of({}, false).query<GroupedGemmBackwardWgmma>(device).reason_code, std::string("TENSOR_MAPS"));
}

TEST_F(GroupedPairsTest, LinesOfTheWeightChooseTheKernel) {
  Device device(0);
  EXPECT_EQ(forward_of({}).launch<GroupedGemmWgmma>(device), Names{"grouped_wgmma_pairs_inner_bf16"});
  EXPECT_EQ(turned_of({}).launch<GroupedGemmWgmma>(device), Names{"grouped_wgmma_pairs_outer_bf16"});
  EXPECT_EQ(forward_of({4, 1000, 510, 768, kF16}).launch<GroupedGemmWgmma>(device),
            Names{"grouped_wgmma_rows_any_f16"});
  EXPECT_EQ(forward_of({}).launch<GroupedGemmMma>(device), Names{"grouped_mma_rows_inner_bf16"});
  EXPECT_EQ(backward_of({}, false).launch<GroupedGemmBackwardWgmma>(device), Names{"grouped_wgmma_pairs_outer_bf16"});
}

TEST_F(GroupedPairsTest, AllBlocksComeInTwosAndMapsHaveTheirBoxes) {
  const auto [blocks, args] = told_last<GroupedPairArgs, GroupedGemmWgmma>(forward_of({}));
  EXPECT_EQ(blocks, 36u) << "up to 12 tiles of rows, and 3 of columns";
  EXPECT_EQ(args.column_tiles, 3);
  EXPECT_EQ(args.of.rows, 1000);
  EXPECT_EQ(cuda::mapped, (std::vector<Mapped>{{512, 1, 1000, 1, 512, 64}, {512, 1, 768, 4, 512, 128}}));
  EXPECT_EQ(cuda::mapped.back().sequence_stride, 512 * 768);
  EXPECT_EQ((told_last<GroupedPairArgs, GroupedGemmWgmma>(turned_of({})).first), 36u);
  EXPECT_EQ(cuda::mapped, (std::vector<Mapped>{{512, 1, 1000, 1, 512, 64}, {768, 1, 512, 4, 768, 64}}));
  EXPECT_EQ((told_last<GroupedPairArgs, GroupedGemmWgmma>(forward_of({1, 8, 64, 64})).first), 2u);
  EXPECT_EQ((told_last<GroupedPairArgs, GroupedGemmWgmma>(forward_of({32, 8192, 64, 4096})).first), 132u);
  device_has[kMultiprocessors] = 7;
  EXPECT_EQ((told_last<GroupedPairArgs, GroupedGemmWgmma>(forward_of({32, 8192, 64, 4096})).first), 6u);
}

TEST_F(GroupedPairsTest, SumsWithoutElementsAreNotLaunched) {
  Device device(0);
  for (const Sizes& sizes : {Sizes{4, 1000, 0, 768}, Sizes{4, 1000, 512, 0}}) {
    EXPECT_EQ(backward_of(sizes, true).launch<GroupedGemmBackwardWgmma>(device).size(), 1u)
        << "the gradient of x tells bad groups";
  }
  EXPECT_EQ(backward_of({}, true).launch<GroupedGemmBackwardWgmma>(device).size(), 2u);
}

TEST_F(GroupedPairsTest, NothingIsMappedOfTensorsWithoutElements) {
  EXPECT_EQ((told_last<GroupedPairArgs, GroupedGemmWgmma>(forward_of({4, 0, 512, 768})).first), 12u)
      << "bad groups are still to be told";
  EXPECT_EQ(cuda::mapped, (std::vector<Mapped>{{512, 1, 768, 4, 512, 128}}));
}

}  // namespace
}  // namespace rlk::simt::host
