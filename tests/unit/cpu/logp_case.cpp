// The case as a call with outputs of the layout that it asks for.
#include <rlk/sdk/ops/logp.hpp>
#include <rlk/sdk/ops/logp_backward.hpp>

#include "unit/cpu/logp_case.hpp"

#include <rlk/sdk/forward.hpp>

namespace rlk::test {
namespace {

CallOf<ops::Logp> forward_call(const LogpCase& c) {
  auto call = sdk::forward_of<CallOf<ops::Logp>>(c);
  const Dtype dtype = c.logits.dtype(), wide = accumulator(dtype);
  call.logp = Tensor(c.narrow_logp ? dtype : wide, c.ids.shape(), c.output_strides);
  if (c.want_lse) call.lse = Tensor(wide, c.ids.shape(), c.output_strides);
  if (c.want_entropy) call.entropy = Tensor(wide, c.ids.shape(), c.output_strides);
  return call;
}

CallOf<ops::LogpBackward> backward_call(const LogpCase& c) {
  CallOf<ops::LogpBackward> call = c;
  const Dtype dtype = c.logits.dtype();
  call.grad_logits = c.in_place ? c.logits : Tensor(dtype, c.logits.shape(), c.output_strides);
  if (c.want_grad_bias) call.grad_bias = Tensor(accumulator(dtype), {c.logits.shape()[1]}, c.output_strides);
  return call;
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
  const std::vector<int64_t>& rows = c.ids.shape();
  const Dtype dtype = c.logits.dtype(), wide = accumulator(dtype);
  LogpCase of_all = c;
  of_all.want_lse = of_all.want_entropy = true;
  const auto forward = golden_logp(of_all);
  const auto from = [&](const golden::Output& output) {
    return Tensor(wide, rows, c.output_strides).fill([&](int64_t n) { return output.value[static_cast<size_t>(n)]; });
  };
  c.lse = from(forward.lse);
  c.grad_logp = random_tensor(c.narrow_logp ? dtype : wide, rows, 1.0, seed, c.output_strides);
  if (of_lse) c.grad_lse = random_tensor(wide, rows, 1.0, seed + 1, c.output_strides);
  if (of_entropy) {
    c.grad_entropy = random_tensor(wide, rows, 1.0, seed + 2, c.output_strides);
    c.entropy = from(forward.entropy);
  }
}

LogpOutputs run_logp(const LogpCase& c, const cpu::ParallelFor& hook) {
  return run(forward_call(c), hook);
}

LogpBackwardOutputs run_logp_backward(const LogpCase& c, const cpu::ParallelFor& hook) {
  const auto call = backward_call(c);
  using Call = CallOf<ops::LogpBackward>;
  return c.in_place ? run(call, hook, &Call::grad_logits, &Call::logits) : run(call, hook);
}

GoldenResult<ops::Logp> golden_logp(const LogpCase& c) {
  return golden_answer(forward_call(c));
}

GoldenResult<ops::LogpBackward> golden_logp_backward(const LogpCase& c) {
  return golden_answer(backward_call(c));
}

}  // namespace rlk::test
