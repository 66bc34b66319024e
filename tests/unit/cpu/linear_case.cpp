// The case as a call with outputs of the layout that it asks for; a shard or a row of it as a case.
#include <rlk/sdk/ops/linear_logp.hpp>
#include <rlk/sdk/ops/linear_logp_backward.hpp>

#include "unit/cpu/linear_case.hpp"

#include <rlk/sdk/forward.hpp>

namespace rlk::test {
namespace {

CallOf<ops::LinearLogp> forward_call(const LinearCase& c) {
  auto call = sdk::forward_of<CallOf<ops::LinearLogp>>(c);
  const Dtype wide = accumulator(c.dtype());
  call.logp = Tensor(c.narrow_logp ? c.dtype() : wide, {c.rows()}, c.output_strides);
  if (c.want_lse) call.lse = Tensor(wide, {c.rows()}, c.output_strides);
  if (c.want_entropy) call.entropy = Tensor(wide, {c.rows()}, c.output_strides);
  return call;
}

CallOf<ops::LinearLogpBackward> backward_call(const LinearCase& c) {
  CallOf<ops::LinearLogpBackward> call = c;
  const Dtype wide = accumulator(c.dtype());
  call.grad_hidden = Tensor(c.wide_grad_hidden ? wide : c.dtype(), {c.rows(), c.depth()}, c.output_strides);
  if (c.want_grad_weight) call.grad_weight = Tensor(wide, {c.vocab(), c.depth()}, c.output_strides);
  if (c.want_grad_bias) call.grad_bias = Tensor(wide, {c.vocab()}, c.output_strides);
  return call;
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
  LinearCase of_all = c;
  of_all.want_lse = of_all.want_entropy = true;
  const auto forward = golden_linear(of_all);
  const auto from = [&](const golden::Output& output) {
    return Tensor(wide, {c.rows()}, c.output_strides).fill([&](int64_t n) {
      return output.value[static_cast<size_t>(n)];
    });
  };
  c.lse = from(forward.lse);
  c.grad_logp = random_tensor(c.narrow_logp ? c.dtype() : wide, {c.rows()}, 1.0, seed, c.output_strides);
  if (of_lse) c.grad_lse = random_tensor(wide, {c.rows()}, 1.0, seed + 1, c.output_strides);
  if (of_entropy) {
    c.grad_entropy = random_tensor(wide, {c.rows()}, 1.0, seed + 2, c.output_strides);
    c.entropy = from(forward.entropy);
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
  shard.params.vocab_start = begin;
  shard.params.global_vocab = c.vocab();
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

LinearOutputs run_linear(const LinearCase& c, const cpu::ParallelFor& hook) {
  return run(forward_call(c), hook);
}
LinearGradients run_linear_backward(const LinearCase& c, const cpu::ParallelFor& hook) {
  return run(backward_call(c), hook);
}
GoldenResult<ops::LinearLogp> golden_linear(const LinearCase& c) {
  return golden_answer(forward_call(c));
}
GoldenResult<ops::LinearLogpBackward> golden_linear_backward(const LinearCase& c) {
  return golden_answer(backward_call(c));
}

}  // namespace rlk::test
