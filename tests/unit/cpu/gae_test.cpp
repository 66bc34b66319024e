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

// Advantages and returns of one sequence as a trainer computes them.
struct Pair {
  List advantages, returns;
};
Pair verl(const List& r, const List& v, const List& m, double gamma, double lam) {
  Pair out{List(r.size()), List(r.size())};
  double next_value = 0, last = 0;
  for (size_t t = r.size(); t-- > 0;) {
    const double delta = r[t] + gamma * next_value - v[t];
    const double now = delta + gamma * lam * last;
    next_value = v[t] * m[t] + (1 - m[t]) * next_value;
    last = now * m[t] + (1 - m[t]) * last;
    out.advantages[t] = last;
    out.returns[t] = last + v[t];
  }
  return out;
}
Pair openrlhf(List r, List v, const List& m, double gamma, double lam) {
  for (size_t t = 0; t < r.size(); ++t) {
    r[t] *= m[t];
    v[t] *= m[t];
  }
  Pair out{List(r.size()), List(r.size())};
  double last = 0;
  for (size_t t = r.size(); t-- > 0;) {
    const double next_value = t + 1 < r.size() ? v[t + 1] : 0;
    last = r[t] + gamma * next_value - v[t] + gamma * lam * last;
    out.advantages[t] = last;
    out.returns[t] = last + v[t];
  }
  return out;
}

List row(const Tensor& tensor, int64_t b) {
  const int64_t length = tensor.shape()[1];
  List list;
  for (int64_t t = 0; t < length; ++t) {
    list.push_back(tensor.dtype() == Dtype::u8 ? static_cast<double>(tensor.get_int(b * length + t))
                                               : tensor.get(b * length + t));
  }
  return list;
}

TEST(CpuGae, MatchesVerlsAndOpenRlhfsRecursionsAtTokensThatCount) {
  for (const Rule rule : {Rule::carry, Rule::zero}) {
    Gae c = make_case(6, 23);
    c.params.mask_rule = rule;
    const double gamma = c.params.gamma, lam = c.params.lam;
    const Gae out = run(c);
    for (int64_t b = 0; b < 6; ++b) {
      const List mask = row(c.mask, b);
      const List r = row(c.rewards, b), v = row(c.values, b);
      const Pair want = rule == Rule::carry ? verl(r, v, mask, gamma, lam) : openrlhf(r, v, mask, gamma, lam);
      for (size_t t = 0; t < 23; ++t) {
        const int64_t i = b * 23 + static_cast<int64_t>(t);
        EXPECT_NEAR(out.advantages.get(i), mask[t] * want.advantages[t], 1e-12)
            << static_cast<int>(rule) << " " << b << " " << t;
        EXPECT_NEAR(out.returns.get(i), mask[t] * want.returns[t], 1e-12)
            << static_cast<int>(rule) << " " << b << " " << t;
      }
    }
  }
}

// slime pads with zeros behind the response and has no other mask: its sequences are the unmasked recursion.
TEST(CpuGae, MatchesSlimesSequencesPaddedBehindTheResponse) {
  Gae c = make_case(3, 9);
  const std::vector<int64_t> lengths = {9, 5, 1};
  for (int64_t i = 0; i < 27; ++i) c.mask.set_int(i, i % 9 < lengths[static_cast<size_t>(i / 9)] ? 1 : 0);
  for (const Rule rule : {Rule::zero, Rule::carry}) {  // at the end of a sequence both rules are the same
    c.params.mask_rule = rule;
    const Gae out = run(c);
    for (int64_t b = 0; b < 3; ++b) {
      const auto length = static_cast<size_t>(lengths[static_cast<size_t>(b)]);
      List r = row(c.rewards, b), v = row(c.values, b);
      r.resize(length);
      v.resize(length);
      const Pair want = openrlhf(r, v, List(length, 1), c.params.gamma, c.params.lam);
      for (size_t t = 0; t < length; ++t) {
        EXPECT_NEAR(out.advantages.get(b * 9 + static_cast<int64_t>(t)), want.advantages[t], 1e-12);
      }
    }
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
    const Tensor out = run(c).returns;
    for (int64_t b = 0; b < 4; ++b) {
      const List r = row(c.rewards, b), m = row(c.mask, b);
      double running = 0;
      for (size_t t = r.size(); t-- > 0;) {
        const double next = r[t] + c.params.gamma * running;
        EXPECT_NEAR(out.get(b * 17 + static_cast<int64_t>(t)), m[t] * next, 1e-12);
        const double behind_masked = rule == ReturnsRule::carry  ? running
                                     : rule == ReturnsRule::zero ? c.params.gamma * running
                                                                 : 0;
        running = m[t] * next + (1 - m[t]) * behind_masked;
      }
    }
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
