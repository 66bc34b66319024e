// Random numbers in their shapes, and every output compared.
#include "unit/cpu/attention_case.hpp"

#include <rlk/sdk/forward.hpp>

namespace rlk::test {
namespace {

Strides strides_of(const Tensor& tensor) {
  if (tensor.size() < 2 || tensor.strides().back() == 1) return Strides::contiguous;
  return tensor.strides().back() < 0 ? Strides::reversed : Strides::gaps;
}

std::vector<int64_t> without_d(const Tensor& tensor) {
  std::vector<int64_t> shape = tensor.shape();
  shape.pop_back();
  return shape;
}

template <class Args>
void expect_golden_outputs(const Args& c) {
  const Dtype dtype = c.q.dtype();
  const auto right = golden_answer(c);
  const auto got = run(c);
  EXPECT_EQ(got.error.kind, right.error.kind);
  EXPECT_EQ(got.error.row, right.error.row);
  EXPECT_EQ(got.error.value, right.error.value);
  std::vector<const golden::Output*> expected;
  Args::each_output(right, [&](const golden::Output& output) { expected.push_back(&output); });
  size_t i = 0;
  Args::each_output(got, [&](const Tensor& output) {
    EXPECT_TRUE(matches(output, *expected[i], dtype)) << "output " << i;
    ++i;
  });
  for (const cpu::ParallelFor& hook : {cpu::tbb_parallel(), backwards_parallel()}) {
    std::vector<const Tensor*> outputs;
    Args::each_output(got, [&](const Tensor& output) { outputs.push_back(&output); });
    size_t at = 0;
    const auto again = run(c, hook);
    Args::each_output(again, [&](const Tensor& output) { EXPECT_EQ(output.bytes(), outputs[at++]->bytes()); });
  }
}

}  // namespace

Attention dense_attention(Dtype dtype, int64_t batch, int64_t queries, int64_t keys, Heads heads, Strides strides) {
  Attention c;
  c.q = random_tensor(dtype, {batch, queries, heads.q, heads.size}, 1.0, 1, strides);
  c.k = random_tensor(dtype, {batch, keys, heads.kv, heads.size}, 1.0, 2, strides);
  c.v = random_tensor(dtype, {batch, keys, heads.kv, heads.size}, 1.0, 3, strides);
  c.out = Tensor(dtype, c.q.shape(), strides);
  c.lse = Tensor(accumulator(dtype), without_d(c.q), strides);
  return c;
}

Attention packed_attention(Dtype dtype, const std::vector<int64_t>& q_lengths, const std::vector<int64_t>& k_lengths,
                           Heads heads, Dtype index) {
  const auto cumulate = [index](const std::vector<int64_t>& lengths) {
    Tensor cu(index, {static_cast<int64_t>(lengths.size()) + 1});
    cu.set_int(0, 0);
    for (size_t b = 0; b < lengths.size(); ++b) {
      cu.set_int(static_cast<int64_t>(b) + 1, cu.get_int(static_cast<int64_t>(b)) + lengths[b]);
    }
    return cu;
  };
  Attention c;
  c.params.layout = Layout::packed;
  c.cu_seqlens_q = cumulate(q_lengths);
  c.cu_seqlens_k = cumulate(k_lengths);
  const auto batch = static_cast<int64_t>(q_lengths.size());
  c.q = random_tensor(dtype, {c.cu_seqlens_q.get_int(batch), heads.q, heads.size}, 1.0, 1);
  c.k = random_tensor(dtype, {c.cu_seqlens_k.get_int(batch), heads.kv, heads.size}, 1.0, 2);
  c.v = random_tensor(dtype, {c.cu_seqlens_k.get_int(batch), heads.kv, heads.size}, 1.0, 3);
  c.lse = wanted();
  return c;
}

void expect_golden(const Attention& c) {
  expect_golden_outputs(c);
}
void expect_golden(const AttentionBackward& c) {
  expect_golden_outputs(c);
}

AttentionBackward with_gradients(const Attention& c, bool grad_lse, uint32_t seed) {
  auto backward = sdk::backward_of<AttentionBackward>(c);
  const Strides strides = strides_of(c.q);
  const auto forward = golden_answer(c);
  const auto from = [](const golden::Output& output) {
    return [&output](int64_t flat) { return output.value[static_cast<size_t>(flat)]; };
  };
  const Dtype acc = accumulator(c.q.dtype());
  backward.out = Tensor(c.q.dtype(), c.q.shape(), strides).fill(from(forward.out));
  backward.lse = Tensor(acc, without_d(c.q), strides).fill(from(forward.lse));
  backward.grad_out = random_tensor(c.q.dtype(), c.q.shape(), 1.0, seed, strides);
  if (grad_lse) backward.grad_lse = random_tensor(acc, without_d(c.q), 1.0, seed + 1, strides);
  for (const auto& [input, gradient] : {std::pair{&AttentionBackward::q, &AttentionBackward::grad_q},
                                        {&AttentionBackward::k, &AttentionBackward::grad_k},
                                        {&AttentionBackward::v, &AttentionBackward::grad_v}}) {
    backward.*gradient = Tensor(c.q.dtype(), (backward.*input).shape(), strides);
  }
  return backward;
}

}  // namespace rlk::test
