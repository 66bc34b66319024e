// The case as the kernel's arguments and as golden's; a shard or a row of it as a case.
#include "unit/cpu/linear_case.hpp"

#include <rlk/ops/linear_logp.h>
#include <rlk/ops/linear_logp_backward.h>

namespace rlk::test {
namespace {

cpu::LogpRows rows_of(LinearCase& c) {
  cpu::LogpRows rows;
  rows.n = rows.logits_rows = c.rows();
  rows.vocab = c.vocab();
  rows.ids = c.ids.data();
  rows.ids_are_i64 = c.ids.dtype() == Dtype::i64;
  rows.ids_stride = c.ids.stride(0);
  if (c.mask.present()) {
    rows.mask = static_cast<const uint8_t*>(c.mask.data());
    rows.mask_stride = c.mask.stride(0);
  }
  rows.ignore_index = c.ignore_index;
  rows.vocab_start = c.vocab_start;
  rows.global_vocab = c.global_vocab;
  return rows;
}

template <typename Args>
void set_common(LinearCase& c, Args& args) {
  args.rows = rows_of(c);
  args.dtype = c.dtype();
  args.depth = c.depth();
  args.hidden = {c.hidden.data(), c.hidden.stride(0), c.hidden.stride(1)};
  args.weight = {c.weight.data(), c.weight.stride(0), c.weight.stride(1)};
  args.bias = c.bias.data();
  args.bias_stride = c.bias.present() ? c.bias.stride(0) : 1;
  args.temperature = c.temperature;
  args.softcap = c.softcap;
}
template <typename Params>
void set_params(const LinearCase& c, Params& params) {
  params.temperature = c.temperature;
  params.softcap = c.softcap;
  params.ignore_index = c.ignore_index;
  params.vocab_start = c.vocab_start;
  params.global_vocab = c.global_vocab;
}

cpu::LinearSizes sizes_of(const LinearCase& c) {
  return {c.dtype(), c.rows(), c.vocab(), c.depth(), c.temperature, c.softcap};
}
// Never all zeros: a kernel that reads what it did not write is seen.
std::vector<int64_t> workspace_of(int64_t bytes) {
  return std::vector<int64_t>(static_cast<size_t>(bytes / 8 + 1), -7);
}

}  // namespace

LinearCase make_linear_case(Dtype dtype, int64_t rows, int64_t vocab, int64_t depth, uint32_t seed, Strides strides) {
  LinearCase c;
  c.hidden = random_tensor(dtype, {rows, depth}, 1.0, seed, strides);
  c.weight = random_tensor(dtype, {vocab, depth}, 0.5, seed + 1, strides);
  c.ids = Tensor(Dtype::i64, {rows}, strides);
  c.output_strides = strides;
  std::mt19937 engine(seed + 2);
  std::uniform_int_distribution<int64_t> id(0, vocab - 1);
  for (int64_t n = 0; n < rows; ++n) c.ids.set_int(n, id(engine));
  return c;
}

void add_gradients(LinearCase& c, bool of_lse, bool of_entropy, uint32_t seed) {
  const Dtype wide = accumulator(c.dtype());
  const golden::Answer forward = golden_linear(c);
  const auto from = [&](int output) {
    const std::vector<double>& value = forward.outputs[static_cast<size_t>(output)].value;
    return Tensor(wide, {c.rows()}, c.output_strides).fill([&](int64_t n) { return value[static_cast<size_t>(n)]; });
  };
  c.lse = from(RLK_LINEAR_LOGP_OUT_LSE);
  c.grad_logp = random_tensor(c.narrow_logp ? c.dtype() : wide, {c.rows()}, 1.0, seed, c.output_strides);
  if (of_lse) c.grad_lse = random_tensor(wide, {c.rows()}, 1.0, seed + 1, c.output_strides);
  if (of_entropy) {
    c.grad_entropy = random_tensor(wide, {c.rows()}, 1.0, seed + 2, c.output_strides);
    c.entropy = from(RLK_LINEAR_LOGP_OUT_ENTROPY);
  }
}

LinearCase shard_of(const LinearCase& c, int64_t begin, int64_t end) {
  LinearCase shard = c;
  const int64_t depth = c.depth();
  shard.weight =
      Tensor(c.dtype(), {end - begin, depth}).fill([&](int64_t i) { return c.weight.get(begin * depth + i); });
  if (c.bias.present()) {
    shard.bias = Tensor(c.dtype(), {end - begin}).fill([&](int64_t v) { return c.bias.get(begin + v); });
  }
  shard.vocab_start = begin;
  shard.global_vocab = c.vocab();
  return shard;
}

LinearCase row_of(const LinearCase& c, int64_t row) {
  LinearCase alone = c;
  const int64_t depth = c.depth();
  alone.hidden = Tensor(c.dtype(), {1, depth}).fill([&](int64_t d) { return c.hidden.get(row * depth + d); });
  alone.ids = Tensor(Dtype::i64, {1}).set_int(0, c.ids.get_int(row));
  for (Tensor* tensor : {&alone.lse, &alone.grad_logp, &alone.grad_lse, &alone.grad_entropy, &alone.entropy}) {
    if (tensor->present()) *tensor = Tensor(tensor->dtype(), {1}).set(0, tensor->get(row));
  }
  return alone;
}

LinearOutputs run_linear(LinearCase& c, const cpu::ParallelFor& hook) {
  const Dtype wide = accumulator(c.dtype());
  LinearOutputs outputs;
  outputs.logp = Tensor(c.narrow_logp ? c.dtype() : wide, {c.rows()}, c.output_strides);
  if (c.want_lse) outputs.lse = Tensor(wide, {c.rows()}, c.output_strides);
  if (c.want_entropy) outputs.entropy = Tensor(wide, {c.rows()}, c.output_strides);
  cpu::LinearLogpArgs args;
  set_common(c, args);
  args.logp = outputs.logp.data();
  args.logp_dtype = outputs.logp.dtype();
  args.logp_stride = outputs.logp.stride(0);
  args.lse = outputs.lse.data();
  args.lse_stride = c.want_lse ? outputs.lse.stride(0) : 1;
  args.entropy = outputs.entropy.data();
  args.entropy_stride = c.want_entropy ? outputs.entropy.stride(0) : 1;
  std::vector<int64_t> workspace = workspace_of(cpu::linear_logp_workspace_bytes(sizes_of(c)));
  args.workspace = workspace.data();
  EXPECT_EQ(cpu::linear_logp(args, hook, &outputs.error), cpu::LinearStatus::ok);
  return outputs;
}

LinearGradients run_linear_backward(LinearCase& c, const cpu::ParallelFor& hook) {
  const Dtype wide = accumulator(c.dtype());
  LinearGradients grads;
  grads.hidden = Tensor(c.wide_grad_hidden ? wide : c.dtype(), {c.rows(), c.depth()}, c.output_strides);
  if (c.want_grad_weight) grads.weight = Tensor(wide, {c.vocab(), c.depth()}, c.output_strides);
  if (c.want_grad_bias) grads.bias = Tensor(wide, {c.vocab()}, c.output_strides);
  const auto row_input = [](Tensor& tensor) {
    if (!tensor.present()) return cpu::LinearRowInput{};
    return cpu::LinearRowInput{tensor.data(), tensor.dtype(), tensor.stride(0)};
  };
  const auto matrix = [](Tensor& tensor) {
    if (!tensor.present()) return cpu::LinearGradMatrix{};
    return cpu::LinearGradMatrix{tensor.data(), tensor.dtype(), tensor.stride(0), tensor.stride(1)};
  };
  cpu::LinearLogpBackwardArgs args;
  set_common(c, args);
  args.lse = row_input(c.lse);
  args.grad_logp = row_input(c.grad_logp);
  args.grad_lse = row_input(c.grad_lse);
  args.grad_entropy = row_input(c.grad_entropy);
  args.entropy = row_input(c.entropy);
  args.grad_hidden = matrix(grads.hidden);
  args.grad_weight = matrix(grads.weight);
  args.grad_bias = grads.bias.data();
  args.grad_bias_stride = c.want_grad_bias ? grads.bias.stride(0) : 1;
  std::vector<int64_t> workspace =
      workspace_of(cpu::linear_logp_backward_workspace_bytes(sizes_of(c), c.want_grad_bias));
  args.workspace = workspace.data();
  EXPECT_EQ(cpu::linear_logp_backward(args, hook, &grads.error), cpu::LinearStatus::ok);
  return grads;
}

golden::Answer golden_linear(const LinearCase& c) {
  rlk_linear_logp_params params = RLK_LINEAR_LOGP_PARAMS_INIT;
  set_params(c, params);
  const std::vector<golden::View> inputs = {c.hidden.view(), c.weight.view(), c.ids.view(), c.bias.view(),
                                            c.mask.view()};
  return golden::find("linear_logp")({inputs, &params, 7});
}

golden::Answer golden_linear_backward(const LinearCase& c) {
  rlk_linear_logp_backward_params params = RLK_LINEAR_LOGP_BACKWARD_PARAMS_INIT;
  set_params(c, params);
  const std::vector<golden::View> inputs = {
      c.hidden.view(),   c.weight.view(),       c.ids.view(),     c.lse.view(),  c.grad_logp.view(),
      c.grad_lse.view(), c.grad_entropy.view(), c.entropy.view(), c.bias.view(), c.mask.view()};
  return golden::find("linear_logp_backward")({inputs, &params, 7});
}

}  // namespace rlk::test
