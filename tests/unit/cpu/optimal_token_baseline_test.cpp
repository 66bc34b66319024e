// optimal_token_baseline against verl's estimators for one and for many turns, the tail of the longest sequence, and
// what masked tokens and other groups must not do.
#include <rlk/sdk/ops/optimal_token_baseline.hpp>

#include <algorithm>
#include <cmath>

#include "unit/cpu/token_case.hpp"

namespace rlk::test {
namespace {

using Matrix = std::vector<List>;  // [sequence][token]

using TokenCase = CallOf<ops::OptimalTokenBaseline>;
using ops::optimal_token_baseline::Layout, ops::optimal_token_baseline::Position, ops::optimal_token_baseline::ZeroTail;

TokenCase make_case(int64_t sequences, int64_t length, Dtype dtype = Dtype::f64) {
  TokenCase c;
  c.returns = wanted();
  c.rewards = random_tensor(dtype, {sequences, length}, 1, 1);
  c.logp = random_tensor(dtype, {sequences, length}, 1, 2);
  for (int64_t i = 0; i < c.logp.size(); ++i) c.logp.set(i, -0.1 - std::fabs(c.logp.get(i)));
  c.sum_p2 = random_tensor(dtype, {sequences, length}, 1, 3);
  // Squared probabilities sum up to between that of the token and 1.
  for (int64_t i = 0; i < c.sum_p2.size(); ++i) {
    const double own = std::exp(2 * c.logp.get(i));
    c.sum_p2.set(i, own + (1 - own) / (1 + c.sum_p2.get(i) * c.sum_p2.get(i)));
  }
  c.mask = Tensor(Dtype::u8, {sequences, length});
  for (int64_t i = 0; i < c.mask.size(); ++i) c.mask.set_int(i, 1);
  return c;
}
// Responses of these lengths, with turns of a tool inside.
void set_lengths(TokenCase& c, const std::vector<int64_t>& lengths, bool tools) {
  const int64_t length = c.rewards.shape()[1];
  for (int64_t i = 0; i < c.mask.size(); ++i) {
    const int64_t b = i / length, t = i % length;
    const bool tool = tools && t % (4 + b) == 2;
    c.mask.set_int(i, t < lengths[static_cast<size_t>(b)] && !tool ? 255 : 0);
  }
}

Matrix matrix(const Tensor& tensor) {
  const auto length = static_cast<size_t>(tensor.shape()[1]);
  Matrix rows(static_cast<size_t>(tensor.shape()[0]), List(length));
  for (size_t b = 0; b < rows.size(); ++b) {
    for (size_t t = 0; t < length; ++t) {
      const auto i = static_cast<int64_t>(b * length + t);
      rows[b][t] = tensor.dtype() == Dtype::u8 ? (tensor.get_int(i) != 0 ? 1 : 0) : tensor.get(i);
    }
  }
  return rows;
}

struct Sums {
  Matrix g, w, mask;
};
Sums sums_of(const TokenCase& c) {
  const Matrix r = matrix(c.rewards), lp = matrix(c.logp), s = matrix(c.sum_p2);
  const Matrix rho = c.weight.present() ? matrix(c.weight) : Matrix(r.size(), List(r[0].size(), 1.0));
  Sums out{r, r, matrix(c.mask)};
  for (size_t b = 0; b < r.size(); ++b) {
    double sum = 0;
    for (size_t t = 0; t < r[b].size(); ++t) {
      sum += out.mask[b][t] * (1 - 2 * std::exp(lp[b][t]) + s[b][t]) * std::pow(rho[b][t], 2);
      out.w[b][t] = sum;
    }
    sum = 0;
    for (size_t t = r[b].size(); t-- > 0;) {
      sum += out.mask[b][t] * r[b][t];
      out.g[b][t] = sum;
    }
  }
  return out;
}
double total(const List& list) {
  double sum = 0;
  for (const double x : list) sum += x;
  return sum;
}
// Group, longest first: which sequence has the tail, and where it begins.
struct Tail {
  size_t row = 0, begin = 0;
  bool any = false;
};
Tail tail_of(const Matrix& mask, const std::vector<size_t>& group) {
  std::vector<std::pair<double, size_t>> lengths;
  for (const size_t b : group) lengths.emplace_back(total(mask[b]), b);
  std::sort(lengths.rbegin(), lengths.rend());
  if (lengths.size() < 2 || lengths[0].first == lengths[1].first) return {};
  return {lengths[0].second, static_cast<size_t>(lengths[1].first), true};
}

// verl: positions are columns.
Matrix verl(const TokenCase& c, const std::vector<std::vector<size_t>>& groups) {
  const Sums sums = sums_of(c);
  Matrix advantages(sums.g.size(), List(sums.g[0].size()));
  for (const auto& group : groups) {
    const Tail tail = tail_of(sums.mask, group);
    for (size_t t = 0; t < sums.g[0].size(); ++t) {
      double numerator = 0, denominator = c.params.eps;
      for (const size_t b : group) {
        numerator += sums.g[b][t] * sums.w[b][t] * sums.mask[b][t];
        denominator += sums.w[b][t] * sums.mask[b][t];
      }
      for (const size_t b : group) {
        const bool none =
            group.size() == 1 || (c.params.zero_tail == ZeroTail::on && tail.any && tail.row == b && t >= tail.begin);
        advantages[b][t] = (sums.g[b][t] - (none ? 0 : numerator / denominator)) * sums.mask[b][t];
      }
    }
  }
  return advantages;
}

// verl, many turns: sequences are closed up to their active tokens first, and empty ones are in no group.
Matrix verl_turns(const TokenCase& c, const std::vector<std::vector<size_t>>& groups) {
  const Sums sums = sums_of(c);
  const size_t length = sums.g[0].size();
  Matrix advantages(sums.g.size(), List(length)), g(sums.g.size(), List(length)), w = g, baselines = g;
  for (size_t b = 0; b < g.size(); ++b) {
    size_t p = 0;
    for (size_t t = 0; t < length; ++t) {
      if (sums.mask[b][t] == 0) continue;
      g[b][p] = sums.g[b][t];
      w[b][p++] = sums.w[b][t];
    }
  }
  for (std::vector<size_t> group : groups) {
    std::erase_if(group, [&](size_t b) { return total(sums.mask[b]) == 0; });
    if (group.size() < 2) continue;
    const Tail tail = tail_of(sums.mask, group);
    for (size_t p = 0; p < length; ++p) {
      double numerator = 0, denominator = c.params.eps;
      for (const size_t b : group) {
        numerator += g[b][p] * w[b][p];
        denominator += w[b][p];
      }
      for (const size_t b : group) {
        const bool none = c.params.zero_tail == ZeroTail::on && tail.any && tail.row == b && p >= tail.begin;
        baselines[b][p] = none ? 0 : numerator / denominator;
      }
    }
  }
  for (size_t b = 0; b < g.size(); ++b) {
    size_t p = 0;
    for (size_t t = 0; t < length; ++t) {
      if (sums.mask[b][t] == 0) continue;
      advantages[b][t] = g[b][p] - baselines[b][p];
      ++p;
    }
  }
  return advantages;
}

void expect_near(const TokenCase& out, const Matrix& advantages, const Sums& sums) {
  const size_t length = advantages[0].size();
  for (size_t b = 0; b < advantages.size(); ++b) {
    for (size_t t = 0; t < length; ++t) {
      const auto i = static_cast<int64_t>(b * length + t);
      EXPECT_NEAR(out.advantages.get(i), advantages[b][t], 1e-11) << b << " " << t;
      EXPECT_NEAR(out.returns.get(i), sums.g[b][t] * sums.mask[b][t], 1e-12) << b << " " << t;
    }
  }
}

TEST(CpuOptimalTokenBaseline, MatchesVerlsEstimatorsForOneAndForManyTurns) {
  const std::vector<std::vector<size_t>> groups = {{0, 3, 5}, {1, 4}, {2}, {6, 7}};
  for (const bool active : {false, true}) {
    for (const bool tools : {false, true}) {
      for (const bool zero_tail : {false, true}) {
        for (const bool weighted : {false, true}) {
          TokenCase c = make_case(8, 29);
          // A longest sequence, a tie of two, a group of one, a group with an empty sequence.
          set_lengths(c, {20, 17, 29, 25, 17, 4, 9, 0}, tools);
          c.group_ids = integers({3, 0, 7, 3, 0, 3, 1, 1}, Dtype::i32);
          c.params.position = active ? Position::active : Position::token;
          c.params.zero_tail = zero_tail ? ZeroTail::on : ZeroTail::off;
          if (weighted) {
            c.weight = random_tensor(Dtype::f64, {8, 29}, 0.5, 4, Strides::reversed);
          }
          expect_near(run(c), active ? verl_turns(c, groups) : verl(c, groups), sums_of(c));
        }
      }
    }
  }
}

// Also where it has no active tokens (which under active has no group at all). The others are as without it.
TEST(CpuOptimalTokenBaseline, ASequenceOfAnIdOutOfRangeIsNan) {
  for (const Position position : {Position::token, Position::active}) {
    for (const bool empty : position == Position::token ? std::vector<bool>{false, true} : std::vector<bool>{false}) {
      TokenCase c = make_case(4, 5);
      set_lengths(c, {5, 5, empty ? 0 : 5, 5}, false);
      c.group_ids = integers({0, 0, 9, 1});
      c.params.position = position;
      const auto out = run(c);
      EXPECT_EQ(out.error.kind, cpu::kIdOutOfRange);
      EXPECT_EQ(std::pair(out.error.row, out.error.value), std::pair(int64_t{2}, int64_t{9}));
      c.group_ids = integers({0, 0, 2, 1});
      const auto valid = run(c);
      for (int64_t i = 0; i < 20; ++i) {
        const bool bad = i / 5 == 2;
        EXPECT_EQ(std::isnan(out.advantages.get(i)), bad) << i;
        EXPECT_EQ(std::isnan(out.returns.get(i)), bad) << i;
        if (bad) continue;
        EXPECT_EQ(out.advantages.get(i), valid.advantages.get(i)) << i;
        EXPECT_EQ(out.returns.get(i), valid.returns.get(i)) << i;
      }
    }
  }
}

TEST(CpuOptimalTokenBaseline, GroupsOfOneSizeNeedNoIds) {
  TokenCase c = make_case(6, 11);
  c.mask = Tensor();
  c.params.eps = 0.5;
  for (const int64_t size : {3, 1, 0}) {
    c.params.samples_per_prompt = size;
    const TokenCase out = run(c);
    c.mask = make_case(6, 11).mask;
    const std::vector<std::vector<size_t>> groups = size == 3 ? std::vector<std::vector<size_t>>{{0, 1, 2}, {3, 4, 5}}
                                                    : size == 1
                                                        ? std::vector<std::vector<size_t>>{{0}, {1}, {2}, {3}, {4}, {5}}
                                                        : std::vector<std::vector<size_t>>{{0, 1, 2, 3, 4, 5}};
    expect_near(out, verl(c, groups), sums_of(c));
    c.mask = Tensor();
  }
}

// Two sequences: pi 0.5, sum 0.5 gives w 0.5; pi 0.25, sum 0.25 gives w 0.75.
TEST(CpuOptimalTokenBaseline, TwoSequencesByHand) {
  TokenCase c;
  c.rewards = numbers({0, 1, 0, 3}, {2, 2});
  c.logp = numbers({std::log(0.5), std::log(0.5), std::log(0.25), std::log(0.25)}, {2, 2});
  c.sum_p2 = numbers({0.5, 0.5, 0.25, 0.25}, {2, 2});
  c.params.eps = 0.25;
  // (1 * 0.5 + 3 * 0.75) / (1.25 + 0.25), then the same with twice the weights.
  const double first = 2.75 / 1.5, second = 5.5 / 2.75;
  const List want = {1 - first, 1 - second, 3 - first, 3 - second};
  for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(run(c).advantages.get(static_cast<int64_t>(i)), want[i], 1e-15);
}

// As many active tokens in both, although one goes on for longer.
TEST(CpuOptimalTokenBaseline, TwoLongestSequencesHaveNoTail) {
  TokenCase c = make_case(2, 4);
  c.mask = flags({0, 1, 0, 1, 1, 1, 0, 0}, {2, 4});
  const TokenCase want = run(c);
  c.params.zero_tail = ZeroTail::on;
  EXPECT_EQ(run(c).advantages.bytes(), want.advantages.bytes());
  c.mask.set_int(0, 1);
  EXPECT_EQ(run(c).advantages.get(3), c.rewards.get(3));
}

// A NaN reward reaches back along its sequence, and at no position where that sequence is masked.
TEST(CpuOptimalTokenBaseline, ANanRewardReachesOnlyThePositionsOfItsSequence) {
  TokenCase c = make_case(2, 4);
  c.mask.set_int(1, 0);
  c.rewards.set(2, kNan);
  const TokenCase out = run(c);
  for (const int64_t i : {0, 2, 4, 6}) EXPECT_TRUE(std::isnan(out.advantages.get(i))) << i;
  for (const int64_t i : {1, 3, 5, 7}) EXPECT_FALSE(std::isnan(out.advantages.get(i))) << i;
}

TEST(CpuOptimalTokenBaseline, PackedSequencesHaveTheNumbersOfTheirDenseRows) {
  const std::vector<int64_t> lengths = {700, 0, 513, 1100, 1};
  for (const bool active : {false, true}) {
    TokenCase dense = make_case(5, 1100);
    set_lengths(dense, lengths, false);
    dense.params.position = active ? Position::active : Position::token;
    dense.params.zero_tail = ZeroTail::on;
    const TokenCase want = run(dense);
    const std::vector<std::vector<size_t>> groups = {{0, 1, 2, 3, 4}};
    expect_near(want, active ? verl_turns(dense, groups) : verl(dense, groups), sums_of(dense));
    TokenCase packed = dense;
    packed.params.layout = Layout::packed;
    packed.mask = Tensor();
    const auto total_length = static_cast<int64_t>(700 + 513 + 1100 + 1);
    std::vector<int64_t> starts = {0};
    for (const int64_t length : lengths) starts.push_back(starts.back() + length);
    packed.cu_seqlens = integers(starts);
    for (const auto field : {&TokenCase::rewards, &TokenCase::logp, &TokenCase::sum_p2}) {
      packed.*field = Tensor(Dtype::f64, {total_length});
      for (int64_t b = 0; b < 5; ++b) {
        const auto i = static_cast<size_t>(b);
        for (int64_t t = 0; t < lengths[i]; ++t) (packed.*field).set(starts[i] + t, (dense.*field).get(b * 1100 + t));
      }
    }
    const TokenCase out = run(packed);
    for (int64_t b = 0; b < 5; ++b) {
      const auto i = static_cast<size_t>(b);
      EXPECT_EQ(out.advantages.bits(starts[i], starts[i + 1]), want.advantages.bits(b * 1100, b * 1100 + lengths[i]));
      EXPECT_EQ(out.returns.bits(starts[i], starts[i + 1]), want.returns.bits(b * 1100, b * 1100 + lengths[i]));
    }
  }
}

}  // namespace
}  // namespace rlk::test
