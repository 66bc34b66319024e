// Cases, and what they are as the trainers' matrices.
#include <rlk/sdk/ops/policy_loss.hpp>
#include <rlk/sdk/ops/policy_loss_backward.hpp>

#include "unit/cpu/policy_case.hpp"

#include <rlk/sdk/forward.hpp>

#include <cmath>

namespace rlk::test {
namespace {

std::vector<Tensor*> token_tensors(PolicyCase& c) {
  return {&c.logp, &c.advantages, &c.old_logp, &c.ref_logp, &c.rollout_logp, &c.entropy, &c.weight, &c.grad_per_token};
}

}  // namespace

PolicyCase make_policy_case(Dtype dtype, int64_t sequences, int64_t tokens, uint32_t seed, Strides strides) {
  const std::vector<int64_t> shape = {sequences, tokens};
  PolicyCase c;
  const auto near = [&](double center, double scale, uint32_t stream) {
    Tensor tensor = random_tensor(dtype, shape, scale, seed * 16 + stream, strides);
    const Tensor noise = tensor;
    // Log-probabilities stay below 0.
    return tensor.fill([&](int64_t i) { return std::min(center + noise.get(i), center + 1.0); });
  };
  c.logp = near(-1.5, 0.4, 1);
  c.old_logp = near(-1.5, 0.4, 2);
  c.ref_logp = near(-1.6, 0.5, 3);
  c.rollout_logp = near(-1.4, 0.4, 4);
  c.entropy = near(0.8, 0.2, 5);
  c.advantages = random_tensor(dtype, shape, 1.0, seed * 16 + 6, strides);
  return c;
}

PolicyCase one_token(double logp, double old_logp, double advantage) {
  PolicyCase c;
  c.logp = numbers({logp}, {1, 1});
  c.old_logp = numbers({old_logp}, {1, 1});
  c.advantages = numbers({advantage}, {1, 1});
  return c;
}

void mask_some(PolicyCase& c) {
  c.mask = Tensor(Dtype::u8, c.logp.shape(), Strides::gaps);
  const int64_t tokens = c.logp.shape()[1], last = c.logp.shape()[0] - 1;
  for (int64_t i = 0; i < c.logp.size(); ++i) {
    const bool masked = i % 3 == 2 || i / tokens == last;
    c.mask.set_int(i, masked ? 0 : 255);
    for (Tensor* tensor : token_tensors(c)) {
      if (masked && tensor->present()) tensor->set(i, kNan);
    }
  }
}

PolicyCase packed_of(const PolicyCase& c) {
  PolicyCase packed = c;
  packed.params.layout = ops::policy_loss::Layout::packed;
  const int64_t sequences = c.logp.shape()[0], tokens = c.logp.shape()[1];
  for (Tensor* tensor : token_tensors(packed)) {
    if (!tensor->present()) continue;
    const Tensor from = *tensor;
    *tensor = Tensor(from.dtype(), {sequences * tokens});
    tensor->fill([&](int64_t i) { return from.get(i); });
  }
  if (c.mask.present()) {
    packed.mask = Tensor(Dtype::u8, {sequences * tokens});
    for (int64_t i = 0; i < sequences * tokens; ++i) packed.mask.set_int(i, c.mask.get_int(i));
  }
  packed.cu_seqlens = Tensor(Dtype::i32, {sequences + 1});
  for (int64_t b = 0; b <= sequences; ++b) packed.cu_seqlens.set_int(b, b * tokens);
  return packed;
}

PolicyOutputs run_policy_loss(const PolicyCase& c, const cpu::ParallelFor& hook) {
  const auto got = run(c, hook);
  PolicyOutputs outputs{got.loss.get(0), got.per_token, {}, got.error};
  for (int64_t i = 0; i < got.metrics.size(); ++i) outputs.metrics.push_back(got.metrics.get(i));
  return outputs;
}

CallOf<ops::PolicyLossBackward> backward_call(const PolicyCase& c) {
  auto call = sdk::backward_of<CallOf<ops::PolicyLossBackward>>(c);
  call.grad_loss = Tensor(accumulator(c.logp.dtype()), {1}).set(0, c.grad_loss);
  call.grad_per_token = c.grad_per_token;
  call.params.clamp_gradient = c.clamp_gradient;
  call.grad_entropy = wanted();
  return call;
}

Result<CallOf<ops::PolicyLossBackward>> run_policy_loss_backward(const PolicyCase& c, const cpu::ParallelFor& hook) {
  return run(backward_call(c), hook);
}

TrainerBatch trainer_batch(const PolicyCase& c) {
  const Matrix lp = matrix_of(c.logp);
  const auto matrix_or = [&](const Tensor& tensor, double number) {
    return tensor.present() ? matrix_of(tensor) : Matrix(lp.size(), Row(lp[0].size(), number));
  };
  TrainerBatch batch;
  batch.lp = batch.sg = lp;
  batch.old = matrix_or(c.old_logp, kNan);
  batch.ref = matrix_or(c.ref_logp, kNan);
  batch.sampled = matrix_or(c.rollout_logp, kNan);
  batch.advantage = matrix_or(c.advantages, kNan);
  batch.entropy = matrix_or(c.entropy, kNan);
  batch.mask = matrix_or(c.mask, 1);
  return batch;
}

void expect_trainer(const PolicyCase& c, const std::function<double(const TrainerBatch&)>& published) {
  const TrainerBatch batch = trainer_batch(c);
  const double expected = published(batch);
  ASSERT_TRUE(std::isfinite(expected));
  const PolicyCase packed = packed_of(c);
  for (const PolicyCase* form : {&c, &packed}) {
    const PolicyOutputs got = run_policy_loss(*form);
    EXPECT_NEAR(got.loss, expected, 1e-12 * (1 + std::fabs(expected)));
    EXPECT_NEAR(golden_answer(*form).loss.value[0], expected, 1e-12 * (1 + std::fabs(expected)));
    const Tensor gradient = run_policy_loss_backward(*form).grad_logp;
    const golden::Output golden_gradient = golden_answer(backward_call(*form)).grad_logp;
    for (size_t b = 0; b < batch.sequences(); ++b) {
      for (size_t t = 0; t < batch.tokens(); ++t) {
        const double got_slope = gradient.get(static_cast<int64_t>(b * batch.tokens() + t));
        EXPECT_NEAR(golden_gradient.value[b * batch.tokens() + t], got_slope, 1e-12 * (1 + std::fabs(got_slope)));
        if (batch.mask[b][t] == 0) {
          EXPECT_EQ(got_slope, 0) << b << ", " << t;
          continue;
        }
        const double step = 1e-5;
        TrainerBatch above = batch, below = batch;
        above.lp[b][t] += step;
        below.lp[b][t] -= step;
        const double slope = (published(above) - published(below)) / (2 * step);
        EXPECT_NEAR(got_slope, slope, 2e-8 * (1 + std::fabs(slope))) << b << ", " << t;
      }
    }
  }
}

double clip(double x, double low, double high) {
  return x < low ? low : x > high ? high : x;
}
double sigmoid(double x) {
  return 1 / (1 + std::exp(-x));
}
Matrix each(const TrainerBatch& batch, const std::function<double(size_t b, size_t t)>& f) {
  Matrix result(batch.sequences(), Row(batch.tokens(), 0.0));
  for (size_t b = 0; b < batch.sequences(); ++b) {
    for (size_t t = 0; t < batch.tokens(); ++t) {
      if (batch.mask[b][t] != 0) result[b][t] = f(b, t);
    }
  }
  return result;
}

}  // namespace rlk::test
