// embedding and its gradient: torch's rules, ids that are everywhere, bits.
#include <rlk/sdk/ops/embedding.hpp>
#include <rlk/sdk/ops/embedding_backward.hpp>

#include <cmath>

#include "unit/cpu/token_case.hpp"

namespace rlk::test {
namespace {

using EmbeddingGradient = CallOf<ops::EmbeddingBackward>;

TEST(CpuEmbedding, AnIdThatThereIsNotIsADataErrorOfItsToken) {
  CallOf<ops::Embedding> c;
  c.ids = integers({2, 3, 0, -1}, Dtype::i32);
  c.weight = numbers({1, 2, 3, 4, 5, 6}, {3, 2}, Dtype::bf16);
  const auto got = run(c);
  EXPECT_EQ(got.error.kind, sdk::DataErrorKind::kIdOutOfRange);
  EXPECT_EQ(got.error.row, 1);
  EXPECT_EQ(got.error.value, 3);
  EXPECT_EQ(got.y.get(1), 6);
  EXPECT_TRUE(std::isnan(got.y.get(2)) && std::isnan(got.y.get(7)));
  EXPECT_EQ(got.y.get(4), 1);
}

TEST(CpuEmbedding, GradientIsTorchsWithPaddingAndFrequency) {
  EmbeddingGradient c;
  c.grad_y = numbers({1, 2, 3, 4}, {4, 1});
  c.ids = integers({2, 0, 2, 1});
  c.weight = numbers({0, 0, 0, 0}, {4, 1});
  EXPECT_EQ(list_of(run(c).grad_weight), (List{2, 4, 4, 0}));
  c.params.padding_idx = 0;
  EXPECT_EQ(list_of(run(c).grad_weight), (List{0, 4, 4, 0}));
  c.params.scale_by_frequency = ops::embedding_backward::ScaleByFrequency::on;
  EXPECT_EQ(list_of(run(c).grad_weight), (List{0, 4, 2, 0}));
}

// 2^24 and many ones: a sum in fp32 would stay at 2^24.
TEST(CpuEmbedding, AnIdThatIsEverywhereLosesNothingAndBitsDoNotDependOnThreads) {
  constexpr int64_t kTokens = 5001, kFeatures = 600;
  EmbeddingGradient c;
  c.grad_y = Tensor(Dtype::f32, {kTokens, kFeatures}).fill([](int64_t i) { return i < kFeatures ? 0x1p24 : 1.0; });
  c.ids = integers(std::vector<int64_t>(kTokens, 3));
  c.weight = Tensor(Dtype::f32, {7, kFeatures});
  const Tensor grad = run(c).grad_weight;
  for (int64_t d = 0; d < kFeatures; ++d) ASSERT_EQ(grad.get(3 * kFeatures + d), 0x1p24 + kTokens - 1) << d;
  c.grad_y = random_tensor(Dtype::f32, {kTokens, kFeatures}, 1, 1);
  c.ids = Tensor(Dtype::i64, {kTokens});
  for (int64_t n = 0; n < kTokens; ++n) c.ids.set_int(n, n * n % 7);
  const Tensor want = run(c).grad_weight;
  for (const cpu::ParallelFor& hook : other_hooks()) EXPECT_EQ(run(c, hook).grad_weight.bytes(), want.bytes());
}

}  // namespace
}  // namespace rlk::test
