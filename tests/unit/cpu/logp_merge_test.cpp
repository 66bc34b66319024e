// logp_merge: shards merge to the whole vocabulary, and what becomes of rows that shards disagree about.
#include <rlk/sdk/ops/logp_merge.hpp>

#include <cmath>

#include "core/cpu/tbb_parallel.hpp"
#include "unit/cpu/linear_case.hpp"
#include "unit/cpu/logp_case.hpp"
#include "unit/cpu/operator.hpp"

namespace rlk::test {
namespace {

using MergeCase = CallOf<ops::LogpMerge>;
using Merged = Result<MergeCase>;

Merged run_merge(MergeCase c, const cpu::ParallelFor& hook, Strides strides) {
  const std::vector<int64_t> rows = {c.shard_logp.shape()[1]};
  const Dtype dtype = c.shard_logp.dtype();
  c.logp = Tensor(dtype, rows, strides);
  c.lse = Tensor(dtype, rows, strides);
  if (c.shard_entropy.present()) c.entropy = Tensor(dtype, rows, strides);
  return run(c, hook);
}

Merged expect_golden(const MergeCase& c, Strides strides = Strides::contiguous) {
  const Merged got = run_merge(c, cpu::serial_parallel(), strides);
  const auto expected = golden_answer(static_cast<const MergeCase&>(got));
  EXPECT_TRUE(matches(got.logp, expected.logp, Dtype::f64)) << "logp";
  EXPECT_TRUE(matches(got.lse, expected.lse, Dtype::f64)) << "lse";
  if (c.shard_entropy.present()) {
    EXPECT_TRUE(matches(got.entropy, expected.entropy, Dtype::f64)) << "entropy";
  }
  EXPECT_EQ(got.error.kind, expected.error.kind);
  EXPECT_EQ(got.error.row, expected.error.row);
  for (const cpu::ParallelFor& hook : {cpu::tbb_parallel(), backwards_parallel()}) {
    const Merged again = run_merge(c, hook, strides);
    EXPECT_EQ(again.logp.bytes(), got.logp.bytes());
    EXPECT_EQ(again.lse.bytes(), got.lse.bytes());
    EXPECT_EQ(again.entropy.bytes(), got.entropy.bytes());
  }
  return got;
}

// Rows of one column of shards each.
MergeCase make_merge_case(const std::vector<std::vector<double>>& logp, const std::vector<std::vector<double>>& lse,
                          const std::vector<std::vector<double>>& entropy) {
  const auto rows = static_cast<int64_t>(logp.size()), shards = static_cast<int64_t>(logp[0].size());
  const auto from = [&](const std::vector<std::vector<double>>& numbers) {
    return Tensor(Dtype::f64, {shards, rows}).fill([&](int64_t i) {
      return numbers[static_cast<size_t>(i % rows)][static_cast<size_t>(i / rows)];
    });
  };
  MergeCase c;
  c.shard_logp = from(logp);
  c.shard_lse = from(lse);
  c.shard_entropy = from(entropy);
  return c;
}

// What shards answer, gathered.
template <typename Outputs>
MergeCase gather(const std::vector<Outputs>& parts) {
  const auto shards = static_cast<int64_t>(parts.size());
  const int64_t rows = parts[0].lse.size();
  const Dtype dtype = parts[0].lse.dtype();
  MergeCase c;
  for (Tensor* of_shards : {&c.shard_logp, &c.shard_lse, &c.shard_entropy}) *of_shards = Tensor(dtype, {shards, rows});
  for (int64_t s = 0; s < shards; ++s) {
    for (int64_t n = 0; n < rows; ++n) {
      const Outputs& part = parts[static_cast<size_t>(s)];
      c.shard_logp.set(s * rows + n, part.logp.get(n));
      c.shard_lse.set(s * rows + n, part.lse.get(n));
      c.shard_entropy.set(s * rows + n, part.entropy.get(n));
    }
  }
  return c;
}

template <typename Outputs>
void expect_whole(const Merged& merged, const Outputs& whole, double tolerance) {
  EXPECT_EQ(merged.error.kind, whole.error.kind);
  EXPECT_EQ(merged.error.row, whole.error.row);
  for (int64_t n = 0; n < whole.logp.size(); ++n) {
    SCOPED_TRACE(n);
    const auto expect_near = [tolerance](double got, double expected) {
      if (std::isfinite(expected)) {
        EXPECT_NEAR(got, expected, tolerance);
      } else {
        EXPECT_TRUE(std::isnan(expected) ? std::isnan(got) : got == expected) << got << " and " << expected;
      }
    };
    expect_near(merged.logp.get(n), whole.logp.get(n));
    expect_near(merged.lse.get(n), whole.lse.get(n));
    expect_near(merged.entropy.get(n), whole.entropy.get(n));
  }
}

// Uneven cuts, a shard of one entry, any order.
const std::vector<std::vector<int64_t>> kCuts = {{0, 100}, {0, 50, 100}, {0, 1, 100}, {0, 37, 38, 99, 100}};

TEST(CpuLogpMerge, UnevenShardsOfLogpMergeToTheWhole) {
  for (Dtype dtype : {Dtype::f32, Dtype::f64}) {
    for (const auto& cuts : kCuts) {
      SCOPED_TRACE(name(dtype) + " in " + std::to_string(cuts.size() - 1));
      LogpCase whole = make_logp_case(dtype, 9, 100, 9);
      whole.params.temperature = 0.8;
      whole.ids.set_int(1, -100).set_int(2, 0).set_int(3, 99);
      whole.logits.set(4 * 100 + whole.ids.get_int(4), -kInfinity);                 // the target is masked
      for (int64_t v = 0; v < 60; ++v) whole.logits.set(5 * 100 + v, -kInfinity);   // whole shards are
      for (int64_t v = 0; v < 100; ++v) whole.logits.set(6 * 100 + v, -kInfinity);  // everything is
      whole.logits.set(7 * 100 + 99, kNan);                                         // one shard is NaN
      const LogpOutputs expected = run_logp(whole, cpu::serial_parallel());
      std::vector<LogpOutputs> parts;
      for (size_t s = 0; s + 1 < cuts.size(); ++s) {
        const int64_t begin = cuts[s], size = cuts[s + 1] - begin;
        LogpCase shard = whole;
        shard.logits = Tensor(dtype, {9, size}).fill([&](int64_t i) {
          return whole.logits.get(i / size * 100 + begin + i % size);
        });
        shard.params.vocab_start = begin;
        shard.params.global_vocab = 100;
        parts.insert(parts.begin(), run_logp(shard, cpu::serial_parallel()));
      }
      MergeCase c = gather(parts);
      Merged merged = expect_golden(c);
      if (parts.size() == 1) merged.error = parts[0].error;  // a shard that is the whole has told of it
      expect_whole(merged, expected, dtype == Dtype::f32 ? 4e-6 : 1e-14);
    }
  }
}

TEST(CpuLogpMerge, UnevenShardsOfLinearLogpMergeToTheWhole) {
  for (Dtype dtype : {Dtype::f32, Dtype::bf16, Dtype::f64}) {
    for (const auto& cuts : kCuts) {
      SCOPED_TRACE(name(dtype) + " in " + std::to_string(cuts.size() - 1));
      LinearCase whole = make_linear_case(dtype, 9, 100, 33, 9);
      whole.params.softcap = 30;
      whole.bias = random_tensor(dtype, {100}, 1.0, 4);
      whole.ids.set_int(1, -100).set_int(2, 0).set_int(3, 99).set_int(5, 100);  // the last is a data error
      const LinearOutputs expected = run_linear(whole, cpu::serial_parallel());
      std::vector<LinearOutputs> parts;
      for (size_t s = 0; s + 1 < cuts.size(); ++s) {
        LinearCase shard = shard_of(whole, cuts[s], cuts[s + 1]);
        parts.push_back(run_linear(shard, cpu::serial_parallel()));
        EXPECT_EQ(parts.back().error.row, 5);
      }
      MergeCase c = gather(parts);
      Merged merged = expect_golden(c);
      merged.error = expected.error;  // the shards have told of it
      expect_whole(merged, expected, dtype == Dtype::f64 ? 1e-14 : 4e-6);
    }
  }
}

TEST(CpuLogpMerge, HandComputedValues) {
  // Probabilities 1/8, 1/8 | 3/4 of a vocabulary of three; the target is the second.
  const double half = std::log(0.5);
  MergeCase c = make_merge_case({{half, -kInfinity}}, {{std::log(2.0), std::log(6.0)}}, {{std::log(2.0), 0.0}});
  const Merged got = expect_golden(c);
  EXPECT_NEAR(got.logp.get(0), std::log(0.125), 1e-15);
  EXPECT_NEAR(got.lse.get(0), std::log(8.0), 1e-15);
  EXPECT_NEAR(got.entropy.get(0), 0.25 * std::log(8.0) - 0.75 * std::log(0.75), 1e-15);
}

TEST(CpuLogpMerge, ASingleShardWhoseTokenIsCertainIsNotIgnored) {
  MergeCase c = make_merge_case({{0}, {0}}, {{2.5}, {-1}}, {{0}, {0.25}});
  const Merged got = expect_golden(c);
  EXPECT_EQ(got.lse.get(0), 2.5);
  EXPECT_EQ(got.lse.get(1), -1);
  EXPECT_EQ(got.entropy.get(1), 0.25);
}

TEST(CpuLogpMerge, RowsThatShardsDisagreeAbout) {
  const double no = -kInfinity;
  MergeCase c = make_merge_case(
      {{0, 0}, {-1, -2}, {no, no}, {no, no}, {-1, no}, {kNan, no}, {no, -1}, {no, -1}, {0, no}, {no, no}},
      {{3, 4}, {3, 4}, {3, 4}, {no, no}, {3, no}, {3, 4}, {kNan, 4}, {kInfinity, 4}, {3, 4}, {kInfinity, 4}},
      {{1, 1}, {1, 1}, {1, 1}, {0, 0}, {1, 0}, {1, 1}, {1, 1}, {1, 1}, {kNan, 1}, {1, 1}});
  const Merged got = expect_golden(c);
  EXPECT_EQ(got.logp.get(0), 0.0);  // ignored by all
  EXPECT_EQ(got.lse.get(0), 0.0);
  EXPECT_EQ(got.entropy.get(0), 0.0);
  for (int64_t n : {1, 3, 5, 6, 7, 9}) {  // two owners, nothing finite, NaN and +inf
    EXPECT_TRUE(std::isnan(got.logp.get(n)) && std::isnan(got.lse.get(n)) && std::isnan(got.entropy.get(n))) << n;
  }
  EXPECT_EQ(got.logp.get(2), -kInfinity);  // no shard owns the target, or its score is -inf
  EXPECT_TRUE(std::isfinite(got.lse.get(2)));
  EXPECT_EQ(got.logp.get(4), -1.0);  // a shard without any finite score changes nothing
  EXPECT_EQ(got.lse.get(4), 3.0);
  EXPECT_EQ(got.entropy.get(4), 1.0);
  EXPECT_TRUE(std::isfinite(got.logp.get(8)) && std::isnan(got.entropy.get(8)));
  EXPECT_EQ(got.error.kind, cpu::kNoFiniteLogit);
  EXPECT_EQ(got.error.row, 3);
}

TEST(CpuLogpMerge, OneShardIsTheWhole) {
  MergeCase c = make_merge_case({{-1.5}, {0}, {-kInfinity}}, {{7.25}, {0}, {1e6}}, {{2.5}, {0}, {1}});
  const Merged got = expect_golden(c);
  for (int64_t n = 0; n < 3; ++n) {
    EXPECT_EQ(got.logp.get(n), c.shard_logp.get(n));
    EXPECT_EQ(got.lse.get(n), c.shard_lse.get(n));
    EXPECT_EQ(got.entropy.get(n), c.shard_entropy.get(n));
  }
}

// exp of the scores themselves would overflow, and differences to a large lse would have no digits left.
TEST(CpuLogpMerge, LargeScoresKeepTheirDifferences) {
  MergeCase c =
      make_merge_case({{-1, -kInfinity}, {-kInfinity, -2}}, {{1e9, 1e9 + 1}, {-1e6, -1e6 - 50}}, {{1, 2}, {3, 4}});
  const Merged got = expect_golden(c);
  EXPECT_NEAR(got.logp.get(0), -1 - std::log1p(std::exp(1.0)), 1e-15);
  EXPECT_NEAR(got.logp.get(1), -52, 1e-14);
}

}  // namespace
}  // namespace rlk::test
