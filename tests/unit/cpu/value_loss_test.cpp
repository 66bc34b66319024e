// value_loss and its backward against each trainer's own formula, at ties and clip bounds, and in every aggregation.
#include <rlk/sdk/forward.hpp>
#include <rlk/sdk/ops/value_loss.hpp>
#include <rlk/sdk/ops/value_loss_backward.hpp>

#include <algorithm>
#include <numeric>

#include "unit/cpu/dual.hpp"
#include "unit/cpu/token_case.hpp"

namespace rlk::test {
namespace {

using ops::value_loss::Aggregation, ops::value_loss::ExcludeEmptySequences, ops::value_loss::Params;
using ops::value_loss_backward::ClampGradient;
using ValueLoss = CallOf<ops::ValueLoss>;
constexpr ExcludeEmptySequences kOn = ExcludeEmptySequences::on;

// Every output is asked for.
ValueLoss call_of(Tensor values, Tensor returns, Tensor old_values = Tensor(), double clip_eps = 0) {
  ValueLoss c;
  c.values = std::move(values);
  c.returns = std::move(returns);
  c.old_values = std::move(old_values);
  c.params.clip_eps = clip_eps;
  c.token_loss = c.clip_fraction = wanted();
  return c;
}

Tensor gradient_of(const ValueLoss& c, double grad_loss, ClampGradient rule = ClampGradient::zero,
                   const Tensor& grad_token_loss = Tensor()) {
  auto backward = sdk::backward_of<CallOf<ops::ValueLossBackward>>(c);
  backward.grad_loss = numbers({grad_loss}, {}, accumulator(c.values.dtype()));
  backward.grad_token_loss = grad_token_loss;
  backward.params.clamp_gradient = rule;
  return run(backward).grad_values;
}

// Four sequences of five tokens; the third has no token that counts.
ValueLoss make_case(bool clip) {
  ValueLoss c = call_of(random_tensor(Dtype::f64, {4, 5}, 1, 1), random_tensor(Dtype::f64, {4, 5}, 1, 2));
  c.mask = flags({1, 1, 1, 1, 1, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1, 1, 0, 0, 0}, {4, 5});
  if (clip) {
    c.old_values = random_tensor(Dtype::f64, {4, 5}, 1, 3);
    c.params.clip_eps = 0.5;
  }
  return c;
}

// ---- the trainers' formulas: a token's loss without the reduction, then the reduction of masked token losses ------

// verl: clip the value, by torch.min and torch.max; OpenRLHF: add the clipped difference. The value carries the
// gradient.
Dual verl_token(Dual v, double old_value, double target, double eps) {
  const Dual clipped = max(min(v, old_value + eps), old_value - eps);
  return Dual(0.5) * max((v - target) * (v - target), (clipped - target) * (clipped - target));
}
Dual openrlhf_token(Dual v, double old_value, double target, double eps) {
  const Dual clipped = Dual(old_value) + clamp(v - old_value, -eps, eps);
  return Dual(0.5) * max((clipped - target) * (clipped - target), (v - target) * (v - target));
}

struct Sequences {
  List sums, counts;  // of masked token losses, of tokens that count
  double loss() const { return std::accumulate(sums.begin(), sums.end(), 0.0); }
  double tokens() const { return std::accumulate(counts.begin(), counts.end(), 0.0); }
  double nonempty() const {
    return static_cast<double>(std::count_if(counts.begin(), counts.end(), [](double count) { return count > 0; }));
  }
  // The sum of sequences' means; a mean divides by what `denominator` makes of its count.
  double means(double (*denominator)(double)) const {
    double sum = 0;
    for (size_t b = 0; b < sums.size(); ++b) sum += sums[b] / denominator(counts[b]);
    return sum;
  }
};
double at_least_one(double count) {
  return std::max(count, 1.0);
}

TEST(CpuValueLoss, MatchesEveryTrainersFormulaReductionAndGradient) {
  constexpr Aggregation kMeans = Aggregation::seq_mean_token_mean, kSums = Aggregation::seq_mean_token_sum;
  struct Trainer {
    const char* name;
    Params params;
    double (*reduction)(const Sequences&);
  };
  const Trainer trainers[] = {
      {"TRL, OpenRLHF masked mean", {}, [](const Sequences& s) { return s.loss() / std::max(s.tokens(), 1.0); }},
      {"verl token-mean", {}, [](const Sequences& s) { return s.loss() / (s.tokens() + 1e-8); }},
      {"TRL dapo with a global count", {.denominator = 77}, [](const Sequences& s) { return s.loss() / 77; }},
      {"the same by token_sum",
       {.aggregation = Aggregation::token_sum, .denominator = 77},
       [](const Sequences& s) { return s.loss() / 77; }},
      {"TRL grpo: empty sequences count",
       {.aggregation = kMeans},
       [](const Sequences& s) { return s.means(at_least_one) / 4; }},
      {"verl seq-mean-token-mean: they do not",
       {.aggregation = kMeans, .exclude_empty_sequences = kOn},
       [](const Sequences& s) { return s.means([](double count) { return count + 1e-8; }) / s.nonempty(); }},
      {"verl seq-mean-token-sum",
       {.aggregation = kSums, .exclude_empty_sequences = kOn},
       [](const Sequences& s) { return s.loss() / s.nonempty(); }},
      {"Dr.GRPO: max length 5",
       {.aggregation = kSums, .denominator = 20},
       [](const Sequences& s) { return s.loss() / (4 * 5); }},
      {"a floor of three tokens",
       {.aggregation = kMeans, .denominator = 1, .seq_denominator_floor = 3},
       [](const Sequences& s) { return s.means([](double count) { return std::max(count, 3.0); }); }},
  };
  for (const Trainer& trainer : trainers) {
    for (const bool clip : {false, true}) {
      for (const auto token : {verl_token, openrlhf_token}) {
        SCOPED_TRACE(std::string(trainer.name) + (clip ? ", clipped" : ""));
        ValueLoss c = make_case(clip);
        c.params = trainer.params;
        c.params.clip_eps = clip ? 0.5 : 0;
        const auto out = run(c);
        const Tensor gradient = gradient_of(c, 1.5);
        const auto token_of = [&](int64_t i) {
          const double old_value = clip ? c.old_values.get(i) : 0;
          return token(variable(c.values.get(i)), old_value, c.returns.get(i), clip ? c.params.clip_eps : 1e300);
        };
        // The losses as they are, and each token's loss moved by its own slope: the reduction is linear.
        Sequences sequences{List(4), List(4)};
        for (int64_t i = 0; i < 20; ++i) {
          if (c.mask.get_int(i) == 0) continue;
          sequences.sums[static_cast<size_t>(i / 5)] += token_of(i).v;
          sequences.counts[static_cast<size_t>(i / 5)] += 1;
        }
        EXPECT_NEAR(out.loss.get(0), trainer.reduction(sequences), 2e-8);  // verl's own 1e-8
        for (int64_t i = 0; i < 20; ++i) {
          const bool active = c.mask.get_int(i) != 0;
          Sequences only{List(4), sequences.counts};
          only.sums[static_cast<size_t>(i / 5)] = token_of(i).d;
          EXPECT_NEAR(gradient.get(i), active ? 1.5 * trainer.reduction(only) : 0, 2e-8);
          EXPECT_NEAR(out.token_loss.get(i), active ? token_of(i).v : 0, 1e-13);
        }
      }
    }
  }
}

// slime's value loss has no half: a denominator of half the rollouts. Its value_clip is 0.2 by default.
TEST(CpuValueLoss, SlimesLossIsThatOfHalfTheDenominator) {
  ValueLoss c = make_case(true);
  const double rollouts = 6;
  c.params = {.clip_eps = 0.2, .aggregation = Aggregation::seq_mean_token_mean, .denominator = rollouts / 2};
  const auto published = [&](int64_t i) {  // max of the squares, over the tokens of the sample
    double n = 0;
    for (int64_t t = i / 5 * 5; t < i / 5 * 5 + 5; ++t) n += c.mask.get_int(t) != 0 ? 1 : 0;
    const Dual v = variable(c.values.get(i)), old_value = c.old_values.get(i), target = c.returns.get(i);
    const Dual clipped = old_value + clamp(v - old_value, -0.2, 0.2);
    const Dual loss = max((clipped - target) * (clipped - target), (v - target) * (v - target));
    return c.mask.get_int(i) != 0 ? loss / (std::max(n, 1.0) * rollouts) : Dual();
  };
  const Tensor gradient = gradient_of(c, 1);
  double loss = 0;
  for (int64_t i = 0; i < 20; ++i) {
    loss += published(i).v;
    EXPECT_NEAR(gradient.get(i), published(i).d, 1e-14) << i;
  }
  EXPECT_NEAR(run(c).loss.get(0), loss, 1e-14);
}

TEST(CpuValueLoss, ClipFractionCountsActiveTokensWhoseClippedErrorIsLarger) {
  // Clipped to 1: further away, nearer, not clipped, masked.
  ValueLoss c =
      call_of(numbers({2, 2, 0.5, 2}, {1, 4}), numbers({2, -1, 9, 2}, {1, 4}), numbers({0, 0, 0, 0}, {1, 4}), 1);
  c.mask = flags({1, 1, 1, 0}, {1, 4});
  const auto out = run(c);
  EXPECT_EQ(list_of(out.token_loss), (List{0.5, 4.5, 0.5 * 8.5 * 8.5, 0}));
  EXPECT_EQ(out.clip_fraction.get(0), 1.0 / 3);
  EXPECT_EQ(list_of(gradient_of(c, 3)), (List{0, 3, -8.5, 0}));
}

// torch.max gives half of the gradient to each of two errors that are equal.
TEST(CpuValueLoss, GradientAtTheClipBoundIsTheTrainersWithTheirTorch) {
  struct Row {
    double value, target, old_value, eps, zero, half, pass;
  };
  const Row rows[] = {
      {1, -0.5, 0, 1, 0.75, 1.125, 1.5},  // at the upper bound
      {-1, 2, 0, 1, -1.5, -2.25, -3},     // at the lower one
      {0.25, 1.25, 0, 1, -1, -1, -1},     // inside, with equal errors
      {2, 1.5, 0, 1, 0.25, 0.25, 0.25},   // beyond: equal errors of 0.5 and -0.5
      {3, 2, 0, 1, 0.5, 0.5, 0.5},        // beyond: of 1 and -1
      {1, 0, 1, 1e-30, 0.5, 0.625, 1},    // a clip too narrow for the dtype: the value is both bounds
  };
  for (const Row& row : rows) {
    ValueLoss c =
        call_of(numbers({row.value}, {1, 1}), numbers({row.target}, {1, 1}), numbers({row.old_value}, {1, 1}), row.eps);
    EXPECT_EQ(gradient_of(c, 1).get(0), row.zero);  // torch 2.15: nothing of the clipped half
    EXPECT_EQ(gradient_of(c, 1, ClampGradient::half).get(0), row.half);
    EXPECT_EQ(gradient_of(c, 1, ClampGradient::pass).get(0), row.pass);
    EXPECT_EQ(row.half, verl_token(variable(row.value), row.old_value, row.target, row.eps).d);
  }
}

TEST(CpuValueLoss, NoneLeavesTheLossAtZeroAndTheTokensToTheCaller) {
  ValueLoss c = make_case(true);
  const Tensor of_tokens = random_tensor(Dtype::f64, {4, 5}, 1, 9);
  c.params.aggregation = Aggregation::token_sum;
  const auto sum = run(c);
  const Tensor want = gradient_of(c, 0, ClampGradient::zero, of_tokens);
  c.params.aggregation = Aggregation::none;
  EXPECT_EQ(run(c).loss.get(0), 0.0);
  EXPECT_EQ(run(c).token_loss.bytes(), sum.token_loss.bytes());
  EXPECT_EQ(gradient_of(c, kNan, ClampGradient::zero, of_tokens).bytes(), want.bytes());
}

TEST(CpuValueLoss, AllMaskedIsZeroInEveryAggregation) {
  ValueLoss c = make_case(true);
  c.mask = flags(std::vector<int>(20, 0), {4, 5});
  for (const auto kind : {Aggregation::token_mean, Aggregation::token_sum, Aggregation::seq_mean_token_mean,
                          Aggregation::seq_mean_token_sum, Aggregation::none}) {
    for (const auto exclude : {ExcludeEmptySequences::off, kOn}) {
      c.params.aggregation = kind;
      c.params.exclude_empty_sequences = exclude;
      EXPECT_EQ(run(c).loss.get(0), 0.0);
      EXPECT_EQ(run(c).clip_fraction.get(0), 0.0);
      EXPECT_EQ(list_of(gradient_of(c, 1)), List(20, 0.0));
    }
  }
}

}  // namespace
}  // namespace rlk::test
