// gae and returns against verl's, OpenRLHF's and slime's recursions, and what masked tokens must not do.

#include "unit/cpu/scan_case.hpp"

namespace rlk::test {
namespace {

Gae make_case(int64_t sequences, int64_t length) {
  Gae c = gae_of(random_tensor(Dtype::f64, {sequences, length}, 1, 1),
                 random_tensor(Dtype::f64, {sequences, length}, 1, 2));
  c.mask = Tensor(Dtype::u8, {sequences, length});
  for (int64_t i = 0; i < c.mask.size(); ++i) c.mask.set_int(i, i % 5 != 2 && i % 7 != 6 ? 1 : 0);
  c.params.gamma = 0.97;
  c.params.lam = 0.9;
  return c;
}

TEST(CpuGae, MatchesVerlsAndOpenRlhfsRecursionsAtTokensThatCount) {
  for (const Rule rule : {Rule::carry, Rule::zero}) {
    Gae c = make_case(6, 23);
    c.params.mask_rule = rule;
    const auto recursion = rule == Rule::carry ? verl_gae : openrlhf_gae;
    const Estimates want = recursion(matrix_of(c.rewards), matrix_of(c.values), matrix_of(c.mask), 0.97, 0.9);
    const Gae out = run(c);
    expect_near(out.advantages, want.advantages);
    expect_near(out.returns, want.returns);
  }
}

// slime pads with zeros behind the response and has no other mask: its sequences are the unmasked recursion.
TEST(CpuGae, MatchesSlimesSequencesPaddedBehindTheResponse) {
  Gae c = make_case(3, 9);
  const Matrix mask = {Row(9, 1), {1, 1, 1, 1, 1, 0, 0, 0, 0}, {1, 0, 0, 0, 0, 0, 0, 0, 0}};
  c.mask = flags_of(mask);
  for (const Rule rule : {Rule::zero, Rule::carry}) {  // at the end of a sequence both rules are the same
    c.params.mask_rule = rule;
    expect_near(run(c).advantages, openrlhf_gae(matrix_of(c.rewards), matrix_of(c.values), mask, 0.97, 0.9).advantages);
  }
}

TEST(CpuGae, ThreeTokensByHand) {
  Gae c = gae_of(numbers({0, 0, 1}, {1, 3}), numbers({0.5, 0.25, 0.5}, {1, 3}));
  c.params.gamma = 0.5;
  c.params.lam = 0.5;
  // delta: 0.125 - 0.5, 0.25 - 0.25, 1 - 0.5; a: -0.375 + 0.25 * 0.125, 0 + 0.25 * 0.5, 0.5
  EXPECT_EQ(list_of(run(c).advantages), (List{-0.34375, 0.125, 0.5}));
  EXPECT_EQ(list_of(run(c).returns), (List{0.15625, 0.375, 1.0}));
  c.bootstrap = numbers({2});  // the last delta becomes 1 + 0.5 * 2 - 0.5
  EXPECT_EQ(list_of(run(c).advantages), (List{-0.28125, 0.375, 1.5}));
  c.mask = flags({1, 0, 1}, {1, 3});
  EXPECT_EQ(list_of(run(c).advantages), (List{0.5 * 0.5 - 0.5 + 0.25 * 1.5, 0, 1.5}));
  c.params.mask_rule = Rule::zero;  // delta of the masked token is 0.5 * 0.5
  EXPECT_EQ(list_of(run(c).advantages), (List{-0.5 + 0.25 * (0.25 + 0.25 * 1.5), 0, 1.5}));
}

TEST(CpuGae, WithoutDiscountsTheReturnIsTheRewardToGo) {
  Gae c = make_case(2, 11);
  c.mask = Tensor();
  c.params.gamma = c.params.lam = 1;
  const Gae out = run(c);
  const Tensor to_go = run(returns_of(c)).returns;
  for (int64_t i = 0; i < 22; ++i) EXPECT_NEAR(out.returns.get(i), to_go.get(i), 1e-12);
}

TEST(CpuReturns, MatchVerlsAndOpenRlhfsRecursions) {
  Returns c = returns_of(make_case(4, 17));
  for (const ReturnsRule rule : {ReturnsRule::carry, ReturnsRule::zero, ReturnsRule::reset}) {
    c.params.mask_rule = rule;
    expect_near(run(c).returns, running_sums(matrix_of(c.rewards), matrix_of(c.mask), 0.97, rule));
  }
}

TEST(CpuReturns, ThreeTokensByHand) {
  Returns c;
  c.rewards = numbers({1, 2, 4}, {1, 3});
  c.params.gamma = 0.5;
  EXPECT_EQ(list_of(run(c).returns), (List{3, 4, 4}));
  c.bootstrap = numbers({8});
  EXPECT_EQ(list_of(run(c).returns), (List{4, 6, 8}));
  c.mask = flags({1, 0, 1}, {1, 3});
  EXPECT_EQ(list_of(run(c).returns), (List{5, 0, 8}));
  c.params.mask_rule = ReturnsRule::reset;
  EXPECT_EQ(list_of(run(c).returns), (List{1, 0, 8}));
  c.params.mask_rule = ReturnsRule::zero;
  EXPECT_EQ(list_of(run(c).returns), (List{3, 0, 8}));
}

// A sequence that was cut off goes on behind its last active token, however far its row is padded.
TEST(CpuReturns, PaddingBehindDoesNotTouchTheBootstrap) {
  Gae c =
      gae_of(numbers({1, 2, kNan, kNan, 3, 4, 5, kNan}, {2, 4}), numbers({1, -1, kNan, kNan, 2, 0.5, 3, kNan}, {2, 4}));
  c.mask = flags({1, 1, 0, 0, 1, 1, 1, 0}, {2, 4});
  c.bootstrap = numbers({8, -2});
  c.params.gamma = 0.5;
  c.params.lam = 0.5;
  Gae packed = c;
  packed.params.layout = Layout::packed;
  packed.rewards = numbers({1, 2, 3, 4, 5});
  packed.values = numbers({1, -1, 2, 0.5, 3});
  packed.mask = Tensor();
  packed.cu_seqlens = integers({0, 2, 5});
  const auto padded = [](const Tensor& tokens) {
    return List{tokens.get(0), tokens.get(1), 0, 0, tokens.get(2), tokens.get(3), tokens.get(4), 0};
  };
  for (const Rule rule : {Rule::carry, Rule::zero}) {
    c.params.mask_rule = packed.params.mask_rule = rule;
    EXPECT_EQ(list_of(run(returns_of(c)).returns), padded(run(returns_of(packed)).returns));
    EXPECT_EQ(list_of(run(c).advantages), padded(run(packed).advantages));
    EXPECT_EQ(list_of(run(c).returns), padded(run(packed).returns));
  }
  packed.params.mask_rule = Rule::carry;
  EXPECT_EQ(list_of(run(returns_of(packed)).returns), (List{4, 6, 6, 6, 4}));
}

}  // namespace
}  // namespace rlk::test
