// topk_softmax, moe_align_block_size and grouped_gemm: vLLM's rules and layout, ties, experts without tokens, and the
// three together.
#include <rlk/sdk/ops/grouped_gemm.hpp>
#include <rlk/sdk/ops/moe_align_block_size.hpp>
#include <rlk/sdk/ops/topk_softmax.hpp>

#include <cmath>
#include <limits>
#include <stdexcept>

#include "unit/cpu/token_case.hpp"

namespace rlk::test {
namespace {

TEST(CpuRouting, TiesGoToTheFirstExpertAndRenormalizedWeightsAddUpToOne) {
  CallOf<ops::TopkSoftmax> c;
  c.x = numbers({1, 3, 2, 3, 0, 0, 0, 0}, {2, 4});
  c.params.k = 2;
  const double sum = std::exp(-2) + 2 + std::exp(-1);
  const auto got = run(c);
  EXPECT_EQ(list_of(got.ids), (List{1, 3, 0, 1}));
  EXPECT_NEAR(got.weights.get(0), 1 / sum, 1e-15);
  EXPECT_NEAR(got.weights.get(3), 0.25, 1e-15);
  c.params.renormalize = ops::topk_softmax::Renormalize::on;
  EXPECT_EQ(list_of(run(c).weights), (List{0.5, 0.5, 0.5, 0.5}));
}

TEST(CpuRouting, ATokenWithoutAFiniteScoreHasNanAndANanIsChosenFirst) {
  const double inf = kInfinity;
  CallOf<ops::TopkSoftmax> c;
  c.x = numbers({-inf, -inf, -inf, 1, 5, std::nan(""), -inf, 2, -inf}, {3, 3}, Dtype::f32);
  c.params.k = 2;
  const auto got = run(c);
  EXPECT_EQ(list_of(got.ids), (List{0, 1, 2, 1, 1, 0}));
  for (int64_t i = 0; i < 4; ++i) EXPECT_TRUE(std::isnan(got.weights.get(i))) << i;
  EXPECT_EQ(got.weights.get(4), 1);
  EXPECT_EQ(got.weights.get(5), 0);
}

// Four experts, three of each token, blocks of four.
TEST(CpuRouting, PlacesAreInWholeBlocksOfTheirExperts) {
  CallOf<ops::MoeAlignBlockSize> c;
  c.topk_ids = Tensor(Dtype::i32, {4, 3});
  const std::vector<int64_t> ids = {1, 2, 3, 0, 1, 3, 0, 2, 3, 0, 1, 2};
  for (size_t i = 0; i < ids.size(); ++i) c.topk_ids.set_int(static_cast<int64_t>(i), ids[i]);
  c.params.experts = 4;
  c.params.block_size = 4;
  const auto got = run(c);
  EXPECT_EQ(list_of(got.num_tokens_post_pad), (List{16}));
  EXPECT_EQ(list_of(got.sorted_token_ids),
            (List{3, 6, 9, 12, 0, 4, 10, 12, 1, 7, 11, 12, 2, 5, 8, 12, 12, 12, 12, 12, 12, 12, 12, 12}));
  EXPECT_EQ(list_of(got.expert_ids), (List{0, 1, 2, 3, -1, -1}));
}

// The outputs are i32; and memory for a number of each of 2^61 experts has a size that is 0 modulo 2^64.
TEST(CpuRouting, ExpertsAndPlacesBeyondTheOutputsDtypeAreRefused) {
  CallOf<ops::MoeAlignBlockSize> c;
  c.topk_ids = Tensor(Dtype::i32, {3, 1});
  for (int64_t i = 0; i < 3; ++i) c.topk_ids.set_int(i, 1);
  c.params.block_size = 1;
  for (const int64_t experts : {int64_t{1} << 31, int64_t{1} << 61, std::numeric_limits<int64_t>::max()}) {
    c.params.experts = experts;
    EXPECT_THROW(run(c), std::invalid_argument) << experts;
  }
  c.params.experts = 2;
  c.params.block_size = int64_t{1} << 62;
  EXPECT_THROW(run(c), std::invalid_argument);
}

TEST(CpuRouting, AnExpertThatThereIsNotIsADataErrorAndLeftOut) {
  CallOf<ops::MoeAlignBlockSize> c;
  c.topk_ids = Tensor(Dtype::i32, {3, 1});
  for (int64_t i = 0; i < 3; ++i) c.topk_ids.set_int(i, i == 1 ? 2 : 1);
  c.params.experts = 2;
  c.params.block_size = 2;
  const auto got = run(c);
  EXPECT_EQ(got.error.kind, sdk::DataErrorKind::kIdOutOfRange);
  EXPECT_EQ(got.error.row, 1);
  EXPECT_EQ(got.error.value, 2);
  EXPECT_EQ(list_of(got.sorted_token_ids), (List{0, 2, 3, 3, 3}));
  EXPECT_EQ(list_of(got.expert_ids), (List{1, -1, -1}));
}

TEST(CpuRouting, RowsMeetTheMatrixOfTheirExpert) {
  CallOf<ops::GroupedGemm> c;
  c.x = numbers({1, 2, 3}, {3, 1});
  c.weight = numbers({10, 20, 30, 40, 50, 60}, {3, 2, 1});
  c.cu_seqlens = integers({0, 1, 1, 3});
  EXPECT_EQ(list_of(run(c).y), (List{10, 20, 100, 120, 150, 180}));
  c.cu_seqlens = integers({0, 2, 1, 3});
  const auto got = run(c);
  EXPECT_EQ(got.error.kind, sdk::DataErrorKind::kBadSeqlens);
  EXPECT_EQ(got.error.row, 2);
  EXPECT_TRUE(std::isnan(got.y.get(0)) && std::isnan(got.y.get(5)));
}

// Expert parallel: what another process has is in no block.
TEST(CpuRouting, AnExpertThatIsNotHereIsInNoBlock) {
  for (const Dtype dtype : {Dtype::i32, Dtype::i64}) {
    CallOf<ops::MoeAlignBlockSize> c;
    c.topk_ids = Tensor(dtype, {3, 2});
    const std::vector<int64_t> ids = {-1, 1, 0, -1, 1, 2};
    for (size_t i = 0; i < ids.size(); ++i) c.topk_ids.set_int(static_cast<int64_t>(i), ids[i]);
    c.params.experts = 3;
    c.params.block_size = 2;
    EXPECT_EQ(run(c).error.kind, sdk::DataErrorKind::kIdOutOfRange);  // as it is without the parameter
    c.params.ignore_index = -1;
    const auto got = run(c);
    EXPECT_EQ(got.error.kind, sdk::DataErrorKind::kNoDataError);
    EXPECT_EQ(list_of(got.num_tokens_post_pad), (List{6}));
    EXPECT_EQ(list_of(got.sorted_token_ids), (List{2, 6, 1, 4, 5, 6, 6, 6, 6}));
    EXPECT_EQ(list_of(got.expert_ids), (List{0, 1, 2, -1, -1}));
  }
}

}  // namespace
}  // namespace rlk::test
