// value_loss and its backward against each trainer's own formula, at ties and clip bounds, and in every aggregation.
#include <rlk/ops/value_loss.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/cpu/policy/value_loss.hpp"
#include "unit/cpu/dual.hpp"
#include "unit/cpu/token_case.hpp"

namespace rlk::test {
namespace {

using cpu::Aggregation;
using List = std::vector<double>;
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

struct ValueCase {
  Tensor values, returns, old_values, mask, cu_seqlens;
  double clip_eps = 0;
  cpu::AggregationOptions aggregation;
};
struct ValueOutputs {
  Tensor loss, token_loss, clip_fraction;
};

template <class Args>
Args common_args(ValueCase& c, std::vector<double>& workspace) {
  Args args;
  args.sequences = sequences_of(c.values, c.cu_seqlens);
  args.values = array_of(c.values);
  args.returns = array_of(c.returns);
  args.old_values = array_of(c.old_values);
  args.clip_eps = c.clip_eps;
  args.mask = mask_of(c.mask);
  args.aggregation = c.aggregation;
  workspace.resize(static_cast<size_t>(cpu::value_loss_workspace_bytes(args.sequences.count) / 8 + 1));
  args.workspace = workspace.data();
  return args;
}

ValueOutputs run(ValueCase& c, const cpu::ParallelFor& hook = cpu::serial_parallel(), cpu::DataError* error = nullptr) {
  const Dtype dtype = accumulator(c.values.dtype());
  ValueOutputs out{Tensor(dtype, {1}), Tensor(dtype, c.values.shape()), Tensor(dtype, {1})};
  std::vector<double> workspace;
  auto args = common_args<cpu::ValueLossArgs>(c, workspace);
  args.loss = array_of(out.loss);
  args.token_loss = array_of(out.token_loss);
  args.clip_fraction = array_of(out.clip_fraction);
  const cpu::DataError told = cpu::value_loss(args, hook);
  if (error != nullptr) *error = told;
  return out;
}

Tensor run_backward(ValueCase& c, double grad_loss, Tensor grad_token_loss = Tensor(),
                    const cpu::ParallelFor& hook = cpu::serial_parallel()) {
  Tensor gradient(c.values.dtype(), c.values.shape());
  Tensor of_loss = numbers({grad_loss});
  std::vector<double> workspace;
  auto args = common_args<cpu::ValueLossBackwardArgs>(c, workspace);
  args.grad_loss = array_of(of_loss);
  args.grad_token_loss = array_of(grad_token_loss);
  args.grad_values = array_of(gradient);
  cpu::value_loss_backward(args, hook);
  return gradient;
}

// Four sequences of five tokens; the third has no token that counts.
ValueCase make_case(bool clip) {
  ValueCase c;
  c.values = random_tensor(Dtype::f64, {4, 5}, 1, 1);
  c.returns = random_tensor(Dtype::f64, {4, 5}, 1, 2);
  c.mask = flags({1, 1, 1, 1, 1, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1, 1, 0, 0, 0}, {4, 5});
  if (clip) {
    c.old_values = random_tensor(Dtype::f64, {4, 5}, 1, 3);
    c.clip_eps = 0.5;
  }
  return c;
}

// ---- the trainers' formulas: a token's loss without the reduction, then the reduction of masked token losses ------

// verl: clip the value; OpenRLHF: add the clipped difference. The value carries the gradient.
Dual verl_token(Dual v, double old_value, double target, double eps) {
  const Dual clipped = clamp(v, old_value - eps, old_value + eps);
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
    cpu::AggregationOptions options;
  };
  const Trainer trainers[] = {
      {"masked mean", masked_mean, {}},
      {"verl token-mean", token_mean, {}},
      {"TRL dapo with a global count", global_tokens, {Aggregation::token_mean, 77}},
      {"the same by token_sum", global_tokens, {Aggregation::token_sum, 77}},
      {"TRL grpo", trl_grpo, {Aggregation::seq_mean_token_mean}},
      {"verl seq-mean-token-mean", verl_seq_mean_token_mean, {Aggregation::seq_mean_token_mean, 0, true}},
      {"verl seq-mean-token-sum", verl_seq_mean_token_sum, {Aggregation::seq_mean_token_sum, 0, true}},
      {"Dr.GRPO", dr_grpo, {Aggregation::seq_mean_token_sum, 20}},
  };
  for (const Trainer& trainer : trainers) {
    for (const bool clip : {false, true}) {
      for (const auto token : {verl_token, openrlhf_token}) {
        SCOPED_TRACE(std::string(trainer.name) + (clip ? ", clipped" : ""));
        ValueCase c = make_case(clip);
        c.aggregation = trainer.options;
        const ValueOutputs out = run(c);
        const Tensor gradient = run_backward(c, 1.5);
        const auto token_of = [&](int64_t i) {
          const double old_value = clip ? c.old_values.get(i) : 0;
          return token(variable(c.values.get(i)), old_value, c.returns.get(i), clip ? c.clip_eps : 1e300);
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
  ValueCase c = make_case(true);
  c.clip_eps = 0.2;
  const double rollouts = 6;
  c.aggregation = {Aggregation::seq_mean_token_mean, rollouts / 2};
  const auto published = [&](int64_t i) {  // max of the squares, over the tokens of the sample
    double n = 0;
    for (int64_t t = i / 5 * 5; t < i / 5 * 5 + 5; ++t) n += c.mask.get_int(t) != 0 ? 1 : 0;
    const Dual v = variable(c.values.get(i)), old_value = c.old_values.get(i), target = c.returns.get(i);
    const Dual clipped = old_value + clamp(v - old_value, -0.2, 0.2);
    const Dual loss = max((clipped - target) * (clipped - target), (v - target) * (v - target));
    return c.mask.get_int(i) != 0 ? loss / (std::max(n, 1.0) * rollouts) : Dual();
  };
  const Tensor gradient = run_backward(c, 1);
  double loss = 0;
  for (int64_t i = 0; i < 20; ++i) {
    loss += published(i).v;
    EXPECT_NEAR(gradient.get(i), published(i).d, 1e-14) << i;
  }
  EXPECT_NEAR(run(c).loss.get(0), loss, 1e-14);
}

TEST(CpuValueLoss, ClipFractionCountsActiveTokensWhoseClippedErrorIsLarger) {
  ValueCase c;
  c.values = numbers({2, 2, 0.5, 2}, {1, 4});
  c.old_values = numbers({0, 0, 0, 0}, {1, 4});
  c.returns = numbers({2, -1, 9, 2}, {1, 4});  // clipped to 1: further away, nearer, not clipped, masked
  c.mask = flags({1, 1, 1, 0}, {1, 4});
  c.clip_eps = 1;
  const ValueOutputs out = run(c);
  EXPECT_EQ(list_of(out.token_loss), (List{0.5, 4.5, 0.5 * 8.5 * 8.5, 0}));
  EXPECT_EQ(out.clip_fraction.get(0), 1.0 / 3);
  EXPECT_EQ(list_of(run_backward(c, 3)), (List{0, 3, -8.5, 0}));
}

// torch: clamp passes the gradient at its bounds, max gives half to each side at equality.
TEST(CpuValueLoss, GradientAtTheClipBoundAndAtEqualErrorsIsTorchs) {
  ValueCase c;
  c.values = numbers({1, 2, 3}, {1, 3});
  c.old_values = numbers({0, 0, 0}, {1, 3});
  c.returns = numbers({5, 1.5, 2}, {1, 3});
  c.clip_eps = 1;
  c.aggregation.kind = Aggregation::token_sum;
  // At the bound: v - R. Errors 0.5 and -0.5, clipped: half of 0.5. Errors 1 and -1: half of 1.
  EXPECT_EQ(list_of(run_backward(c, 1)), (List{-4, 0.25, 0.5}));
  for (int64_t i = 0; i < 3; ++i) {
    const Dual token = verl_token(variable(c.values.get(i)), 0, c.returns.get(i), 1);
    EXPECT_EQ(run_backward(c, 1).get(i), token.d);
  }
}

TEST(CpuValueLoss, TheFloorOfASequencesDenominatorHoldsForShortSequences) {
  ValueCase c = make_case(false);
  c.aggregation = {Aggregation::seq_mean_token_mean, 1, false, 3};
  const ValueOutputs out = run(c);
  double want = 0;
  const List denominators = {5, 3, 3, 3};
  for (int64_t i = 0; i < 20; ++i) want += out.token_loss.get(i) / denominators[static_cast<size_t>(i / 5)];
  EXPECT_NEAR(out.loss.get(0), want, 1e-13);
}

TEST(CpuValueLoss, NoneLeavesTheLossAtZeroAndTheTokensToTheCaller) {
  ValueCase c = make_case(true);
  const Tensor of_tokens = random_tensor(Dtype::f64, {4, 5}, 1, 9);
  c.aggregation.kind = Aggregation::token_sum;
  const ValueOutputs sum = run(c);
  const Tensor want = run_backward(c, 0, of_tokens);
  c.aggregation.kind = Aggregation::none;
  EXPECT_EQ(run(c).loss.get(0), 0.0);
  EXPECT_EQ(run(c).token_loss.bytes(), sum.token_loss.bytes());
  EXPECT_EQ(run_backward(c, kNan, of_tokens).bytes(), want.bytes());
}

TEST(CpuValueLoss, GradientIsTheSlopeOfGolden) {
  for (int64_t kind = 0; kind <= 4; ++kind) {
    ValueCase c = make_case(true);
    c.aggregation = {static_cast<Aggregation>(kind), 0, true, 2};
    const Tensor of_tokens = random_tensor(Dtype::f64, {4, 5}, 1, 9);
    const Tensor gradient = run_backward(c, 0.7, of_tokens);
    rlk_value_loss_params params = RLK_VALUE_LOSS_PARAMS_INIT;
    params.aggregation = kind;
    params.clip_eps = c.clip_eps;
    params.exclude_empty_sequences = RLK_VALUE_LOSS_EXCLUDE_EMPTY_SEQUENCES_ON;
    params.seq_denominator_floor = 2;
    for (int64_t i = 0; i < 20; ++i) {
      const auto total_at = [&](double step) {
        Tensor moved = c.values;
        moved.set(i, c.values.get(i) + step);
        const golden::Answer answer =
            golden_answer("value_loss", params, {&moved, &c.returns, &c.old_values, &c.mask, nullptr});
        double sum = 0.7 * answer.outputs[RLK_VALUE_LOSS_OUT_LOSS].value[0];
        for (int64_t k = 0; k < 20; ++k) {
          sum += of_tokens.get(k) * answer.outputs[RLK_VALUE_LOSS_OUT_TOKEN_LOSS].value[static_cast<size_t>(k)];
        }
        return sum;
      };
      EXPECT_NEAR(gradient.get(i), (total_at(1e-6) - total_at(-1e-6)) / 2e-6, 1e-8) << kind << " " << i;
    }
  }
}

TEST(CpuValueLoss, NothingLeaksFromMaskedTokensAndAllMaskedIsZero) {
  ValueCase c = make_case(true);
  const ValueOutputs want = run(c);
  const Tensor want_gradient = run_backward(c, 1);
  for (int64_t i = 0; i < 20; ++i) {
    if (c.mask.get_int(i) != 0) continue;
    c.values.set(i, kNan);
    c.returns.set(i, kNan);
    c.old_values.set(i, kNan);
  }
  EXPECT_EQ(run(c).loss.bytes(), want.loss.bytes());
  EXPECT_EQ(run(c).token_loss.bytes(), want.token_loss.bytes());
  EXPECT_EQ(run_backward(c, 1).bytes(), want_gradient.bytes());
  c.mask = flags(std::vector<int>(20, 0), {4, 5});
  for (int64_t kind = 0; kind <= 4; ++kind) {
    for (const bool exclude : {false, true}) {
      c.aggregation = {static_cast<Aggregation>(kind), 0, exclude, 1};
      EXPECT_EQ(run(c).loss.get(0), 0.0);
      EXPECT_EQ(run(c).clip_fraction.get(0), 0.0);
      EXPECT_EQ(list_of(run_backward(c, 1)), List(20, 0.0));
    }
  }
}

// The same tokens as rows with padding that is masked, and packed without it.
TEST(CpuValueLoss, PackedSequencesReduceLikeDenseOnesAndBadOnesAreADataError) {
  const std::vector<int64_t> starts = {0, 5, 7, 7, 9};
  ValueCase dense = make_case(true), packed;
  dense.mask = flags({1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 0, 0, 0}, {4, 5});
  const std::vector<int64_t> tokens = {0, 1, 2, 3, 4, 5, 6, 15, 16};  // of the dense case; the seventh is masked
  const auto pick = [&](const Tensor& from) {
    List list;
    for (const int64_t i : tokens) list.push_back(from.get(i));
    return numbers(list);
  };
  packed.values = pick(dense.values);
  packed.returns = pick(dense.returns);
  packed.old_values = pick(dense.old_values);
  packed.mask = flags({1, 1, 1, 1, 1, 1, 0, 1, 1});
  packed.cu_seqlens = integers(starts, Dtype::i32);
  packed.clip_eps = dense.clip_eps;
  for (int64_t kind = 0; kind <= 4; ++kind) {
    for (const bool exclude : {false, true}) {
      dense.aggregation = packed.aggregation = {static_cast<Aggregation>(kind), 0, exclude, 1.5};
      const ValueOutputs want = run(dense), got = run(packed);
      EXPECT_EQ(got.loss.bytes(), want.loss.bytes());
      EXPECT_EQ(got.clip_fraction.bytes(), want.clip_fraction.bytes());
      EXPECT_EQ(list_of(got.token_loss), list_of(pick(want.token_loss)));
      EXPECT_EQ(list_of(run_backward(packed, 2)), list_of(pick(run_backward(dense, 2))));
    }
  }
  packed.cu_seqlens = integers({0, 5, 4, 9});
  cpu::DataError error;
  const ValueOutputs bad = run(packed, cpu::serial_parallel(), &error);
  EXPECT_EQ(error.kind, cpu::kBadSeqlens);
  EXPECT_EQ(error.row, 2);
  EXPECT_EQ(error.value, 4);
  EXPECT_TRUE(std::isnan(bad.loss.get(0)) && std::isnan(bad.clip_fraction.get(0)) && std::isnan(bad.token_loss.get(8)));
  EXPECT_TRUE(std::isnan(run_backward(packed, 2).get(0)));
}

TEST(CpuValueLoss, BitsDoNotDependOnThreadsAndEmptyBatchesAreLegal) {
  for (const Dtype dtype : kFloatDtypes) {
    ValueCase c;
    c.values = random_tensor(dtype, {41, 1000}, 1, 1, Strides::gaps);
    c.returns = random_tensor(dtype, {41, 1000}, 1, 2);
    const ValueOutputs want = run(c);
    const Tensor gradient = run_backward(c, 1);
    for (const cpu::ParallelFor& hook : other_hooks()) {
      EXPECT_EQ(run(c, hook).loss.bytes(), want.loss.bytes());
      EXPECT_EQ(run_backward(c, 1, Tensor(), hook).bytes(), gradient.bytes());
    }
  }
  ValueCase empty;
  empty.values = empty.returns = Tensor(Dtype::f32, {0, 4});
  EXPECT_EQ(run(empty).loss.get(0), 0.0);
  EXPECT_EQ(run_backward(empty, 1).size(), 0);
}

}  // namespace
}  // namespace rlk::test
