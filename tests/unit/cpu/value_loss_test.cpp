// value_loss and its backward against each trainer's own formula, at ties and clip bounds, and in every aggregation.
#include <rlk/sdk/forward.hpp>
#include <rlk/sdk/ops/value_loss.hpp>
#include <rlk/sdk/ops/value_loss_backward.hpp>

#include <algorithm>
#include <cmath>
#include <limits>

#include "unit/cpu/dual.hpp"
#include "unit/cpu/token_case.hpp"

namespace rlk::test {
namespace {

using ops::value_loss::Aggregation, ops::value_loss::ExcludeEmptySequences, ops::value_loss::Params;
using ops::value_loss_backward::ClampGradient;
using ValueLoss = CallOf<ops::ValueLoss>;
using List = std::vector<double>;
constexpr ExcludeEmptySequences kOn = ExcludeEmptySequences::on;
constexpr Aggregation kAggregations[] = {Aggregation::token_mean, Aggregation::token_sum,
                                         Aggregation::seq_mean_token_mean, Aggregation::seq_mean_token_sum,
                                         Aggregation::none};
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

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

Tensor gradient_of(const ValueLoss& c, double grad_loss, const Tensor& grad_token_loss = Tensor(),
                   const cpu::ParallelFor& hook = cpu::serial_parallel(), ClampGradient rule = ClampGradient::zero) {
  auto backward = sdk::backward_of<CallOf<ops::ValueLossBackward>>(c);
  backward.grad_loss = numbers({grad_loss}, {}, accumulator(c.values.dtype()));
  backward.grad_token_loss = grad_token_loss;
  backward.params.clamp_gradient = rule;
  return run(backward, hook).grad_values;
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
};
using Reduction = double (*)(const Sequences&);
double total(const List& list) {
  double sum = 0;
  for (const double x : list) sum += x;
  return sum;
}
double masked_mean(const Sequences& s) {
  return total(s.sums) / std::max(total(s.counts), 1.0);
}  // TRL, OpenRLHF
double token_mean(const Sequences& s) {
  return total(s.sums) / (total(s.counts) + 1e-8);
}  // verl
double trl_grpo(const Sequences& s) {  // empty sequences count
  double sum = 0;
  for (size_t b = 0; b < s.sums.size(); ++b) sum += s.sums[b] / std::max(s.counts[b], 1.0);
  return sum / static_cast<double>(s.sums.size());
}
double verl_seq_mean_token_mean(const Sequences& s) {  // empty sequences do not
  double sum = 0, n = 0;
  for (size_t b = 0; b < s.sums.size(); ++b) {
    sum += s.sums[b] / (s.counts[b] + 1e-8);
    n += s.counts[b] > 0 ? 1 : 0;
  }
  return sum / n;
}
double verl_seq_mean_token_sum(const Sequences& s) {
  double n = 0;
  for (const double count : s.counts) n += count > 0 ? 1 : 0;
  return total(s.sums) / n;
}
double dr_grpo(const Sequences& s) {
  return total(s.sums) / (static_cast<double>(s.sums.size()) * 5);
}  // max length
double global_tokens(const Sequences& s) {
  return total(s.sums) / 77;
}

TEST(CpuValueLoss, MatchesEveryTrainersFormulaReductionAndGradient) {
  struct Trainer {
    const char* name;
    Reduction reduction;
    Params params;
  };
  const Trainer trainers[] = {
      {"masked mean", masked_mean, {}},
      {"verl token-mean", token_mean, {}},
      {"TRL dapo with a global count", global_tokens, {.aggregation = Aggregation::token_mean, .denominator = 77}},
      {"the same by token_sum", global_tokens, {.aggregation = Aggregation::token_sum, .denominator = 77}},
      {"TRL grpo", trl_grpo, {.aggregation = Aggregation::seq_mean_token_mean}},
      {"verl seq-mean-token-mean",
       verl_seq_mean_token_mean,
       {.aggregation = Aggregation::seq_mean_token_mean, .exclude_empty_sequences = kOn}},
      {"verl seq-mean-token-sum",
       verl_seq_mean_token_sum,
       {.aggregation = Aggregation::seq_mean_token_sum, .exclude_empty_sequences = kOn}},
      {"Dr.GRPO", dr_grpo, {.aggregation = Aggregation::seq_mean_token_sum, .denominator = 20}},
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

// Values at the upper bound, at the lower one, and inside with errors that are equal: torch.max gives half to each.
TEST(CpuValueLoss, GradientAtTheClipBoundIsTheTrainersWithTheirTorch) {
  ValueLoss c =
      call_of(numbers({1, -1, 0.25}, {1, 3}), numbers({-0.5, 2, 1.25}, {1, 3}), numbers({0, 0, 0}, {1, 3}), 1);
  c.params.aggregation = Aggregation::token_sum;
  const auto gradient = [&](ClampGradient rule) {
    return list_of(gradient_of(c, 1, Tensor(), cpu::serial_parallel(), rule));
  };
  EXPECT_EQ(list_of(gradient_of(c, 1)), (List{0.75, -1.5, -1}));  // torch 2.15: nothing of the clipped half
  EXPECT_EQ(gradient(ClampGradient::half), (List{1.125, -2.25, -1}));
  EXPECT_EQ(gradient(ClampGradient::pass), (List{1.5, -3, -1}));
  for (int64_t i = 0; i < 3; ++i) {
    const Dual verl = verl_token(variable(c.values.get(i)), 0, c.returns.get(i), 1);
    EXPECT_EQ(gradient(ClampGradient::half)[static_cast<size_t>(i)], verl.d);
  }
}

// Beyond the bound: errors of 0.5 and -0.5 once clipped share the gradient, errors of -1 and 1 do, too.
TEST(CpuValueLoss, GradientAtEqualErrorsOutsideTheClipIsHalf) {
  ValueLoss c = call_of(numbers({2, 3}, {1, 2}), numbers({1.5, 2}, {1, 2}), numbers({0, 0}, {1, 2}), 1);
  c.params.aggregation = Aggregation::token_sum;
  for (const ClampGradient rule : {ClampGradient::zero, ClampGradient::half, ClampGradient::pass}) {
    EXPECT_EQ(list_of(gradient_of(c, 1, Tensor(), cpu::serial_parallel(), rule)), (List{0.25, 0.5}));
  }
}

// A clip too narrow for the dtype: a value is both bounds.
TEST(CpuValueLoss, GradientBetweenEqualBoundsMeetsBoth) {
  ValueLoss c = call_of(numbers({1}, {1, 1}), numbers({0}, {1, 1}), numbers({1}, {1, 1}), 1e-30);
  const auto gradient = [&](ClampGradient rule) {
    return gradient_of(c, 1, Tensor(), cpu::serial_parallel(), rule).get(0);
  };
  EXPECT_EQ(gradient(ClampGradient::zero), 0.5);
  EXPECT_EQ(gradient(ClampGradient::half), 0.625);
  EXPECT_EQ(gradient(ClampGradient::pass), 1);
}

TEST(CpuValueLoss, TheFloorOfASequencesDenominatorHoldsForShortSequences) {
  ValueLoss c = make_case(false);
  c.params = {.aggregation = Aggregation::seq_mean_token_mean, .denominator = 1, .seq_denominator_floor = 3};
  const auto out = run(c);
  double want = 0;
  const List denominators = {5, 3, 3, 3};
  for (int64_t i = 0; i < 20; ++i) want += out.token_loss.get(i) / denominators[static_cast<size_t>(i / 5)];
  EXPECT_NEAR(out.loss.get(0), want, 1e-13);
}

TEST(CpuValueLoss, NoneLeavesTheLossAtZeroAndTheTokensToTheCaller) {
  ValueLoss c = make_case(true);
  const Tensor of_tokens = random_tensor(Dtype::f64, {4, 5}, 1, 9);
  c.params.aggregation = Aggregation::token_sum;
  const auto sum = run(c);
  const Tensor want = gradient_of(c, 0, of_tokens);
  c.params.aggregation = Aggregation::none;
  EXPECT_EQ(run(c).loss.get(0), 0.0);
  EXPECT_EQ(run(c).token_loss.bytes(), sum.token_loss.bytes());
  EXPECT_EQ(gradient_of(c, kNan, of_tokens).bytes(), want.bytes());
}

TEST(CpuValueLoss, NothingLeaksFromMaskedTokensAndAllMaskedIsZero) {
  ValueLoss c = make_case(true);
  const auto want = run(c);
  const Tensor want_gradient = gradient_of(c, 1);
  for (int64_t i = 0; i < 20; ++i) {
    if (c.mask.get_int(i) != 0) continue;
    c.values.set(i, kNan);
    c.returns.set(i, kNan);
    c.old_values.set(i, kNan);
  }
  EXPECT_EQ(run(c).loss.bytes(), want.loss.bytes());
  EXPECT_EQ(run(c).token_loss.bytes(), want.token_loss.bytes());
  EXPECT_EQ(gradient_of(c, 1).bytes(), want_gradient.bytes());
  c.mask = flags(std::vector<int>(20, 0), {4, 5});
  for (const Aggregation kind : kAggregations) {
    for (const auto exclude : {ExcludeEmptySequences::off, kOn}) {
      c.params.aggregation = kind;
      c.params.exclude_empty_sequences = exclude;
      EXPECT_EQ(run(c).loss.get(0), 0.0);
      EXPECT_EQ(run(c).clip_fraction.get(0), 0.0);
      EXPECT_EQ(list_of(gradient_of(c, 1)), List(20, 0.0));
    }
  }
}

// The same tokens as rows with padding that is masked, and packed without it.
TEST(CpuValueLoss, PackedSequencesReduceLikeDenseOnesAndBadOnesAreADataError) {
  const std::vector<int64_t> starts = {0, 5, 7, 7, 9};
  ValueLoss dense = make_case(true);
  dense.mask = flags({1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 0, 0, 0}, {4, 5});
  const std::vector<int64_t> tokens = {0, 1, 2, 3, 4, 5, 6, 15, 16};  // of the dense case; the seventh is masked
  const auto pick = [&](const Tensor& from) {
    List list;
    for (const int64_t i : tokens) list.push_back(from.get(i));
    return numbers(list);
  };
  ValueLoss packed = call_of(pick(dense.values), pick(dense.returns), pick(dense.old_values), dense.params.clip_eps);
  packed.params.layout = ops::value_loss::Layout::packed;
  packed.mask = flags({1, 1, 1, 1, 1, 1, 0, 1, 1});
  packed.cu_seqlens = integers(starts, Dtype::i32);
  for (const Aggregation kind : kAggregations) {
    for (const auto exclude : {ExcludeEmptySequences::off, kOn}) {
      for (ValueLoss* c : {&dense, &packed}) {
        c->params.aggregation = kind;
        c->params.exclude_empty_sequences = exclude;
        c->params.seq_denominator_floor = 1.5;
      }
      const auto want = run(dense), got = run(packed);
      EXPECT_EQ(got.loss.bytes(), want.loss.bytes());
      EXPECT_EQ(got.clip_fraction.bytes(), want.clip_fraction.bytes());
      EXPECT_EQ(list_of(got.token_loss), list_of(pick(want.token_loss)));
      EXPECT_EQ(list_of(gradient_of(packed, 2)), list_of(pick(gradient_of(dense, 2))));
    }
  }
  packed.cu_seqlens = integers({0, 5, 4, 9});
  const auto bad = run(packed);
  EXPECT_EQ(bad.error.kind, cpu::kBadSeqlens);
  EXPECT_EQ(bad.error.row, 2);
  EXPECT_EQ(bad.error.value, 4);
  EXPECT_TRUE(std::isnan(bad.loss.get(0)) && std::isnan(bad.clip_fraction.get(0)) && std::isnan(bad.token_loss.get(8)));
  EXPECT_TRUE(std::isnan(gradient_of(packed, 2).get(0)));
}

}  // namespace
}  // namespace rlk::test
