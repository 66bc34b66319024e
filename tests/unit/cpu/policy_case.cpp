// The case as the kernel's arguments, as golden's and as the trainers' matrices.
#include "unit/cpu/policy_case.hpp"

#include <rlk/ops/policy_loss_backward.h>

#include <bit>
#include <cmath>
#include <limits>

#include "core/cpu/tbb_parallel.hpp"

namespace rlk::test {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

cpu::TokenTensor input_of(Tensor& tensor) {
  if (!tensor.present()) return {};
  const bool padded = tensor.shape().size() == 2;
  return {tensor.data(), tensor.dtype(), padded ? tensor.stride(0) : 0, tensor.stride(padded ? 1 : 0)};
}
cpu::TokenOutput output_of(Tensor& tensor) {
  const cpu::TokenTensor t = input_of(tensor);
  return {tensor.data(), t.dtype, t.sequence_stride, t.token_stride};
}

cpu::PolicyBatch batch_of(PolicyCase& c) {
  cpu::PolicyBatch batch;
  const bool packed = c.cu_seqlens.present();
  batch.options = c.options;
  batch.sequences = packed ? c.cu_seqlens.size() - 1 : c.logp.shape()[0];
  batch.tokens = c.logp.shape()[packed ? 0 : 1];
  batch.logp = input_of(c.logp);
  batch.advantages = input_of(c.advantages);
  batch.old_logp = input_of(c.old_logp);
  batch.ref_logp = input_of(c.ref_logp);
  batch.rollout_logp = input_of(c.rollout_logp);
  batch.entropy = input_of(c.entropy);
  batch.weight = input_of(c.weight);
  if (c.sequence_advantages.present()) {
    batch.sequence_advantages = {c.sequence_advantages.data(), c.sequence_advantages.dtype(),
                                 c.sequence_advantages.stride(0), 0};
  }
  if (packed) batch.cu_seqlens = {c.cu_seqlens.data(), c.cu_seqlens.dtype() == Dtype::i64, c.cu_seqlens.stride(0)};
  if (c.mask.present()) {
    batch.mask = static_cast<const uint8_t*>(c.mask.data());
    batch.mask_sequence_stride = packed ? 0 : c.mask.stride(0);
    batch.mask_token_stride = c.mask.stride(packed ? 0 : 1);
  }
  return batch;
}

std::vector<Tensor*> token_tensors(PolicyCase& c) {
  return {&c.logp, &c.advantages, &c.old_logp, &c.ref_logp, &c.rollout_logp, &c.entropy, &c.weight, &c.grad_per_token};
}

Matrix matrix_of(const Tensor& tensor, size_t sequences, size_t tokens) {
  Matrix matrix(sequences, Row(tokens, kNan));
  for (size_t i = 0; i < sequences * tokens && tensor.present(); ++i) {
    const auto flat = static_cast<int64_t>(i);
    matrix[i / tokens][i % tokens] =
        tensor.dtype() == Dtype::u8 ? (tensor.get_int(flat) != 0 ? 1.0 : 0.0) : tensor.get(flat);
  }
  return matrix;
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

PolicyOutputs run_policy_loss(PolicyCase& c, const cpu::ParallelFor& hook) {
  PolicyOutputs outputs;
  outputs.per_token = Tensor(c.logp.dtype(), c.logp.shape(), c.output_strides);
  outputs.metrics.assign(cpu::kPolicyMetrics, kNan);
  cpu::PolicyLossArgs args;
  args.batch = batch_of(c);
  args.loss = &outputs.loss;
  args.per_token = output_of(outputs.per_token);
  args.metrics = outputs.metrics.data();
  args.scalar_dtype = cpu::Dtype::f64;
  std::vector<double> workspace(static_cast<size_t>(
      cpu::policy_loss_workspace_bytes(args.batch.options, args.batch.sequences, c.logp.size()) / 8 + 1));
  args.workspace = workspace.data();
  outputs.error = cpu::policy_loss(args, hook);
  return outputs;
}

PolicyGradients run_policy_loss_backward(PolicyCase& c, const cpu::ParallelFor& hook) {
  PolicyGradients gradients;
  gradients.logp = Tensor(c.logp.dtype(), c.logp.shape(), c.output_strides);
  gradients.entropy = Tensor(c.logp.dtype(), c.logp.shape(), c.output_strides);
  cpu::PolicyLossBackwardArgs args;
  args.batch = batch_of(c);
  args.grad_loss = c.grad_loss;
  args.grad_per_token = input_of(c.grad_per_token);
  args.grad_logp = output_of(gradients.logp);
  args.grad_entropy = output_of(gradients.entropy);
  std::vector<int64_t> workspace(static_cast<size_t>(
      cpu::policy_loss_backward_workspace_bytes(args.batch.options, args.batch.sequences, c.logp.size()) / 8 + 1));
  args.workspace = workspace.data();
  gradients.error = cpu::policy_loss_backward(args, hook);
  return gradients;
}

rlk_policy_loss_params policy_params(const PolicyCase& c) {
  const cpu::PolicyOptions& o = c.options;
  rlk_policy_loss_params p = RLK_POLICY_LOSS_PARAMS_INIT;
  p.layout = c.cu_seqlens.present() ? RLK_POLICY_LOSS_LAYOUT_PACKED : RLK_POLICY_LOSS_LAYOUT_DENSE;
  p.kind = static_cast<int64_t>(o.kind);
  p.importance_ratio = static_cast<int64_t>(o.importance_ratio);
  p.clip_form = static_cast<int64_t>(o.clip_form);
  p.clip_low = o.clip_low;
  p.clip_high = o.clip_high;
  p.delta = o.delta;
  p.dual_clip = o.dual_clip;
  p.log_ratio_clamp_low = o.log_ratio_clamp_low;
  p.log_ratio_clamp_high = o.log_ratio_clamp_high;
  p.sapo_tau_positive = o.sapo_tau_positive;
  p.sapo_tau_negative = o.sapo_tau_negative;
  p.vespo_k_positive = o.vespo_k_positive;
  p.vespo_lambda_positive = o.vespo_lambda_positive;
  p.vespo_k_negative = o.vespo_k_negative;
  p.vespo_lambda_negative = o.vespo_lambda_negative;
  p.dro_beta = o.dro_beta;
  p.beta = o.beta;
  p.kl_kind = static_cast<int64_t>(o.kl_kind);
  p.kl_gradient = static_cast<int64_t>(o.kl_gradient);
  p.kl_diff_clamp = o.kl_diff_clamp;
  p.kl_value_clamp = o.kl_value_clamp;
  p.kl_bias_correction = o.kl_bias_correction ? 1 : 0;
  p.entropy_coefficient = o.entropy_coefficient;
  p.entropy_aggregation = static_cast<int64_t>(o.entropy_aggregation);
  p.entropy_denominator = o.entropy_denominator;
  p.top_entropy_quantile = o.top_entropy_quantile;
  p.least_entropy = o.least_entropy;
  p.rollout_is = static_cast<int64_t>(o.rollout_is);
  p.rollout_is_min = o.rollout_is_min;
  p.rollout_is_max = o.rollout_is_max;
  p.rollout_ratio = static_cast<int64_t>(o.rollout_ratio);
  p.rollout_log_clamp = o.rollout_log_clamp;
  p.rollout_is_normalize = o.rollout_is_normalize ? 1 : 0;
  p.rollout_is_mean = o.rollout_is_mean;
  p.reject_token_k1_low = o.reject_token.k1_low;
  p.reject_token_k1_high = o.reject_token.k1_high;
  p.reject_token_k2_high = o.reject_token.k2_high;
  p.reject_token_k3_high = o.reject_token.k3_high;
  p.reject_sequence_sum_k1_low = o.reject_sequence_sum.k1_low;
  p.reject_sequence_sum_k1_high = o.reject_sequence_sum.k1_high;
  p.reject_sequence_sum_k2_high = o.reject_sequence_sum.k2_high;
  p.reject_sequence_sum_k3_high = o.reject_sequence_sum.k3_high;
  p.reject_sequence_mean_k1_low = o.reject_sequence_mean.k1_low;
  p.reject_sequence_mean_k1_high = o.reject_sequence_mean.k1_high;
  p.reject_sequence_mean_k2_high = o.reject_sequence_mean.k2_high;
  p.reject_sequence_mean_k3_high = o.reject_sequence_mean.k3_high;
  p.reject_sequence_max_k2_high = o.reject_sequence_max.k2_high;
  p.reject_sequence_max_k3_high = o.reject_sequence_max.k3_high;
  p.opsm = static_cast<int64_t>(o.opsm);
  p.opsm_threshold = o.opsm_threshold;
  p.aggregation = static_cast<int64_t>(o.aggregation);
  p.denominator = o.denominator;
  p.exclude_empty_sequences = o.exclude_empty_sequences ? 1 : 0;
  p.seq_denominator_floor = o.seq_denominator_floor;
  return p;
}

golden::Answer golden_policy_loss(const PolicyCase& c) {
  const golden::View inputs[] = {c.logp.view(),      c.advantages.view(), c.old_logp.view(),
                                 c.mask.view(),      c.ref_logp.view(),   c.rollout_logp.view(),
                                 c.entropy.view(),   c.weight.view(),     c.sequence_advantages.view(),
                                 c.cu_seqlens.view()};
  const rlk_policy_loss_params params = policy_params(c);
  return golden::find("policy_loss")({inputs, &params, 7});
}

golden::Answer golden_policy_loss_backward(const PolicyCase& c) {
  Tensor grad_loss(Dtype::f64, {1});
  grad_loss.set(0, c.grad_loss);
  const golden::View inputs[] = {c.logp.view(),         c.advantages.view(),     grad_loss.view(),
                                 c.old_logp.view(),     c.mask.view(),           c.ref_logp.view(),
                                 c.rollout_logp.view(), c.weight.view(),         c.sequence_advantages.view(),
                                 c.cu_seqlens.view(),   c.grad_per_token.view(), c.entropy.view()};
  const auto params = std::bit_cast<rlk_policy_loss_backward_params>(policy_params(c));
  return golden::find("policy_loss_backward")({inputs, &params, 3});
}

TrainerBatch trainer_batch(const PolicyCase& c) {
  const auto sequences = static_cast<size_t>(c.logp.shape()[0]), tokens = static_cast<size_t>(c.logp.shape()[1]);
  TrainerBatch batch;
  batch.lp = batch.sg = matrix_of(c.logp, sequences, tokens);
  batch.old = matrix_of(c.old_logp, sequences, tokens);
  batch.ref = matrix_of(c.ref_logp, sequences, tokens);
  batch.sampled = matrix_of(c.rollout_logp, sequences, tokens);
  batch.advantage = matrix_of(c.advantages, sequences, tokens);
  batch.entropy = matrix_of(c.entropy, sequences, tokens);
  batch.mask = c.mask.present() ? matrix_of(c.mask, sequences, tokens) : Matrix(sequences, Row(tokens, 1.0));
  return batch;
}

void expect_trainer(PolicyCase& c, const std::function<double(const TrainerBatch&)>& published) {
  const TrainerBatch batch = trainer_batch(c);
  const double expected = published(batch);
  ASSERT_TRUE(std::isfinite(expected));
  PolicyCase packed = packed_of(c);
  for (PolicyCase* form : {&c, &packed}) {
    const PolicyOutputs got = run_policy_loss(*form, cpu::serial_parallel());
    EXPECT_NEAR(got.loss, expected, 1e-12 * (1 + std::fabs(expected)));
    EXPECT_NEAR(golden_policy_loss(*form).outputs[0].value[0], expected, 1e-12 * (1 + std::fabs(expected)));
    const PolicyGradients gradients = run_policy_loss_backward(*form, cpu::serial_parallel());
    const golden::Output golden_gradient = golden_policy_loss_backward(*form).outputs[0];
    for (size_t b = 0; b < batch.sequences(); ++b) {
      for (size_t t = 0; t < batch.tokens(); ++t) {
        const double got_slope = gradients.logp.get(static_cast<int64_t>(b * batch.tokens() + t));
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

double tokens_of(const Row& mask) {
  double n = 0;
  for (const double m : mask) n += m;
  return n;
}
double tokens_of(const Matrix& mask) {
  double n = 0;
  for (const Row& row : mask) n += tokens_of(row);
  return n;
}
double row_sum(const Row& a, const Row& mask) {
  double sum = 0;
  for (size_t t = 0; t < a.size(); ++t) sum += mask[t] != 0 ? a[t] : 0.0;
  return sum;
}
double sum_of(const Matrix& a, const Matrix& mask) {
  double sum = 0;
  for (size_t b = 0; b < a.size(); ++b) sum += row_sum(a[b], mask[b]);
  return sum;
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
