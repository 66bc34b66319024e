// Rotary embeddings: both operators give the same bits, turning back gives what was, positions out of range.
#include <rlk/sdk/ops/apply_rotary_pos_emb.hpp>
#include <rlk/sdk/ops/rotary_embedding.hpp>

#include <cmath>

#include "unit/cpu/token_case.hpp"

namespace rlk::test {
namespace {

using Rotary = CallOf<ops::RotaryEmbedding>;
using ops::rotary_embedding::Inverse;
using ops::rotary_embedding::Style;

constexpr int64_t kTokens = 5, kSize = 22, kPositions = 9;

Rotary rotary(Dtype dtype, Style style) {
  Rotary c;
  c.positions = integers({3, 0, 8, 8, 1});
  c.query = random_tensor(dtype, {kTokens, 4, kSize}, 1, 1);
  c.key = random_tensor(dtype, {kTokens, 2, kSize}, 1, 2);
  c.cos_sin_cache = Tensor(dtype, {kPositions, kSize}).fill([](int64_t i) {
    const int64_t position = i / kSize, pair = i % kSize % (kSize / 2);
    const double angle = static_cast<double>(position) * std::pow(10000.0, -2.0 * static_cast<double>(pair) / kSize);
    return i % kSize < kSize / 2 ? std::cos(angle) : std::sin(angle);
  });
  c.key_out = wanted();
  c.params.style = style;
  return c;
}

TEST(CpuRotaryEmbedding, IsBitIdenticalToApplyRotaryPosEmbOfGatheredNumbers) {
  for (const Dtype dtype : kFloatDtypes) {
    for (const Style style : {Style::neox, Style::interleaved}) {
      const Rotary c = rotary(dtype, style);
      const auto want = run(c);
      CallOf<ops::ApplyRotaryPosEmb> apply;
      apply.query = c.query;
      apply.key = c.key;
      apply.key_out = wanted();
      apply.params.style = style;
      const auto gathered = [&](int64_t first) {
        return Tensor(dtype, {kTokens, kSize}).fill([&](int64_t i) {
          const int64_t d = i % kSize, pair = style == Style::neox ? d % (kSize / 2) : d / 2;
          return c.cos_sin_cache.get(c.positions.get_int(i / kSize) * kSize + first + pair);
        });
      };
      apply.cos = gathered(0);
      apply.sin = gathered(kSize / 2);
      const auto got = run(apply);
      EXPECT_EQ(got.query_out.bytes(), want.query_out.bytes());
      EXPECT_EQ(got.key_out.bytes(), want.key_out.bytes());
    }
  }
}

TEST(CpuRotaryEmbedding, TurningBackGivesWhatWas) {
  Rotary c = rotary(Dtype::f64, Style::interleaved);
  const auto turned = run(c);
  Rotary back = c;
  back.query = turned.query_out;
  back.key = turned.key_out;
  back.params.inverse = Inverse::on;
  const auto got = run(back);
  for (int64_t i = 0; i < kTokens * 4 * kSize; ++i) EXPECT_NEAR(got.query_out.get(i), c.query.get(i), 1e-14);
}

}  // namespace
}  // namespace rlk::test
