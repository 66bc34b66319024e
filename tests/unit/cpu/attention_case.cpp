// The case as the kernel's arguments and as golden's, and both answers compared.
#include "unit/cpu/attention_case.hpp"

#include "core/cpu/tbb_parallel.hpp"

namespace rlk::test {
namespace {

cpu::AttentionTensor describe(Tensor& tensor, bool is_packed, bool has_d) {
  if (!tensor.present()) return {};
  const int token = is_packed ? 0 : 1;
  return {tensor.data(), is_packed ? 0 : tensor.stride(0), tensor.stride(token), tensor.stride(token + 1),
          has_d ? tensor.stride(token + 2) : 1};
}

// Everything but outputs and workspace.
cpu::AttentionArgs arguments(AttentionCase& c) {
  const size_t token = c.packed() ? 0 : 1;
  cpu::AttentionArgs args;
  args.dtype = c.q.dtype();
  args.q = describe(c.q, c.packed(), true);
  args.k = describe(c.k, c.packed(), true);
  args.v = describe(c.v, c.packed(), true);
  args.packed = c.packed();
  args.batch = c.packed() ? c.cu_seqlens_q.size() - 1 : c.q.shape()[0];
  args.q_tokens = c.q.shape()[token];
  args.k_tokens = c.k.shape()[token];
  args.cu_seqlens_q = c.cu_seqlens_q.data();
  args.cu_seqlens_k = c.cu_seqlens_k.data();
  args.cu_seqlens_are_i64 = c.packed() && c.cu_seqlens_q.dtype() == Dtype::i64;
  args.q_heads = c.q.shape()[token + 1];
  args.kv_heads = c.k.shape()[token + 1];
  args.head_size = c.q.shape()[token + 2];
  args.causal = c.causal;
  args.top_left = c.top_left;
  args.window_left = c.window_left;
  args.window_right = c.window_right;
  args.scale = c.scale;
  args.softcap = c.softcap;
  if (c.key_mask.present()) {
    args.key_mask = static_cast<const uint8_t*>(c.key_mask.data());
    args.key_mask_batch_stride = c.key_mask.stride(0);
    args.key_mask_token_stride = c.key_mask.stride(1);
  }
  return args;
}

std::vector<int64_t> without_d(const Tensor& tensor) {
  std::vector<int64_t> shape = tensor.shape();
  shape.pop_back();
  return shape;
}

void expect_error(const cpu::DataError& got, const golden::DataError& expected) {
  EXPECT_EQ(got.kind, expected.kind);
  EXPECT_EQ(got.row, expected.row);
  EXPECT_EQ(got.value, expected.value);
}

}  // namespace

AttentionCase dense_attention(Dtype dtype, int64_t batch, int64_t queries, int64_t keys, Heads heads, Strides strides) {
  AttentionCase c;
  c.q = random_tensor(dtype, {batch, queries, heads.q, heads.size}, 1.0, 1, strides);
  c.k = random_tensor(dtype, {batch, keys, heads.kv, heads.size}, 1.0, 2, strides);
  c.v = random_tensor(dtype, {batch, keys, heads.kv, heads.size}, 1.0, 3, strides);
  c.output_strides = strides;
  return c;
}

AttentionCase packed_attention(Dtype dtype, const std::vector<int64_t>& q_lengths,
                               const std::vector<int64_t>& k_lengths, Heads heads, Dtype index) {
  const auto cumulate = [index](const std::vector<int64_t>& lengths) {
    Tensor cu(index, {static_cast<int64_t>(lengths.size()) + 1});
    cu.set_int(0, 0);
    for (size_t b = 0; b < lengths.size(); ++b) {
      cu.set_int(static_cast<int64_t>(b) + 1, cu.get_int(static_cast<int64_t>(b)) + lengths[b]);
    }
    return cu;
  };
  AttentionCase c;
  c.cu_seqlens_q = cumulate(q_lengths);
  c.cu_seqlens_k = cumulate(k_lengths);
  const auto batch = static_cast<int64_t>(q_lengths.size());
  c.q = random_tensor(dtype, {c.cu_seqlens_q.get_int(batch), heads.q, heads.size}, 1.0, 1);
  c.k = random_tensor(dtype, {c.cu_seqlens_k.get_int(batch), heads.kv, heads.size}, 1.0, 2);
  c.v = random_tensor(dtype, {c.cu_seqlens_k.get_int(batch), heads.kv, heads.size}, 1.0, 3);
  return c;
}

AttentionOutputs run_attention(AttentionCase& c, const cpu::ParallelFor& hook) {
  AttentionOutputs outputs;
  outputs.out = Tensor(c.q.dtype(), c.q.shape(), c.output_strides);
  outputs.lse = Tensor(accumulator(c.q.dtype()), without_d(c.q), c.output_strides);
  cpu::AttentionArgs args = arguments(c);
  args.out = describe(outputs.out, c.packed(), true);
  args.lse = describe(outputs.lse, c.packed(), false);
  std::vector<int64_t> workspace(static_cast<size_t>(cpu::attention_workspace_bytes(args.batch, args.packed) / 8 + 1));
  args.workspace = workspace.data();
  EXPECT_EQ(cpu::attention(args, hook, &outputs.error), cpu::AttentionStatus::ok);
  return outputs;
}

golden::AttentionCall golden_call(const AttentionCase& c) {
  golden::AttentionCall call;
  call.q = c.q.view();
  call.k = c.k.view();
  call.v = c.v.view();
  call.cu_seqlens_q = c.cu_seqlens_q.view();
  call.cu_seqlens_k = c.cu_seqlens_k.view();
  call.key_mask = c.key_mask.view();
  call.layout = c.packed() ? golden::Layout::packed : golden::Layout::dense;
  call.causal = c.causal ? golden::Causal::on : golden::Causal::off;
  if (c.top_left) call.causal_alignment = golden::CausalAlignment::top_left;
  call.window_left = c.window_left;
  call.window_right = c.window_right;
  call.scale = c.scale;
  call.softcap = c.softcap;
  call.want_lse = true;
  return call;
}

void expect_golden(AttentionCase& c) {
  const golden::AttentionResult expected = golden::attention(golden_call(c));
  const AttentionOutputs got = run_attention(c, cpu::serial_parallel());
  EXPECT_TRUE(matches(got.out, expected.out, c.q.dtype())) << "out";
  EXPECT_TRUE(matches(got.lse, expected.lse, c.q.dtype())) << "lse";
  expect_error(got.error, expected.error);
  for (const cpu::ParallelFor& hook : {cpu::tbb_parallel(), backwards_parallel()}) {
    const AttentionOutputs again = run_attention(c, hook);
    EXPECT_EQ(again.out.bytes(), got.out.bytes());
    EXPECT_EQ(again.lse.bytes(), got.lse.bytes());
  }
}

void add_gradients(AttentionCase& c, bool grad_lse, uint32_t seed) {
  const golden::AttentionResult forward = golden::attention(golden_call(c));
  const auto from = [](const golden::Output& output) {
    return [&output](int64_t flat) { return output.value[static_cast<size_t>(flat)]; };
  };
  const Dtype acc = accumulator(c.q.dtype());
  c.out = Tensor(c.q.dtype(), c.q.shape(), c.output_strides).fill(from(forward.out));
  c.lse = Tensor(acc, without_d(c.q), c.output_strides).fill(from(forward.lse));
  c.grad_out = random_tensor(c.q.dtype(), c.q.shape(), 1.0, seed, c.output_strides);
  if (grad_lse) c.grad_lse = random_tensor(acc, without_d(c.q), 1.0, seed + 1, c.output_strides);
}

AttentionGradients run_attention_backward(AttentionCase& c, const cpu::ParallelFor& hook) {
  AttentionGradients gradients;
  gradients.q = Tensor(c.q.dtype(), c.q.shape(), c.output_strides);
  gradients.k = Tensor(c.k.dtype(), c.k.shape(), c.output_strides);
  gradients.v = Tensor(c.v.dtype(), c.v.shape(), c.output_strides);
  cpu::AttentionBackwardArgs args;
  args.forward = arguments(c);
  args.forward.out = describe(c.out, c.packed(), true);
  args.forward.lse = describe(c.lse, c.packed(), false);
  args.grad_out = describe(c.grad_out, c.packed(), true);
  args.grad_lse = describe(c.grad_lse, c.packed(), false);
  args.grad_q = describe(gradients.q, c.packed(), true);
  args.grad_k = describe(gradients.k, c.packed(), true);
  args.grad_v = describe(gradients.v, c.packed(), true);
  const int64_t bytes = cpu::attention_backward_workspace_bytes(args.forward.batch, c.lse.size(), c.packed());
  std::vector<int64_t> workspace(static_cast<size_t>(bytes / 8 + 1));
  args.forward.workspace = workspace.data();
  EXPECT_EQ(cpu::attention_backward(args, hook, &gradients.error), cpu::AttentionStatus::ok);
  return gradients;
}

golden::AttentionBackwardCall golden_backward_call(const AttentionCase& c) {
  return {golden_call(c), c.out.view(), c.lse.view(), c.grad_out.view(), c.grad_lse.view()};
}

void expect_golden_gradients(AttentionCase& c) {
  const golden::AttentionBackwardResult expected = golden::attention_backward(golden_backward_call(c));
  const AttentionGradients got = run_attention_backward(c, cpu::serial_parallel());
  EXPECT_TRUE(matches(got.q, expected.grad_q, c.q.dtype())) << "grad_q";
  EXPECT_TRUE(matches(got.k, expected.grad_k, c.q.dtype())) << "grad_k";
  EXPECT_TRUE(matches(got.v, expected.grad_v, c.q.dtype())) << "grad_v";
  expect_error(got.error, expected.error);
  for (const cpu::ParallelFor& hook : {cpu::tbb_parallel(), backwards_parallel()}) {
    const AttentionGradients again = run_attention_backward(c, hook);
    EXPECT_EQ(again.q.bytes(), got.q.bytes());
    EXPECT_EQ(again.k.bytes(), got.k.bytes());
    EXPECT_EQ(again.v.bytes(), got.v.bytes());
  }
}

}  // namespace rlk::test
