// The host side of linear_logp_backward on warpgroup products: what it declines, what it tells its kernels, and that it
// asks for no more memory than the chunks whose scores are in memory. The library of products is this test's own.
#include "plugins/cuda/linear_logp_backward_wgmma.hpp"
#include "plugins/cuda/kernels/linear_slopes_wgmma.h"
#include "plugins/products/operators.hpp"
#include "tests/unit/simt_host/attention_wgmma_calls.hpp"

#include "plugins/products/library.hpp"

namespace rlk::products {

const Library& library() {
  static const Library table = [] {
    Library made;
    made.name = "Acme products";
#define RLK_TEST_FUNCTION(result, member, parameters) made.member = [](auto...) -> result { return 0; };
    RLK_PRODUCTS_FUNCTIONS(RLK_TEST_FUNCTION)
#undef RLK_TEST_FUNCTION
    made.choose = [](Handle, Description, Layout, Layout, Layout, Layout, Preference, int, void*, int* count) {
      return *count = 1, 0;
    };
    made.multiply = [](auto...) -> Status { return simt::host::launched.push_back("product"), 0; };
    made.numbers.reductions = 3;
    return made;
  }();
  return table;
}

}  // namespace rlk::products

namespace rlk::simt::host {
namespace {

using Op = sdk::ops::LinearLogpBackward;
using cuda::LinearLogpBackwardWgmma;
using cuda::LinearSlopesWgmmaArgs;
using Names = std::vector<std::string>;

struct Acme {
  [[maybe_unused]] static constexpr const char* kName = "acme";
};
using Chunks = products::Implementation<Acme, Op>;

class LinearLogpBackwardWgmmaTest : public AttentionWgmmaTest {};

struct Sizes {
  int64_t rows = 1000, vocab = 5000, inner = 512;
  rlk_dtype dtype = kBf16;
};
Arranged<Op> call_of(const Sizes& s,
                     const rlk_linear_logp_backward_params& params = RLK_LINEAR_LOGP_BACKWARD_PARAMS_INIT) {
  Arranged<Op> call(params, {s.rows, s.vocab, s.inner});
  call.input(RLK_LINEAR_LOGP_BACKWARD_IN_HIDDEN, s.dtype, {s.rows, s.inner});
  call.input(RLK_LINEAR_LOGP_BACKWARD_IN_WEIGHT, s.dtype, {s.vocab, s.inner});
  call.input(RLK_LINEAR_LOGP_BACKWARD_IN_IDS, kI64, {s.rows});
  call.input(RLK_LINEAR_LOGP_BACKWARD_IN_LSE, kF32, {s.rows});
  call.input(RLK_LINEAR_LOGP_BACKWARD_IN_GRAD_LOGP, kF32, {s.rows});
  call.output(RLK_LINEAR_LOGP_BACKWARD_OUT_GRAD_HIDDEN, s.dtype, {s.rows, s.inner});
  call.output(RLK_LINEAR_LOGP_BACKWARD_OUT_GRAD_WEIGHT, kF32, {s.vocab, s.inner});
  return call;
}
Arranged<Op> with_entropy(const Sizes& s) {
  auto call = call_of(s);
  call.input(RLK_LINEAR_LOGP_BACKWARD_IN_ENTROPY, kF32, {s.rows});
  call.input(RLK_LINEAR_LOGP_BACKWARD_IN_GRAD_ENTROPY, kF32, {s.rows});
  return call;
}
sdk::Support answer(Arranged<Op> call) {
  Device device(0);
  return call.query<LinearLogpBackwardWgmma>(device);
}
std::string declined(Arranged<Op> call) {
  const sdk::Support support = answer(std::move(call));
  return support.level == RLK_SUPPORT_NO ? support.reason_code : "";
}

TEST_F(LinearLogpBackwardWgmmaTest, WhatItsKernelsLackIsDeclinedByName) {
  EXPECT_EQ(declined(call_of({})), "");
  EXPECT_EQ(declined(call_of({10, 37, 64})), "") << "rows of slopes are padded to whole accesses";
  EXPECT_EQ(declined(call_of({10, 10, 64, kF32})), "DTYPE");
  EXPECT_EQ(declined(call_of({10, 10, 64, kF16})), "PRECISION");
  EXPECT_EQ(declined(call_of({10, 10, 60})), "SIZES") << "rows of 120 bytes";
  EXPECT_EQ(declined(call_of({10, 0, 64})), "SIZES");
  auto kept = call_of({});
  kept.input(RLK_LINEAR_LOGP_BACKWARD_IN_KEEP_MASK, {RLK_DTYPE_UINT, 8, 1}, {1000, 5000});
  EXPECT_EQ(declined(std::move(kept)), "INPUT");
  auto biased = call_of({});
  biased.output(RLK_LINEAR_LOGP_BACKWARD_OUT_GRAD_BIAS, kF32, {5000});
  EXPECT_EQ(declined(std::move(biased)), "OUTPUT");
  auto odd = call_of({});
  odd.input(RLK_LINEAR_LOGP_BACKWARD_IN_WEIGHT).tensor.alignment = 8;
  EXPECT_EQ(declined(std::move(odd)), "ALIGNMENT");
  rlk_linear_logp_backward_params params = RLK_LINEAR_LOGP_BACKWARD_PARAMS_INIT;
  params.softcap = 0x1p61;
  EXPECT_EQ(declined(call_of({}, params)), "SOFTCAP");
  cuda::has_image = false;
  EXPECT_EQ(declined(call_of({})), "KERNELS_NOT_BUILT");
  cuda::has_image = true;
  device_arch = "sm_100";
  EXPECT_EQ(declined(call_of({})), "ARCH");
}

TEST_F(LinearLogpBackwardWgmmaTest, EntropyAndWhatBendsScoresHaveKernelsOfTheirOwn) {
  Device device(0);
  const auto names = [](const char* form) {
    return Names{"products_rows_2",
                 "linear_slopes_wgmma_rows_bf16",
                 std::string("linear_slopes_wgmma_bf16_") + form,
                 "product",
                 "product",
                 "products_rows_2"};
  };
  const Sizes one_chunk{2000, 5000, 512};
  EXPECT_EQ(call_of(one_chunk).launch<LinearLogpBackwardWgmma>(device), names("plain"));
  auto entropy = with_entropy(one_chunk);
  EXPECT_EQ(entropy.launch<LinearLogpBackwardWgmma>(device), names("entropy"));
  entropy.input(RLK_LINEAR_LOGP_BACKWARD_IN_BIAS, kBf16, {5000});
  EXPECT_EQ(entropy.launch<LinearLogpBackwardWgmma>(device), names("transform"));
  const Names nothing = call_of({0}).launch<LinearLogpBackwardWgmma>(device);
  EXPECT_EQ(nothing.size(), 1u) << "grad_weight of no rows is 0";
}

TEST_F(LinearLogpBackwardWgmmaTest, EachChunkHasItsOwnRowsOfWhateverIsARows) {
  std::vector<LinearSlopesWgmmaArgs> seen;
  std::vector<unsigned> blocks;
  on_launch = [&](unsigned count, const void* arguments) {
    if (launched.back().rfind("linear_slopes_wgmma_", 0) != 0) return;
    seen.push_back(*static_cast<const LinearSlopesWgmmaArgs*>(arguments));
    blocks.push_back(count);
  };
  cuda::mapped.clear();
  Device device(0);
  with_entropy({10000, 32003, 256}).launch<LinearLogpBackwardWgmma>(device);
  on_launch = nullptr;
  ASSERT_EQ(seen.size(), 4u) << "two chunks";
  EXPECT_EQ(seen[0].tokens.rows, 5120) << "whole tiles of rows";
  EXPECT_EQ(seen[2].tokens.rows, 10000 - 5120);
  EXPECT_EQ(seen[2].first_row, 5120);
  EXPECT_EQ(seen[2].lse - seen[0].lse, 5120);
  EXPECT_EQ(seen[2].entropy - seen[0].entropy, 5120);
  EXPECT_EQ(seen[2].grad_entropy - seen[0].grad_entropy, 5120);
  EXPECT_EQ(static_cast<const float*>(seen[2].grad_logp) - static_cast<const float*>(seen[0].grad_logp), 5120);
  EXPECT_EQ(static_cast<const int64_t*>(seen[2].tokens.ids) - static_cast<const int64_t*>(seen[0].tokens.ids), 5120);
  EXPECT_EQ(seen[0].slopes_stride, 32008);
  EXPECT_EQ(seen[0].column_tiles, 167);
  EXPECT_EQ(seen[0].slabs, 4);
  EXPECT_EQ(blocks[0], 5120u) << "a block for each row";
  EXPECT_EQ(blocks[1], 132u) << "of 40 x 167 tiles";
  ASSERT_EQ(cuda::mapped.size(), 4u);
  EXPECT_EQ(cuda::mapped[0], (cuda::Mapped{256, 1, 5120, 1, 256, 128}));
  EXPECT_EQ(cuda::mapped[1], (cuda::Mapped{256, 1, 32003, 1, 256, 192}));
}

TEST_F(LinearLogpBackwardWgmmaTest, TheWorkspaceIsNotLargerThanThatOfChunksWithScores) {
  Device device(0);
  for (const Sizes& s :
       {Sizes{16, 257, 64}, Sizes{100, 37, 64}, Sizes{512, 151936, 4096}, Sizes{900, 151936, 1024},
        Sizes{2048, 151936, 1024}, Sizes{4096, 128256, 4096}, Sizes{5120, 131072, 4096}, Sizes{8192, 131072, 4096}}) {
    auto call = call_of(s);
    EXPECT_LE(call.workspace_of<LinearLogpBackwardWgmma>(device), call.workspace_of<Chunks>(device))
        << s.rows << " x " << s.inner << " x " << s.vocab;
  }
}

TEST_F(LinearLogpBackwardWgmmaTest, TheEstimateIsBelowThatOfChunksWithScores) {
  Device device(0);
  for (const Sizes& s : {Sizes{512, 151936, 4096}, Sizes{2048, 151936, 1024}, Sizes{8192, 131072, 4096}}) {
    const double own = answer(call_of(s)).cost_us;
    EXPECT_LT(own, call_of(s).query<Chunks>(device).cost_us) << s.rows << " x " << s.inner << " x " << s.vocab;
  }
}

}  // namespace
}  // namespace rlk::simt::host
