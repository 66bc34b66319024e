// The case as the kernel's arguments and as golden's.
#include "unit/cpu/logp_case.hpp"

namespace rlk::test {
namespace {

cpu::LogpRows rows_of(LogpCase& c) {
  cpu::LogpRows rows;
  rows.n = c.ids.shape()[0];
  rows.logits_rows = c.logits.shape()[0];
  rows.vocab = c.logits.shape()[1];
  rows.ids = c.ids.data();
  rows.ids_are_i64 = c.ids.dtype() == Dtype::i64;
  rows.ids_stride = c.ids.stride(0);
  if (c.mask.present()) {
    rows.mask = static_cast<const uint8_t*>(c.mask.data());
    rows.mask_stride = c.mask.stride(0);
  }
  if (c.row_indices.present()) {
    rows.row_indices = static_cast<const int64_t*>(c.row_indices.data());
    rows.row_indices_stride = c.row_indices.stride(0);
  }
  rows.ignore_index = c.ignore_index;
  rows.vocab_start = c.vocab_start;
  rows.global_vocab = c.global_vocab;
  return rows;
}

template <typename Call>
void set_common(const LogpCase& c, Call& call) {
  call.logits = c.logits.view();
  call.ids = c.ids.view();
  call.bias = c.bias.view();
  call.mask = c.mask.view();
  call.row_indices = c.row_indices.view();
  call.temperature = c.temperature;
  call.softcap = c.softcap;
  call.ignore_index = c.ignore_index;
  call.vocab_start = c.vocab_start;
  call.global_vocab = c.global_vocab;
}

int64_t stride_of(const Tensor& tensor) {
  return tensor.present() ? tensor.stride(0) : 1;
}

}  // namespace

LogpCase make_logp_case(Dtype dtype, int64_t rows, int64_t vocab, uint32_t seed, Strides strides) {
  LogpCase c;
  c.logits = random_tensor(dtype, {rows, vocab}, 4.0, seed, strides);
  c.ids = Tensor(Dtype::i64, {rows}, strides);
  c.output_strides = strides;
  std::mt19937 engine(seed + 1);
  std::uniform_int_distribution<int64_t> id(0, vocab - 1);
  for (int64_t n = 0; n < rows; ++n) c.ids.set_int(n, id(engine));
  return c;
}

void add_gradients(LogpCase& c, bool of_lse, bool of_entropy, uint32_t seed) {
  const int64_t rows = c.ids.shape()[0];
  const Dtype dtype = c.logits.dtype(), wide = accumulator(dtype);
  golden::LogpCall call = golden_call(c);
  call.want_lse = call.want_entropy = true;
  const golden::LogpResult forward = golden::logp(call);
  const auto from = [&](const golden::Output& output) {
    Tensor tensor(wide, {rows}, c.output_strides);
    return tensor.fill([&](int64_t n) { return output.value[static_cast<size_t>(n)]; });
  };
  c.lse = from(forward.lse);
  c.grad_logp = random_tensor(c.narrow_logp ? dtype : wide, {rows}, 1.0, seed, c.output_strides);
  if (of_lse) c.grad_lse = random_tensor(wide, {rows}, 1.0, seed + 1, c.output_strides);
  if (of_entropy) {
    c.grad_entropy = random_tensor(wide, {rows}, 1.0, seed + 2, c.output_strides);
    c.entropy = from(forward.entropy);
  }
}

golden::LogpCall golden_call(const LogpCase& c) {
  golden::LogpCall call;
  set_common(c, call);
  call.want_lse = c.want_lse;
  call.want_entropy = c.want_entropy;
  return call;
}

golden::LogpBackwardCall golden_backward_call(const LogpCase& c) {
  golden::LogpBackwardCall call;
  set_common(c, call);
  call.lse = c.lse.view();
  call.grad_logp = c.grad_logp.view();
  call.grad_lse = c.grad_lse.view();
  call.grad_entropy = c.grad_entropy.view();
  call.entropy = c.entropy.view();
  call.want_grad_bias = c.want_grad_bias;
  return call;
}

LogpOutputs run_logp(LogpCase& c, const cpu::ParallelFor& hook) {
  const int64_t rows = c.ids.shape()[0], vocab = c.logits.shape()[1];
  const Dtype dtype = c.logits.dtype(), wide = accumulator(dtype);
  LogpOutputs outputs;
  outputs.logp = Tensor(c.narrow_logp ? dtype : wide, {rows}, c.output_strides);
  if (c.want_lse) outputs.lse = Tensor(wide, {rows}, c.output_strides);
  if (c.want_entropy) outputs.entropy = Tensor(wide, {rows}, c.output_strides);
  cpu::LogpArgs args;
  args.rows = rows_of(c);
  args.dtype = dtype;
  args.logits = c.logits.data();
  args.row_stride = c.logits.stride(0);
  args.col_stride = c.logits.stride(1);
  args.bias = c.bias.data();
  args.bias_stride = stride_of(c.bias);
  args.logp = outputs.logp.data();
  args.logp_dtype = outputs.logp.dtype();
  args.logp_stride = outputs.logp.stride(0);
  args.lse = outputs.lse.data();
  args.lse_stride = stride_of(outputs.lse);
  args.entropy = outputs.entropy.data();
  args.entropy_stride = stride_of(outputs.entropy);
  args.temperature = c.temperature;
  args.softcap = c.softcap;
  std::vector<int64_t> workspace(static_cast<size_t>(cpu::logp_workspace_bytes(rows, vocab) / 8 + 1));
  args.workspace = workspace.data();
  outputs.error = cpu::logp(args, hook);
  return outputs;
}

LogpBackwardOutputs run_logp_backward(LogpCase& c, const cpu::ParallelFor& hook) {
  const int64_t logits_rows = c.logits.shape()[0], vocab = c.logits.shape()[1];
  const Dtype dtype = c.logits.dtype(), wide = accumulator(dtype);
  LogpBackwardOutputs outputs;
  Tensor logits = c.logits;
  outputs.grad_logits = Tensor(dtype, {logits_rows, vocab}, c.output_strides);
  if (c.want_grad_bias) outputs.grad_bias = Tensor(wide, {vocab}, c.output_strides);
  Tensor& grad = c.in_place ? logits : outputs.grad_logits;
  cpu::LogpBackwardArgs args;
  args.rows = rows_of(c);
  args.dtype = dtype;
  args.logits = logits.data();
  args.row_stride = logits.stride(0);
  args.col_stride = logits.stride(1);
  args.bias = c.bias.data();
  args.bias_stride = stride_of(c.bias);
  args.lse = c.lse.data();
  args.lse_stride = stride_of(c.lse);
  args.grad_logp = c.grad_logp.data();
  args.grad_logp_dtype = c.grad_logp.dtype();
  args.grad_logp_stride = c.grad_logp.stride(0);
  args.grad_lse = c.grad_lse.data();
  args.grad_lse_stride = stride_of(c.grad_lse);
  args.grad_entropy = c.grad_entropy.data();
  args.grad_entropy_stride = stride_of(c.grad_entropy);
  args.entropy = c.entropy.data();
  args.entropy_stride = stride_of(c.entropy);
  args.grad_logits = grad.data();
  args.grad_row_stride = grad.stride(0);
  args.grad_col_stride = grad.stride(1);
  args.grad_bias = outputs.grad_bias.data();
  args.grad_bias_stride = stride_of(outputs.grad_bias);
  args.temperature = c.temperature;
  args.softcap = c.softcap;
  const int64_t bytes = cpu::logp_backward_workspace_bytes(logits_rows, c.row_indices.present());
  std::vector<int64_t> workspace(static_cast<size_t>(bytes / 8 + 1), -7);
  args.workspace = workspace.data();
  outputs.error = cpu::logp_backward(args, hook);
  if (c.in_place) outputs.grad_logits = logits;
  return outputs;
}

}  // namespace rlk::test
