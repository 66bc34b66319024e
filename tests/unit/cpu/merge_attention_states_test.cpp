// merge_attention_states: attention over two parts of the keys, merged, is attention over all of them, also where a
// part has no keys and its answer is whatever a library leaves there.
#include <rlk/sdk/ops/merge_attention_states.hpp>

#include <cmath>

#include "unit/cpu/attention_case.hpp"

namespace rlk::test {
namespace {

using Merge = CallOf<ops::MergeAttentionStates>;

Merge merge_of(const Tensor& out_a, const Tensor& lse_a, const Tensor& out_b, const Tensor& lse_b) {
  Merge call;
  call.out_a = out_a, call.lse_a = lse_a, call.out_b = out_b, call.lse_b = lse_b;
  call.lse = wanted();
  return call;
}

TEST(CpuMergeAttentionStates, PartsOfTheKeysAreAttentionOverAllOfThem) {
  constexpr int64_t kQueries = 5, kKeys = 70, kHeads = 4, kSize = 16;
  const Attention whole = packed_attention(Dtype::f32, {kQueries}, {kKeys}, {kHeads, 2, kSize});
  const auto right = run(whole);
  for (const int64_t cut : {1, 33, 70}) {
    const auto part = [&](int64_t begin, int64_t end) {
      Attention call = packed_attention(Dtype::f32, {kQueries}, {end - begin}, {kHeads, 2, kSize});
      call.q = whole.q;
      const auto keys = [&](const Tensor& all) {
        return Tensor(Dtype::f32, {end - begin, 2, kSize}).fill([&](int64_t i) {
          return all.get(begin * 2 * kSize + i);
        });
      };
      call.k = keys(whole.k), call.v = keys(whole.v);
      return run(call);
    };
    const auto a = part(0, cut), b = part(cut, kKeys);
    const auto merged = run(merge_of(a.out, a.lse, b.out, b.lse));
    for (int64_t i = 0; i < kQueries * kHeads; ++i) EXPECT_NEAR(merged.lse.get(i), right.lse.get(i), 2e-6);
    for (int64_t i = 0; i < kQueries * kHeads * kSize; ++i) EXPECT_NEAR(merged.out.get(i), right.out.get(i), 1e-6);
  }
}

// FlashAttention gives +inf to a query without keys, vLLM's kernels -inf.
TEST(CpuMergeAttentionStates, AnEmptyPartIsNotReadHoweverItsLseSaysSo) {
  for (const double empty : {-kInfinity, kInfinity}) {
    const auto number = [](double value, double last) {
      return Tensor(Dtype::f32, {1, 2, 3}).fill([=](int64_t i) { return i < 3 ? value : last; });
    };
    const auto lse = [](double first, double last) {
      return Tensor(Dtype::f32, {1, 2}).fill([=](int64_t i) { return i == 0 ? first : last; });
    };
    // Of the first head part a is empty, of the second both are.
    const auto got =
        run(merge_of(number(kNan, kInfinity), lse(empty, -kInfinity), number(2.5, kNan), lse(-700, empty)));
    for (int64_t i = 0; i < 6; ++i) EXPECT_EQ(got.out.get(i), i < 3 ? 2.5 : 0.0) << i;
    EXPECT_EQ(got.lse.get(0), -700);
    EXPECT_EQ(got.lse.get(1), -kInfinity);
  }
}

}  // namespace
}  // namespace rlk::test
