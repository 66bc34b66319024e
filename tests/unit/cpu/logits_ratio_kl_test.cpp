// logits_ratio_kl and its backward: RL-Kernel's formula, the golden reference on every instruction set, finite
// differences, data errors.
#include <rlk/ops/logits_ratio_kl.h>
#include <rlk/ops/logits_ratio_kl_backward.h>

#include <cmath>
#include <limits>

#include "core/cpu/policy/logits_ratio_kl.hpp"
#include "unit/cpu/both_logits.hpp"
#include "unit/cpu/token_case.hpp"

namespace rlk::test {
namespace {

using ops::logits_ratio_kl::KlWeight;
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct LogitsCase {
  Tensor policy, ids, reference, old_logp, mask;
  ops::logits_ratio_kl::Params params;
  // The backward's own.
  Tensor lse, grad_ratio, grad_kl, ref_logp;
};
struct LogitsOutputs {
  Tensor ratio, kl, logp, lse, ref_logp;
  cpu::DataError error;
};

cpu::LogpRows rows_of(LogitsCase& c) {
  cpu::LogpRows rows;
  rows.n = c.ids.size();
  rows.logits_rows = c.policy.shape()[0];
  rows.vocab = c.policy.shape()[1];
  rows.ids = c.ids.data();
  rows.ids_are_i64 = c.ids.dtype() == Dtype::i64;
  rows.ids_stride = c.ids.stride(0);
  rows.mask = mask_of(c.mask).data;
  rows.mask_stride = mask_of(c.mask).strides[0];
  return rows;
}

LogitsOutputs run(LogitsCase& c, const cpu::ParallelFor& hook = cpu::serial_parallel()) {
  const Dtype dtype = accumulator(c.policy.dtype());
  const int64_t n = c.ids.size();
  LogitsOutputs out;
  for (Tensor* tensor : {&out.ratio, &out.logp, &out.lse}) *tensor = Tensor(dtype, {n});
  if (c.reference.present()) out.kl = out.ref_logp = Tensor(dtype, {n});
  cpu::LogitsRatioKlArgs args;
  args.rows = rows_of(c);
  args.dtype = kernel_dtype(c.policy.dtype());
  args.logits = c.policy.data();
  args.policy_row_stride = c.policy.stride(0);
  args.policy_col_stride = c.policy.stride(1);
  args.has_reference = c.reference.present();
  if (c.reference.present()) {
    args.ref_logits = c.reference.data();
    args.ref_row_stride = c.reference.stride(0);
    args.ref_col_stride = c.reference.stride(1);
  }
  args.old_logp = array_of(c.old_logp);
  args.params = c.params;
  args.ratio = array_of(out.ratio);
  args.kl = array_of(out.kl);
  args.logp = array_of(out.logp);
  args.lse = array_of(out.lse);
  args.ref_logp = array_of(out.ref_logp);
  std::vector<double> workspace(
      static_cast<size_t>(cpu::logits_ratio_kl_workspace_bytes(n, c.policy.shape()[1]) / 8 + 1));
  args.workspace = workspace.data();
  out.error = cpu::logits_ratio_kl(args, hook);
  return out;
}

Tensor run_backward(LogitsCase& c, cpu::DataError& error, bool in_place = false,
                    const cpu::ParallelFor& hook = cpu::serial_parallel()) {
  Tensor policy = c.policy;
  Tensor gradient(c.policy.dtype(), c.policy.shape());
  Tensor& to = in_place ? policy : gradient;
  cpu::LogitsRatioKlBackwardArgs args;
  args.rows = rows_of(c);
  args.dtype = kernel_dtype(c.policy.dtype());
  args.logits = policy.data();
  args.row_stride = policy.stride(0);
  args.col_stride = policy.stride(1);
  args.lse = array_of(c.lse);
  args.grad_ratio = array_of(c.grad_ratio);
  args.grad_kl = array_of(c.grad_kl);
  args.old_logp = array_of(c.old_logp);
  args.ref_logp = array_of(c.ref_logp);
  args.params.kl_kind = c.params.kl_kind;
  args.params.kl_weight = c.params.kl_weight;
  args.params.temperature = c.params.temperature;
  args.grad_logits = to.data();
  args.grad_row_stride = to.stride(0);
  args.grad_col_stride = to.stride(1);
  std::vector<double> workspace(
      static_cast<size_t>(cpu::logits_ratio_kl_backward_workspace_bytes(c.ids.size()) / 8 + 1));
  args.workspace = workspace.data();
  error = cpu::logits_ratio_kl_backward(args, hook);
  return to;
}

LogitsCase make_case(Dtype dtype, int64_t rows, int64_t vocab) {
  LogitsCase c;
  c.policy = random_tensor(dtype, {rows, vocab}, 2, 1);
  c.reference = random_tensor(dtype, {rows, vocab}, 2, 2);
  c.ids = Tensor(Dtype::i64, {rows});
  for (int64_t n = 0; n < rows; ++n) c.ids.set_int(n, (n * 7 + 3) % vocab);
  const double typical = -std::log(static_cast<double>(vocab));
  c.old_logp = random_tensor(accumulator(dtype), {rows}, 1, 3);
  for (int64_t n = 0; n < rows; ++n) c.old_logp.set(n, c.old_logp.get(n) + typical);
  return c;
}

// lse and ref_logp of the forward, and random gradients.
void add_gradients(LogitsCase& c) {
  const LogitsOutputs out = run(c);
  c.lse = out.lse;
  c.ref_logp = out.ref_logp;
  c.grad_ratio = random_tensor(out.lse.dtype(), {c.ids.size()}, 1, 4);
  c.grad_kl = random_tensor(out.lse.dtype(), {c.ids.size()}, 1, 5);
}

const Tensor* optional(const Tensor& tensor) {
  return tensor.present() ? &tensor : nullptr;
}

golden::Answer golden_forward(const LogitsCase& c) {
  rlk_logits_ratio_kl_params params = RLK_LOGITS_RATIO_KL_PARAMS_INIT;
  params.kl_kind = static_cast<int64_t>(c.params.kl_kind);
  params.kl_weight = static_cast<int64_t>(c.params.kl_weight);
  params.temperature = c.params.temperature;
  params.masked_ratio = c.params.masked_ratio;
  return golden_answer("logits_ratio_kl", params,
                       {&c.policy, &c.ids, optional(c.reference), optional(c.old_logp), optional(c.mask)});
}

// RL-Kernel's formula, spelt out: log-softmax by hand, k3, gradient c (onehot - softmax).
TEST(CpuLogitsRatioKl, MatchesRlKernelsFormulaAndGradient) {
  LogitsCase c = make_case(Dtype::f64, 6, 50);
  c.mask = flags({1, 1, 0, 1, 0, 1});
  c.params.temperature = 0.8;
  add_gradients(c);
  const LogitsOutputs out = run(c);
  cpu::DataError error;
  const Tensor gradient = run_backward(c, error);
  EXPECT_EQ(error.kind, cpu::kNoDataError);
  for (int64_t n = 0; n < 6; ++n) {
    const auto softmax = [&](const Tensor& logits) {
      std::vector<double> p;
      double sum = 0;
      for (int64_t v = 0; v < 50; ++v) p.push_back(std::exp(logits.get(n * 50 + v) / c.params.temperature));
      for (const double weight : p) sum += weight;
      for (double& weight : p) weight /= sum;
      return p;
    };
    const bool active = c.mask.get_int(n) != 0;
    const std::vector<double> p = softmax(c.policy);
    const auto target = static_cast<size_t>(c.ids.get_int(n));
    const double lp = std::log(p[target]), lr = std::log(softmax(c.reference)[target]);
    const double ratio = std::exp(lp - c.old_logp.get(n)), d = lr - lp;
    EXPECT_NEAR(out.ratio.get(n), active ? ratio : 1.0, 1e-12 * ratio);
    EXPECT_NEAR(out.kl.get(n), active ? std::exp(d) - d - 1 : 0.0, 1e-12 * std::max(1.0, std::exp(d)));
    EXPECT_NEAR(out.logp.get(n), active ? lp : 0, 1e-12);
    EXPECT_NEAR(out.ref_logp.get(n), active ? lr : 0, 1e-12);
    const double weight = active ? c.grad_ratio.get(n) * ratio + c.grad_kl.get(n) * (1 - std::exp(d)) : 0;
    for (size_t v = 0; v < 50; ++v) {
      const double want = weight * ((v == target ? 1 : 0) - p[v]) / c.params.temperature;
      EXPECT_NEAR(gradient.get(n * 50 + static_cast<int64_t>(v)), want, 1e-12 * std::max(1.0, std::fabs(weight)));
    }
  }
}

TEST(CpuLogitsRatioKl, MatchesGoldenOnEveryInstructionSet) {
  for_each_target([] {
    for (const Dtype dtype : kFloatDtypes) {
      for (const auto& [rows, vocab] : std::vector<std::pair<int64_t, int64_t>>{{5, 37}, {1, 1}, {3, 8200}, {0, 9}}) {
        LogitsCase c = make_case(dtype, rows, vocab);
        const golden::Answer expected = golden_forward(c);
        const LogitsOutputs out = run(c);
        EXPECT_TRUE(matches(out.ratio, expected.outputs[0], dtype));
        EXPECT_TRUE(matches(out.kl, expected.outputs[1], dtype));
        EXPECT_TRUE(matches(out.lse, expected.outputs[3], dtype));
        EXPECT_TRUE(matches(out.ref_logp, expected.outputs[4], dtype));
        for (const cpu::ParallelFor& hook : other_hooks()) {
          const LogitsOutputs again = run(c, hook);
          EXPECT_EQ(again.kl.bytes(), out.kl.bytes());
          EXPECT_EQ(again.ratio.bytes(), out.ratio.bytes());
        }
      }
    }
  });
}

TEST(CpuLogitsRatioKl, GradientIsTheSlopeOfGoldenAndMayOverwriteTheLogits) {
  for (const KlWeight weight : {KlWeight::none, KlWeight::ratio}) {
    for (const cpu::KlKind kind : {cpu::KlKind::k1, cpu::KlKind::k2, cpu::KlKind::k3}) {
      LogitsCase c = make_case(Dtype::f64, 3, 5);
      c.params.kl_kind = kind;
      c.params.kl_weight = weight;
      c.params.temperature = 0.7;
      add_gradients(c);
      cpu::DataError error;
      const Tensor gradient = run_backward(c, error);
      EXPECT_EQ(run_backward(c, error, true).bytes(), gradient.bytes());
      for (const cpu::ParallelFor& hook : other_hooks()) {
        EXPECT_EQ(run_backward(c, error, false, hook).bytes(), gradient.bytes());
      }
      for (int64_t i = 0; i < gradient.size(); ++i) {
        const auto loss_at = [&](double step) {
          LogitsCase moved = c;
          moved.policy.set(i, c.policy.get(i) + step);
          const golden::Answer answer = golden_forward(moved);
          double loss = 0;
          for (size_t n = 0; n < 3; ++n) {
            loss += c.grad_ratio.get(static_cast<int64_t>(n)) * answer.outputs[0].value[n] +
                    c.grad_kl.get(static_cast<int64_t>(n)) * answer.outputs[1].value[n];
          }
          return loss;
        };
        const double slope = (loss_at(1e-5) - loss_at(-1e-5)) / 2e-5;
        EXPECT_NEAR(gradient.get(i), slope, 1e-6 * std::max(1.0, std::fabs(slope)));
      }
    }
  }
}

TEST(CpuLogitsRatioKl, TheModelsLogitsMayLieInMemoryInTheirOwnWays) {
  for (const Dtype dtype : kFloatDtypes) {
    LogitsCase c = make_case(dtype, 4, 131);
    const golden::Answer expected = golden_forward(c);
    const std::vector<double> policy = list_of(c.policy), reference = list_of(c.reference);
    for (const auto& [own, other] : {std::pair(Strides::gaps, Strides::contiguous),
                                     {Strides::contiguous, Strides::gaps},
                                     {Strides::reversed, Strides::gaps}}) {
      c.policy = numbers(policy, {4, 131}, dtype, own);
      c.reference = numbers(reference, {4, 131}, dtype, other);
      const LogitsOutputs out = run(c);
      EXPECT_TRUE(matches(out.ratio, expected.outputs[0], dtype));
      EXPECT_TRUE(matches(out.kl, expected.outputs[1], dtype));
      EXPECT_TRUE(matches(out.ref_logp, expected.outputs[4], dtype));
    }
  }
}

// Conflict 3: an active id out of range is told and its row is NaN; a masked one is not looked at.
TEST(CpuLogitsRatioKl, AnActiveIdOutOfRangeIsADataErrorAndAMaskedOneIsNotLookedAt) {
  LogitsCase c = make_case(Dtype::f32, 5, 11);
  add_gradients(c);
  c.mask = flags({1, 0, 1, 1, 1});
  c.ids.set_int(1, std::numeric_limits<int64_t>::min());
  cpu::DataError error;
  EXPECT_EQ(run(c).error.kind, cpu::kNoDataError);
  run_backward(c, error);
  EXPECT_EQ(error.kind, cpu::kNoDataError);
  c.ids.set_int(2, 11).set_int(4, -1);
  const LogitsOutputs out = run(c);
  EXPECT_EQ(out.error.kind, cpu::kIdOutOfRange);
  EXPECT_EQ(out.error.row, 2);
  EXPECT_EQ(out.error.value, 11);
  const Tensor gradient = run_backward(c, error);
  EXPECT_EQ(error.kind, cpu::kIdOutOfRange);
  EXPECT_EQ(error.row, 2);
  for (int64_t n = 0; n < 5; ++n) {
    const bool bad = n == 2 || n == 4;
    EXPECT_EQ(std::isnan(out.ratio.get(n)), bad);
    EXPECT_EQ(std::isnan(out.kl.get(n)), bad);
    EXPECT_EQ(std::isnan(gradient.get(n * 11)), bad);
  }
  EXPECT_EQ(out.ratio.get(1), 1.0);
  EXPECT_EQ(gradient.get(11), 0.0);
}

TEST(CpuLogitsRatioKl, ARowOfTheReferenceWithoutAFiniteLogitSpoilsOnlyItsKl) {
  LogitsCase c = make_case(Dtype::f32, 4, 9);
  for (int64_t v = 0; v < 9; ++v) {
    c.reference.set(1 * 9 + v, -kInfinity);
    c.policy.set(3 * 9 + v, -kInfinity);
  }
  const LogitsOutputs out = run(c);
  EXPECT_EQ(out.error.kind, cpu::kNoFiniteLogit);
  EXPECT_EQ(out.error.row, 1);
  EXPECT_FALSE(std::isnan(out.ratio.get(1)));
  EXPECT_TRUE(std::isnan(out.kl.get(1)));
  EXPECT_TRUE(std::isnan(out.ref_logp.get(1)));
  EXPECT_TRUE(std::isnan(out.ratio.get(3)));
  EXPECT_TRUE(std::isnan(out.kl.get(3)));
  EXPECT_FALSE(std::isnan(out.kl.get(0)));
}

TEST(CpuLogitsRatioKl, TheLowestRowInErrorIsToldOfPolicyAndReferenceAlike) {
  LogitsCase c;
  c.policy = random_tensor(Dtype::f32, {5, 7}, 1, 8);
  c.reference = random_tensor(Dtype::f32, {5, 7}, 1, 9);
  c.ids = integers({0, 1, 2, 3, 4});
  expect_lowest_error_of_both(
      c, [](LogitsCase& spoiled) { return run(spoiled).error; }, 1, 3);
}

// Conflict 1, and what lies at a masked position.
TEST(CpuLogitsRatioKl, NothingLeaksFromAMaskedToken) {
  for (const double masked_ratio : {1.0, 0.0}) {
    LogitsCase c = make_case(Dtype::f32, 3, 7);
    c.mask = flags({1, 0, 1});
    c.params.masked_ratio = masked_ratio;
    c.old_logp.set(1, kNan);
    for (int64_t v = 0; v < 7; ++v) c.policy.set(7 + v, kNan);
    add_gradients(c);
    c.grad_ratio.set(1, kNan);
    const LogitsOutputs out = run(c);
    EXPECT_EQ(out.error.kind, cpu::kNoDataError);
    EXPECT_EQ(out.ratio.get(1), masked_ratio);
    EXPECT_EQ(out.kl.get(1), 0.0);
    cpu::DataError error;
    const Tensor gradient = run_backward(c, error);
    for (int64_t v = 0; v < 7; ++v) EXPECT_EQ(gradient.get(7 + v), 0.0);
  }
}

}  // namespace
}  // namespace rlk::test
