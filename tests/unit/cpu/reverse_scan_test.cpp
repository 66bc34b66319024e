// Long sequences, which gae and returns cut into chunks: the numbers of golden's serial recursion, and bits that know
// nothing of threads, neighbours and padding.
#include <cmath>

#include "unit/cpu/scan_case.hpp"

namespace rlk::test {
namespace {

struct ScanOutputs {
  Tensor advantages, targets, returns;
};

ScanOutputs run_both(const Gae& c, const cpu::ParallelFor& hook = cpu::serial_parallel()) {
  const Gae gae = run(c, hook);
  return {gae.advantages, gae.returns, run(returns_of(c), hook).returns};
}

void expect_golden(const Gae& c) {
  const ScanOutputs out = run_both(c);
  const auto gae = golden_answer(c);
  EXPECT_TRUE(matches(out.advantages, gae.advantages, c.rewards.dtype()));
  EXPECT_TRUE(matches(out.targets, gae.returns, c.rewards.dtype()));
  EXPECT_TRUE(matches(out.returns, golden_answer(returns_of(c)).returns, c.rewards.dtype()));
}

Gae make_case(int64_t sequences, int64_t length) {
  Gae c = gae_of(random_tensor(Dtype::f64, {sequences, length}, 1, 1),
                 random_tensor(Dtype::f64, {sequences, length}, 1, 2, Strides::reversed));
  c.bootstrap = random_tensor(Dtype::f64, {sequences}, 1, 3);
  c.params.gamma = 0.9995;
  c.params.lam = 0.999;
  return c;
}

// Every fifth token, and some thousand tokens in a row that hold no active token at all.
void mask_tokens(Gae& c) {
  const int64_t length = c.rewards.shape()[1];
  c.mask = Tensor(Dtype::u8, c.rewards.shape());
  for (int64_t i = 0; i < c.mask.size(); ++i) {
    const int64_t t = i % length;
    c.mask.set_int(i, i % 5 == 3 || (t > 1000 && t < 8000 && length > 9000) || t > length - 7 ? 0 : 1);
  }
}

TEST(CpuReverseScan, LongSequencesHaveTheNumbersOfTheSerialRecursion) {
  for (const int64_t length : {2047, 2048, 2049, 4096, 12345}) {
    for (const bool masked : {false, true}) {
      for (const Rule rule : {Rule::carry, Rule::zero}) {
        SCOPED_TRACE(length);
        Gae c = make_case(3, length);
        if (masked) mask_tokens(c);
        c.params.mask_rule = rule;
        expect_golden(c);
        Returns reset = returns_of(c);
        reset.params.mask_rule = ReturnsRule::reset;
        EXPECT_TRUE(matches(run(reset).returns, golden_answer(reset).returns, Dtype::f64));
        c.bootstrap = Tensor();
        c.params.gamma = c.params.lam = 1;
        expect_golden(c);
      }
    }
  }
}

TEST(CpuReverseScan, PackedSequencesOfEveryLengthHaveTheNumbersOfTheSerialRecursion) {
  Gae c = make_case(1, 30000);
  c.rewards = numbers(list_of(c.rewards));
  c.values = numbers(list_of(c.values));
  c.params.layout = Layout::packed;
  c.cu_seqlens = integers({0, 5, 5, 2060, 9000, 9001, 13097, 13097, 30000});
  c.bootstrap = random_tensor(Dtype::f64, {8}, 1, 3);
  expect_golden(c);
}

// Only a sequence of more than a chunk is cut into chunks: the workspace has no room for those of the others.
TEST(CpuReverseScan, ALongSequenceAmongManyShortOnesStaysInItsWorkspace) {
  Gae c = make_case(1, 2057);
  c.rewards = numbers(list_of(c.rewards));
  c.values = numbers(list_of(c.values));
  c.params.layout = Layout::packed;
  c.cu_seqlens = integers({0, 2049, 2050, 2051, 2052, 2053, 2054, 2055, 2056, 2057});
  c.bootstrap = random_tensor(Dtype::f64, {9}, 1, 3);
  expect_golden(c);
}

// The gap before the row's first token is no token of its, whatever the mask of the row before says.
TEST(CpuReverseScan, AMaskedSequenceWritesNothingBeforeItsFirstToken) {
  Gae c = gae_of(numbers({1, 2, 3, 4, 5, 6, 7, 8}, {2, 4}), numbers({1, 1, 1, 1, 1, 1, 1, 1}, {2, 4}));
  c.mask = flags({1, 1, 1, 0, 0, 0, 0, 0}, {2, 4});
  c.advantages = Tensor(Dtype::f64, {2, 4}, Strides::gaps);
  c.returns = Tensor(Dtype::f64, {2, 4}, Strides::gaps);
  const Gae got = run(c);
  // Without the elements only the gaps are left to differ.
  const auto gaps_of = [](Tensor tensor) { return tensor.fill([](int64_t) { return 0.0; }).bytes(); };
  EXPECT_EQ(gaps_of(got.advantages), gaps_of(c.advantages));
  EXPECT_EQ(gaps_of(got.returns), gaps_of(c.returns));
  expect_golden(c);
}

TEST(CpuReverseScan, BitsKnowNothingOfThreadsNeighboursAndPadding) {
  const int64_t length = 7001, padding = 1234;
  Gae alone = make_case(1, length);
  const ScanOutputs want = run_both(alone);
  for (const Rule rule : {Rule::carry, Rule::zero}) {
    Gae many = make_case(4, length + padding);
    many.params.mask_rule = alone.params.mask_rule = rule;
    many.mask = Tensor(Dtype::u8, many.rewards.shape());
    // The sequence is the third; padded behind it, and the others are other numbers without any padding.
    for (int64_t i = 0; i < many.mask.size(); ++i) {
      const int64_t b = i / (length + padding), t = i % (length + padding);
      many.mask.set_int(i, b == 2 && t >= length ? 0 : 1);
      if (b != 2 || t >= length) continue;
      many.rewards.set(i, alone.rewards.get(t));
      many.values.set(i, alone.values.get(t));
    }
    many.bootstrap.set(2, alone.bootstrap.get(0));
    const int64_t first = 2 * (length + padding);
    const auto expect_same = [&](const ScanOutputs& out) {
      EXPECT_EQ(out.advantages.bits(first, first + length), want.advantages.bits(0, length));
      EXPECT_EQ(out.targets.bits(first, first + length), want.targets.bits(0, length));
      EXPECT_EQ(out.returns.bits(first, first + length), want.returns.bits(0, length));
    };
    expect_same(run_both(many));
    for (const cpu::ParallelFor& hook : other_hooks()) expect_same(run_both(many, hook));
  }
}

// Four are walked side by side, a block of 128 tokens at a time, as far as the shortest goes.
TEST(CpuReverseScan, ShortSequencesSideBySideHaveTheBitsThatEachHasAlone) {
  constexpr int64_t kEnds[] = {300, 1, 0, 129, 128, 127, 256, 257, 299, 300};  // of the active tokens
  const int64_t sequences = std::ssize(kEnds), length = 300;
  for (const Rule rule : {Rule::carry, Rule::zero}) {
    Gae many = make_case(sequences, length);
    many.params.mask_rule = rule;
    many.mask = Tensor(Dtype::u8, many.rewards.shape());
    for (int64_t i = 0; i < many.mask.size(); ++i) {
      many.mask.set_int(i, i % length < kEnds[i / length] && i % 7 != 2 ? 1 : 0);
    }
    expect_golden(many);
    const ScanOutputs got = run_both(many);
    for (int64_t b = 0; b < sequences; ++b) {
      SCOPED_TRACE(b);
      Gae alone = make_case(1, length);
      alone.params.mask_rule = rule;
      alone.mask = Tensor(Dtype::u8, alone.rewards.shape());
      for (int64_t t = 0; t < length; ++t) {
        alone.rewards.set(t, many.rewards.get(b * length + t));
        alone.values.set(t, many.values.get(b * length + t));
        alone.mask.set_int(t, many.mask.get_int(b * length + t));
      }
      alone.bootstrap.set(0, many.bootstrap.get(b));
      const ScanOutputs want = run_both(alone);
      const int64_t first = b * length;
      EXPECT_EQ(got.advantages.bits(first, first + length), want.advantages.bits(0, length));
      EXPECT_EQ(got.targets.bits(first, first + length), want.targets.bits(0, length));
      EXPECT_EQ(got.returns.bits(first, first + length), want.returns.bits(0, length));
    }
  }
}

TEST(CpuReverseScan, PaddingBeforeTheSequenceDoesNotChangeItsBits) {
  Gae alone = make_case(1, 5000);
  const ScanOutputs want = run_both(alone);
  Gae padded = make_case(1, 5777);
  padded.mask = Tensor(Dtype::u8, {1, 5777});
  for (int64_t t = 0; t < 5777; ++t) {
    padded.mask.set_int(t, t < 777 ? 0 : 1);
    padded.rewards.set(t, t < 777 ? kNan : alone.rewards.get(t - 777));
    padded.values.set(t, t < 777 ? kNan : alone.values.get(t - 777));
  }
  padded.bootstrap.set(0, alone.bootstrap.get(0));
  const ScanOutputs out = run_both(padded);
  EXPECT_EQ(out.advantages.bits(777, 5777), want.advantages.bits(0, 5000));
  EXPECT_EQ(out.returns.bits(777, 5777), want.returns.bits(0, 5000));
  for (int64_t t = 0; t < 777; ++t) EXPECT_EQ(out.advantages.get(t), 0);
}

// The factor of a chunk becomes 0 or infinite long before the recursion does.
TEST(CpuReverseScan, InfinitiesNansAndZerosComeThroughChunksAsThroughTheRecursion) {
  for (const double gamma : {0.0, 0.5, 1.0, 2.0}) {
    for (const double reward : {kInfinity, -kInfinity, kNan, 0.0, 1.0}) {
      for (const double bootstrap : {0.0, kInfinity, 3.0}) {
        SCOPED_TRACE(gamma);
        SCOPED_TRACE(reward);
        SCOPED_TRACE(bootstrap);
        Gae c = make_case(1, 6500);
        for (int64_t t = 0; t < 6500; ++t) c.rewards.set(t, t == 5000 ? reward : t == 20 ? 1 : 0);
        for (int64_t t = 0; t < 6500; ++t) c.values.set(t, 0);
        c.bootstrap.set(0, bootstrap);
        c.params.gamma = gamma;
        c.params.lam = 1;
        const ScanOutputs out = run_both(c);
        double sum = bootstrap, advantage = 0, next = bootstrap;
        for (int64_t t = 6499; t >= 0; --t) {
          sum = c.rewards.get(t) + gamma * sum;
          advantage = c.rewards.get(t) + gamma * next + gamma * advantage;
          next = 0;
          const auto same = [](double a, double b) {
            return (std::isnan(a) && std::isnan(b)) || a == b || std::fabs(a - b) <= 1e-12 * std::fabs(b);
          };
          ASSERT_TRUE(same(out.returns.get(t), sum)) << t << " " << out.returns.get(t) << " " << sum;
          ASSERT_TRUE(same(out.advantages.get(t), advantage)) << t << " " << out.advantages.get(t) << " " << advantage;
        }
      }
    }
  }
}

// What a long sequence is in one piece, however large or small decay^2048 is: rewards in the first and last tokens of
// chunks, and 0 or masked tokens between them.
TEST(CpuReverseScan, ChunksOfEveryDecayHaveTheNumbersOfTheRecursion) {
  const int64_t length = 6500, chunk = 2048;
  for (const double gamma : {0.0, 1e-200, 0.5, 0.65, 0.9, 1.0, 1.4, 2.0, 1e200}) {
    for (const double bootstrap : {0.0, 1e-300, -5.0, 1e300, kInfinity, kNan}) {
      for (const double reward : {0.0, 1e-300, -1e300, -kInfinity}) {
        for (const ReturnsRule rule : {ReturnsRule::carry, ReturnsRule::zero, ReturnsRule::reset}) {
          for (const bool masked : {false, true}) {
            SCOPED_TRACE(testing::Message() << "gamma " << gamma << " bootstrap " << bootstrap << " reward " << reward
                                            << " rule " << static_cast<int>(rule) << " masked " << masked);
            Returns c;
            c.rewards = Tensor(Dtype::f64, {1, length});
            c.mask = Tensor(Dtype::u8, {1, length});
            for (int64_t t = 0; t < length; ++t) {
              const int64_t behind = length - 1 - t;
              const bool edge = behind % chunk == 0 || behind % chunk == chunk - 1;
              c.rewards.set(t, edge ? reward : 0);
              c.mask.set_int(t, edge || !masked || t % 977 == 0 ? 1 : 0);
            }
            c.bootstrap = numbers({bootstrap});
            c.params.gamma = gamma;
            c.params.mask_rule = rule;
            EXPECT_TRUE(matches(run(c).returns, golden_answer(c).returns, Dtype::f64));
          }
        }
      }
    }
  }
}

// decay^steps is composed of powers of up to 512 steps: one active token alone, and one more than a power has.
TEST(CpuReverseScan, TheDecayOfAChunkCountsEveryActiveToken) {
  for (const int64_t active : {1, 511, 512, 513, 1025}) {
    for (const double gamma : {1.0, 0.75}) {
      Returns c;
      c.rewards = Tensor(Dtype::f64, {1, 4096}).fill([](int64_t) { return 0.0; });
      c.mask = Tensor(Dtype::u8, {1, 4096});
      for (int64_t t = 0; t < 4096; ++t) c.mask.set_int(t, t < 2048 || t >= 4096 - active ? 1 : 0);
      c.bootstrap = numbers({3});
      c.params.gamma = gamma;
      c.params.mask_rule = ReturnsRule::carry;
      EXPECT_TRUE(matches(run(c).returns, golden_answer(c).returns, Dtype::f64)) << active << " " << gamma;
    }
  }
}

// Where the sum of a chunk is no finite number the chunk is walked again, to its very first token.
TEST(CpuReverseScan, ARewardAtTheFirstTokenOfAChunkReachesTheChunkBefore) {
  for (const double reward : {kInfinity, -kInfinity, kNan}) {
    Returns c;
    c.rewards = Tensor(Dtype::f64, {1, 4096}).fill([&](int64_t t) { return t == 2048 ? reward : 0; });
    c.bootstrap = numbers({1});
    c.params.gamma = 1;
    const Tensor returns = run(c).returns;
    EXPECT_EQ(returns.get(2049), 1);
    for (const int64_t t : {0, 2047, 2048}) {
      EXPECT_TRUE(std::isnan(reward) ? std::isnan(returns.get(t)) : returns.get(t) == reward) << t << " " << reward;
    }
  }
}

TEST(CpuReverseScan, AMaskedTokenEndsWhatReachesBackThroughChunks) {
  Gae c = make_case(1, 9000);
  c.mask = Tensor(Dtype::u8, {1, 9000});
  for (int64_t t = 0; t < 9000; ++t) c.mask.set_int(t, t == 6000 ? 0 : 1);
  c.rewards.set(8999, kInfinity);
  Returns reset = returns_of(c);
  reset.params.mask_rule = ReturnsRule::reset;
  const Tensor returns = run(reset).returns;
  EXPECT_EQ(returns.get(6001), kInfinity);
  for (const int64_t t : {0, 5000, 5999}) EXPECT_TRUE(std::isfinite(returns.get(t))) << t;
  const ScanOutputs out = run_both(c);  // carry goes around the masked token
  EXPECT_EQ(out.advantages.get(0), kInfinity);
  EXPECT_EQ(out.returns.get(0), kInfinity);
}

}  // namespace
}  // namespace rlk::test
