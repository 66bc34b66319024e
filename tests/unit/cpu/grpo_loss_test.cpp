// grpo_loss against RL-Kernel's published formula from logits to loss, and its promises: groups without variance,
// masks, strides, data errors. The gradient is that of finite differences in the logits.
#include <cmath>
#include <cstring>
#include <limits>

#include <rlk/ops/grpo_loss.h>
#include <rlk/ops/grpo_loss_backward.h>

#include "core/cpu/logp/logp.hpp"
#include "core/cpu/policy/grpo_loss.hpp"
#include "core/cpu/tbb_parallel.hpp"
#include "unit/cpu/both_logits.hpp"
#include "unit/cpu/support.hpp"

namespace rlk::test {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct GrpoCase {
  cpu::GrpoBatch options;  // parameters only
  Tensor policy, ids, old_logp, rewards, reference, mask, boundaries;
  double grad_loss = 1.0;
  bool in_place = false;
};

GrpoCase make_case(Dtype dtype, int64_t sequences, int64_t tokens, int64_t vocab, uint32_t seed,
                   Strides strides = Strides::contiguous) {
  GrpoCase c;
  const Dtype wide = accumulator(dtype);
  c.policy = random_tensor(dtype, {sequences, tokens, vocab}, 1.0, seed, strides);
  c.reference = random_tensor(dtype, {sequences, tokens, vocab}, 1.0, seed + 1, strides);
  c.rewards = random_tensor(wide, {sequences}, 1.0, seed + 2, strides);
  c.ids = Tensor(Dtype::i64, {sequences, tokens}, strides);
  c.old_logp = Tensor(wide, {sequences, tokens}, strides);
  const double typical = -std::log(static_cast<double>(vocab)) - 0.5;
  for (int64_t i = 0; i < sequences * tokens; ++i) {
    c.ids.set_int(i, i * 5 % vocab);
    c.old_logp.set(i, typical + 0.3 * std::sin(static_cast<double>(3 * i)));
  }
  return c;
}
void mask_some(GrpoCase& c) {
  c.mask = Tensor(Dtype::u8, c.ids.shape(), Strides::gaps);
  const int64_t vocab = c.policy.shape()[2];
  for (int64_t i = 0; i < c.ids.size(); ++i) {
    const bool masked = i % 3 == 1;
    c.mask.set_int(i, masked ? 0 : 255);
    if (!masked) continue;
    c.ids.set_int(i, int64_t{1} << 40);  // nowhere
    c.old_logp.set(i, kNan);
    for (int64_t v = 0; v < vocab; ++v) c.policy.set(i * vocab + v, kNan);
    for (int64_t v = 0; v < vocab; ++v) c.reference.set(i * vocab + v, kNan);
  }
}

cpu::GrpoTensor view_of(Tensor& tensor) {
  if (!tensor.present()) return {};
  cpu::GrpoTensor result{tensor.data(), tensor.dtype()};
  for (size_t axis = 0; axis < tensor.shape().size(); ++axis) {
    result.strides[axis] = tensor.stride(static_cast<int>(axis));
  }
  return result;
}
cpu::GrpoBatch batch_of(GrpoCase& c) {
  cpu::GrpoBatch batch = c.options;
  batch.sequences = c.policy.shape()[0];
  batch.tokens = c.policy.shape()[1];
  batch.vocab = c.policy.shape()[2];
  batch.logits = view_of(c.policy);
  batch.old_logp = view_of(c.old_logp);
  batch.ids = c.ids.data();
  batch.rewards = c.rewards.data();
  batch.rewards_stride = c.rewards.stride(0);
  for (int axis = 0; axis < 2; ++axis) batch.ids_strides[axis] = c.ids.stride(axis);
  if (c.mask.present()) {
    batch.mask = static_cast<const uint8_t*>(c.mask.data());
    for (int axis = 0; axis < 2; ++axis) batch.mask_strides[axis] = c.mask.stride(axis);
  }
  if (c.boundaries.present()) {
    batch.group_boundaries = c.boundaries.data();
    batch.boundaries_are_i64 = c.boundaries.dtype() == Dtype::i64;
    batch.boundaries_stride = c.boundaries.stride(0);
    batch.groups = c.boundaries.size() - 1;
  }
  return batch;
}

struct Outputs {
  Tensor loss, policy_loss, kl, lse, logp, ref_logp, advantages;
  cpu::DataError error;
};
Outputs run(GrpoCase& c, const cpu::ParallelFor& hook = cpu::serial_parallel()) {
  const Dtype wide = accumulator(c.policy.dtype());
  const std::vector<int64_t> tokens = c.ids.shape();
  Outputs out{Tensor(wide, {1}),    Tensor(wide, {1}),    Tensor(wide, {1}),         Tensor(wide, tokens),
              Tensor(wide, tokens), Tensor(wide, tokens), Tensor(wide, {tokens[0]}), {}};
  cpu::GrpoLossArgs args;
  args.batch = batch_of(c);
  args.ref_logits = view_of(c.reference);
  args.loss = out.loss.data();
  args.policy_loss = out.policy_loss.data();
  args.kl = out.kl.data();
  args.lse = view_of(out.lse);
  args.logp = view_of(out.logp);
  args.ref_logp = view_of(out.ref_logp);
  args.advantages = out.advantages.data();
  std::vector<double> workspace(static_cast<size_t>(
      cpu::grpo_loss_workspace_bytes(args.batch.sequences, args.batch.tokens, args.batch.vocab) / 8 + 1));
  args.workspace = workspace.data();
  out.error = cpu::grpo_loss(args, hook);
  return out;
}

struct Gradient {
  Tensor logits;
  cpu::DataError error;
};
Gradient run_backward(GrpoCase& c, Outputs& forward, const cpu::ParallelFor& hook = cpu::serial_parallel()) {
  Gradient gradient{c.policy, {}};
  GrpoCase own = c;
  if (!c.in_place) gradient.logits = Tensor(c.policy.dtype(), c.policy.shape());
  cpu::GrpoLossBackwardArgs args;
  args.batch = batch_of(own);
  if (c.in_place) args.batch.logits = view_of(gradient.logits);
  args.lse = view_of(forward.lse);
  if (c.reference.present()) args.ref_logp = view_of(forward.ref_logp);
  args.grad_loss = c.grad_loss;
  args.grad_logits = view_of(gradient.logits);
  std::vector<double> workspace(
      static_cast<size_t>(cpu::grpo_loss_backward_workspace_bytes(args.batch.sequences, args.batch.tokens) / 8 + 1));
  args.workspace = workspace.data();
  gradient.error = cpu::grpo_loss_backward(args, hook);
  return gradient;
}

// selected_logprobs, group advantages, clipped surrogate and k3 as RL-Kernel publishes them; mm is the masked mean.
struct Published {
  double loss, policy_loss, kl;
};
Published published(const GrpoCase& c, const std::vector<std::pair<int64_t, int64_t>>& groups) {
  const int64_t tokens = c.policy.shape()[1], vocab = c.policy.shape()[2];
  const auto log_prob = [&](const Tensor& logits, int64_t i) {
    double sum = 0;
    for (int64_t v = 0; v < vocab; ++v) sum += std::exp(logits.get(i * vocab + v) / c.options.temperature);
    return logits.get(i * vocab + c.ids.get_int(i)) / c.options.temperature - std::log(sum);
  };
  double policy = 0, kl = 0, count = 0;
  for (const auto& [begin, end] : groups) {
    const auto n = static_cast<double>(end - begin);
    double mean = 0, square = 0;
    for (int64_t b = begin; b < end; ++b) mean += c.rewards.get(b) / n;
    for (int64_t b = begin; b < end; ++b) square += (c.rewards.get(b) - mean) * (c.rewards.get(b) - mean);
    const double s = std::sqrt(square / (c.options.unbiased ? n - 1 : n));
    for (int64_t b = begin; b < end; ++b) {
      const double a =
          (c.rewards.get(b) - mean) / (c.options.additive_eps ? s + c.options.eps : std::max(s, c.options.eps));
      for (int64_t i = b * tokens; i < (b + 1) * tokens; ++i) {
        if (c.mask.present() && c.mask.get_int(i) == 0) continue;
        const double lp = log_prob(c.policy, i), ratio = std::exp(lp - c.old_logp.get(i));
        const double clipped = std::min(std::max(ratio, 1 - c.options.clip_low), 1 + c.options.clip_high);
        policy += -std::min(ratio * a, clipped * a);
        if (c.reference.present()) {
          const double d = log_prob(c.reference, i) - lp;
          kl += std::exp(d) - d - 1;
        }
        count += 1;
      }
    }
  }
  count = std::max(count, 1e-8);
  return {policy / count + c.options.beta * kl / count, policy / count, kl / count};
}

void expect_published(GrpoCase& c, const std::vector<std::pair<int64_t, int64_t>>& groups) {
  const Published expected = published(c, groups);
  Outputs got = run(c);
  EXPECT_NEAR(got.loss.get(0), expected.loss, 1e-12);
  EXPECT_NEAR(got.policy_loss.get(0), expected.policy_loss, 1e-12);
  EXPECT_NEAR(got.kl.get(0), expected.kl, 1e-12);
  const Gradient gradient = run_backward(c, got);
  for (int64_t i = 0; i < c.policy.size(); ++i) {
    const int64_t token = i / c.policy.shape()[2];
    if (c.mask.present() && c.mask.get_int(token) == 0) {
      EXPECT_EQ(gradient.logits.get(i), 0);
      continue;
    }
    const double value = c.policy.get(i), step = 1e-5;
    c.policy.set(i, value + step);
    const double above = published(c, groups).loss;
    c.policy.set(i, value - step);
    const double below = published(c, groups).loss;
    c.policy.set(i, value);
    EXPECT_NEAR(gradient.logits.get(i), (above - below) / (2 * step), 1e-9) << i;
  }
}

TEST(GrpoLoss, IsThePublishedFormulaForEveryKindOfGroups) {
  for (const bool masked : {false, true}) {
    GrpoCase c = make_case(Dtype::f64, 6, 4, 11, 1);
    if (masked) mask_some(c);
    c.options.beta = 0.1;
    c.options.samples_per_prompt = 2;
    expect_published(c, {{0, 2}, {2, 4}, {4, 6}});
    c.options.samples_per_prompt = 0;
    expect_published(c, {{0, 6}});
    c.boundaries = Tensor(Dtype::i32, {4});
    for (int64_t g = 0; g < 4; ++g) c.boundaries.set_int(g, g == 0 ? 0 : g == 3 ? 6 : 2);  // the second is empty
    expect_published(c, {{0, 2}, {2, 6}});
  }
}

TEST(GrpoLoss, TemperatureClipsAndStandardDeviationsOfTrlAreParameters) {
  GrpoCase c = make_case(Dtype::f64, 4, 5, 9, 2);
  c.reference = {};
  c.options.temperature = 0.7;
  c.options.clip_low = 0.1;
  c.options.clip_high = 0.28;
  c.options.unbiased = true;
  c.options.additive_eps = true;
  c.options.eps = 1e-4;
  expect_published(c, {{0, 4}});
  const double trl = run(c).loss.get(0);
  c.options.unbiased = false;
  c.options.additive_eps = false;
  c.options.eps = 1e-6;
  EXPECT_GT(std::fabs(run(c).loss.get(0) / trl - 1), 0.01);
  expect_published(c, {{0, 4}});
}

TEST(GrpoLoss, NearlyEqualRewardsKeepTheirAdvantages) {
  GrpoCase c = make_case(Dtype::f64, 4, 1, 3, 3);
  for (int64_t b = 0; b < 4; ++b) c.rewards.set(b, 1000 + 0.01 * static_cast<double>(b));
  const Tensor advantages = run(c).advantages;
  for (int64_t b = 0; b < 4; ++b) {
    EXPECT_NEAR(advantages.get(b), (static_cast<double>(b) - 1.5) / std::sqrt(1.25), 1e-7) << b;
  }
  // In fp32 E[r^2] - E[r]^2 is 0 and the first advantage -15014.6.
  GrpoCase narrow = make_case(Dtype::f32, 4, 1, 3, 3);
  for (int64_t b = 0; b < 4; ++b) narrow.rewards.set(b, 1000 + 0.01 * static_cast<double>(b));
  EXPECT_NEAR(run(narrow).advantages.get(0), -1.34, 0.01);
}

TEST(GrpoLoss, GroupsWithoutVarianceHaveAdvantagesOfExactlyZero) {
  for (const auto& [reward, size] : {std::pair<double, int64_t>{1000.1, 8}, {1.1, 16}, {1.1, 1}, {0, 4}}) {
    for (const bool additive : {false, true}) {
      GrpoCase c = make_case(Dtype::f32, size, 2, 5, 4);
      c.options.additive_eps = additive;
      c.options.unbiased = additive;
      for (int64_t b = 0; b < size; ++b) c.rewards.set(b, reward);
      Outputs got = run(c);
      for (int64_t b = 0; b < size; ++b) EXPECT_EQ(got.advantages.get(b), 0);
      EXPECT_EQ(got.policy_loss.get(0), 0);
      const Gradient gradient = run_backward(c, got);
      for (int64_t i = 0; i < c.policy.size(); ++i) EXPECT_EQ(gradient.logits.get(i), 0);
    }
  }
}

golden::Answer golden_of(const GrpoCase& c) {
  rlk_grpo_loss_params params = RLK_GRPO_LOSS_PARAMS_INIT;
  params.grouping = c.boundaries.present() ? RLK_GRPO_LOSS_GROUPING_BOUNDARIES : RLK_GRPO_LOSS_GROUPING_FIXED;
  const golden::View inputs[] = {c.policy.view(),    c.ids.view(),  c.old_logp.view(),  c.rewards.view(),
                                 c.reference.view(), c.mask.view(), c.boundaries.view()};
  return golden::find("grpo_loss")({inputs, &params, (1 << RLK_GRPO_LOSS_N_OUTPUTS) - 1});
}

TEST(GrpoLoss, ANanRewardIsThatOfItsGroupAloneAlsoInAGroupOfOne) {
  for (const int64_t nan_at : {0, 1, 3}) {
    GrpoCase c = make_case(Dtype::f64, 4, 2, 5, 16);
    c.boundaries = Tensor(Dtype::i64, {4});
    for (int64_t g = 0; g < 4; ++g) c.boundaries.set_int(g, g == 0 ? 0 : g + 1);  // the first of two, then of one
    c.rewards.set(nan_at, kNan);
    const Outputs got = run(c);
    const golden::Answer expected = golden_of(c);
    for (int64_t b = 0; b < 4; ++b) {
      const bool own = nan_at < 2 ? b < 2 : b == nan_at;
      EXPECT_EQ(std::isnan(got.advantages.get(b)), own) << b;
      EXPECT_EQ(std::isnan(expected.outputs[RLK_GRPO_LOSS_OUT_ADVANTAGES].value[static_cast<size_t>(b)]), own) << b;
    }
    EXPECT_TRUE(std::isnan(got.loss.get(0)));
    EXPECT_TRUE(std::isnan(expected.outputs[RLK_GRPO_LOSS_OUT_LOSS].value[0]));
  }
}

// RL-Kernel's Triton kernel takes groups of at most 1024.
TEST(GrpoLoss, GroupsOfMoreThan1024AreLegal) {
  GrpoCase c = make_case(Dtype::f64, 1030, 1, 3, 14);
  Outputs got = run(c);
  const Published expected = published(c, {{0, 1030}});
  EXPECT_NEAR(got.loss.get(0), expected.loss, 1e-13);
  c.rewards.set(1029, c.rewards.get(1029) + 100);  // the last counts for the first
  EXPECT_NE(run(c).advantages.get(0), got.advantages.get(0));
}

TEST(GrpoLoss, NothingActiveOrNothingAtAllGivesZero) {
  GrpoCase c = make_case(Dtype::f32, 2, 3, 7, 5);
  c.mask = Tensor(Dtype::u8, {2, 3});
  for (int64_t i = 0; i < 6; ++i) c.mask.set_int(i, 0);
  c.options.beta = 1;
  Outputs got = run(c);
  for (const Tensor* scalar : {&got.loss, &got.policy_loss, &got.kl}) EXPECT_EQ(scalar->get(0), 0);
  const Gradient gradient = run_backward(c, got);
  for (int64_t i = 0; i < 42; ++i) EXPECT_EQ(gradient.logits.get(i), 0);
  for (const auto& [sequences, tokens] : {std::pair<int64_t, int64_t>{0, 3}, {3, 0}}) {
    GrpoCase empty = make_case(Dtype::bf16, sequences, tokens, 7, 6);
    Outputs nothing = run(empty, cpu::tbb_parallel());
    EXPECT_EQ(nothing.loss.get(0), 0);
    EXPECT_EQ(run_backward(empty, nothing).error.kind, cpu::kNoDataError);
  }
}

TEST(GrpoLoss, WithoutBetaAnInfiniteKlDoesNotTouchTheLoss) {
  GrpoCase c = make_case(Dtype::f64, 2, 3, 7, 8);
  c.reference.set(c.ids.get_int(0), -kInfinity);
  const Outputs got = run(c);
  EXPECT_EQ(got.kl.get(0), kInfinity);
  EXPECT_EQ(got.loss.get(0), got.policy_loss.get(0));
}

// Sequences that lie apart are given to logp one by one, and few rows are split.
TEST(GrpoLoss, TheWorkspaceHasRoomForOneSequenceOfALargeVocabulary) {
  ASSERT_EQ(cpu::logp_workspace_bytes(16 * 8, 5000), 0);
  ASSERT_GT(cpu::logp_workspace_bytes(8, 5000), 0);
  EXPECT_EQ(cpu::grpo_loss_workspace_bytes(16, 8, 5000) - cpu::grpo_loss_workspace_bytes(16, 8, 37),
            cpu::logp_workspace_bytes(8, 5000));
}

TEST(GrpoLoss, IgnoredIdsAreMasked) {
  GrpoCase c = make_case(Dtype::f64, 2, 4, 7, 7), masked = c;
  c.options.ignore_index = 3;
  masked.mask = Tensor(Dtype::u8, {2, 4});
  for (int64_t i = 0; i < 8; ++i) masked.mask.set_int(i, c.ids.get_int(i) == 3 ? 0 : 1);
  Outputs got = run(c), expected = run(masked);
  EXPECT_EQ(got.loss.get(0), expected.loss.get(0));
  EXPECT_NE(got.loss.get(0), [&] {
    masked.mask = {};
    return run(masked).loss.get(0);
  }());
}

TEST(GrpoLoss, ThreadsAndInPlaceDoNotChangeBits) {
  for (const Dtype dtype : kFloatDtypes) {
    for (const Strides strides : {Strides::contiguous, Strides::gaps, Strides::reversed}) {
      GrpoCase c = make_case(dtype, 5, 7, 33, 8, strides);
      mask_some(c);
      c.options.beta = 0.3;
      Outputs plain = run(c);
      const Gradient gradient = run_backward(c, plain);
      for (const cpu::ParallelFor& hook : {cpu::tbb_parallel(), backwards_parallel()}) {
        Outputs again = run(c, hook);
        EXPECT_EQ(again.loss.bytes(), plain.loss.bytes());
        EXPECT_EQ(again.lse.bytes(), plain.lse.bytes());
        EXPECT_EQ(run_backward(c, plain, hook).logits.bytes(), gradient.logits.bytes());
      }
      c.in_place = true;
      const Gradient in_place = run_backward(c, plain);
      EXPECT_EQ(in_place.logits.bits(0, c.policy.size()), gradient.logits.bits(0, c.policy.size()));
    }
  }
}

TEST(GrpoLoss, StridedTensorsGiveTheSameNumbers) {
  GrpoCase plain = make_case(Dtype::f64, 5, 7, 33, 12);
  plain.options.beta = 0.3;
  mask_some(plain);
  Outputs expected = run(plain);
  const Gradient gradient = run_backward(plain, expected);
  for (const Strides strides : {Strides::gaps, Strides::reversed}) {
    GrpoCase c = make_case(Dtype::f64, 5, 7, 33, 12, strides);
    c.options.beta = 0.3;
    mask_some(c);
    Outputs got = run(c);
    EXPECT_NEAR(got.loss.get(0), expected.loss.get(0), 1e-14);
    const Gradient strided = run_backward(c, got);
    for (int64_t i = 0; i < c.policy.size(); ++i) EXPECT_NEAR(strided.logits.get(i), gradient.logits.get(i), 1e-15);
  }
}

TEST(GrpoLoss, DataErrorsNameTheTokenInEveryLayout) {
  for (const Strides strides : {Strides::contiguous, Strides::gaps}) {
    GrpoCase c = make_case(Dtype::f32, 3, 4, 9, 9, strides);
    Outputs good = run(c);
    c.ids.set_int(6, 9);
    c.ids.set_int(9, -1);
    Outputs got = run(c);
    EXPECT_EQ(got.error.kind, cpu::kIdOutOfRange);
    EXPECT_EQ(got.error.row, 6);
    EXPECT_EQ(got.error.value, 9);
    EXPECT_TRUE(std::isnan(got.loss.get(0)) && std::isnan(got.policy_loss.get(0)) && std::isnan(got.kl.get(0)));
    EXPECT_TRUE(std::isnan(got.lse.get(6)) && std::isnan(got.logp.get(9)));
    EXPECT_EQ(got.lse.get(5), good.lse.get(5));
    const Gradient gradient = run_backward(c, good);
    EXPECT_EQ(gradient.error.row, 6);
    for (int64_t i = 0; i < 108; ++i) {
      EXPECT_EQ(std::isnan(gradient.logits.get(i)), i / 9 == 6 || i / 9 == 9) << i;
    }

    c = make_case(Dtype::f32, 3, 4, 9, 9, strides);
    for (int64_t v = 0; v < 9; ++v) c.reference.set(18 + v, -kInfinity);
    for (int64_t v = 0; v < 9; ++v) c.policy.set(63 + v, -kInfinity);
    got = run(c);
    EXPECT_EQ(got.error.kind, cpu::kNoFiniteLogit);
    EXPECT_EQ(got.error.row, 2);  // of the reference, before that of the policy
    EXPECT_TRUE(std::isnan(got.ref_logp.get(2)) && !std::isnan(got.logp.get(2)));
    EXPECT_TRUE(std::isnan(got.logp.get(7)) && std::isnan(got.loss.get(0)));
  }
}

TEST(GrpoLoss, TheLowestTokenInErrorIsToldOfPolicyAndReferenceAlike) {
  GrpoCase c = make_case(Dtype::f64, 2, 3, 7, 9);
  const Tensor policy = c.policy, reference = c.reference;
  const auto error_of = [&c](const Tensor& of_policy, const Tensor& of_reference) {
    c.policy = of_policy;
    c.reference = of_reference;
    return run(c).error;
  };
  expect_lowest_error_of_both(policy, reference, error_of, 1, 4);
}

TEST(GrpoLoss, BadBoundariesMakeEveryOutputNan) {
  struct Fault {
    int64_t position, value, row;
  };
  for (const Fault fault : {Fault{0, 1, 0}, Fault{1, 9, 2}, Fault{2, 3, 2}}) {
    GrpoCase c = make_case(Dtype::f64, 4, 2, 5, 10);
    Outputs good = run(c);
    c.boundaries = Tensor(Dtype::i64, {3});
    for (int64_t g = 0; g < 3; ++g) c.boundaries.set_int(g, 2 * g);
    c.boundaries.set_int(fault.position, fault.value);
    Outputs got = run(c);
    const Gradient gradient = run_backward(c, good);
    for (const cpu::DataError& error : {got.error, gradient.error}) {
      EXPECT_EQ(error.kind, cpu::kBadSeqlens);
      EXPECT_EQ(error.row, fault.row);
      EXPECT_EQ(error.value, c.boundaries.get_int(fault.row));
    }
    for (const Tensor* output :
         std::initializer_list<const Tensor*>{&got.loss, &got.policy_loss, &got.kl, &got.lse, &got.logp, &got.ref_logp,
                                              &got.advantages, &gradient.logits}) {
      for (int64_t i = 0; i < output->size(); ++i) EXPECT_TRUE(std::isnan(output->get(i)));
    }
  }
}

TEST(GrpoLoss, BackwardHasTheParametersOfTheForward) {
  const rlk_grpo_loss_params forward = RLK_GRPO_LOSS_PARAMS_INIT;
  const rlk_grpo_loss_backward_params backward = RLK_GRPO_LOSS_BACKWARD_PARAMS_INIT;
  static_assert(sizeof(forward) == sizeof(backward));
  const void *one = &forward, *other = &backward;  // no padding, by the rules of the ABI
  EXPECT_EQ(std::memcmp(one, other, sizeof(forward)), 0);
  EXPECT_EQ(offsetof(rlk_grpo_loss_params, ignore_index), offsetof(rlk_grpo_loss_backward_params, ignore_index));
}

}  // namespace
}  // namespace rlk::test
