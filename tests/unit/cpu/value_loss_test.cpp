// value_loss and its backward against each trainer's own formula, at ties and clip bounds, and in every aggregation.
#include <rlk/sdk/forward.hpp>
#include <rlk/sdk/ops/value_loss.hpp>
#include <rlk/sdk/ops/value_loss_backward.hpp>

#include "unit/cpu/dual.hpp"
#include "unit/cpu/trainer_rows.hpp"

namespace rlk::test {
namespace {

using ops::value_loss::Aggregation, ops::value_loss::ExcludeEmptySequences, ops::value_loss::Params;
using ops::value_loss_backward::ClampGradient;
using ValueLoss = CallOf<ops::ValueLoss>;
constexpr ExcludeEmptySequences kOn = ExcludeEmptySequences::on;

// Every output is asked for.
ValueLoss call_of(Tensor values, Tensor returns, Tensor old_values = Tensor(), double clip_eps = 0) {
  return {.values = std::move(values),
          .returns = std::move(returns),
          .old_values = std::move(old_values),
          .token_loss = wanted(),
          .clip_fraction = wanted(),
          .params = {.clip_eps = clip_eps}};
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

TEST(CpuValueLoss, MatchesEveryTrainersFormulaReductionAndGradient) {
  constexpr Aggregation kMeans = Aggregation::seq_mean_token_mean, kSums = Aggregation::seq_mean_token_sum;
  const struct {
    const char* name;
    Params params;
    double (*reduction)(const Matrix& loss, const Matrix& mask);
  } trainers[] = {
      {"TRL, OpenRLHF masked mean",
       {},
       [](const Matrix& l, const Matrix& m) { return sum_of(l, m) / std::max(tokens_of(m), 1.0); }},
      {"verl token-mean", {}, [](const Matrix& l, const Matrix& m) { return sum_of(l, m) / (tokens_of(m) + 1e-8); }},
      {"TRL dapo with a global count",
       {.denominator = 77},
       [](const Matrix& l, const Matrix& m) { return sum_of(l, m) / 77; }},
      {"the same by token_sum",
       {.aggregation = Aggregation::token_sum, .denominator = 77},
       [](const Matrix& l, const Matrix& m) { return sum_of(l, m) / 77; }},
      {"TRL grpo: empty sequences count",
       {.aggregation = kMeans},
       [](const Matrix& l, const Matrix& m) { return sum_of_means(l, m) / 4; }},
      {"verl seq-mean-token-mean: they do not",
       {.aggregation = kMeans, .exclude_empty_sequences = kOn},
       [](const Matrix& l, const Matrix& m) { return sum_of_means(l, m) / nonempty_of(m); }},
      {"verl seq-mean-token-sum",
       {.aggregation = kSums, .exclude_empty_sequences = kOn},
       [](const Matrix& l, const Matrix& m) { return sum_of(l, m) / nonempty_of(m); }},
      {"Dr.GRPO: max length 5",
       {.aggregation = kSums, .denominator = 20},
       [](const Matrix& l, const Matrix& m) { return sum_of(l, m) / (4 * 5); }},
      {"a floor of three tokens",
       {.aggregation = kMeans, .denominator = 1, .seq_denominator_floor = 3},
       [](const Matrix& l, const Matrix& m) { return sum_of_means(l, m, 3); }},
  };
  for (const auto& trainer : trainers) {
    for (const bool clip : {false, true}) {
      for (const auto token : {verl_token, openrlhf_token}) {
        SCOPED_TRACE(std::string(trainer.name) + (clip ? ", clipped" : ""));
        ValueLoss c = make_case(clip);
        c.params = trainer.params;
        c.params.clip_eps = clip ? 0.5 : 0;
        const Matrix mask = matrix_of(c.mask);
        Matrix loss = mask, gradient = mask;
        for (int64_t i = 0; i < 20; ++i) {
          const size_t b = static_cast<size_t>(i) / 5, t = static_cast<size_t>(i) % 5;
          const Dual l = token(variable(c.values.get(i)), clip ? c.old_values.get(i) : 0, c.returns.get(i),
                               clip ? c.params.clip_eps : 1e300);
          loss[b][t] = mask[b][t] * l.v;
          // The reduction is linear: of a token's loss by itself, moved by its own slope.
          Matrix only(4, Row(5));
          only[b][t] = l.d;
          gradient[b][t] = 1.5 * trainer.reduction(only, mask);
        }
        const auto out = run(c);
        EXPECT_NEAR(out.loss.get(0), trainer.reduction(loss, mask), 2e-8);  // verl's own 1e-8
        expect_near(out.token_loss, loss, 1e-13);
        expect_near(gradient_of(c, 1.5), gradient, 2e-8);
      }
    }
  }
}

// slime's value loss has no half: a denominator of half the rollouts. Its value_clip is 0.2 by default.
TEST(CpuValueLoss, SlimesLossIsThatOfHalfTheDenominator) {
  ValueLoss c = make_case(true);
  const double rollouts = 6;
  c.params = {.clip_eps = 0.2, .aggregation = Aggregation::seq_mean_token_mean, .denominator = rollouts / 2};
  const Matrix mask = matrix_of(c.mask);
  Matrix gradient = mask;
  double loss = 0;
  for (int64_t i = 0; i < 20; ++i) {  // max of the squares, over the tokens of the sample
    const size_t b = static_cast<size_t>(i) / 5, t = static_cast<size_t>(i) % 5;
    const Dual v = variable(c.values.get(i)), old_value = c.old_values.get(i), target = c.returns.get(i);
    const Dual clipped = old_value + clamp(v - old_value, -0.2, 0.2);
    const Dual of_token = max((clipped - target) * (clipped - target), (v - target) * (v - target));
    const Dual weight = mask[b][t] / (std::max(tokens_of(mask[b]), 1.0) * rollouts);
    gradient[b][t] = (of_token * weight).d;
    loss += (of_token * weight).v;
  }
  expect_near(gradient_of(c, 1), gradient, 1e-14);
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

TEST(CpuValueLoss, TheOnlyTokenThatCountsMayBeClipped) {
  ValueLoss c = call_of(numbers({9, 3}, {1, 2}), numbers({9, 5}, {1, 2}), numbers({9, 0}, {1, 2}), 0.5);
  c.mask = flags({0, 1}, {1, 2});
  const auto got = run(c);
  const auto golden = golden_answer(c);
  EXPECT_EQ(got.clip_fraction.get(0), 1);  // (0.5 - 5)^2 is more than (3 - 5)^2
  EXPECT_EQ(golden.clip_fraction.value[0], 1);
  EXPECT_EQ(got.loss.get(0), golden.loss.value[0]);
  EXPECT_GT(got.loss.get(0), 0);
}

}  // namespace
}  // namespace rlk::test
